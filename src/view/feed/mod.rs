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
//! # One lane or two
//!
//! Where the entries come from the authority itself (a primary database, an upstream node), feed and
//! confirmation use one session, hence one server (`lane`); when it fails in any way it is dropped, nothing of
//! it is kept, and the next one may be of another server: the digest tells.
//!
//! A standby is no authority. There the entries come over one lane, from the standby, and confirmations over
//! another, from the authority, and an exchange may be in flight on each. Three rules follow:
//!
//! - A confirmation waits until the entries have come up to the head that it saw; several wait at once
//!   (`pending`), so a replay that is a second behind is proven to be a second old.
//! - While the authority answers, what the standby shows is *shown* to readers once the authority has it too, with
//!   the same digest: not a commit that the primary does not show yet, and nothing of a history that it lost.
//!   So no more is folded than the authority's head, and what is folded stays back until it is confirmed.
//! - While the authority does not answer, what the standby shows is shown, and not proven.
//!
//! # Contradictions
//!
//! `doubt` says which are final. While one is asked about again nothing is proven. When it is final the view is
//! unproven *before* the reload begins, so that no answer calls a card of the lost history fresh; the old state
//! stays for readers who accept any staleness. A standby that still holds the lost history contradicts again:
//! the next reload waits, longer each time, and at most until another session with it is opened, as one is when
//! it was rebuilt or promoted.
//!
//! # Own commits
//!
//! Entries that this node's own writer committed arrive on a channel and are folded at once, while a cycle is
//! in flight as well; they are verified against the chain like any others and prove nothing by themselves.
//! One that does not follow is dropped: the cycle will tell what is true.
//!
//! `confirm` holds what follows from a confirmation, `fold` what follows from entries; this file is the task.

mod confirm;
mod doubt;
mod fold;
mod lane;
mod pending;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::doubt::Doubt;
use self::lane::{Brought, Event, Exchange, Lane};
use self::pending::Pending;
use super::freshness::{Proof, Served};
use super::log::ENTRIES_MAX;
use super::state::State;
use super::{Progress, View};
use crate::clock::Clock;
use crate::ledger::writer::Committed;
use crate::ledger::{Entries, Error, Reading};
use crate::telemetry::Metrics;
use crate::terms::Timestamp;

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
    /// The longest that reading one page may take.
    pub reading: Duration,
    /// Time between two readings of the liveness table.
    pub liveness: Duration,
    /// The last changes that are kept in memory at most, for those who follow.
    pub log: usize,
    /// How long an authority that is not the database of the entries may lack what the view has, before that
    /// means another history.
    pub patience: Duration,
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
            patience: Duration::from_secs(2),
        }
    }
}

/// Where a view gets what it holds, and what it is proven by.
#[derive(Debug)]
pub struct Sources {
    pub entries: Arc<dyn Entries>,
    /// `None`: the entries come from the authority itself.
    pub authority: Option<Arc<dyn Entries>>,
    /// What this node's own writer committed.
    pub committed: mpsc::Receiver<Committed>,
    /// Changes when the ledger may have grown; once its sender is gone, polling is all there is.
    pub nudges: watch::Receiver<u64>,
}

impl Sources {
    /// Entries that come from the authority itself.
    pub fn of(
        entries: Arc<dyn Entries>,
        committed: mpsc::Receiver<Committed>,
        nudges: watch::Receiver<u64>,
    ) -> Self {
        Self { entries, authority: None, committed, nudges }
    }
}

/// A liveness row may become visible this long after the time that it carries.
const LIVENESS_OVERLAP_MICROS: i64 = 15_000_000;

/// A standby that is behind is asked again after so long, then less and less often.
const CATCH_UP: Duration = Duration::from_millis(5);

/// Which lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    /// Of the entries; where there is one lane, of everything.
    Source,
    Authority,
}

