//! The task behind one subscription: a cursor that goes through the log and tells what it passes.
//!
//! ```text
//! snapshot ─┐
//!           ├─▶ catch up (the ledger, then the log) ─▶ synced, checkpoint ─▶ live
//! position ─┘
//! ```
//!
//! The task holds no state of the view while it waits for the subscriber: between two handfuls of changes it loads
//! what the hub has scanned anew, so that a slow subscriber keeps nothing alive but the handful. Where the log ends
//! before its cursor, it is caught up from the ledger until it was once live; after that it has been too slow.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::super::Settings;
use super::event::{Because, Checkpoint, Event, Told, Wanted};
use super::{CONFIRMS_WAITING, Confirm};
use crate::ledger::History;
use crate::telemetry::Metrics;
use crate::telemetry::metrics::ReasonLabels;
use crate::terms::{Reason, SetDigest, random_bytes};
use crate::view::{Change, Proof, Seat, Served, View};

/// Changes that are taken from the log at once.
const HANDFUL: usize = 16;

/// One stream.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) seat: Seat,
    pub(super) generation: u64,
    /// Everything up to here was told.
    pub(super) cursor: u64,
    pub(super) wanted: Wanted,
    pub(super) events: mpsc::Sender<Event>,
    pub(super) asked: mpsc::Receiver<Confirm>,
    /// The set digest of the selection, until the next change of it is told.
    pub(super) sum: Option<SetDigest>,
    pub(super) view: View,
    pub(super) history: Arc<dyn History>,
    pub(super) settings: Arc<Settings>,
    pub(super) metrics: Metrics,
    /// Held until the stream is live, where it has much to read first.
    pub(super) reading: Option<OwnedSemaphorePermit>,
}

/// How a stream begins.
#[derive(Debug)]
pub(super) enum Start {
    /// Where its seat says.
    Resume,
    Snapshot {
        served: Arc<Served>,
        because: Because,
    },
}

/// Why a stream is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Over {
    For(Reason),
    /// Nobody takes its events any more.
    Gone,
}

/// Confirmations that are answered together, and what was proven for them.
type Confirmed = (Vec<Confirm>, Option<Proof>);

impl Stream {
    pub(super) async fn run(mut self, start: Start, drain: &CancellationToken, ended: &OnceLock<Reason>) {
        let metrics = self.metrics.clone();
        metrics.subscribers.inc();
        let oldest = Instant::now() + around(self.settings.watch.max_age);
        let events = self.events.clone();
        let over = tokio::select! {
            biased;
            () = drain.cancelled() => Over::For(Reason::Draining),
            () = events.closed() => Over::Gone,
            () = sleep_until(oldest) => Over::For(Reason::MaxAge),
            over = self.tell(start) => match over {
                Ok(never) => match never {},
                Err(over) => over,
            },
        };
        let reason = match over {
            Over::For(reason) => {
                // Set before the queue is closed, which happens when this returns.
                let _ = ended.set(reason);
                reason.slug()
            }
            Over::Gone => "gone",
        };
        metrics.streams_ended.get_or_create(&ReasonLabels { reason }).inc();
        metrics.subscribers.dec();
    }

    async fn tell(&mut self, start: Start) -> Result<Infallible, Over> {
        match start {
            Start::Resume => {
                let served = self.pump(false).await?;
                self.sync(&served).await?;
            }
            // Boxed, like all that a live stream does not need room for any more.
            Start::Snapshot { served, because } => Box::pin(self.snapshot(served, because)).await?,
        }
        self.pump(false).await?;
        self.reading = None;
        self.live().await
    }

    /// Tells all agents as they are at one position.
    async fn snapshot(&mut self, served: Arc<Served>, because: Because) -> Result<(), Over> {
        let position = served.state.position();
        let agents = self.seat.selection().agents(&served.state);
        let sum = self.seat.selection().sum(&served.state);
        // What follows holds these agents and not the whole state.
        drop(served);
        self.send(Event::Reset { position, because }).await?;
        for agent in agents {
            self.send(Event::Agent(self.wanted.of_agent(agent))).await?;
        }
        self.cursor = position.seq;
        self.sum = Some(sum);
        self.send(Event::Synced { position }).await?;
        let checkpoint = Checkpoint { position, set_digest: sum, nonce: None, staleness: None };
        self.send(Event::Checkpoint(Box::new(checkpoint))).await
    }

    async fn sync(&mut self, served: &Served) -> Result<(), Over> {
        let checkpoint = self.checkpoint(served);
        self.send(Event::Synced { position: served.state.position() }).await?;
        self.send(checkpoint).await
    }

    async fn live(&mut self) -> Result<Infallible, Over> {
        // Those who came together are not served together ever after.
        let mut due = Instant::now() + self.settings.watch.checkpoint.mul_f64(random_unit());
        let mut confirming: Option<Pin<Box<dyn Future<Output = Confirmed> + Send>>> = None;
        let mut confirmed: Option<Confirmed> = None;
        loop {
            let served = self.pump(true).await?;
            if let Some((asked, proof)) = confirmed.take() {
                for confirm in asked {
                    let checkpoint = self.answer(&served, &confirm, proof);
                    self.send(checkpoint).await?;
                }
                due = Instant::now() + self.settings.watch.checkpoint;
            } else if Instant::now() >= due {
                let checkpoint = self.checkpoint(&served);
                self.send(checkpoint).await?;
                due = Instant::now() + self.settings.watch.checkpoint;
            }
            drop(served);
            tokio::select! {
                () = self.seat.woken() => {}
                () = sleep_until(due) => {}
                Some(first) = self.asked.recv(), if confirming.is_none() => {
                    confirming = Some(Box::pin(self.confirm(first)));
                }
                done = pending(&mut confirming) => {
                    confirming = None;
                    confirmed = Some(done);
                }
            }
        }
    }

