//! What can go wrong with a task's card, told where it belongs: before the task is queued, or at the answer that
//! shows it.
//!
//! Every error carries the card that was negotiated with (or was about to be), the fresh one where it is known, and
//! the change between them, so that whoever reads it need not ask anyone to understand it.

use std::fmt;
use std::sync::Arc;

use crate::card::{Card, Change};
use crate::client::answer;
use crate::client::check::{Drift, Evidence};
use crate::terms::{AgentName, Reason};

/// Why a task must not start, go on, or be believed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The card in hand is not, or cannot be proven to be, the one that the agent lives by. After evidence the task
    /// must not be tried again with this card: negotiate anew.
    #[error("{cards}: stale agent card: {why}")]
    StaleAgentCard {
        cards: Box<Cards>,
        why: Stale,
        /// The registry was asked after the evidence, and still serves the card that the agent no longer lives by.
        registry_behind_origin: bool,
    },
    /// The current card does not cover what the task needs.
    #[error("{cards}: capability mismatch: {why}")]
    CapabilityMismatch { cards: Box<Cards>, why: Box<answer::Refusal> },
    /// The agent delivered a part outside the output modes of the card that was negotiated with.
    #[error("{cards}: artifact schema drift: {drift}")]
    ArtifactSchemaDrift { cards: Box<Cards>, drift: Box<Drift> },
    /// The task's agent, its skill, or a mode that it needs is gone.
    #[error("{cards}: task continuation blocked: {why}")]
    TaskContinuationBlocked { cards: Box<Cards>, why: Gone },
    /// Push notifications were withdrawn: a webhook registered now would never fire.
    #[error("{cards}: discovery downgrade: {why}")]
    DiscoveryDowngrade { cards: Box<Cards>, why: Gone },
    /// The registry could not be asked, or could not prove its answer.
    #[error("{cards}: discovery unavailable: {cause}")]
    DiscoveryUnavailable { cards: Box<Cards>, cause: answer::Error },
    /// The registry refused for a reason that has nothing to do with the age of a card: there is no such agent, it is
    /// retired, the request is wrong, or the caller may not ask.
    #[error("{cards}: {refusal}")]
    Refused { cards: Box<Cards>, refusal: Box<answer::Refusal> },
    /// Strict checking only: the answer is none that A2A defines, so nothing about it can be verified.
    #[error("{cards}: the answer is none that A2A defines")]
    UnreadableResponse { cards: Box<Cards> },
}

impl Error {
    /// The cards that it is about.
    pub fn cards(&self) -> &Cards {
        match self {
            Self::StaleAgentCard { cards, .. }
            | Self::CapabilityMismatch { cards, .. }
            | Self::ArtifactSchemaDrift { cards, .. }
            | Self::TaskContinuationBlocked { cards, .. }
            | Self::DiscoveryDowngrade { cards, .. }
            | Self::DiscoveryUnavailable { cards, .. }
            | Self::Refused { cards, .. }
            | Self::UnreadableResponse { cards } => cards,
        }
    }

    /// Whether the registry was asked after evidence, and still serves the card that it speaks against.
    pub fn registry_behind_origin(&self) -> bool {
        matches!(self, Self::StaleAgentCard { registry_behind_origin: true, .. })
    }
}

/// A card at hand, and which revision it is of where that is known.
#[derive(Debug, Clone)]
pub struct Held {
    pub revision: Option<u64>,
    pub card: Arc<Card>,
}

/// The two cards that an error is about.
#[derive(Debug, Clone)]
pub struct Cards {
    pub agent: AgentName,
    /// The one that was negotiated with; before a task starts, the one in hand. `None`: there was none.
    pub negotiated: Option<Held>,
    /// The newest that is known.
    pub fresh: Option<Held>,
    /// From the one to the other. `None`: one of them is missing, or they are the same.
    pub change: Option<Change>,
}

impl Cards {
    pub(super) fn new(agent: &AgentName, negotiated: Option<Held>, fresh: Option<Held>) -> Box<Self> {
        let change = match (&negotiated, &fresh) {
            (Some(before), Some(after)) if before.card.raw_digest() != after.card.raw_digest() => {
                Some(Change::between(&before.card, &after.card))
            }
            _ => None,
        };
        Box::new(Self { agent: agent.clone(), negotiated, fresh, change })
    }

    /// The agent itself is gone.
    pub(super) fn gone(agent: &AgentName, negotiated: Option<Held>) -> Box<Self> {
        let change = Some(Change::retirement());
        Box::new(Self { agent: agent.clone(), negotiated, fresh: None, change })
    }
}

/// The agent, the revisions, and how grave the change is: what the line of every error begins with.
impl fmt::Display for Cards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.agent)?;
        let number = |held: &Option<Held>| held.as_ref().and_then(|held| held.revision);
        match (number(&self.negotiated), number(&self.fresh)) {
            (Some(negotiated), Some(fresh)) if negotiated != fresh => {
                write!(f, " (negotiated with revision {negotiated}, {fresh} is current")?;
            }
            (Some(negotiated), _) => write!(f, " (negotiated with revision {negotiated}")?,
            (None, Some(fresh)) => write!(f, " (revision {fresh} is current")?,
            (None, None) => return Ok(()),
        }
        match &self.change {
            Some(change) if change.silent => write!(f, ", {} change, silent)", change.class),
            Some(change) => write!(f, ", {} change)", change.class),
            None => f.write_str(")"),
        }
    }
}

/// Why a card counts as stale.
#[derive(Debug, Clone)]
pub enum Stale {
    /// An answer of the agent shows it.
    Evidence(Evidence),
    /// An earlier answer showed it, the registry still serves it, and the agent was not confirmed since.
    Quarantined,
    /// The registry says so, or cannot prove the contrary.
    Refused(Box<answer::Refusal>),
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Evidence(evidence) => evidence.fmt(f),
            Self::Quarantined => f.write_str(
                "an answer spoke against this card, the registry still serves it, and its origin was not confirmed since",
            ),
            Self::Refused(refusal) => refusal.fmt(f),
        }
    }
}

/// What is gone.
#[derive(Debug, Clone)]
pub enum Gone {
    /// The agent: retired, or not known any more.
    Agent(Reason),
    /// The card has no push notifications any more.
    PushNotifications,
    /// The skill.
    Skill(String),
    /// The skill is there; a mode that the task needs is not.
    Mode { skill: String },
}

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agent(reason) => write!(f, "{reason}"),
            Self::PushNotifications => f.write_str("push notifications were withdrawn"),
            Self::Skill(skill) => write!(f, "the skill `{}` was withdrawn", skill.escape_debug()),
            Self::Mode { skill } => {
                write!(f, "a mode that the task needs of the skill `{}` was withdrawn", skill.escape_debug())
            }
        }
    }
}
