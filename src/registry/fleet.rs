//! What hangs below this node, and what it passes on of it: itself, those that lag most, and how many more.
//!
//! A report that arrives is kept in memory for as long as its replicas count, and goes on in this node's own next
//! report, older by the time that it was held here. At most [`REPORTED_MAX`] replicas are named at a hop, those
//! that had applied least first; what is left out is a number, and a position that all of it had reached. So a
//! tree of any size costs each hop the same, and whoever waits for all of it waits for those that lag.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, Notify};
use tokio::time::Instant;

use crate::clock::Moment;
use crate::ledger::{Error, Omitted, REPORTED_MAX, Replica, Replicas};
use crate::terms::Position;

/// A replica that was silent for longer does not count any more.
pub(super) const COUNTED: Duration = Duration::from_secs(60);

/// Replicas below one node.
const BELOW_MAX: usize = 16_384;

/// How far back a look at who has reported goes: those that counted when the longest wait began are in it still.
const LOOKED_BACK: Duration = Duration::from_secs(2 * 60 + 5);

/// What a node knows of those below, and where reports go.
#[derive(Debug)]
pub(super) struct Fleet {
    pub(super) replicas: Arc<dyn Replicas>,
    below: Mutex<Below>,
    /// Somebody below has moved.
    pub(super) moved: Notify,
    looked: AsyncMutex<Option<Look>>,
}

/// Who had reported, and when that was asked. Shared by all who wait, so that they ask no oftener than one would.
#[derive(Debug)]
struct Look {
    began: Instant,
    found: Arc<Vec<Replica>>,
}

/// No room for more replicas below this node.
#[derive(Debug)]
pub(super) struct TooMany;

impl Fleet {
    pub(super) fn new(replicas: Arc<dyn Replicas>) -> Self {
        Self { replicas, below: Mutex::default(), moved: Notify::new(), looked: AsyncMutex::default() }
    }

    /// Keeps a report from below: of a replica, first, and of those below it.
    pub(super) fn take(&self, own: &str, report: Vec<Replica>, now: &Moment) -> Result<(), TooMany> {
        if self.below.lock().unwrap_or_else(PoisonError::into_inner).take(own, report, now)? {
            self.moved.notify_one();
        }
        Ok(())
    }

    /// This node's own report. `seq_of` says how far a position lies in this node's history.
    pub(super) fn report(&self, own: Replica, now: &Moment, seq_of: impl Fn(&Position) -> u64) -> Report {
        self.below.lock().unwrap_or_else(PoisonError::into_inner).report(own, now, seq_of)
    }

    /// Who has reported, asked at `since` or later.
    pub(super) async fn look(&self, since: Instant) -> Result<Arc<Vec<Replica>>, Error> {
        let mut looked = self.looked.lock().await;
        if let Some(look) = looked.as_ref().filter(|look| look.began >= since) {
            return Ok(Arc::clone(&look.found));
        }
        let began = Instant::now();
        let found = Arc::new(self.replicas.replicas(LOOKED_BACK).await?);
        *looked = Some(Look { began, found: Arc::clone(&found) });
        Ok(found)
    }
}

/// A report, and what it says in two numbers.
#[derive(Debug)]
pub(super) struct Report {
    /// This node first.
    pub(super) replicas: Vec<Replica>,
    /// All that count, this node included.
    pub(super) known: u64,
    /// What the one that lags most had applied.
    pub(super) lowest: u64,
}

#[derive(Debug, Default)]
struct Below {
    held: HashMap<String, Held>,
    /// Counts up with each replica that is named in a report.
    turn: u64,
}

#[derive(Debug)]
struct Held {
    replica: Replica,
    /// The first of the report that brought it.
    reporter: String,
    received: Moment,
    /// When it was last named, in turns: of those that have come equally far, all are named in time.
    named: u64,
}

impl Held {
    fn silent(&self, now: &Moment) -> Duration {
        self.replica.silent.saturating_add(now.since(&self.received))
    }
}

