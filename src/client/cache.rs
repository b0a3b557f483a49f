//! A watched copy of a selection of agents, proven on demand.
//!
//! One task follows the registry's stream and owns the [session](super::session); readers load the newest copy
//! through one pointer and take no lock. A read whose fence the copy's proof satisfies is answered at once, in well
//! under a microsecond. One that needs a younger proof asks for it on the stream and waits, within its wait; a
//! thousand that ask at a time share one or two. What the copy cannot say (a card that did not come along, the age of
//! an origin, a position it does not remember, an agent that is not watched) is asked of the registry.
//!
//! It fails closed: when the stream is cut or frozen the proof grows old, and past the bound of a fence there is no
//! answer. It never says "not found" from a copy that was not proven since the question arrived.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use async_trait::async_trait;
use futures::Stream;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::answer::{Ask, Discovery, Error, Refusal, Resolved};
use super::copy::{Answer, Copy};
use super::events::{Observed, Teller};
use super::follow::{self, Source};
use super::resolver::Resolver;
use super::retry::Retry;
use crate::clock::{Clock, Moment};
use crate::fence::Fence;
use crate::terms::{AgentName, Position, Reason};

/// What is watched.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Selection {
    /// Everything that the caller may read.
    #[default]
    All,
    /// These agents, and all in these namespaces; together at most 1,000.
    Of { agents: Vec<AgentName>, namespaces: Vec<String> },
}

impl Selection {
    /// Whether the absence of `agent` from a proven copy means that there is none.
    pub fn covers(&self, agent: &AgentName) -> bool {
        match self {
            Self::All => true,
            Self::Of { agents, namespaces } => {
                agents.contains(agent) || namespaces.iter().any(|namespace| namespace == agent.namespace())
            }
        }
    }
}

/// How a cache follows and answers.
#[derive(Debug, Clone)]
pub struct Settings {
    pub selection: Selection,
    /// The staleness that a fence accepts which says nothing.
    pub default_max_staleness: Duration,
    /// How long a read waits for a proof where it says nothing.
    pub default_wait: Duration,
    /// A stream on which nothing comes for so long is given up; the registry sends something every 5 s.
    pub silence: Duration,
    /// A stream on which a confirmation is not answered within this time is given up.
    pub confirm_within: Duration,
    /// The pauses between attempts to connect; its number of attempts is of no matter, a cache never gives up.
    pub retry: Retry,
    /// The same kind as the resolver's.
    pub clock: Clock,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            selection: Selection::All,
            default_max_staleness: Duration::from_secs(5),
            default_wait: Duration::from_secs(1),
            silence: Duration::from_secs(15),
            confirm_within: Duration::from_secs(5),
            retry: Retry::default(),
            clock: Clock::System,
        }
    }
}

/// Something that a cache went through.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A stream was opened.
    Connected,
    /// The copy is whole, at this position; not yet proven.
    Synced(Position),
    /// An agent came to another revision: what was kept of it elsewhere is out of date.
    Changed { agent: AgentName, revision: u64, retired: bool },
    /// The stream was lost or given up; the copy is kept, and grows old.
    Lost { why: String },
    /// The stream said what it may not say, or its history is another; the copy is gone.
    Dropped { why: String },
    /// The cache ended.
    Ended,
}

/// A watched copy. Cheap to clone; the task that follows the stream ends with the last clone.
///
/// ```no_run
/// use cardfence::client::{Cache, CacheSettings, Resolver};
/// use cardfence::fence::Fence;
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let cache = Cache::start(Resolver::connect("http://127.0.0.1:7878")?, CacheSettings::default());
/// // Proven at most five seconds ago, or confirmed within a second, or an error.
/// let found = cache.resolve(&"acme/summarizer".parse()?, &Fence::default()).await?;
/// println!("revision {}, at most {:?} old", found.revision.number, found.freshness.staleness);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Cache {
    owned: Arc<Owned>,
}

/// Ends the task when nobody reads any more.
#[derive(Debug)]
struct Owned {
    shared: Arc<Shared>,
    elsewhere: Option<Resolver>,
    stop: CancellationToken,
    task: std::sync::Mutex<Option<JoinHandle<()>>>,
}

/// Between the task and the readers.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) copy: ArcSwapOption<Copy>,
    /// Raised whenever there is reason to look again: another copy, another proof, a lost stream.
    pub(super) looks: watch::Sender<()>,
    /// Room for one: whoever asks while one is waiting is served by it.
    pub(super) wanted: mpsc::Sender<()>,
    pub(super) is_open: AtomicBool,
    pub(super) lost_histories: AtomicU64,
    pub(super) teller: Teller<Event>,
    pub(super) settings: Settings,
}

impl Cache {
    /// Starts to follow the registry behind `resolver`, which is also asked for what the copy cannot say.
    pub fn start(resolver: Resolver, settings: Settings) -> Self {
        let source = super::subscribe::over(&resolver);
        Self::over(source, Some(resolver), settings)
    }

    pub(super) fn over(source: impl Source, elsewhere: Option<Resolver>, settings: Settings) -> Self {
        let (wanted, wishes) = mpsc::channel(1);
        let shared = Arc::new(Shared {
            copy: ArcSwapOption::empty(),
            looks: watch::Sender::new(()),
            wanted,
            is_open: AtomicBool::new(false),
            lost_histories: AtomicU64::new(0),
            teller: Teller::new(),
            settings,
        });
        let stop = CancellationToken::new();
        // The one task of a cache: its end is an event, and `Owned` ends it.
        let task = tokio::spawn(follow::run(Arc::clone(&shared), source, wishes, stop.clone()));
        let task = std::sync::Mutex::new(Some(task));
        Self { owned: Arc::new(Owned { shared, elsewhere, stop, task }) }
    }

