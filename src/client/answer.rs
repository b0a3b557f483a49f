//! What a client asks, and what it gets: an answer with its age, or a typed reason why not.
//!
//! Owns the seam between the guard and whatever finds cards for it ([`Discovery`]). An age is told as the moment up
//! to which the answer was proven, by this machine's clock, so that it goes on ageing while it is held; an answer
//! whose moment is not known is of unknown age, and no bound accepts it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::card::Card;
use crate::clock::Moment;
use crate::fence::{Fence, Outcome};
use crate::terms::{AgentName, Freshness, Position, Reason, Timestamp};

/// Finds the current card of an agent, or says why not. A [`Resolver`](super::Resolver) and a
/// [`Cache`](super::Cache) do.
#[async_trait]
pub trait Discovery: Send + Sync {
    /// # Errors
    /// [`Error::Refused`] when the fence did not pass, [`Error::Unreachable`] when nobody who knows answered in time.
    async fn discover(&self, ask: Ask<'_>) -> Result<Resolved, Error>;

    /// Counts up when the registry turns out to have another history than before, as after a failover that lost
    /// entries. What was found in an earlier one may never have happened.
    fn history(&self) -> u64 {
        0
    }
}

#[async_trait]
impl<D: Discovery + ?Sized> Discovery for Arc<D> {
    async fn discover(&self, ask: Ask<'_>) -> Result<Resolved, Error> {
        (**self).discover(ask).await
    }

    fn history(&self) -> u64 {
        (**self).history()
    }
}

/// One question.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    pub agent: &'a AgentName,
    pub fence: &'a Fence,
    /// A card that the caller holds: if it is still the one, its bytes are not sent again.
    pub held: Option<&'a Arc<Card>>,
    /// How long freshness or a position may be waited for, at most 10 s; `None`: the registry's default.
    pub wait: Option<Duration>,
    /// The answer must say what is known of the agent's origin: when it was last confirmed, how often it is redeployed.
    pub origin: bool,
}

impl<'a> Ask<'a> {
    pub const fn new(agent: &'a AgentName, fence: &'a Fence) -> Self {
        Self { agent, fence, held: None, wait: None, origin: false }
    }
}

/// An agent's card, and the revision that it is of.
#[derive(Debug, Clone)]
pub struct Revision {
    pub agent: AgentName,
    /// Counted from 1, per agent.
    pub number: u64,
    /// The entry of the ledger that made it.
    pub position: Position,
    pub card: Arc<Card>,
    pub registered_at: Timestamp,
    pub registered_by: Arc<str>,
    /// The namespace promises that a `version` once used never gets another content. `None`: the registry does not
    /// say, and then it must be taken for mutable.
    pub immutable_versions: Option<bool>,
}

/// What a resolve found.
#[derive(Debug, Clone)]
pub struct Resolved {
    pub revision: Arc<Revision>,
    /// As of the receipt: `staleness` counts the round trip in.
    pub freshness: Freshness,
    proven: Option<Moment>,
}

impl Resolved {
    /// An answer that holds all that was acknowledged before `proven`; `None`: nothing is proven.
    pub const fn new(revision: Arc<Revision>, freshness: Freshness, proven: Option<Moment>) -> Self {
        Self { revision, freshness, proven }
    }

    pub fn card(&self) -> &Arc<Card> {
        &self.revision.card
    }

    /// Upper bound on how long ago, as of `now`, this could have stopped being current; `None`: unknown. `now` is
    /// read from the same clock as the answer's receipt.
    pub fn staleness(&self, now: &Moment) -> Option<Duration> {
        self.proven.map(|proven| now.since(&proven))
    }
}

/// How one condition of a fence came out, as the registry tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// The field of the fence.
    pub name: String,
    pub outcome: Outcome,
    /// For people.
    pub wanted: String,
    /// For people.
    pub found: String,
}

/// Why the registry, or a proven copy of it, refuses.
#[derive(Debug, Clone)]
pub struct Refusal {
    pub reason: Reason,
    /// For people.
    pub detail: String,
    /// Every condition of the fence; passed ones may be left out of a large refusal.
    pub conditions: Vec<Condition>,
    pub freshness: Option<Freshness>,
    /// The card that did not pass. `None`: there is none, or it had no room.
    pub card: Option<Arc<Card>>,
    /// The revision that is current, as far as it is known.
    pub revision: Option<u64>,
    /// When the same may be asked again; `None`: not at all, or only after what the reason's class says.
    pub retry_after: Option<Duration>,
}

impl Refusal {
    pub(super) fn new(reason: Reason, detail: impl Into<String>) -> Self {
        Self {
            reason,
            detail: detail.into(),
            conditions: Vec::new(),
            freshness: None,
            card: None,
            revision: None,
            retry_after: None,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.detail)
    }
}

/// Why there is no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The question was judged, and did not pass; or it could not be judged, and the reason says so.
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// Nobody answered in time.
    #[error("the registry was not reached: {0}")]
    Unreachable(String),
    /// An answer came, and it is none that this client can rely on.
    #[error("the registry's answer cannot be relied on: {0}")]
    Unreliable(String),
}

impl Error {
    /// The typed reason, where the registry gave one.
    pub fn reason(&self) -> Option<Reason> {
        self.refusal().map(|refusal| refusal.reason)
    }

    /// The refusal, where the registry gave one.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(Box::new(refusal))
    }
}
