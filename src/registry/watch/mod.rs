//! Watching: a stream of what happens to a selection of agents, without a gap, from a snapshot or a position.
//!
//! A subscriber's copy is complete by construction: a stream tells every change of its selection, each once and in
//! the order of the ledger, and a checkpoint is sent by the same reader after all that it speaks for. A position that
//! cannot be gone on from is answered with a snapshot, never with a jump. Who cannot keep up is told so at the end,
//! and never skipped.
//!
//! A stream alone proves nothing about age. A subscriber that needs a proof asks on the stream
//! ([`Subscription::confirm`]); the answer is a checkpoint that carries its nonce.
//!
//! `stream` is the task behind a subscription, `past` how it reads what memory no longer holds, `event` what it
//! tells. What bounds them all together is [`Streams`].

mod event;
mod past;
mod stream;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::consult::{Demand, consult, deadline};
use super::{Call, Refusal, Registry};
use crate::card::Class;
use crate::clock::Moment;
use crate::terms::{AgentName, MaxStaleness, Position, Reason, check_part, random_bytes};
use crate::view::{Place, Seat, Selection, Served};
use event::Wanted;
use stream::{Start, Stream};

pub use event::{Because, Checkpoint, Event, Kind, Told};

/// What a subscriber asks for.
#[derive(Debug, Clone, Default)]
pub struct Watch {
    pub agents: Vec<AgentName>,
    pub namespaces: Vec<String>,
    /// Everything; the others add nothing to it.
    pub all: bool,
    /// The least class of change that is sent in full; `None`: any.
    pub class: Option<Class>,
    pub without_cards: bool,
    /// Where the subscriber is; `None`: nowhere, so it gets a snapshot.
    pub from: Option<Position>,
}

/// Bounds and periods of streams.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Streams at once.
    pub subscribers: usize,
    /// Streams that read a snapshot, or the past, of more than the agents they name, at once.
    pub snapshots: usize,
    /// Time between two checkpoints of a stream on which nothing else is asked.
    pub checkpoint: Duration,
    /// How long a stream may be open, give or take a tenth.
    pub max_age: Duration,
    /// How long a subscriber may leave an event untaken.
    pub blocked: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            subscribers: 20_000,
            snapshots: 16,
            checkpoint: Duration::from_secs(5),
            max_age: Duration::from_secs(30 * 60),
            blocked: Duration::from_secs(10),
        }
    }
}

/// Agents and namespaces that one stream may name.
const SELECTORS_MAX: usize = 1_000;
/// Events that wait for a subscriber to take them.
const EVENTS_WAITING: usize = 8;
/// Confirmations of one stream that may be outstanding.
const CONFIRMS_WAITING: usize = 16;
/// What one who is to come back later waits at least, give or take a tenth.
const PAUSE: Duration = Duration::from_secs(1);
/// Characters of a nonce.
const NONCE_MAX: usize = 128;

/// All streams of one node.
#[derive(Debug)]
pub(super) struct Streams {
    subscribers: Arc<Semaphore>,
    snapshots: Arc<Semaphore>,
    drain: CancellationToken,
    tasks: TaskTracker,
    /// By id, for confirmations that come by another way than the stream.
    open: Mutex<HashMap<Arc<str>, mpsc::Sender<Confirm>>>,
}

impl Streams {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            subscribers: Arc::new(Semaphore::new(settings.subscribers)),
            snapshots: Arc::new(Semaphore::new(settings.snapshots)),
            drain: CancellationToken::new(),
            tasks: TaskTracker::new(),
            open: Mutex::default(),
        }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<Arc<str>, mpsc::Sender<Confirm>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A confirmation that was asked for.
#[derive(Debug)]
pub(super) struct Confirm {
    nonce: Arc<str>,
    /// When it was received: staleness counts from here.
    receipt: Moment,
}

impl Confirm {
    fn new(nonce: &str, receipt: Moment) -> Result<Self, Refusal> {
        let visible = nonce.bytes().all(|b| b.is_ascii_graphic());
        if nonce.is_empty() || nonce.len() > NONCE_MAX || !visible {
            let detail = format!("nonce: 1 to {NONCE_MAX} visible ASCII characters are allowed");
            return Err(Refusal::invalid(detail));
        }
        Ok(Self { nonce: nonce.into(), receipt })
    }

    fn hand_to(self, stream: &mpsc::Sender<Self>) -> Result<(), Refusal> {
        match stream.try_send(self) {
            Ok(()) => Ok(()),
            Err(mpsc::error::TrySendError::Full(_)) => {
                let detail = format!(
                    "too many confirmations of this stream are outstanding: at most {CONFIRMS_WAITING}"
                );
                Err(Refusal::new(Reason::Overloaded, detail))
            }
            Err(mpsc::error::TrySendError::Closed(_)) => Err(not_here()),
        }
    }
}

