//! Confirmations that wait until the view has reached the head that they saw.
//!
//! Where entries come from the authority itself, one waits at a time. A standby may be behind by more than the
//! time between two questions, so several wait, and two of them matter: the oldest, which is reached first (if
//! each new one took its place, a replay that is always a second behind would never prove anything), and the
//! newest, for which a reader may wait. Those between only make the proven age finer, and are thinned out when
//! there are too many.

use std::collections::VecDeque;
use std::time::Duration;

use super::super::freshness::Proof;
use crate::clock::Moment;
use crate::ledger::{Head, HeadReport};

/// So many wait; a replay that is behind by any time is then proven to within a tenth of that time.
const KEPT: usize = 32;

/// What an authority said of its head, when it was asked at `t0`.
#[derive(Debug, Clone)]
pub(super) struct Confirmation {
    pub t0: Moment,
    pub head: Head,
    /// What is proven once the head is reached; `None`: nothing, since the authority is not proven itself.
    pub proof: Option<Proof>,
}

impl Confirmation {
    pub(super) fn new(t0: Moment, report: &HeadReport) -> Self {
        let proof = |age: Duration| Proof {
            at: t0.before(age),
            authority_wall: report.wall,
            service: report.service,
            hops: report.hops,
        };
        Self { t0, head: report.head, proof: report.age.map(proof) }
    }
}

/// In the order of heads, and so of moments.
#[derive(Debug, Default)]
pub(super) struct Pending {
    queue: VecDeque<Confirmation>,
}

impl Pending {
    pub(super) fn push(&mut self, new: Confirmation) {
        // What saw a later head than this one saw it in a history that is not the authority's any more.
        while self.queue.back().is_some_and(|last| last.head.seq > new.head.seq) {
            self.queue.pop_back();
        }
        match self.queue.back_mut() {
            Some(last) if last.head.seq == new.head.seq => *last = later(last.clone(), new),
            _ => self.queue.push_back(new),
        }
        if self.queue.len() > KEPT {
            let last = self.queue.len() - 1;
            let mut index = 0;
            self.queue.retain(|_| {
                index += 1;
                (index - 1) % 2 == 0 || index - 1 == last
            });
        }
    }

    /// The oldest one whose head is at most `seq`.
    pub(super) fn reached(&mut self, seq: u64) -> Option<Confirmation> {
        if self.queue.front()?.head.seq > seq {
            return None;
        }
        self.queue.pop_front()
    }

    /// Whether one saw exactly this head.
    pub(super) fn saw(&self, head: &Head) -> bool {
        self.queue
            .binary_search_by_key(&head.seq, |waiting| waiting.head.seq)
            .is_ok_and(|index| self.queue[index].head == *head)
    }

    pub(super) fn clear(&mut self) {
        self.queue.clear();
    }
}

/// Of two that saw heads of one number: the newer, unless the older is of the same head and proves more.
fn later(old: Confirmation, new: Confirmation) -> Confirmation {
    let proves_less = match (&old.proof, &new.proof) {
        (Some(old), Some(new)) => !new.at.at_or_after(&old.at),
        (Some(_), None) => true,
        (None, _) => false,
    };
    if old.head == new.head && proves_less { old } else { new }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::clock::{Clock, Hands};
    use crate::terms::{Digest, Timestamp};

    struct World {
        hands: Arc<Hands>,
        clock: Clock,
        pending: Pending,
    }

    fn world() -> World {
        let hands = Arc::new(Hands::default());
        World { clock: Clock::Manual(Arc::clone(&hands)), hands, pending: Pending::default() }
    }

    impl World {
        fn see(&mut self, seq: u64) {
            let report = HeadReport {
                ledger_id: "ledger".to_owned(),
                in_recovery: false,
                head: Head { seq, digest: Digest::of(&seq.to_be_bytes()) },
                tag_at_asked: None,
                wall: Timestamp::from_micros(0),
                age: Some(Duration::ZERO),
                hops: 0,
                service: Duration::ZERO,
            };
            self.pending.push(Confirmation::new(self.clock.now(), &report));
        }

        fn reach(&mut self, seq: u64) -> Option<Duration> {
            let mut newest = None;
            while let Some(reached) = self.pending.reached(seq) {
                newest = Some(reached);
            }
            newest.map(|reached| self.clock.now().since(&reached.t0))
        }
    }

    #[test]
    fn a_replay_that_is_always_behind_proves_with_its_true_age() {
        for behind in [1u64, 10, 400, 5_000] {
            let mut w = world();
            let mut proofs = Vec::new();
            for now in 0..3 * behind {
                w.hands.advance_boot(Duration::from_millis(100));
                w.see(now);
                if let Some(applied) = now.checked_sub(behind) {
                    proofs.extend(w.reach(applied));
                }
            }
            let truth = Duration::from_millis(100 * behind);
            let worst = proofs.iter().max().copied().unwrap_or_default();
            assert!(!proofs.is_empty(), "{behind} behind: never proven");
            assert!(proofs.iter().all(|age| *age >= truth), "{behind} behind: younger than it is");
            assert!(worst <= truth + truth.max(Duration::from_millis(100)) / 3, "{behind} behind: {worst:?}");
        }
    }

    #[test]
    fn of_one_head_the_newest_is_kept_and_a_full_queue_keeps_both_ends() {
        let mut w = world();
        for _ in 0..1_000 {
            w.see(7);
            w.hands.advance_boot(Duration::from_millis(1));
        }
        assert_eq!(w.pending.queue.len(), 1);
        assert!(w.reach(7).unwrap() < Duration::from_millis(2));
        for seq in 1..=1_000 {
            w.see(seq);
            assert!(w.pending.queue.len() <= KEPT);
            assert_eq!(w.pending.queue.back().unwrap().head.seq, seq);
        }
        assert_eq!(w.pending.queue.front().unwrap().head.seq, 1);
        let head = |seq: u64| Head { seq, digest: Digest::of(&seq.to_be_bytes()) };
        assert!(w.pending.saw(&head(1_000)) && !w.pending.saw(&head(999_999)));
        assert!(!w.pending.saw(&Head { seq: 1_000, ..head(999) }));
    }

    #[test]
    fn a_head_that_went_back_takes_later_ones_along() {
        let mut w = world();
        for seq in [3, 5, 9, 5] {
            w.see(seq);
        }
        let left: Vec<u64> = w.pending.queue.iter().map(|waiting| waiting.head.seq).collect();
        assert_eq!(left, [3, 5]);
    }
}
