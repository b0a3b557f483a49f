//! Proof of freshness, without comparing two machines' clocks.
//!
//! A node confirms like this:
//!
//! ```text
//! asked = view.head; t0 = clock.now()
//! report = authority.head(asked)         one statement: in recovery?, head, digest at `asked`, wall clock, and
//!                                        the age of what it says: 0 from a database; from an upstream, how long
//!                                        before its receipt of the call it was proven itself
//! anomaly if report.head < asked, or the digest differs: proves nothing, the view is loaded anew
//! fold until view.head >= report.head    anomaly if the view's digest at report.head is another
//! proven_at = max(proven_at, t0 - age)   all that was acknowledged before t0 - age is in the view
//! staleness(now) = now - proven_at       never confirmed in this generation: unknown
//! ```
//!
//! Why it holds: a write is acknowledged after its commit, so a write that was acknowledged before `t0` was
//! committed before the authority looked at its head, and numbers are given in commit order, so its number is
//! at most `report.head`. Only this node's clock is read, at both ends, so nothing is assumed of another's.
//! The authority's wall clock serves the age of origins alone, which are times of that same clock.
//!
//! What it does not exclude: a primary that was deposed and still answers as one. `basis: authority` says so.
//!
//! The digest is what makes it hold after a failover: the new primary may have the same or a higher number
//! with other entries below it. Equality at one number proves equality of all before it, because the chain
//! binds them. It is checked at `asked` before reading on, and at `report.head` before proving, because own
//! commits may have been folded in between. Inequality, or a head that went back, proves that what the view holds is not what the
//! authority has. A primary never goes back by itself, so the view then starts a new *generation*, in which
//! nothing is proven, and keeps answering only those who accept any staleness until it has loaded the ledger
//! again. Where the authority is not what the entries come from, a head that went back is asked about again for a
//! while first (`feed::doubt`): a standby may show a commit before its primary does.
//!
//! Entries may come from elsewhere than the authority, and late: nothing in the rule asks where they come from, since
//! the chain binds them, nor when, since `t0` is the moment of the question and not of the proof.
//!
//! Position, cards and proof are published together as one [`Served`], behind one pointer: a reader loads it
//! once and reads the clock last, so its answer cannot combine a young proof with old cards. (A proof in an
//! atomic of its own, ordered against slots that are written one by one, was the rejected alternative.)

use std::sync::Arc;
use std::time::Duration;

use super::state::State;
use crate::clock::Moment;
use crate::ledger::{Head, HeadReport};
use crate::terms::{Basis, Freshness, Position, Tag, Timestamp};

/// That a view was complete at a moment.
#[derive(Debug, Clone, Copy)]
pub struct Proof {
    /// Everything that was acknowledged before this moment is in the view.
    pub at: Moment,
    /// The authority's wall clock, read after `at`.
    pub authority_wall: Timestamp,
    /// The service clock, read after `at`.
    pub service: Duration,
    /// Nodes between this one and the authority's database.
    pub hops: u32,
}

/// What readers see: one state, and what is proven of it.
#[derive(Debug, Clone)]
pub struct Served {
    /// Counts up each time the view is loaded anew.
    pub generation: u64,
    pub state: Arc<State>,
    /// `None`: nothing is proven in this generation.
    pub proof: Option<Proof>,
    /// Whether the state is that of a ledger at all: false before the first load.
    pub loaded: bool,
    /// Whether the view was ever proven, in whatever generation.
    pub ready: bool,
    /// The authority does not have what the state holds, and is being asked again.
    pub doubted: bool,
    /// The state is of a history that the authority contradicted, until the ledger is loaded anew.
    pub diverged: bool,
    /// The view cannot go on: the ledger says what this version does not know.
    pub unsupported: bool,
    pub node: Arc<str>,
}

/// Where a position lies, by what this view holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Applied, with that digest.
    Applied,
    /// Its number is applied with another digest.
    Differs,
    /// Beyond what is applied.
    Beyond,
}

impl Served {
    /// Upper bound on how long ago this state could have stopped being current; `None`: unknown.
    pub fn staleness(&self, now: &Moment) -> Option<Duration> {
        self.proof.map(|proof| now.since(&proof.at))
    }

    /// Whether completeness was proven at or after `moment`.
    pub fn proven_since(&self, moment: &Moment) -> bool {
        self.proof.is_some_and(|proof| proof.at.at_or_after(moment))
    }

