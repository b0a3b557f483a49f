//! The fold of the ledger: entries in, the current card of every agent out. Pure.
//!
//! A state is immutable once published. The maps are persistent (they share structure with the state before),
//! so folding a batch copies paths, not maps, and a reader that holds a state sees one position for as long as
//! it likes, without a lock and without anything to prune. Slots with several revisions each, from which a
//! reader picks the newest at or before its position, were the rejected alternative: every reader would have
//! to get right what a snapshot gives for free.

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::liveness::Known;
use super::log::{Change, ENTRIES_MAX, Log};
use super::origin::{OriginCell, Service};
use crate::card::{Card, Class, Limits};
use crate::ledger::chain::{Broken, Verifier, origin};
use crate::ledger::{Body, CardKept, Entry, Head, InvalidBody, Kind, Lease, Liveness, Snapshot};
use crate::terms::{AgentName, Digest, Origin, Position, Principal, SetDigest, Tag, Timestamp};

/// One agent at one position.
#[derive(Debug)]
pub struct Agent {
    pub name: AgentName,
    /// The number of the newest revision; a tombstone counts.
    pub revision: u64,
    /// The entry that made it.
    pub position: Position,
    pub registered_at: Timestamp,
    pub registered_by: Principal,
    pub current: Current,
    origin: Arc<OriginCell>,
}

/// What the newest revision of an agent is.
#[derive(Debug)]
pub enum Current {
    Card(Arc<Card>),
    /// Retired; the last card is kept to compare a later one with.
    Retired {
        last: Option<Arc<Card>>,
    },
}

impl Agent {
    /// The current card; `None` when the agent is retired.
    pub fn card(&self) -> Option<&Arc<Card>> {
        match &self.current {
            Current::Card(card) => Some(card),
            Current::Retired { .. } => None,
        }
    }

    /// The current card, or the last one before the agent was retired.
    pub fn last_card(&self) -> Option<&Arc<Card>> {
        match &self.current {
            Current::Card(card) => Some(card),
            Current::Retired { last } => last.as_ref(),
        }
    }

    /// What the agent adds to the set digest of live agents.
    pub fn sum(&self) -> SetDigest {
        self.card().map_or_else(SetDigest::default, |card| {
            SetDigest::of(&self.name, self.revision, &card.raw_digest())
        })
    }

    /// What the agent adds to the count of live agents, and to their set digest.
    fn share(&self) -> (usize, SetDigest) {
        (usize::from(self.card().is_some()), self.sum())
    }

    /// The agent as an entry of the past left it; of its origin only that entry is known.
    pub(super) fn past(
        name: AgentName,
        body: &Body,
        revision: u64,
        position: Position,
        current: Current,
    ) -> Self {
        Self {
            name,
            revision,
            position,
            registered_at: body.at,
            registered_by: body.principal.clone(),
            current,
            origin: Arc::new(OriginCell::new(body.at, None, &Arc::default())),
        }
    }

    /// What is known of the agent's origin now; it moves without a new state.
    pub fn origin(&self) -> Origin {
        let origin = self.origin.read(self.registered_at);
        // A retirement ends the lease, and this tells it before the liveness table is read.
        Origin { lease: origin.lease.filter(|_| self.card().is_some()), ..origin }
    }
}

