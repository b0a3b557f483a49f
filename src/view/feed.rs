//! The one task that owns a view: it reads the ledger, folds it, proves it and publishes it.
//!
//! ```text
//! Loading ──first fold complete──▶ Following ──contradiction──▶ Loading (a new generation)
//! ```
//!
//! *Following* is a cycle of one statement: ask the authority for its head and its digest at the view's own
//! head ([`super::freshness`]). When the head is ahead, entries are read and folded up to it; then the view is
//! proven as of the moment the cycle began. Polling and confirming are the same statement, so there is no
//! state in which the view polls but does not prove, and a poll costs one round trip. A cycle starts at the
//! poll interval, on a nudge, and on demand: a reader that wants a proof since its arrival leaves one permit,
//! and the next cycle that *starts* serves all who left it before (a thousand linearizable reads cost two
//! round trips).
//!
//! Feed and confirmation use one session, hence one server; when it fails in any way it is dropped, nothing
//! of it is kept, and the next one may be of another server: the digest tells.
//!
//! Entries that this node's own writer committed arrive on a channel and are folded at once, while a cycle is
//! in flight as well; they are verified against the chain like any others and prove nothing by themselves.
//! One that does not follow is dropped: the cycle will tell what is true.
//!
//! On a contradiction the view is unproven *before* the reload begins, so that no answer calls a card of the
//! lost history fresh; the old state stays for readers who accept any staleness.
//!
//! The file is long because the task is one state machine.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::freshness::{Proof, Served, contradicts};
use super::log::ENTRIES_MAX;
use super::state::{FoldError, State};
use super::{Progress, View};
use crate::clock::{Clock, Moment};
use crate::ledger::chain::Broken;
use crate::ledger::writer::Committed;
use crate::ledger::{
    Entries, Entry, Error, Head, HeadReport, LIVENESS_PAGE, Liveness, Page, Reading, Snapshot,
};
use crate::telemetry::Metrics;
use crate::terms::{Tag, Timestamp};

/// How a view follows its ledger.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Time between two polls.
    pub poll: Duration,
    /// The longest that one exchange with the store may take before its session is dropped.
    pub exchange: Duration,
    /// The longest pause before a session is opened again.
    pub backoff: Duration,
    /// Entries read at once.
    pub page: usize,
    /// The longest that reading one page may take. What sends everything as one page bounds the pauses within it.
    pub reading: Duration,
    /// Time between two readings of the liveness table.
    pub liveness: Duration,
    /// The last changes that are kept in memory at most, for those who follow.
    pub log: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            poll: Duration::from_millis(100),
            exchange: Duration::from_secs(2),
            backoff: Duration::from_secs(1),
            page: 1_000,
            reading: Duration::from_secs(10),
            liveness: Duration::from_secs(1),
            log: ENTRIES_MAX,
        }
    }
}

/// A liveness row may become visible this long after the time that it carries.
const LIVENESS_OVERLAP_MICROS: i64 = 15_000_000;

/// The task, before it runs.
pub struct Feed {
    entries: Arc<dyn Entries>,
    committed: mpsc::Receiver<Committed>,
    /// Changes when the ledger may have grown; once its sender is gone, polling is all there is.
    nudges: watch::Receiver<u64>,
    nudged: bool,
    demand: Arc<Notify>,
    /// A reader wants a proof since its arrival: the next question is of now, not of what is at hand.
    demanded: bool,
    view: View,
    progress: watch::Sender<Progress>,
    clock: Clock,
    settings: Settings,
    metrics: Metrics,
    /// What is folded; published states are copies of it that share structure.
    state: State,
    generation: u64,
    proof: Option<Proof>,
    loaded: bool,
    unsupported: bool,
    pause: Duration,
    liveness_since: Option<Timestamp>,
    /// The last page of the liveness table was full: the next one goes on where it ended.
    liveness_behind: bool,
    liveness_due: Instant,
}

impl std::fmt::Debug for Feed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Feed").field("head", &self.state.head()).finish_non_exhaustive()
    }
}

/// What an exchange brought back, with the session that made it; an error ends the session.
enum Brought {
    Session(Box<dyn Reading>),
    Head { session: Box<dyn Reading>, asked: Head, t0: Moment, report: HeadReport },
    Page { session: Box<dyn Reading>, page: Page },
    Liveness { session: Box<dyn Reading>, rows: Vec<Liveness> },
}

type Exchange = std::pin::Pin<Box<dyn Future<Output = Result<Brought, Error>> + Send>>;