    /// The freshness block of an answer given `now`.
    pub fn freshness(&self, now: &Moment) -> Freshness {
        Freshness {
            position: self.state.position(),
            staleness: self.staleness(now),
            proven_at: self.proof.map(|proof| proof.at.wall()),
            basis: match self.proof {
                Some(Proof { hops: 0, .. }) => Basis::Authority,
                Some(_) => Basis::Upstream,
                None => Basis::Unproven,
            },
            served_by: Arc::clone(&self.node),
            hops: self.proof.map_or(0, |proof| proof.hops),
            origin: None,
        }
    }

    /// The authority's wall clock now, at the latest: its clock at the proof plus the time since.
    pub fn authority_wall(&self, now: &Moment) -> Option<Timestamp> {
        let proof = self.proof?;
        let since = i64::try_from(now.since(&proof.at).as_micros()).unwrap_or(i64::MAX);
        Some(Timestamp::from_micros(proof.authority_wall.as_micros().saturating_add(since)))
    }

    pub fn place(&self, position: &Position) -> Place {
        match self.state.tag_at(position.seq) {
            Some(tag) if tag == position.tag => Place::Applied,
            Some(_) => Place::Differs,
            None => Place::Beyond,
        }
    }
}

/// Why a report proves nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Contradiction {
    #[error("it is of another ledger")]
    OtherLedger,
    #[error("its head {head} is behind {asked}, which this view has applied")]
    WentBack { head: u64, asked: u64 },
    #[error("its digest at {asked} is another than this view's")]
    OtherDigest { asked: u64 },
}

/// Whether a report contradicts what the view held when it asked.
///
/// # Errors
/// [`Contradiction`], of which the view learns that it must be loaded anew.
pub(super) fn contradicts(ledger_id: &str, asked: Head, report: &HeadReport) -> Result<(), Contradiction> {
    if report.ledger_id != ledger_id {
        return Err(Contradiction::OtherLedger);
    }
    if report.head.seq < asked.seq {
        return Err(Contradiction::WentBack { head: report.head.seq, asked: asked.seq });
    }
    if report.tag_at_asked != Some(Tag::from(&asked.digest)) {
        return Err(Contradiction::OtherDigest { asked: asked.seq });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock, Hands};
    use crate::terms::Digest;

    fn served(proof: Option<Proof>) -> Served {
        let state = Arc::new(State::empty("ledger"));
        Served {
            generation: 0,
            state,
            proof,
            loaded: true,
            ready: proof.is_some(),
            doubted: false,
            diverged: false,
            unsupported: false,
            node: "node".into(),
        }
    }

    #[test]
    fn never_confirmed_is_unknown_and_not_zero() {
        let now = Clock::System.now();
        let freshness = served(None).freshness(&now);
        assert_eq!(freshness.staleness, None);
        assert_eq!(freshness.basis, Basis::Unproven);
    }

    #[test]
    fn staleness_counts_from_the_proof_by_the_larger_clock() {
        let hands = Arc::new(Hands::default());
        let clock = Clock::Manual(Arc::clone(&hands));
        let proof = Proof {
            at: clock.now(),
            authority_wall: Timestamp::from_micros(5),
            service: Duration::ZERO,
            hops: 0,
        };
        hands.advance_boot(Duration::from_secs(3));
        let served = served(Some(proof));
        assert_eq!(served.staleness(&clock.now()).map(|age| age.as_millis()), Some(3_000));
        assert_eq!(served.authority_wall(&clock.now()), Some(Timestamp::from_micros(3_000_005)));
    }

    #[test]
    fn a_head_that_went_back_or_another_digest_proves_nothing() {
        let digest = Digest::of(b"x");
        let asked = Head { seq: 5, digest };
        let report = |seq, at: Option<Digest>| HeadReport {
            ledger_id: "ledger".to_owned(),
            in_recovery: false,
            head: Head { seq, digest },
            tag_at_asked: at.as_ref().map(Tag::from),
            wall: Timestamp::from_micros(0),
            age: Some(Duration::ZERO),
            hops: 0,
            service: Duration::ZERO,
        };
        assert_eq!(contradicts("ledger", asked, &report(5, Some(digest))), Ok(()));
        assert_eq!(contradicts("ledger", asked, &report(9, Some(digest))), Ok(()));
        let back = Contradiction::WentBack { head: 4, asked: 5 };
        assert_eq!(contradicts("ledger", asked, &report(4, None)), Err(back));
        let other = Contradiction::OtherDigest { asked: 5 };
        assert_eq!(contradicts("ledger", asked, &report(9, Some(Digest::of(b"y")))), Err(other));
        assert_eq!(
            contradicts("elsewhere", asked, &report(5, Some(digest))),
            Err(Contradiction::OtherLedger)
        );
    }
}
