//! What a subscriber is told.
//!
//! An event is a few pointers: what it is about is shared with the view, and how it is written on a wire is written
//! once for all who are sent it ([`Told::form`]).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::card::Class;
use crate::ledger::{Body, Kind as EntryKind};
use crate::terms::{Position, Reason, SetDigest};
use crate::view::{Agent, Change};

/// One event of a stream.
#[derive(Debug, Clone)]
pub enum Event {
    /// A snapshot at this position follows: what the subscriber held is to be replaced by it.
    Reset {
        position: Position,
        because: Because,
    },
    Agent(Told),
    /// The subscriber has everything up to here.
    Synced {
        position: Position,
    },
    Checkpoint(Box<Checkpoint>),
    /// The last event.
    End {
        reason: Reason,
    },
}

/// Why a stream begins with a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Because {
    /// The subscriber named no position.
    Start,
    /// The position that it named is of another history than the authority's.
    HistoryDiverged,
}

impl Because {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::HistoryDiverged => "history_diverged",
        }
    }
}

/// What an event about an agent tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The agent has this card now.
    Upsert,
    /// The agent has a card that is not sent, because its change is below the class that was asked for.
    Moved,
    Retired,
}

impl Kind {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Upsert => "upsert",
            Self::Moved => "moved",
            Self::Retired => "retired",
        }
    }
}

/// That an agent came to a revision.
#[derive(Debug, Clone)]
pub struct Told {
    pub kind: Kind,
    /// The agent at that revision.
    pub agent: Arc<Agent>,
    /// Whether its card is sent.
    pub with_card: bool,
    /// Absent in a snapshot.
    change: Option<Arc<Change>>,
}

/// The subscriber has everything up to a position, of its selection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    pub position: Position,
    /// Of what was selected and is live there.
    pub set_digest: SetDigest,
    /// Of the confirmation that this answers.
    pub nonce: Option<Arc<str>>,
    /// Everything that was acknowledged so long before the receipt of the confirmation is at or before the position.
    /// Absent where nothing was asked, or nothing is proven.
    pub staleness: Option<Duration>,
}

/// What a subscriber wants to be sent of the agents that it selected.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    /// The least class that is sent in full.
    pub(super) class: Option<Class>,
    pub(super) cards: bool,
}

impl Wanted {
    /// What is told of a change.
    pub(super) fn of_change(self, change: Arc<Change>) -> Option<Told> {
        let agent = Arc::clone(change.agent.as_ref()?);
        // A first card is news to everyone.
        let class = change.class.unwrap_or(Class::Additive);
        let kind = match agent.card() {
            None => Kind::Retired,
            Some(_) if self.class.is_some_and(|least| class < least) => Kind::Moved,
            Some(_) => Kind::Upsert,
        };
        Some(Told { kind, agent, with_card: kind == Kind::Upsert && self.cards, change: Some(change) })
    }

    /// What is told of an agent in a snapshot: its state, which no class thins.
    pub(super) fn of_agent(self, agent: Arc<Agent>) -> Told {
        let kind = if agent.card().is_some() { Kind::Upsert } else { Kind::Retired };
        Told { kind, agent, with_card: kind == Kind::Upsert && self.cards, change: None }
    }
}

/// Forms that one wire can have.
const FORMS: usize = 3;

impl Told {
    /// The position that a subscriber may resume from once it has this; none within a snapshot.
    pub fn id(&self) -> Option<Position> {
        self.change.as_ref().map(|_| self.agent.position)
    }

    /// The class of the change, and whether it was silent; `None` in a snapshot, for a first card and a retirement.
    pub fn change(&self) -> Option<(Class, bool)> {
        let change = self.change.as_ref()?;
        let class = change.class?;
        // Silence is in the entry alone. This is read once for all subscribers.
        let silent = match Body::parse(&change.bare().body).map(|body| body.kind) {
            Ok(EntryKind::CardRegistered(facts)) => facts.silent == Some(true),
            _ => false,
        };
        Some((class, silent))
    }

    /// The event as wire number `wire` writes it, written now unless it was for another subscriber.
    pub fn form(&self, wire: usize, write: impl FnOnce() -> Bytes) -> Bytes {
        let form = match (self.kind, self.with_card) {
            (Kind::Upsert, true) => 0,
            (Kind::Upsert, false) => 1,
            (Kind::Moved | Kind::Retired, _) => 2,
        };
        match &self.change {
            Some(change) => change.forms.get(wire * FORMS + form, write),
            None => write(),
        }
    }
}