impl Below {
    /// Says whether anything moved.
    fn take(&mut self, own: &str, report: Vec<Replica>, now: &Moment) -> Result<bool, TooMany> {
        self.held.retain(|_, held| held.silent(now) <= COUNTED);
        let Some(first) = report.first() else { return Ok(false) };
        let (reporter, omits) = (first.replica.clone(), first.omitted.is_some());
        let named: HashSet<String> = report.iter().map(|replica| replica.replica.clone()).collect();
        let new = named.iter().filter(|name| !self.held.contains_key(*name)).count();
        if self.held.len() + new > BELOW_MAX {
            return Err(TooMany);
        }
        let mut moved = false;
        for (index, mut replica) in report.into_iter().enumerate() {
            // What comes back to this node is not below it.
            if replica.replica == own || replica.silent > COUNTED {
                continue;
            }
            let above = if index == 0 { own } else { reporter.as_str() };
            replica.via.get_or_insert_with(|| above.to_owned());
            let before = self.held.get(&replica.replica);
            if before.is_some_and(|before| before.silent(now) < replica.silent) {
                continue;
            }
            moved |= before.is_none_or(|before| {
                (before.replica.position, before.replica.omitted) != (replica.position, replica.omitted)
            });
            let turn = before.map_or(0, |before| before.named);
            let held = Held { reporter: reporter.clone(), received: *now, named: turn, replica };
            self.held.insert(held.replica.replica.clone(), held);
        }
        if omits {
            // They are among the omitted now.
            self.held.retain(|name, held| held.reporter != reporter || named.contains(name));
        }
        Ok(moved)
    }