/// Why an entry could not be folded.
#[derive(Debug, thiserror::Error)]
pub enum FoldError {
    /// The entry does not follow from this state: it is of another history.
    #[error(transparent)]
    Broken(#[from] Broken),
    /// This version cannot read the ledger any further.
    #[error("entry {seq} is of kind `{kind}`, which this version does not know")]
    Unsupported { seq: u64, kind: String },
    #[error("entry {seq} cannot be read: {why}")]
    Unreadable { seq: u64, why: String },
    /// What was given does not agree with itself: it was changed on its way, or is not whole.
    #[error("what was given up to entry {seq} does not hold together: {why}")]
    Inconsistent { seq: u64, why: String },
}

impl FoldError {
    /// Whether another version, and no reload, is what helps.
    pub fn is_final(&self) -> bool {
        !matches!(self, Self::Broken(_) | Self::Inconsistent { .. })
    }
}

/// Names come from outside, so the hash is keyed; it is also looked up on every resolve, so it is quick.
type Agents =
    imbl::GenericHashMap<AgentName, Arc<Agent>, ahash::RandomState, imbl::shared_ptr::DefaultSharedPtr>;

/// All agents at one position.
#[derive(Debug, Clone)]
pub struct State {
    ledger_id: Arc<str>,
    head: Head,
    /// The tag of every sequence number from 0 on.
    tags: imbl::Vector<Tag>,
    /// Every agent, retired ones included.
    agents: Agents,
    /// The same, in order.
    ordered: imbl::OrdMap<AgentName, Arc<Agent>>,
    live: usize,
    log: Log,
    known: Known,
    /// Of the live agents of each namespace.
    sums: imbl::OrdMap<Arc<str>, SetDigest>,
    sum: SetDigest,
    service: Arc<Service>,
}

impl State {
    /// The state before the first entry of a ledger.
    pub fn empty(ledger_id: &str) -> Self {
        let digest = origin(ledger_id);
        Self {
            ledger_id: ledger_id.into(),
            head: Head { seq: 0, digest },
            tags: imbl::Vector::unit(Tag::from(&digest)),
            agents: Agents::default(),
            ordered: imbl::OrdMap::new(),
            live: 0,
            log: Log::after(0, ENTRIES_MAX),
            known: Known::default(),
            sums: imbl::OrdMap::new(),
            sum: SetDigest::default(),
            service: Arc::default(),
        }
    }

    /// The same, keeping so many of the last changes at most; for a state that has folded nothing yet.
    #[must_use]
    pub fn keeping(mut self, entries_max: usize) -> Self {
        self.log = Log::after(self.head.seq, entries_max);
        self
    }

    pub fn ledger_id(&self) -> &str {
        &self.ledger_id
    }

    pub fn head(&self) -> Head {
        self.head
    }

    pub fn position(&self) -> Position {
        self.head.position()
    }

    /// The tag at `seq`; `None` beyond the head.
    pub fn tag_at(&self, seq: u64) -> Option<Tag> {
        self.tags.get(usize::try_from(seq).ok()?).copied()
    }

    pub fn agent(&self, name: &AgentName) -> Option<&Arc<Agent>> {
        self.agents.get(name)
    }

    /// How many agents are not retired.
    pub fn live_len(&self) -> usize {
        self.live
    }

    /// Agents that are not retired, in order, from `from` on.
    pub fn live_from(&self, from: Bound<&AgentName>) -> impl Iterator<Item = &Arc<Agent>> {
        self.agents_from(from).filter(|agent| agent.card().is_some())
    }

    /// Every agent, retired ones included, in order, from `from` on.
    pub fn agents_from(&self, from: Bound<&AgentName>) -> impl Iterator<Item = &Arc<Agent>> {
        self.ordered.range::<_, AgentName>((from, Bound::Unbounded)).map(|(_, agent)| agent)
    }

    /// How many agents there are, retired ones included.
    pub fn agents_len(&self) -> usize {
        self.agents.len()
    }

    /// The last changes that led here.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// The tags of all sequence numbers from 0 on.
    pub fn tags(&self) -> impl ExactSizeIterator<Item = &Tag> {
        self.tags.iter()
    }

    /// The set digest of all live agents.
    pub fn sum(&self) -> SetDigest {
        self.sum
    }

    /// The set digest of the live agents of a namespace.
    pub fn sum_of(&self, namespace: &str) -> SetDigest {
        self.sums.get(namespace).copied().unwrap_or_default()
    }

