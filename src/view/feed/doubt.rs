//! What a contradiction means: at once that the history is another, or only, for a while, a matter of order.
//!
//! A primary never goes back, so where entries and confirmations come from one database any contradiction is
//! final. With a hop between the two it is not: a standby may show a commit before its primary does (the primary
//! shows it only once its synchronous standbys have answered), and a balancer may lead to a node that lags. A
//! head that is behind is then asked again, about the same position, for a bounded time; nothing is proven
//! meanwhile. Another digest at the same number has no such excuse.

use std::time::Duration;

use super::super::freshness::Contradiction;
use crate::clock::Moment;
use crate::ledger::{Head, HeadReport};

/// A contradiction that is asked about again.
#[derive(Debug, Clone)]
pub(super) struct Doubt {
    /// The position that the authority did not have, and not the view's present one: entries that became visible
    /// since would be a new doubt each time.
    pub asked: Head,
    /// When it was first asked about.
    pub since: Moment,
    /// Before it is asked about again.
    pub pause: Duration,
}

/// What to do about a contradiction.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    /// The history has diverged.
    Reload,
    AskAgain,
}

/// `direct`: the one that contradicts is the database that the entries come from.
pub(super) fn judge(
    contradiction: &Contradiction,
    report: &HeadReport,
    direct: bool,
    doubt: Option<&Doubt>,
    t0: &Moment,
    patience: Duration,
) -> Judgement {
    if report.age.is_none() {
        // One that is not proven itself may be the one that is wrong.
        return Judgement::AskAgain;
    }
    if direct || !matches!(contradiction, Contradiction::WentBack { .. }) {
        return Judgement::Reload;
    }
    match doubt {
        Some(doubt) if t0.since(&doubt.since) >= patience => Judgement::Reload,
        _ => Judgement::AskAgain,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::clock::{Clock, Hands};
    use crate::terms::{Digest, Timestamp};

    const PATIENCE: Duration = Duration::from_secs(2);

    fn report(age: Option<Duration>) -> HeadReport {
        HeadReport {
            ledger_id: "ledger".to_owned(),
            in_recovery: false,
            head: Head { seq: 4, digest: Digest::of(b"x") },
            tag_at_asked: None,
            wall: Timestamp::from_micros(0),
            age,
            hops: 0,
            service: Duration::ZERO,
        }
    }

    #[test]
    fn a_primary_never_goes_back_and_anyone_else_is_asked_again_for_two_seconds() {
        let hands = Arc::new(Hands::default());
        let clock = Clock::Manual(Arc::clone(&hands));
        let back = Contradiction::WentBack { head: 4, asked: 5 };
        let proven = report(Some(Duration::ZERO));
        let t0 = clock.now();
        let direct = judge(&back, &proven, true, None, &t0, PATIENCE);
        assert_eq!(direct, Judgement::Reload, "one database");
        assert_eq!(judge(&back, &proven, false, None, &t0, PATIENCE), Judgement::AskAgain);
        let asked = Head { seq: 5, digest: Digest::of(b"y") };
        let doubt = Doubt { asked, since: t0, pause: Duration::ZERO };
        hands.advance_boot(Duration::from_millis(1_900));
        let later = clock.now();
        assert_eq!(judge(&back, &proven, false, Some(&doubt), &later, PATIENCE), Judgement::AskAgain);
        hands.advance_boot(Duration::from_millis(100));
        let later = clock.now();
        assert_eq!(judge(&back, &proven, false, Some(&doubt), &later, PATIENCE), Judgement::Reload);
    }

    #[test]
    fn another_digest_is_final_and_one_who_is_not_proven_decides_nothing() {
        let t0 = Clock::System.now();
        let other = Contradiction::OtherDigest { asked: 5 };
        let proven = report(Some(Duration::ZERO));
        assert_eq!(judge(&other, &proven, false, None, &t0, PATIENCE), Judgement::Reload);
        let unproven = report(None);
        assert_eq!(judge(&other, &unproven, false, None, &t0, Duration::ZERO), Judgement::AskAgain);
    }
}