    fn report(&mut self, mut own: Replica, now: &Moment, seq_of: impl Fn(&Position) -> u64) -> Report {
        self.held.retain(|_, held| held.silent(now) <= COUNTED);
        // As far as a replica and all that its reports left out have come.
        let reached = |replica: &Replica| {
            let left_out = replica.omitted.map(|omitted| omitted.at_least);
            left_out.into_iter().chain([replica.position]).min_by_key(&seq_of).unwrap_or(replica.position)
        };
        let mut all: Vec<&mut Held> = self.held.values_mut().collect();
        all.sort_by_key(|held| (seq_of(&reached(&held.replica)), held.named));
        let counts = |replica: &Replica| 1 + replica.omitted.map_or(0, |omitted| omitted.count);
        let known = 1 + all.iter().map(|held| counts(&held.replica)).sum::<u64>();
        let lowest = all.first().map_or(u64::MAX, |held| seq_of(&reached(&held.replica)));
        let lowest = lowest.min(own.position.seq);
        let left_out = all.split_off(all.len().min(REPORTED_MAX - 1));
        own.omitted = left_out.first().map(|least| Omitted {
            count: left_out.iter().map(|held| counts(&held.replica)).sum(),
            at_least: reached(&least.replica),
        });
        self.turn += 1;
        let mut replicas = vec![own];
        for held in all {
            held.named = self.turn;
            replicas.push(Replica { silent: held.silent(now), ..held.replica.clone() });
        }
        Report { replicas, known, lowest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock, Hands};
    use crate::terms::Tag;

    const OTHER: u64 = 0xdead;

    fn said(name: &str, seq: u64) -> Replica {
        Replica {
            replica: name.to_owned(),
            role: "edge".to_owned(),
            position: Position { seq, tag: Tag(seq) },
            staleness: None,
            hops: 1,
            version: "1".to_owned(),
            via: None,
            silent: Duration::ZERO,
            omitted: None,
        }
    }

    fn seq_of(position: &Position) -> u64 {
        if position.tag.0 == OTHER { 0 } else { position.seq }
    }

    fn clock() -> (Clock, Arc<Hands>) {
        let hands = Arc::new(Hands::default());
        (Clock::Manual(Arc::clone(&hands)), hands)
    }

    fn told(report: &Report) -> Vec<(&str, u64, Option<&str>)> {
        let one = |replica: &'_ Replica| replica.position.seq;
        report.replicas.iter().map(|r| (r.replica.as_str(), one(r), r.via.as_deref())).collect()
    }

    #[test]
    fn a_report_goes_up_two_hops_and_grows_older_on_its_way() {
        let (clock, hands) = clock();
        let (mut middle, mut top) = (Below::default(), Below::default());
        assert!(middle.take("middle", vec![said("leaf", 3)], &clock.now()).unwrap());
        assert!(!middle.take("middle", vec![said("leaf", 3)], &clock.now()).unwrap(), "nothing moved");
        hands.advance(Duration::from_secs(4));
        let up = middle.report(said("middle", 5), &clock.now(), seq_of);
        assert!(top.take("top", up.replicas, &clock.now()).unwrap());
        hands.advance(Duration::from_secs(5));
        let report = top.report(said("top", 9), &clock.now(), seq_of);
        let expected = [("top", 9, None), ("leaf", 3, Some("middle")), ("middle", 5, Some("top"))];
        assert_eq!(told(&report), expected);
        assert_eq!((report.known, report.lowest), (3, 3));
        let seconds: Vec<u64> = report.replicas.iter().map(|replica| replica.silent.as_secs()).collect();
        assert_eq!(seconds, [0, 9, 5]);
        // Newer news of the leaf by another way stands; older does not.
        assert!(top.take("top", vec![said("leaf", 6)], &clock.now()).unwrap());
        let old = Replica { silent: Duration::from_secs(30), ..said("leaf", 2) };
        assert!(!top.take("top", vec![said("middle", 5), old, said("top", 1)], &clock.now()).unwrap());
        let report = top.report(said("top", 9), &clock.now(), seq_of);
        assert_eq!(told(&report)[1..], [("middle", 5, Some("top")), ("leaf", 6, Some("top"))]);
        hands.advance(COUNTED + Duration::from_millis(1));
        assert_eq!(top.report(said("top", 9), &clock.now(), seq_of).known, 1, "all have fallen silent");
    }

    #[test]
    fn those_that_lag_are_named_and_the_rest_is_a_number() {
        let (clock, _) = clock();
        let mut middle = Below::default();
        for n in 0..300 {
            middle.take("middle", vec![said(&format!("leaf-{n}"), 1_000 + n)], &clock.now()).unwrap();
        }
        let lost = Replica { position: Position { seq: 9_999, tag: Tag(OTHER) }, ..said("lost", 0) };
        middle.take("middle", vec![lost], &clock.now()).unwrap();
        let up = middle.report(said("middle", 2_000), &clock.now(), seq_of);
        assert_eq!(up.replicas.len(), REPORTED_MAX);
        assert_eq!(up.replicas[1].replica, "lost", "another history is no progress");
        let highest = up.replicas.last().unwrap().position.seq;
        let omitted = up.replicas[0].omitted.unwrap();
        assert_eq!((omitted.count, omitted.at_least.seq), (46, highest + 1));
        assert_eq!((up.known, up.lowest), (302, 0));
        // A hop further up: what middle omits counts where it begins, and is carried on.
        let mut top = Below::default();
        top.take("top", up.replicas, &clock.now()).unwrap();
        for n in 0..10 {
            top.take("top", vec![said(&format!("far-{n}"), 5_000)], &clock.now()).unwrap();
        }
        let report = top.report(said("top", 5_000), &clock.now(), seq_of);
        // Middle itself is as far as what it omits: together they are where it begins.
        let own = report.replicas[0].omitted.unwrap();
        assert_eq!((own.count, own.at_least, report.known), (10 + 1 + 46, omitted.at_least, 313));
        let mut small = Below::default();
        let middle = Replica { omitted: Some(omitted), ..said("middle", 2_000) };
        small.take("small", vec![middle.clone(), said("leaf", 7)], &clock.now()).unwrap();
        let report = small.report(said("small", 5_000), &clock.now(), seq_of);
        assert_eq!((report.known, report.lowest, report.replicas[0].omitted), (49, 7, None));
        assert_eq!(report.replicas[2].omitted, middle.omitted);
    }

    #[test]
    fn those_that_are_omitted_now_are_not_held_and_all_are_named_in_time() {
        let (clock, _) = clock();
        let mut below = Below::default();
        for n in 0..600 {
            below.take("own", vec![said(&format!("leaf-{n}"), 7)], &clock.now()).unwrap();
        }
        let mut named = HashSet::new();
        for _ in 0..3 {
            let report = below.report(said("own", 7), &clock.now(), seq_of);
            named.extend(report.replicas.into_iter().map(|replica| replica.replica));
        }
        assert_eq!(named.len(), 601);
        let hub = |omitted| Replica { omitted, ..said("hub", 8) };
        below.take("own", vec![hub(None), said("x", 1), said("y", 8)], &clock.now()).unwrap();
        let omitted = Some(Omitted { count: 1, at_least: Position { seq: 8, tag: Tag(8) } });
        assert!(below.take("own", vec![hub(omitted), said("y", 8)], &clock.now()).unwrap());
        assert!(below.held.contains_key("y") && !below.held.contains_key("x"));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let (clock, hands) = clock();
        let mut below = Below::default();
        for n in 0..BELOW_MAX {
            below.take("own", vec![said(&n.to_string(), 1)], &clock.now()).unwrap();
            // A report that finds the table full costs a walk over it, which this test need not repeat.
            if n % 4_096 == 0 {
                hands.advance(Duration::from_millis(1));
            }
        }
        assert!(below.take("own", vec![said("one-more", 1)], &clock.now()).is_err());
        assert!(below.take("own", vec![said("7", 2)], &clock.now()).unwrap(), "who is known may go on");
    }
}