    /// Tells everything up to what the hub has scanned, and gives it. `live`: the stream was live already.
    pub(super) async fn pump(&mut self, live: bool) -> Result<Arc<Served>, Over> {
        loop {
            let served = self.seat.hub().scanned();
            if served.generation != self.generation || served.diverged {
                return Err(Over::For(Reason::HistoryDiverged));
            }
            let head = served.state.head().seq;
            let Some(ahead) = self.seat.ahead(head) else {
                self.cursor = head;
                return Ok(served);
            };
            let after = self.cursor.max(ahead.first.saturating_sub(1));
            let Some((handful, reached)) = self.handful(&served, after) else {
                if live && !ahead.torn {
                    return Err(Over::For(Reason::SubscriberTooSlow));
                }
                Box::pin(self.read_past(after, &served)).await?;
                continue;
            };
            drop(served);
            for change in handful {
                self.tell_change(change).await?;
            }
            self.passed(reached);
        }
    }

    /// The next changes of the selection after `after`, and the number of the last one looked at.
    fn handful(&self, served: &Served, after: u64) -> Option<(Vec<Arc<Change>>, u64)> {
        let mut found = Vec::new();
        for change in served.state.log().since(after)? {
            if change.agent.as_ref().is_some_and(|agent| self.seat.selection().matches(&agent.name)) {
                found.push(Arc::clone(change));
                if found.len() == HANDFUL {
                    return Some((found, change.seq()));
                }
            }
        }
        Some((found, served.state.head().seq))
    }

    pub(super) fn passed(&mut self, seq: u64) {
        self.cursor = seq;
        self.seat.done(seq);
    }

    pub(super) async fn tell_change(&mut self, change: Arc<Change>) -> Result<(), Over> {
        let Some(told): Option<Told> = self.wanted.of_change(change) else { return Ok(()) };
        self.sum = None;
        self.send(Event::Agent(told)).await
    }

    async fn send(&self, event: Event) -> Result<(), Over> {
        let permit = match self.events.try_reserve() {
            Ok(permit) => permit,
            Err(mpsc::error::TrySendError::Closed(())) => return Err(Over::Gone),
            Err(mpsc::error::TrySendError::Full(())) => {
                match timeout(self.settings.watch.blocked, self.events.reserve()).await {
                    Ok(Ok(permit)) => permit,
                    Ok(Err(_)) => return Err(Over::Gone),
                    Err(_) => return Err(Over::For(Reason::SubscriberTooSlow)),
                }
            }
        };
        // While it waited, the history may have been found to be a lost one.
        if !self.seat.hub().stands(self.generation) {
            return Err(Over::For(Reason::HistoryDiverged));
        }
        permit.send(event);
        self.metrics.events_sent.inc();
        Ok(())
    }

    /// A checkpoint at what was told, which is all of `served`.
    fn checkpoint(&mut self, served: &Served) -> Event {
        let set_digest = *self.sum.get_or_insert_with(|| self.seat.selection().sum(&served.state));
        let position = served.state.position();
        Event::Checkpoint(Box::new(Checkpoint { position, set_digest, nonce: None, staleness: None }))
    }

    /// The same, for one who asked. Without a proof made for it, what was proven before is what there is.
    fn answer(&mut self, served: &Served, confirm: &Confirm, proof: Option<Proof>) -> Event {
        let set_digest = *self.sum.get_or_insert_with(|| self.seat.selection().sum(&served.state));
        let staleness = proof.or(served.proof).map(|proof| {
            let since = proof.at.at_or_after(&confirm.receipt);
            if since { Duration::ZERO } else { confirm.receipt.since(&proof.at) }
        });
        Event::Checkpoint(Box::new(Checkpoint {
            position: served.state.position(),
            set_digest,
            nonce: Some(Arc::clone(&confirm.nonce)),
            staleness,
        }))
    }

    /// Has the view confirmed for all who have asked by now: a proof since the last of them serves them all.
    fn confirm(&mut self, first: Confirm) -> impl Future<Output = Confirmed> + Send + 'static {
        let mut asked = vec![first];
        while asked.len() < CONFIRMS_WAITING
            && let Ok(confirm) = self.asked.try_recv()
        {
            asked.push(confirm);
        }
        let since = asked
            .iter()
            .map(|confirm| confirm.receipt)
            .reduce(|last, next| if next.at_or_after(&last) { next } else { last });
        let (view, generation) = (self.view.clone(), self.generation);
        let until = Instant::now() + self.settings.default_wait;
        async move {
            let Some(since) = since else { return (asked, None) };
            let proof = match view.confirm(&since, until).await {
                // The stream has to tell what was confirmed before it speaks for it.
                Ok(served) if served.generation == generation => {
                    let seq = served.state.head().seq;
                    if view.hub().reach(generation, seq, until).await { served.proof } else { None }
                }
                _ => None,
            };
            (asked, proof)
        }
    }
}

/// The result of a future that may not be there; never ends when it is not.
async fn pending<T>(future: &mut Option<Pin<Box<dyn Future<Output = T> + Send>>>) -> T {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

/// A number from 0 to 1.
pub(super) fn random_unit() -> f64 {
    f64::from(u16::from_be_bytes(random_bytes())) / f64::from(u16::MAX)
}

/// `time`, give or take a tenth, so that those who came together do not go together.
pub(super) fn around(time: Duration) -> Duration {
    time.mul_f64(0.9 + 0.2 * random_unit())
}