fn not_here() -> Refusal {
    let detail = "this node has no such stream: it has ended, or it is at another node";
    Refusal::new(Reason::StreamNotHere, detail)
}

/// A stream of events. It ends when this is dropped.
#[derive(Debug)]
pub struct Subscription {
    id: Arc<str>,
    events: mpsc::Receiver<Event>,
    /// Why it has ended, once it has.
    ended: Arc<OnceLock<Reason>>,
    told_end: bool,
    confirms: mpsc::Sender<Confirm>,
    streams: Arc<Streams>,
}

impl Subscription {
    /// The name of the stream at this node.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The next event; `None` after [`Event::End`].
    pub async fn next(&mut self) -> Option<Event> {
        if let Some(event) = self.events.recv().await {
            return Some(event);
        }
        // The end takes no room in the queue, so that one who let the queue fill up is told it too.
        let reason = self.ended.get().copied().unwrap_or(Reason::Internal);
        (!std::mem::replace(&mut self.told_end, true)).then_some(Event::End { reason })
    }

    /// Asks for a checkpoint with this nonce, by which everything is proven that was acknowledged before `receipt`.
    ///
    /// # Errors
    /// `invalid_argument`; `overloaded` when too many are outstanding; `stream_not_here` when the stream has ended.
    pub fn confirm(&self, nonce: &str, receipt: Moment) -> Result<(), Refusal> {
        Confirm::new(nonce, receipt)?.hand_to(&self.confirms)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.streams.open().remove(&self.id);
    }
}

impl Watch {
    fn selection(&self) -> Result<Selection, Refusal> {
        let named = self.agents.len() + self.namespaces.len();
        if named > SELECTORS_MAX {
            let detail =
                format!("{named} agents and namespaces in one stream are too many: at most {SELECTORS_MAX}");
            return Err(Refusal::invalid(detail));
        }
        for namespace in &self.namespaces {
            check_part(namespace).map_err(|error| Refusal::invalid(format!("namespace: {error}")))?;
        }
        if self.class == Some(Class::Cosmetic) {
            return Err(Refusal::invalid("class: `cosmetic` is not allowed: breaking or additive are"));
        }
        match (self.all, named) {
            (true, _) => Ok(Selection::all()),
            (false, 0) => Err(Refusal::invalid("nothing is selected: name agents or namespaces, or say all")),
            (false, _) => Ok(Selection::of(self.agents.clone(), self.namespaces.clone())),
        }
    }
}

impl Registry {
    /// Opens a stream.
    ///
    /// # Errors
    /// `invalid_argument`; `overloaded` when there are too many streams, or snapshots are read by too many;
    /// `draining`; `freshness_unverifiable` and `position_not_reached` when it cannot be told in time whether `from`
    /// is of this history. A position that is not is no refusal: the stream begins with a reset.
    #[tracing::instrument(level = "debug", skip_all)]
    pub async fn watch(&self, call: &Call, request: Watch) -> Result<Subscription, Refusal> {
        let selection = request.selection()?;
        if self.streams.drain.is_cancelled() {
            return Err(Refusal::new(Reason::Draining, "this node is about to stop"));
        }
        let Ok(permit) = Arc::clone(&self.streams.subscribers).try_acquire_owned() else {
            let detail = "this node has as many subscribers as it may have";
            return Err(Refusal::new(Reason::Overloaded, detail));
        };
        let until = deadline(call, None, &self.settings)?;
        let (from, because) = match self.resumable(call, request.from).await? {
            Some(from) => (Some(from), Because::Start),
            None if request.from.is_some() => (None, Because::HistoryDiverged),
            None => (None, Because::Start),
        };
        let mut reading = match from {
            None if !selection.is_small() => Some(self.may_read(until).await?),
            _ => None,
        };
        let (seat, served) = self.seat(&selection, from.as_ref(), until).await?;
        let start = match from {
            Some(from) => {
                if reading.is_none() && served.state.log().since(from.seq).is_none() {
                    reading = Some(self.may_read(until).await?);
                }
                seat.begin(from.seq, served.state.head().seq);
                Start::Resume
            }
            None => Start::Snapshot { served: Arc::clone(&served), because },
        };
        let wanted = Wanted { class: request.class, cards: !request.without_cards };
        Ok(self.open_stream(seat, &served, wanted, start, permit, reading))
    }

