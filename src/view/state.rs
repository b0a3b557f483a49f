//! The fold of the ledger: entries in, the current card of every agent out. Pure.
//!
//! A state is immutable once published. The maps are persistent (they share structure with the state before),
//! so folding a batch copies paths, not maps, and a reader that holds a state sees one position for as long as
//! it likes, without a lock and without anything to prune. Slots with several revisions each, from which a
//! reader picks the newest at or before its position, were the rejected alternative: every reader would have
//! to get right what a snapshot gives for free.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use crate::card::{Card, Limits};
use crate::ledger::chain::{Broken, Verifier, origin};
use crate::ledger::{Body, CardKept, Entry, Head, InvalidBody, Kind, Liveness};
use crate::terms::{AgentName, Digest, Origin, Position, Principal, Tag, Timestamp};

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

    /// What is known of the agent's origin now; it moves without a new state.
    pub fn origin(&self) -> Origin {
        self.origin.read(self.registered_at)
    }
}

/// Shared by all states that hold the revision, because liveness is not of the ledger and has no position. Each
/// revision has its own: a confirmation of one card must not make another one look confirmed.
#[derive(Debug)]
struct OriginCell {
    confirmed_micros: AtomicI64,
    /// Microseconds; -1 is unknown.
    redeploy_micros: AtomicI64,
}

impl OriginCell {
    /// The cell of a revision that was registered at `confirmed`, and what was known of the agent before.
    fn new(confirmed: Timestamp, before: Option<&Self>) -> Self {
        let redeploy = before.map_or(-1, |before| before.redeploy_micros.load(Ordering::Acquire));
        Self {
            confirmed_micros: AtomicI64::new(confirmed.as_micros()),
            redeploy_micros: AtomicI64::new(redeploy),
        }
    }

    fn confirm(&self, at: Timestamp) {
        self.confirmed_micros.fetch_max(at.as_micros(), Ordering::AcqRel);
    }

    fn read(&self, registered_at: Timestamp) -> Origin {
        let interval = self.redeploy_micros.load(Ordering::Acquire);
        Origin {
            registered_at,
            confirmed_at: Some(Timestamp::from_micros(self.confirmed_micros.load(Ordering::Acquire))),
            redeploy_interval: u64::try_from(interval).ok().map(Duration::from_micros),
        }
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
}

impl FoldError {
    /// Whether another version, and no reload, is what helps.
    pub fn is_final(&self) -> bool {
        !matches!(self, Self::Broken(_))
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
    /// Agents that are not retired, in order.
    live: imbl::OrdMap<AgentName, Arc<Agent>>,
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
            live: imbl::OrdMap::new(),
        }
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
        self.live.len()
    }

    /// Agents that are not retired, in order, from `from` on.
    pub fn live_from(&self, from: Bound<&AgentName>) -> impl Iterator<Item = &Arc<Agent>> {
        self.live.range::<_, AgentName>((from, Bound::Unbounded)).map(|(_, agent)| agent)
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
        match &body.kind {
            Kind::CardRegistered(facts) => {
                let card = entry.card.ok_or_else(|| unreadable("its card is missing".to_owned()))?;
                let card = checked(card, &facts.raw_digest).map_err(unreadable)?;
                self.put(&body, position, facts.revision, Current::Card(card))?;
            }
            Kind::CardRetired { revision } => {
                let name = body.agent().map_err(|error| unreadable(error.to_string()))?;
                let last = self.agents.get(&name).and_then(|agent| agent.last_card().cloned());
                self.put(&body, position, *revision, Current::Retired { last })?;
            }
            Kind::Unknown { ignorable: true, .. } => {}
            Kind::Unknown { name, ignorable: false } => {
                return Err(FoldError::Unsupported { seq, kind: name.clone() });
            }
        }
        self.head = Head { seq, digest: entry.digest };
        self.tags.push_back(Tag::from(&entry.digest));
        Ok(())
    }

    fn put(
        &mut self,
        body: &Body,
        position: Position,
        revision: u64,
        current: Current,
    ) -> Result<(), FoldError> {
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
            before => Arc::new(OriginCell::new(body.at, before.map(|agent| &*agent.origin))),
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
        if live {
            self.live.insert(name.clone(), Arc::clone(&agent));
        } else {
            self.live.remove(&name);
        }
        self.agents.insert(name, agent);
        Ok(())
    }

    /// Takes what is known of an agent outside the ledger. Rows of agents that are not here yet come again.
    pub fn take_liveness(&self, row: &Liveness) {
        let Some(agent) = self.agents.get(&row.agent) else { return };
        if row.revision == agent.revision {
            agent.origin.confirm(row.origin_confirmed_at);
        }
        let interval = median_gap(&row.registers).map_or(-1, |micros| micros);
        agent.origin.redeploy_micros.store(interval, Ordering::Release);
    }
}

/// The card of an entry, with the digest that the entry names.
fn checked(card: CardKept, raw_digest: &Digest) -> Result<Arc<Card>, String> {
    let card = match card {
        CardKept::Checked(card) => card,
        CardKept::Bytes(bytes) => Arc::new(
            Card::check(bytes, &Limits::KEPT).map_err(|error| format!("its card is refused: {error}"))?,
        ),
    };
    if card.raw_digest() == *raw_digest { Ok(card) } else { Err("its card has another digest".to_owned()) }
}

/// The median gap between registers, in microseconds; unknown below three registers.
fn median_gap(registers: &[Timestamp]) -> Option<i64> {
    if registers.len() < 3 {
        return None;
    }
    let mut gaps: Vec<i64> = registers
        .windows(2)
        .map(|pair| pair[1].as_micros().saturating_sub(pair[0].as_micros()).max(0))
        .collect();
    gaps.sort_unstable();
    let middle = gaps.len() / 2;
    Some(if gaps.len() % 2 == 1 { gaps[middle] } else { gaps[middle - 1].midpoint(gaps[middle]) })
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
        let card = checked(CardKept::Bytes(bytes), &digest).expect("it was within the limits of its day");
        assert_eq!(card.normal().skills.len(), 1_500);
    }

    #[test]
    fn redeploy_interval_is_the_median_gap_and_unknown_below_three() {
        let at =
            |secs: &[i64]| secs.iter().map(|s| Timestamp::from_micros(s * 1_000_000)).collect::<Vec<_>>();
        assert_eq!(median_gap(&at(&[])), None);
        assert_eq!(median_gap(&at(&[1, 2])), None);
        assert_eq!(median_gap(&at(&[0, 10, 40])), Some(20_000_000));
        assert_eq!(median_gap(&at(&[0, 10, 40, 1000])), Some(30_000_000));
    }
}