/// The task, before it runs.
pub struct Feed {
    source: Lane,
    authority: Option<Lane>,
    committed: mpsc::Receiver<Committed>,
    local: bool,
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
    /// What is folded.
    state: State,
    /// What is published of it, which shares structure with it. Behind it only where there are two lanes.
    shown: State,
    /// The state that the authority is being asked about, where that is not shown yet.
    asked: Option<State>,
    generation: u64,
    /// Counts up when answers to what was asked before say nothing any more.
    epoch: u64,
    proof: Option<Proof>,
    loaded: bool,
    /// The view was proven once, in whatever generation.
    ready: bool,
    unsupported: bool,
    pending: Pending,
    doubt: Option<Doubt>,
    /// The authority's head as of its last answer; `None` while it does not answer.
    authority_head: Option<u64>,
    /// Before the standby is read again.
    catch_up: Duration,
    /// The source is not read before.
    reload_at: Instant,
    reload_pause: Duration,
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

impl Feed {
    /// A view and the task that feeds it. A change of the nudges starts a cycle early; it may never come.
    pub fn new(
        sources: Sources,
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
            ready: false,
            doubted: false,
            diverged: false,
            unsupported: false,
            node: node.into(),
        };
        let demand = Arc::new(Notify::new());
        let (progress, seen) = watch::channel(Progress::default());
        let view = View::new(served, seen, Arc::clone(&demand), clock.clone());
        let feed = Self {
            source: Lane::new(sources.entries),
            authority: sources.authority.map(Lane::new),
            committed: sources.committed,
            local: true,
            nudges: sources.nudges,
            nudged: true,
            demand,
            demanded: false,
            view: view.clone(),
            progress,
            clock,
            settings,
            metrics,
            shown: state.clone(),
            state,
            asked: None,
            generation: 0,
            epoch: 0,
            proof: None,
            loaded: false,
            ready: false,
            unsupported: false,
            pending: Pending::default(),
            doubt: None,
            authority_head: None,
            catch_up: CATCH_UP,
            reload_at: Instant::now(),
            reload_pause: Duration::ZERO,
            liveness_since: None,
            liveness_behind: false,
            liveness_due: Instant::now(),
        };
        (view, feed)
    }