    /// The agent's current card under `fence`.
    ///
    /// # Errors
    /// [`Error::Refused`] when the fence did not pass, with the card that did not; [`Error::Unreachable`] when the copy
    /// could not be proven young enough because the registry is out of reach.
    pub async fn resolve(&self, agent: &AgentName, fence: &Fence) -> Result<Resolved, Error> {
        self.ask(&Ask::new(agent, fence)).await
    }

    /// The answer of the copy as it is, if it is one; waits for nothing. `None`: the copy cannot say.
    pub fn peek(&self, agent: &AgentName, fence: &Fence) -> Option<Result<Resolved, Error>> {
        let shared = &*self.owned.shared;
        let ask = Ask::new(agent, fence);
        let now = shared.settings.clock.now();
        let copy = shared.copy.load();
        match copy.as_ref()?.answer(&ask, shared.settings.default_max_staleness, &now, &now) {
            Answer::Passed(resolved) => Some(Ok(resolved)),
            Answer::Refused(refusal) if shared.settings.selection.covers(agent) => {
                Some(Err(Error::Refused(refusal)))
            }
            Answer::Refused(_) | Answer::Unproven { .. } | Answer::Elsewhere => None,
        }
    }

    /// As [`resolve`](Self::resolve), with all that one can say.
    ///
    /// # Errors
    /// As [`resolve`](Self::resolve).
    pub async fn ask(&self, ask: &Ask<'_>) -> Result<Resolved, Error> {
        let shared = &*self.owned.shared;
        let settings = &shared.settings;
        let arrival = settings.clock.now();
        let answer = |now: Moment| {
            let copy = shared.copy.load();
            let held = copy.as_ref()?;
            Some(held.answer(ask, settings.default_max_staleness, &arrival, &now))
        };
        // The way that nearly every read takes: no wait, nothing allocated that an answer does not need.
        if let Some(Answer::Passed(resolved)) = answer(arrival) {
            return Ok(resolved);
        }
        if !settings.selection.covers(ask.agent) {
            return self.elsewhere(ask).await;
        }
        let deadline = Instant::now() + ask.wait.unwrap_or(settings.default_wait);
        let (mut looks, mut wished) = (shared.looks.subscribe(), None);
        loop {
            looks.mark_unchanged();
            let content = match answer(settings.clock.now()) {
                Some(Answer::Passed(resolved)) => return Ok(resolved),
                Some(Answer::Refused(refusal)) => return Err(Error::Refused(refusal)),
                Some(Answer::Elsewhere) => return self.elsewhere(ask).await,
                Some(Answer::Unproven { content }) => content,
                None => None,
            };
            // One wish is enough, unless a confirmation that began after it was no proof that this read can use.
            let asked = shared.copy.load().as_ref().and_then(|copy| copy.asked);
            if wished.is_none_or(|wished| asked.is_some_and(|asked| asked.at_or_after(&wished))) {
                wished = Some(settings.clock.now());
                // One that waits already is as good: it is taken up after this read arrived.
                let _ = shared.wanted.try_send(());
            }
            match timeout_at(deadline, looks.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return Err(self.unproven(content)),
            }
        }
    }

    /// What happens from now on: changes of the watched agents among it. A listener that is slow misses events, and is
    /// told how many.
    pub fn events(&self) -> impl Stream<Item = Observed<Event>> + Send + Unpin + use<> {
        self.owned.shared.teller.listen()
    }

    /// Upper bound on the age of the copy; `None`: there is none, or nothing is proven.
    pub fn staleness(&self) -> Option<Duration> {
        let copy = self.owned.shared.copy.load();
        copy.as_ref()?.staleness(&self.owned.shared.settings.clock.now())
    }

    /// Where the copy is; `None`: there is none.
    pub fn position(&self) -> Option<Position> {
        self.owned.shared.copy.load().as_ref().map(|copy| copy.position)
    }

    /// Ends the task, and waits for its end. What is read afterwards grows old, and then fails.
    pub async fn stop(&self) {
        self.owned.stop.cancel();
        let task = self.owned.task.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        if let Some(task) = task {
            // It ends by itself; that it panicked is told by the absence of its last event.
            let _ = task.await;
        }
    }

    async fn elsewhere(&self, ask: &Ask<'_>) -> Result<Resolved, Error> {
        match &self.owned.elsewhere {
            Some(resolver) => resolver.ask(ask).await,
            None => {
                Err(Error::Unreachable("the watched copy cannot say, and nobody else is asked".to_owned()))
            }
        }
    }

    /// Why a copy that could not be proven in time gives no answer; `content` is what it would have said.
    fn unproven(&self, content: Option<Reason>) -> Error {
        let shared = &*self.owned.shared;
        if !shared.is_open.load(Ordering::Acquire) {
            return Error::Unreachable(
                "the watch stream is down, and the copy is not young enough".to_owned(),
            );
        }
        let beside =
            content.map_or_else(String::new, |reason| format!("; as it stands, it would be {reason}"));
        let detail = format!("the watched copy was not confirmed in time{beside}");
        Refusal {
            retry_after: Some(Duration::from_secs(1)),
            ..Refusal::new(Reason::FreshnessUnverifiable, detail)
        }
        .into()
    }
}

#[async_trait]
impl Discovery for Cache {
    async fn discover(&self, ask: Ask<'_>) -> Result<Resolved, Error> {
        self.ask(&ask).await
    }

    fn history(&self) -> u64 {
        let own = self.owned.shared.lost_histories.load(Ordering::Acquire);
        own + self.owned.elsewhere.as_ref().map_or(0, Discovery::history)
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

#[cfg(test)]
mod tests;