    /// The position, if a stream can go on from it; `None` when it is proven to be of another history.
    async fn resumable(&self, call: &Call, from: Option<Position>) -> Result<Option<Position>, Refusal> {
        let positions: &[Position] = from.as_slice();
        let demand = Demand { tolerance: MaxStaleness::Any, positions, wait: None };
        let content = |served: &Served, _: &Moment| (!ready(served)).then_some(Reason::FreshnessUnverifiable);
        match consult(&self.view, &self.settings, call, demand, content).await {
            Ok(_) => Ok(from),
            Err(Ok(denied))
                if matches!(denied.reason, Reason::HistoryDiverged | Reason::PositionInFuture) =>
            {
                Ok(None)
            }
            Err(Ok(denied)) => Err(self.refuse_read(&denied)),
            Err(Err(refusal)) => Err(refusal),
        }
    }

    /// A seat, and the state that it begins at, which includes `from`.
    async fn seat(
        &self,
        selection: &Selection,
        from: Option<&Position>,
        until: Instant,
    ) -> Result<(Seat, Arc<Served>), Refusal> {
        let hub = self.view.hub();
        loop {
            let (generation, seq) = {
                let served = self.view.load();
                (served.generation, served.state.head().seq)
            };
            // The hub may be a step behind the view.
            if !hub.reach(generation, seq, until).await && Instant::now() >= until {
                break;
            }
            let (seat, served) = hub.seat(selection.clone());
            if !ready(&served) {
                continue;
            }
            match from.map(|from| served.place(from)) {
                None | Some(Place::Applied) => return Ok((seat, served)),
                // The history has changed since it was found to be of it.
                Some(_) => break,
            }
        }
        let detail = "this node is loading the ledger anew; ask again";
        Err(Refusal::new(Reason::FreshnessUnverifiable, detail))
    }

    async fn may_read(&self, until: Instant) -> Result<OwnedSemaphorePermit, Refusal> {
        match timeout_at(until, Arc::clone(&self.streams.snapshots).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => {
                let detail = "too many subscribers are being brought up to date";
                // Those who came together, after a fail-over say, are not to come back together.
                let after = stream::around(PAUSE).mul_f64(1.0 + stream::random_unit());
                Err(Refusal::new(Reason::Overloaded, detail).retry_after(after))
            }
        }
    }

    fn open_stream(
        &self,
        seat: Seat,
        served: &Served,
        wanted: Wanted,
        start: Start,
        permit: OwnedSemaphorePermit,
        reading: Option<OwnedSemaphorePermit>,
    ) -> Subscription {
        let id: Arc<str> = hex::encode(random_bytes::<16>()).into();
        let (sender, events) = mpsc::channel(EVENTS_WAITING);
        let (confirms, asked) = mpsc::channel(CONFIRMS_WAITING);
        let ended = Arc::new(OnceLock::new());
        let stream = Stream {
            seat,
            generation: served.generation,
            cursor: 0,
            wanted,
            events: sender,
            asked,
            sum: None,
            view: self.view.clone(),
            history: Arc::clone(&self.history),
            settings: Arc::clone(&self.settings),
            metrics: self.metrics.clone(),
            reading,
        };
        self.streams.open().insert(Arc::clone(&id), confirms.clone());
        let (drain, over) = (self.streams.drain.clone(), Arc::clone(&ended));
        self.streams.tasks.spawn(async move {
            stream.run(start, &drain, &over).await;
            drop(permit);
        });
        let streams = Arc::clone(&self.streams);
        Subscription { id, events, ended, told_end: false, confirms, streams }
    }

    /// Asks the stream `id` for a checkpoint with this nonce, counted from the arrival of the call.
    ///
    /// # Errors
    /// As [`Subscription::confirm`]; `stream_not_here` when no stream of this node has that id.
    pub fn confirm_stream(&self, call: &Call, id: &str, nonce: &str) -> Result<(), Refusal> {
        let confirm = Confirm::new(nonce, call.arrival)?;
        let stream = self.streams.open().get(id).cloned().ok_or_else(not_here)?;
        confirm.hand_to(&stream)
    }

    /// Ends all streams and opens no more.
    pub fn end_streams(&self) {
        self.streams.drain.cancel();
    }

    /// Waits until all streams have ended.
    pub async fn streams_ended(&self) {
        self.end_streams();
        self.streams.tasks.close();
        self.streams.tasks.wait().await;
    }
}

/// Whether a stream can begin at what is served.
fn ready(served: &Served) -> bool {
    served.loaded && !served.diverged
}

impl Refusal {
    /// What the status of a stream says that has ended.
    pub fn of_end(reason: Reason) -> Self {
        let detail = match reason {
            Reason::HistoryDiverged => "the history that was streamed is not the authority's any more",
            Reason::SubscriberTooSlow => {
                "the subscriber did not keep up; what it got is complete up to its last position"
            }
            Reason::MaxAge => "the stream was open for as long as one may be",
            Reason::Draining => "this node is about to stop",
            _ => "the stream could not be gone on with",
        };
        Self::new(reason, format!("{detail}: resume from the last position that came"))
    }
}