    /// Runs until `stop` is cancelled.
    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            // A demand waits until the one who can serve it is free: the question must start after it.
            let free = self.authority.as_ref().unwrap_or(&self.source).rests();
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                committed = self.committed.recv(), if self.local => match committed {
                    Some(committed) => self.fold_own(committed),
                    None => self.local = false,
                },
                () = self.demand.notified(), if free => {
                    self.demanded = true;
                    self.asking().wake(Instant::now());
                }
                nudge = self.nudges.changed(), if free && self.nudged => match nudge {
                    Ok(()) => self.asking().wake(Instant::now()),
                    Err(_) => self.nudged = false,
                },
                event = next(&mut self.authority) => self.attend(Which::Authority, event),
                event = self.source.next() => self.attend(Which::Source, event),
            }
        }
        tracing::debug!(position = %self.state.position(), "the feed has ended");
    }

    fn attend(&mut self, which: Which, event: Event) {
        match event {
            Event::Due => self.go_on(which),
            Event::Brought(Ok(brought)) => self.take(which, brought),
            Event::Brought(Err(error)) => {
                self.metrics.confirm_failures.inc();
                match which {
                    Which::Source if self.two_lanes() => {
                        tracing::warn!(%error, "the store was not reached; the view does not move");
                    }
                    _ => {
                        tracing::warn!(%error, "the authority was not reached; the view is not being proven")
                    }
                }
                self.fail(which);
            }
        }
    }

    /// Whether the authority is another than where entries come from.
    fn two_lanes(&self) -> bool {
        self.authority.is_some()
    }

    fn lane(&mut self, which: Which) -> &mut Lane {
        match (which, &mut self.authority) {
            (Which::Authority, Some(authority)) => authority,
            _ => &mut self.source,
        }
    }

    /// The lane that confirmations come over.
    fn asking(&mut self) -> &mut Lane {
        self.authority.as_mut().unwrap_or(&mut self.source)
    }

    /// Gives a lane whose pause is over its next exchange.
    fn go_on(&mut self, which: Which) {
        let Some(session) = self.lane(which).take_session() else {
            let entries = self.lane(which).entries();
            if !self.two_lanes() {
                self.pending.clear();
            }
            return self.start(which, self.settings.exchange, async move {
                Ok(Brought::Session(entries.open().await?))
            });
        };
        if which == Which::Authority || !self.two_lanes() {
            return self.ask(which, session);
        }
        if self.doubt.is_some() && self.authority_head.is_some() {
            // More of what is doubted is of no use.
            return self.rest(which, session, self.settings.poll);
        }
        if self.loaded && Instant::now() >= self.liveness_due {
            return self.read_liveness(session);
        }
        self.read(session);
    }

    fn take(&mut self, which: Which, brought: Brought) {
        let late = self.lane(which).epoch != self.epoch;
        match brought {
            Brought::Session(session) if which == Which::Source && self.two_lanes() => {
                // Another server perhaps: what it holds is worth loading.
                self.reload_at = Instant::now();
                self.reload_pause = Duration::ZERO;
                self.metrics.sessions.inc();
                self.ask(which, session);
            }
            Brought::Session(session) => {
                self.metrics.sessions.inc();
                self.ask(which, session);
            }
            Brought::Head { session, .. }
            | Brought::Page { session, .. }
            | Brought::Liveness { session, .. }
                if late =>
            {
                self.rest(which, session, Duration::ZERO);
            }
            Brought::Head { session, report, .. } if which == Which::Source && self.two_lanes() => {
                self.meet(session, &report);
            }
            Brought::Head { session, asked, t0, report } => self.take_report(session, asked, t0, &report),
            Brought::Page { session, page } => self.take_page(session, page),
            Brought::Liveness { session, rows } => self.take_liveness(session, &rows),
        }
    }

    /// Drops a lane's session.
    fn fail(&mut self, which: Which) {
        let most = self.settings.backoff;
        self.lane(which).fail(most);
        if which == Which::Authority && self.authority_head.take().is_some() {
            // Nobody confirms what stayed back.
            self.show();
            self.publish();
        }
    }

    /// Keeps a lane's session for its next turn.
    fn rest(&mut self, which: Which, session: Box<dyn Reading>, pause: Duration) {
        let until = Instant::now() + pause;
        let until =
            if which == Which::Source && self.two_lanes() { until.max(self.reload_at) } else { until };
        self.lane(which).rest(session, until);
    }

    fn ask(&mut self, which: Which, mut session: Box<dyn Reading>) {
        let asking = which == Which::Authority || !self.two_lanes();
        let asked = match &self.doubt {
            Some(doubt) if asking => doubt.asked,
            _ => self.state.head(),
        };
        if asking {
            let hidden = asked != self.shown.head() && asked == self.state.head();
            self.asked = hidden.then(|| self.state.clone());
        }
        let now = asking && std::mem::take(&mut self.demanded);
        let clock = self.clock.clone();
        self.start(which, self.settings.exchange, async move {
            let t0 = clock.now();
            let report =
                if now { session.head_now(asked.seq).await? } else { session.head(asked.seq).await? };
            Ok(Brought::Head { session, asked, t0, report })
        });
    }

    fn read(&mut self, mut session: Box<dyn Reading>) {
        let (after, limit) = (self.state.head().seq, self.settings.page);
        self.start(Which::Source, self.settings.reading, async move {
            let page = session.page(after, limit).await?;
            Ok(Brought::Page { session, page })
        });
    }

    fn read_liveness(&mut self, mut session: Box<dyn Reading>) {
        let overlap = if self.liveness_behind { 0 } else { LIVENESS_OVERLAP_MICROS };
        let since = self
            .liveness_since
            .map(|since| Timestamp::from_micros(since.as_micros().saturating_sub(overlap)));
        self.start(Which::Source, self.settings.exchange, async move {
            let rows = session.liveness(since).await?;
            Ok(Brought::Liveness { session, rows })
        });
    }

    /// Starts an exchange that may take so long.
    fn start(
        &mut self,
        which: Which,
        limit: Duration,
        exchange: impl Future<Output = Result<Brought, Error>> + Send + 'static,
    ) {
        let exchange: Exchange = Box::pin(async move {
            tokio::time::timeout(limit, exchange).await.unwrap_or_else(|_| {
                Err(Error::Unavailable(format!("no answer within {} ms", limit.as_millis())))
            })
        });
        let epoch = self.epoch;
        self.lane(which).start(exchange, epoch);
    }

    /// Shows all that is folded.
    fn show(&mut self) {
        self.shown = self.state.clone();
    }

    fn publish(&self) {
        let before = self.view.load();
        // Until a reload is complete the old state stays, unproven.
        let state = if self.loaded { Arc::new(self.shown.clone()) } else { Arc::clone(&before.state) };
        let loaded = self.loaded || before.loaded;
        self.metrics.position.set(i64::try_from(state.head().seq).unwrap_or(i64::MAX));
        self.metrics.agents.set(i64::try_from(state.live_len()).unwrap_or(i64::MAX));
        self.view.publish(Served {
            generation: self.generation,
            state,
            proof: self.proof,
            loaded,
            ready: self.ready,
            doubted: self.doubt.is_some(),
            diverged: loaded && !self.loaded,
            unsupported: self.unsupported,
            node: Arc::clone(&before.node),
        });
        self.progress.send_modify(|progress| progress.published += 1);
    }
}

/// The next event of a lane, if there is that lane.
async fn next(lane: &mut Option<Lane>) -> Event {
    match lane {
        Some(lane) => lane.next().await,
        None => std::future::pending().await,
    }
}
