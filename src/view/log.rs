//! The last changes, in memory: what subscribers and edges read on from. Pure.
//!
//! A log is part of a [`State`](super::State): whoever holds a state holds the entries that led to it, as far back
//! as they are kept. It is bounded by entries and by bytes; what left it is read from the ledger. Structure is
//! shared between one state and the next, so keeping it costs an entry once, however many read it.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use super::state::{Agent, Current, FoldError, checked};
use crate::card::Class;
use crate::ledger::{Body, CardKept, Entry, Kind};
use crate::terms::AgentName;

/// Entries kept at most, unless told otherwise.
pub(super) const ENTRIES_MAX: usize = 8_192;
/// Bytes of bodies and cards kept at most.
const BYTES_MAX: usize = 64 * 1024 * 1024;

/// One entry, and what it led to.
#[derive(Debug)]
pub struct Change {
    /// Without its card, which is the agent's.
    entry: Entry,
    /// The agent as this entry left it; `None`: the entry is about no agent.
    pub agent: Option<Arc<Agent>>,
    /// How grave the change is; `None` on an agent's first card and on retirements.
    pub class: Option<Class>,
    /// Its forms on the wires, written once for all who are sent them.
    pub forms: Forms,
}

/// Encoded forms of one change. What each slot holds is the wires' business.
#[derive(Debug, Default)]
pub struct Forms([OnceLock<Bytes>; 6]);

impl Forms {
    /// The form in `slot`, written now if it was not before. A slot that does not exist is written each time.
    pub fn get(&self, slot: usize, write: impl FnOnce() -> Bytes) -> Bytes {
        match self.0.get(slot) {
            Some(form) => form.get_or_init(write).clone(),
            None => write(),
        }
    }
}

impl Change {
    pub(super) fn new(entry: Entry, agent: Option<Arc<Agent>>, class: Option<Class>) -> Self {
        Self { entry: Entry { card: None, ..entry }, agent, class, forms: Forms::default() }
    }

    pub fn seq(&self) -> u64 {
        self.entry.seq
    }

    /// The entry without its card.
    pub fn bare(&self) -> &Entry {
        &self.entry
    }

    /// The entry as a ledger would give it, with its card.
    pub fn entry(&self) -> Entry {
        let card = self.agent.as_ref().and_then(|agent| agent.card().cloned());
        Entry { card: card.map(CardKept::Checked), ..self.entry.clone() }
    }

    /// What it holds in memory, roughly: body and card.
    pub fn size(&self) -> usize {
        let card = self.agent.as_ref().and_then(|agent| agent.card()).map_or(0, |card| card.bytes().len());
        self.entry.body.len() + card
    }
}

/// An entry of the past that is about an agent, before its card was read.
#[derive(Debug)]
pub struct PastChange {
    entry: Entry,
    body: Body,
    name: AgentName,
}

impl Change {
    /// What an entry of the ledger changed, once it is given the card; `None` when it is about no agent.
    ///
    /// # Errors
    /// When it cannot be read, or says what this version does not know.
    pub fn past(entry: Entry) -> Result<Option<PastChange>, FoldError> {
        let seq = entry.seq;
        let unreadable = |why: String| FoldError::Unreadable { seq, why };
        let body = Body::parse(&entry.body).map_err(|error| unreadable(error.to_string()))?;
        match &body.kind {
            Kind::Unknown { ignorable: true, .. } => return Ok(None),
            Kind::Unknown { name, .. } => return Err(FoldError::Unsupported { seq, kind: name.clone() }),
            Kind::CardRegistered(_) | Kind::CardRetired { .. } => {}
        }
        let name = body.agent().map_err(|error| unreadable(error.to_string()))?;
        Ok(Some(PastChange { entry, body, name }))
    }
}

impl PastChange {
    pub fn agent(&self) -> &AgentName {
        &self.name
    }

    /// The revision whose card it needs; `None`: it needs none.
    pub fn registered(&self) -> Option<u64> {
        match &self.body.kind {
            Kind::CardRegistered(facts) => Some(facts.revision),
            _ => None,
        }
    }

    /// The change, with the card that it brought.
    ///
    /// # Errors
    /// When the card is missing, or is not the one that the entry names.
    pub fn with_card(self, card: Option<Bytes>) -> Result<Change, FoldError> {
        let seq = self.entry.seq;
        let unreadable = |why: String| FoldError::Unreadable { seq, why };
        let (revision, current, class) = match &self.body.kind {
            Kind::CardRegistered(facts) => {
                let card = card.ok_or_else(|| unreadable("its card is missing".to_owned()))?;
                let card = checked(CardKept::Bytes(card), &facts.raw_digest, seq)?;
                (facts.revision, Current::Card(card), facts.class)
            }
            Kind::CardRetired { revision } => (*revision, Current::Retired { last: None }, None),
            Kind::Unknown { name, .. } => return Err(FoldError::Unsupported { seq, kind: name.clone() }),
        };
        let agent = Agent::past(self.name, &self.body, revision, self.entry.position(), current);
        Ok(Change::new(self.entry, Some(Arc::new(agent)), class))
    }
}

/// The last changes before a state, oldest first.
#[derive(Debug, Clone)]
pub struct Log {
    changes: imbl::Vector<Arc<Change>>,
    /// The sequence number before the first change that is kept.
    base: u64,
    bytes: usize,
    entries_max: usize,
}

impl Log {
    /// An empty log that begins after `base` and keeps so many entries at most.
    pub(super) fn after(base: u64, entries_max: usize) -> Self {
        Self { changes: imbl::Vector::new(), base, bytes: 0, entries_max }
    }

    pub(super) fn push(&mut self, change: Change) {
        self.bytes += change.size();
        self.changes.push_back(Arc::new(change));
        while self.changes.len() > self.entries_max || (self.bytes > BYTES_MAX && self.changes.len() > 1) {
            if let Some(oldest) = self.changes.pop_front() {
                self.bytes -= oldest.size();
                self.base = oldest.seq();
            }
        }
    }

    /// The changes after `seq`, in order; `None` when some of them are not kept any more.
    pub fn since(&self, seq: u64) -> Option<impl Iterator<Item = &Arc<Change>>> {
        let skip = usize::try_from(seq.checked_sub(self.base)?).unwrap_or(usize::MAX);
        Some(self.changes.focus().narrow(skip.min(self.changes.len())..).into_iter())
    }

    /// The sequence number after which changes are kept.
    pub fn base(&self) -> u64 {
        self.base
    }
}
