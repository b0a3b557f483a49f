//! The task that reports: how far this node has come, and what hangs below it.
//!
//! At once when something moved, at most every 100 ms; else every 5 s, so that who is silent for a minute has
//! missed a dozen. A report that fails is made again, of what is true then: nothing is queued.

use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use super::Registry;
use super::fleet::Report;
use crate::ledger::{Error, Replica};
use crate::terms::Position;
use crate::view::{Place, Served};

/// Between two reports when nothing moves.
const EVERY: Duration = Duration::from_secs(5);
/// Between two reports when all moves.
const AT_MOST_EVERY: Duration = Duration::from_millis(100);
/// After one that failed.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// How often it is looked whether the view moved: a load of one pointer.
const LOOK: Duration = Duration::from_millis(50);
/// The longest that one report may take.
const WITHIN: Duration = Duration::from_secs(2);

/// The task, before it runs.
#[derive(Debug)]
pub struct Reports(pub(super) Registry);

impl Reports {
    /// Runs until `stop` is cancelled.
    pub async fn run(self, stop: CancellationToken) {
        let registry = self.0;
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut reported: Option<Position> = None;
        let mut below_moved = false;
        let mut failing = false;
        let (mut due, mut not_before) = (Instant::now(), Instant::now());
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = registry.fleet.moved.notified() => below_moved = true,
                _ = looks.tick() => {}
            }
            let served = std::sync::Arc::clone(&registry.view.load());
            let position = served.state.position();
            let now = Instant::now();
            let moved = below_moved || reported != Some(position);
            // A view that holds nothing yet has nothing to say.
            if !served.loaded || now < not_before || !(moved || now >= due) {
                continue;
            }
            let outcome = tokio::select! {
                () = stop.cancelled() => return,
                outcome = registry.report_once(&served) => outcome,
            };
            match outcome {
                Ok(()) => {
                    failing = false;
                    below_moved = false;
                    reported = Some(position);
                    (due, not_before) = (now + EVERY, now + AT_MOST_EVERY);
                }
                Err(error) => {
                    registry.metrics.report_failures.inc();
                    if !failing {
                        tracing::warn!(%error, "this node could not report how far it has come; it goes on trying");
                    }
                    failing = true;
                    not_before = Instant::now() + AGAIN_AFTER;
                }
            }
        }
    }
}

impl Registry {
    async fn report_once(&self, served: &Served) -> Result<(), Error> {
        let report = self.own_report(served);
        self.metrics.replicas.set(report.known.cast_signed());
        let behind = served.state.position().seq.saturating_sub(report.lowest);
        self.metrics.replicas_behind.set(behind.cast_signed());
        match timeout(WITHIN, self.fleet.replicas.report(&report.replicas)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Error::Unavailable(format!("no answer within {} ms", WITHIN.as_millis()))),
        }
    }

    /// What this node says of itself, and passes on.
    pub(super) fn own_report(&self, served: &Served) -> Report {
        let now = self.view.clock().now();
        let freshness = served.freshness(&now);
        let own = Replica {
            replica: freshness.served_by.to_string(),
            role: self.settings.role.to_owned(),
            position: freshness.position,
            staleness: freshness.staleness,
            hops: freshness.hops,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            // Who receives it knows where it hangs.
            via: None,
            silent: Duration::ZERO,
            omitted: None,
        };
        self.fleet.report(own, &now, |position| match served.place(position) {
            // How far another history went is nothing of this one.
            Place::Differs => 0,
            Place::Applied | Place::Beyond => position.seq,
        })
    }
}