/// A confirmation that waits for the fold to reach the head it saw.
struct Pending {
    t0: Moment,
    report: HeadReport,
}

/// What to do next.
enum Next {
    Exchange(Exchange),
    /// Wait for a reason to ask again.
    Idle(Box<dyn Reading>),
    /// The session is gone.
    Reopen,
}

impl Feed {
    /// A view and the task that feeds it. A change of `nudges` starts a cycle
    /// early; it may never come.
    pub fn new(
        entries: Arc<dyn Entries>,
        committed: mpsc::Receiver<Committed>,
        nudges: watch::Receiver<u64>,
        node: &str,
        clock: Clock,
        settings: Settings,
        metrics: Metrics,
    ) -> (View, Self) {
        let state = State::empty("").keeping(settings.log);
        let served = Served {
            generation: 0,
            state: Arc::new(state.clone()),
            proof: None,
            loaded: false,
            diverged: false,
            unsupported: false,
            node: node.into(),
        };
        let demand = Arc::new(Notify::new());
        let (progress, seen) = watch::channel(Progress::default());
        let view = View::new(served, seen, Arc::clone(&demand), clock.clone());
        let feed = Self {
            entries,
            committed,
            nudges,
            nudged: true,
            demand,
            demanded: false,
            view: view.clone(),
            progress,
            clock,
            settings,
            metrics,
            state,
            generation: 0,
            proof: None,
            loaded: false,
            unsupported: false,
            pause: Duration::ZERO,
            liveness_since: None,
            liveness_behind: false,
            liveness_due: Instant::now(),
        };
        (view, feed)
    }

