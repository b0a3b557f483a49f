//! What is known of an agent behind its card: when it was confirmed, how often it is deployed, how its lease stands.
//!
//! It lives outside of the ledger and moves without a new state: readers load one pointer. A value that lags can only
//! refuse too much.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;

use crate::ledger::{Lease, Liveness};
use crate::terms::{LeaseHeld, Origin, Timestamp};

/// Shared by all states that hold the revision, because liveness is not of the ledger and has no position. Each
/// revision has its own: a confirmation of one card must not make another one look confirmed.
#[derive(Debug)]
pub(super) struct OriginCell {
    known: ArcSwap<Known>,
    service: Arc<Service>,
}

/// What is known of an origin. Replaced as a whole, so that a lease is never read with another's confirmation.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    confirmed_at: Timestamp,
    redeploy_interval: Option<Duration>,
    lease: Option<Lease>,
}

/// The service clock as the authority last told it, in microseconds. It is not carried on in between, so a lease may
/// be told as lapsed a second or two late, and never early.
#[derive(Debug, Default)]
pub(super) struct Service(AtomicU64);

impl Service {
    pub(super) fn now(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Acquire))
    }

    pub(super) fn set(&self, service: Duration) {
        self.0.store(u64::try_from(service.as_micros()).unwrap_or(u64::MAX), Ordering::Release);
    }
}

impl OriginCell {
    /// The cell of a revision that was registered at `confirmed`, and what was known of the agent before.
    pub(super) fn new(confirmed_at: Timestamp, before: Option<&Self>, service: &Arc<Service>) -> Self {
        let redeploy_interval = before.and_then(|before| before.known.load().redeploy_interval);
        let known = Known { confirmed_at, redeploy_interval, lease: None };
        Self { known: ArcSwap::from_pointee(known), service: Arc::clone(service) }
    }

    /// Takes what the liveness table says of the agent, and of its confirmations if they are of this revision.
    pub(super) fn take(&self, row: &Liveness, is_of_revision: bool) {
        let interval = median_gap(&row.registers);
        self.update(|known| {
            known.redeploy_interval = interval;
            if is_of_revision {
                known.confirm(row.origin_confirmed_at, row.lease);
            }
        });
    }

    pub(super) fn confirm(&self, at: Timestamp, lease: Option<Lease>) {
        self.update(|known| known.confirm(at, lease));
    }

    fn update(&self, change: impl Fn(&mut Known)) {
        self.known.rcu(|before| {
            let mut after = Known::clone(before);
            change(&mut after);
            // Most of what is read from the liveness table was read before.
            if after == **before { Arc::clone(before) } else { Arc::new(after) }
        });
    }

    pub(super) fn read(&self, registered_at: Timestamp) -> Origin {
        let known = self.known.load();
        Origin {
            registered_at,
            confirmed_at: Some(known.confirmed_at),
            redeploy_interval: known.redeploy_interval,
            lease: known
                .lease
                .map(|lease| LeaseHeld { ttl: lease.ttl, lapsed: lease.has_lapsed(self.service.now()) }),
        }
    }
}

impl Known {
    /// A confirmation, unless a later one is known. Leases are ordered by the clock that they run on, which is not set
    /// back; where there is none to compare, by the wall clock.
    fn confirm(&mut self, at: Timestamp, lease: Option<Lease>) {
        let is_later = match (self.lease, lease) {
            (None, _) => true,
            (Some(held), Some(given)) if held.confirmed != given.confirmed => {
                given.confirmed > held.confirmed
            }
            (Some(_), _) => at >= self.confirmed_at,
        };
        if is_later {
            self.lease = lease;
        }
        self.confirmed_at = self.confirmed_at.max(at);
    }
}

/// The median gap between registers; unknown below three registers.
fn median_gap(registers: &[Timestamp]) -> Option<Duration> {
    if registers.len() < 3 {
        return None;
    }
    let mut gaps: Vec<Duration> = registers.windows(2).map(|pair| pair[1].since(pair[0])).collect();
    gaps.sort_unstable();
    let middle = gaps.len() / 2;
    Some(if gaps.len() % 2 == 1 { gaps[middle] } else { (gaps[middle - 1] + gaps[middle]) / 2 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_renewed_by_a_later_confirmation_also_when_the_wall_was_set_back() {
        let at = |secs: i64| Timestamp::from_micros(secs * 1_000_000);
        let lease = |confirmed| {
            Some(Lease { ttl: Duration::from_secs(30), confirmed: Duration::from_secs(confirmed) })
        };
        let mut known = Known { confirmed_at: at(100), redeploy_interval: None, lease: None };
        known.confirm(at(90), lease(5));
        assert_eq!((known.confirmed_at, known.lease), (at(100), lease(5)), "set back since the register");
        known.confirm(at(91), lease(6));
        assert_eq!(known.lease, lease(6));
        known.confirm(at(120), lease(7));
        known.confirm(at(110), lease(6));
        assert_eq!((known.confirmed_at, known.lease), (at(120), lease(7)), "read before, taken after");
        known.confirm(at(110), None);
        assert_eq!(known.lease, lease(7));
        known.confirm(at(120), None);
        assert_eq!(known.lease, None);
    }

    #[test]
    fn redeploy_interval_is_the_median_gap_and_unknown_below_three() {
        let at =
            |secs: &[i64]| secs.iter().map(|s| Timestamp::from_micros(s * 1_000_000)).collect::<Vec<_>>();
        assert_eq!(median_gap(&at(&[])), None);
        assert_eq!(median_gap(&at(&[1, 2])), None);
        assert_eq!(median_gap(&at(&[0, 10, 40])), Some(Duration::from_secs(20)));
        assert_eq!(median_gap(&at(&[0, 10, 40, 1000])), Some(Duration::from_secs(30)));
    }
}