    /// Folds the next entry.
    ///
    /// # Errors
    /// When it does not follow, or says what this version does not know; the state is unchanged then.
    pub fn fold(&mut self, entry: Entry) -> Result<(), FoldError> {
        let seq = entry.seq;
        let mut verifier = Verifier::after(self.head.seq, self.head.digest);
        verifier.take(seq, &entry.digest, &entry.body_digest, Some(entry.body.as_bytes()))?;
        let unreadable = |why: String| FoldError::Unreadable { seq, why };
        let body = Body::parse(&entry.body).map_err(|error| unreadable(error.to_string()))?;
        if body.seq != seq {
            return Err(unreadable(format!("its body is that of entry {}", body.seq)));
        }
        let position = entry.position();
        let mut entry = entry;
        let (agent, class) = match &body.kind {
            Kind::CardRegistered(facts) => {
                let card = entry.card.take().ok_or_else(|| unreadable("its card is missing".to_owned()))?;
                let card = checked(card, &facts.raw_digest, seq)?;
                (Some(self.put(&body, position, facts.revision, Current::Card(card))?), facts.class)
            }
            Kind::CardRetired { revision } => {
                let name = body.agent().map_err(|error| unreadable(error.to_string()))?;
                let last = self.agents.get(&name).and_then(|agent| agent.last_card().cloned());
                (Some(self.put(&body, position, *revision, Current::Retired { last })?), None)
            }
            Kind::Unknown { ignorable: true, .. } => (None, None::<Class>),
            Kind::Unknown { name, ignorable: false } => {
                return Err(FoldError::Unsupported { seq, kind: name.clone() });
            }
        };
        self.head = Head { seq, digest: entry.digest };
        self.tags.push_back(Tag::from(&entry.digest));
        self.log.push(Change::new(entry, agent, class));
        Ok(())
    }

    fn put(
        &mut self,
        body: &Body,
        position: Position,
        revision: u64,
        current: Current,
    ) -> Result<Arc<Agent>, FoldError> {
        let unreadable = |error: InvalidBody| FoldError::Unreadable { seq: body.seq, why: error.to_string() };
        let name = body.agent().map_err(unreadable)?;
        let before = self.agents.get(&name);
        let expected = before.map_or(1, |agent| agent.revision + 1);
        if revision != expected {
            let why = format!("revision {revision} of {name} was to be {expected}");
            return Err(FoldError::Unreadable { seq: body.seq, why });
        }
        let live = matches!(current, Current::Card(_));
        // A tombstone confirms nothing: what was last confirmed is the card before it.
        let origin = match before {
            Some(before) if !live => Arc::clone(&before.origin),
            before => Arc::new(OriginCell::new(body.at, before.map(|agent| &*agent.origin), &self.service)),
        };
        let agent = Arc::new(Agent {
            name: name.clone(),
            revision,
            position,
            registered_at: body.at,
            registered_by: body.principal.clone(),
            current,
            origin,
        });
        self.replace(&agent);
        Ok(agent)
    }

    fn replace(&mut self, agent: &Arc<Agent>) {
        self.ordered.insert(agent.name.clone(), Arc::clone(agent));
        let before = self.agents.insert(agent.name.clone(), Arc::clone(agent));
        let (out, into) = (before.map_or((0, SetDigest::default()), |agent| agent.share()), agent.share());
        self.live = self.live - out.0 + into.0;
        self.sum = self.sum.minus(out.1).plus(into.1);
        let namespace = agent.name.namespace();
        let sum = self.sum_of(namespace).minus(out.1).plus(into.1);
        if sum == SetDigest::default() {
            self.sums.remove(namespace);
        } else {
            self.sums.insert(namespace.into(), sum);
        }
    }