    /// Runs until `stop` is cancelled.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut pending: Option<Pending> = None;
        let mut next = Next::Reopen;
        let mut local = true;
        loop {
            let exchange = match next {
                Next::Exchange(exchange) => Some(exchange),
                Next::Reopen => {
                    pending = None;
                    let pause = jittered(self.pause);
                    if !self.idle(pause, false, &mut local, &stop).await {
                        break;
                    }
                    Some(self.open())
                }
                Next::Idle(session) => {
                    let poll = self.settings.poll;
                    if !self.idle(poll, true, &mut local, &stop).await {
                        break;
                    }
                    Some(self.ask(session))
                }
            };
            let Some(mut exchange) = exchange else { break };
            let brought = loop {
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return self.ended(),
                    committed = self.committed.recv(), if local => match committed {
                        Some(committed) => self.fold_own(committed),
                        None => local = false,
                    },
                    brought = &mut exchange => break brought,
                }
            };
            next = match brought {
                Ok(brought) => self.take(brought, &mut pending),
                Err(error) => {
                    self.metrics.confirm_failures.inc();
                    tracing::warn!(%error, "the ledger was not reached; the view is not being proven");
                    self.fail()
                }
            };
        }
        self.ended();
    }

    fn ended(&self) {
        tracing::debug!(position = %self.state.position(), "the feed has ended");
    }

    /// Waits for `pause`, or for a nudge or a demand where those count, folding own commits meanwhile.
    /// False when the task is to end.
    async fn idle(
        &mut self,
        pause: Duration,
        wakeable: bool,
        local: &mut bool,
        stop: &CancellationToken,
    ) -> bool {
        let until = Instant::now() + pause;
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return false,
                committed = self.committed.recv(), if *local => match committed {
                    Some(committed) => self.fold_own(committed),
                    None => *local = false,
                },
                () = self.demand.notified(), if wakeable => {
                    self.demanded = true;
                    return true;
                }
                nudge = self.nudges.changed(), if wakeable && self.nudged => {
                    if nudge.is_ok() {
                        return true;
                    }
                    self.nudged = false;
                }
                () = tokio::time::sleep_until(until) => return true,
            }
        }
    }

    fn fail(&mut self) -> Next {
        let doubled = (self.pause * 2).max(Duration::from_millis(25));
        self.pause = doubled.min(self.settings.backoff);
        Next::Reopen
    }

    fn open(&self) -> Exchange {
        let entries = Arc::clone(&self.entries);
        self.bounded(self.settings.exchange, async move { Ok(Brought::Session(entries.open().await?)) })
    }

    fn ask(&mut self, mut session: Box<dyn Reading>) -> Exchange {
        let asked = self.state.head();
        let demanded = std::mem::take(&mut self.demanded);
        let clock = self.clock.clone();
        self.bounded(self.settings.exchange, async move {
            let t0 = clock.now();
            let report =
                if demanded { session.head_now(asked.seq).await? } else { session.head(asked.seq).await? };
            Ok(Brought::Head { session, asked, t0, report })
        })
    }

    fn read(&self, mut session: Box<dyn Reading>) -> Exchange {
        let (after, limit) = (self.state.head().seq, self.settings.page);
        self.bounded(self.settings.reading, async move {
            let page = session.page(after, limit).await?;
            Ok(Brought::Page { session, page })
        })
    }

    fn read_liveness(&self, mut session: Box<dyn Reading>) -> Exchange {
        let overlap = if self.liveness_behind { 0 } else { LIVENESS_OVERLAP_MICROS };
        let since = self
            .liveness_since
            .map(|since| Timestamp::from_micros(since.as_micros().saturating_sub(overlap)));
        self.bounded(self.settings.exchange, async move {
            let rows = session.liveness(since).await?;
            Ok(Brought::Liveness { session, rows })
        })
    }

    fn bounded(
        &self,
        limit: Duration,
        exchange: impl Future<Output = Result<Brought, Error>> + Send + 'static,
    ) -> Exchange {
        Box::pin(async move {
            tokio::time::timeout(limit, exchange).await.unwrap_or_else(|_| {
                Err(Error::Unavailable(format!("no answer within {} ms", limit.as_millis())))
            })
        })
    }

    fn take(&mut self, brought: Brought, pending: &mut Option<Pending>) -> Next {
        match brought {
            Brought::Session(session) => {
                self.metrics.sessions.inc();
                Next::Exchange(self.ask(session))
            }
            Brought::Head { session, asked, t0, report } => {
                self.take_head(session, asked, t0, report, pending)
            }
            Brought::Page { session, page } => {
                let folded = match page {
                    Page::Entries(entries) if entries.is_empty() => {
                        tracing::warn!("the ledger has a head but not the entries up to it");
                        return self.fail();
                    }
                    Page::Entries(entries) => self.fold_all(entries),
                    Page::Snapshot(snapshot) => self.start_over(*snapshot),
                };
                match folded {
                    Ok(()) => self.reach(session, pending),
                    Err(error) => self.stumble(&error),
                }
            }
            Brought::Liveness { session, rows } => {
                // One page between two proofs, so that a large table does not hold proofs up.
                self.liveness_behind = rows.len() >= LIVENESS_PAGE;
                for row in rows {
                    self.liveness_since = self.liveness_since.max(Some(row.origin_confirmed_at));
                    self.state.take_liveness(&row);
                }
                let pause = if self.liveness_behind { Duration::ZERO } else { self.settings.liveness };
                self.liveness_due = Instant::now() + pause;
                Next::Idle(session)
            }
        }
    }

    fn take_head(
        &mut self,
        session: Box<dyn Reading>,
        asked: Head,
        t0: Moment,
        report: HeadReport,
        pending: &mut Option<Pending>,
    ) -> Next {
        if report.in_recovery {
            self.metrics.confirm_failures.inc();
            tracing::warn!("the database is in recovery: it is no authority");
            return self.fail();
        }
        if !self.loaded && self.state.ledger_id().is_empty() {
            self.state = State::empty(&report.ledger_id).keeping(self.settings.log);
        } else if let Err(contradiction) = contradicts(self.state.ledger_id(), asked, &report) {
            return self.reload(session, &report, &contradiction.to_string());
        }
        let behind = report.head.seq.saturating_sub(self.state.head().seq);
        self.metrics.head_minus_applied.set(i64::try_from(behind).unwrap_or(i64::MAX));
        self.view.set_authority_head(report.head.seq);
        *pending = Some(Pending { t0, report });
        self.reach(session, pending)
    }

    /// Proves the view if it has reached the head that was seen; else reads on.
    fn reach(&mut self, session: Box<dyn Reading>, pending: &mut Option<Pending>) -> Next {
        let Some(seen) = pending.take_if(|seen| self.state.head().seq >= seen.report.head.seq) else {
            return Next::Exchange(self.read(session));
        };
        let head = seen.report.head;
        if self.state.tag_at(head.seq) != Some(Tag::from(&head.digest)) {
            return self.reload(session, &seen.report, "its digest at the authority's head is another");
        }
        let Some(age) = seen.report.age else {
            // An upstream that is not proven itself: there is more to read perhaps, and nothing to prove.
            self.metrics.confirm_failures.inc();
            return Next::Idle(session);
        };
        let proof = Proof {
            at: seen.t0.before(age),
            authority_wall: seen.report.wall,
            service: seen.report.service,
            hops: seen.report.hops,
        };
        if self.proof.is_none_or(|before| proof.at.at_or_after(&before.at)) {
            self.proof = Some(proof);
        }
        self.loaded = true;
        self.unsupported = false;
        self.pause = Duration::ZERO;
        self.metrics.confirm_seconds.observe(self.clock.now().since(&seen.t0).as_secs_f64());
        self.publish();
        if Instant::now() >= self.liveness_due {
            return Next::Exchange(self.read_liveness(session));
        }
        Next::Idle(session)
    }

    /// Starts a new generation: unproven at once, then loaded from the beginning over the same session.
    fn reload(&mut self, session: Box<dyn Reading>, report: &HeadReport, why: &str) -> Next {
        tracing::error!(
            held = %self.state.position(), authority = %report.head.position(), why,
            "the history has diverged: the view is loaded anew"
        );
        self.metrics.reloads.inc();
        self.metrics.confirm_failures.inc();
        self.generation += 1;
        self.proof = None;
        self.loaded = false;
        self.publish();
        self.view.set_authority_head(0);
        self.state = State::empty(&report.ledger_id).keeping(self.settings.log);
        self.liveness_behind = false;
        self.unsupported = false;
        self.liveness_since = None;
        self.liveness_due = Instant::now();
        Next::Exchange(self.ask(session))
    }

    /// An entry read from the ledger could not be folded.
    fn stumble(&mut self, error: &FoldError) -> Next {
        self.metrics.confirm_failures.inc();
        if error.is_final() {
            if !self.unsupported {
                tracing::error!(%error, "the view stops here: it is not proven any more");
                self.unsupported = true;
                self.publish();
            }
        } else {
            tracing::error!(%error, "the ledger does not follow from the view; asking again");
        }
        self.fail()
    }

    fn fold_all(&mut self, entries: Vec<Entry>) -> Result<(), FoldError> {
        for entry in entries {
            // Own commits may have been folded while the page was on its way.
            if entry.seq <= self.state.head().seq {
                continue;
            }
            self.state.fold(entry)?;
        }
        // While loading nobody sees half a ledger.
        if self.loaded {
            self.publish();
        }
        Ok(())
    }

    /// Goes on from a snapshot, which is of the same history as long as nothing says otherwise.
    fn start_over(&mut self, snapshot: Snapshot) -> Result<(), FoldError> {
        let held = self.state.head();
        let state = State::restore(snapshot)?.keeping(self.settings.log);
        if state.tag_at(held.seq) != Some(Tag::from(&held.digest)) {
            return Err(FoldError::Broken(Broken::Link { seq: held.seq }));
        }
        self.state = state;
        self.metrics.snapshots_taken.inc();
        self.liveness_since = None;
        self.liveness_due = Instant::now();
        if self.loaded {
            self.publish();
        }
        Ok(())
    }

    fn fold_own(&mut self, committed: Committed) {
        if !self.loaded || self.unsupported {
            return;
        }
        let before = self.state.head().seq;
        for entry in committed.entries {
            if entry.seq <= self.state.head().seq {
                continue;
            }
            if let Err(error) = self.state.fold(entry) {
                tracing::debug!(%error, "a commit of this node does not follow from the view yet");
                self.demand.notify_one();
                break;
            }
        }
        if self.state.head().seq > before {
            self.publish();
        }
        for row in &committed.liveness {
            self.state.take_liveness(row);
        }
    }

    fn publish(&self) {
        let node = Arc::clone(&self.view.load().node);
        // Until a reload is complete the old state stays, unproven.
        let state =
            if self.loaded { Arc::new(self.state.clone()) } else { Arc::clone(&self.view.load().state) };
        let loaded = self.loaded || self.view.load().loaded;
        let diverged = loaded && !self.loaded;
        self.metrics.position.set(i64::try_from(state.head().seq).unwrap_or(i64::MAX));
        self.metrics.agents.set(i64::try_from(state.live_len()).unwrap_or(i64::MAX));
        self.view.publish(Served {
            generation: self.generation,
            state,
            proof: self.proof,
            loaded,
            diverged,
            unsupported: self.unsupported,
            node,
        });
        self.progress.send_modify(|progress| progress.published += 1);
    }
}

/// From half of `pause` to all of it, so that those who lost one server do not come back in step.
fn jittered(pause: Duration) -> Duration {
    let mut random = [0; 2];
    if getrandom::fill(&mut random).is_err() {
        return pause;
    }
    pause.mul_f64(0.5 + f64::from(u16::from_le_bytes(random)) / 131_072.0)
}