    /// The state that a snapshot describes. Its agents are not chained to anything: who gives a snapshot is
    /// believed, as one who gives a head is.
    ///
    /// # Errors
    /// When it cannot be that of a ledger, or a card in it cannot be read.
    pub fn restore(snapshot: Snapshot) -> Result<Self, FoldError> {
        let seq = snapshot.head.seq;
        let unreadable = |why: String| FoldError::Unreadable { seq, why };
        let inconsistent = |why: String| FoldError::Inconsistent { seq, why };
        let mut state = Self::empty(&snapshot.ledger_id);
        let reached = snapshot.tags.len() as u64 == seq.saturating_add(1);
        let ends = snapshot.tags.first() == state.tags.front()
            && snapshot.tags.last() == Some(&Tag::from(&snapshot.head.digest));
        if !reached || !ends {
            return Err(inconsistent("the digests of a snapshot are not those up to its head".to_owned()));
        }
        state.head = snapshot.head;
        state.tags = snapshot.tags.into_iter().collect();
        state.log = Log::after(seq, ENTRIES_MAX);
        for image in snapshot.agents {
            let name = image.agent;
            if state.tag_at(image.position.seq) != Some(image.position.tag) {
                return Err(inconsistent(format!("{name} is at {}, which is not there", image.position)));
            }
            let card = image.card.map(|bytes| lenient(bytes).map_err(unreadable)).transpose()?;
            let current = match (card, image.retired) {
                (last, true) => Current::Retired { last },
                (Some(card), false) => Current::Card(card),
                (None, false) => return Err(unreadable(format!("the card of {name} is missing"))),
            };
            state.replace(&Arc::new(Agent {
                origin: Arc::new(OriginCell::new(image.registered_at, None, &state.service)),
                revision: image.revision,
                position: image.position,
                registered_at: image.registered_at,
                registered_by: image.registered_by,
                current,
                name,
            }));
        }
        Ok(state)
    }

    /// What was confirmed of agents' origins at or after `since` (`None`: ever), the oldest first.
    pub fn liveness(&self, since: Option<Timestamp>) -> impl Iterator<Item = &Arc<Liveness>> {
        self.known.since(since)
    }

    /// Takes what is known of an agent outside the ledger. Rows of agents that are not here yet come again.
    pub fn take_liveness(&mut self, row: &Liveness) {
        let Some(agent) = self.agents.get(&row.agent) else { return };
        self.known.take(row);
        agent.origin.take(row, row.revision == agent.revision);
    }

    /// Takes a confirmation of `revision`. False when another one is here.
    pub fn take_confirmation(
        &self,
        agent: &AgentName,
        revision: u64,
        at: Timestamp,
        lease: Option<Lease>,
    ) -> bool {
        let Some(agent) = self.agents.get(agent).filter(|agent| agent.revision == revision) else {
            return false;
        };
        agent.origin.confirm(at, lease);
        true
    }

    /// Takes the service clock as the authority told it.
    pub fn take_service(&self, service: Duration) {
        self.service.set(service);
    }

    /// The service clock as it is known here.
    pub fn service(&self) -> Duration {
        self.service.now()
    }
}

/// The card of an entry, with the digest that the entry names.
pub(super) fn checked(card: CardKept, raw_digest: &Digest, seq: u64) -> Result<Arc<Card>, FoldError> {
    let card = match card {
        CardKept::Checked(card) => card,
        CardKept::Bytes(bytes) if Digest::of(&bytes) == *raw_digest => {
            lenient(bytes).map_err(|why| FoldError::Unreadable { seq, why })?
        }
        CardKept::Bytes(_) => return Err(another(seq)),
    };
    if card.raw_digest() == *raw_digest { Ok(card) } else { Err(another(seq)) }
}

fn another(seq: u64) -> FoldError {
    FoldError::Inconsistent { seq, why: "the card has another digest than the entry names".to_owned() }
}

/// A card that was within the limits of its day when it was accepted.
fn lenient(bytes: Bytes) -> Result<Arc<Card>, String> {
    Card::check(bytes, &Limits::KEPT).map(Arc::new).map_err(|error| format!("its card is refused: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn card_that_was_accepted_once_loads_whatever_the_settings_are_now() {
        let skills: Vec<String> = (0..1_500).map(|n| format!(r#"{{"id":"{n}"}}"#)).collect();
        let text = format!(
            r#"{{"name":"n","version":"1","url":"https://a.example","skills":[{}],"x":{}{}}}"#,
            skills.join(","),
            "[".repeat(119),
            "]".repeat(119),
        );
        let bytes = bytes::Bytes::from(text);
        assert!(Card::check(bytes.clone(), &Limits::default()).is_err());
        let digest = Digest::of(&bytes);
        let card = checked(CardKept::Bytes(bytes), &digest, 1).expect("it was within the limits of its day");
        assert_eq!(card.normal().skills.len(), 1_500);
    }
}
