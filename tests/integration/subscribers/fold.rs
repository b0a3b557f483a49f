//! What a subscriber folds from its events; it fails at the first that cannot follow.

use std::collections::BTreeMap;

use cardfence::proto::v1 as pb;
use cardfence::terms::{AgentName, Digest, Position, SetDigest};
use pb::watch_event::Event;

use super::{Fact, Truth};

type Held = BTreeMap<AgentName, (u64, Digest)>;

/// A subscriber's copy, and how it came about.
#[derive(Debug, Default)]
pub(super) struct Fold {
    pub(super) selects: pb::WatchStart,
    held: Held,
    /// The snapshot that is being told.
    staged: Option<Held>,
    /// Where it goes on from.
    last: Option<Position>,
    /// Where its first and only snapshot was of.
    begun: u64,
    /// The numbers of all live events.
    seen: Vec<u64>,
    /// The set digest of what is held, while that is known.
    sum: Option<SetDigest>,
    /// Up to where checkpoints agreed.
    pub(super) proven: u64,
    pub(super) checkpoints: usize,
    /// Why its stream was ended, if it was told.
    pub(super) ended: Option<String>,
}

impl Fold {
    pub(super) fn new(selects: pb::WatchStart) -> Self {
        Self { selects, ..Self::default() }
    }

    /// What it asks for now.
    pub(super) fn start(&self) -> pb::WatchStart {
        pb::WatchStart { from: self.last.map(|last| last.to_string()), ..self.selects.clone() }
    }

    pub(super) fn events(&self) -> usize {
        self.seen.len()
    }

    pub(super) fn take(&mut self, told: pb::WatchEvent) {
        let id = (!told.id.is_empty()).then(|| told.id.parse::<Position>().unwrap());
        match told.event.unwrap() {
            Event::Reset(reset) => {
                assert!(self.last.is_none(), "started over at {reset:?} after {:?}", self.last);
                self.begun = reset.position.parse::<Position>().unwrap().seq;
                self.staged = Some(Held::new());
            }
            Event::Upsert(agent) => {
                let class = agent.class();
                if id.is_some() && self.selects.class != 0 && class != pb::ChangeClass::Unspecified {
                    assert!(class as i32 >= self.selects.class, "below what was asked for: {agent:?}");
                }
                assert_eq!(agent.card.is_some(), self.selects.cards != Some(false), "{agent:?}");
                self.agent(id, &agent);
            }
            Event::Moved(agent) => {
                assert!((agent.class() as i32) < self.selects.class, "not below: {agent:?}");
                assert!(agent.card.is_none());
                self.agent(id, &agent);
            }
            Event::Retired(agent) => self.agent(id, &agent),
            Event::Synced(_) => {
                if let Some(held) = self.staged.take() {
                    self.held = held;
                    self.sum = None;
                }
                self.reach(id.unwrap(), false);
            }
            Event::Checkpoint(checkpoint) => {
                self.reach(id.unwrap(), false);
                let held = &self.held;
                let sum = *self.sum.get_or_insert_with(|| {
                    let all = held.iter().map(|(name, (revision, raw))| SetDigest::of(name, *revision, raw));
                    all.fold(SetDigest::default(), SetDigest::plus)
                });
                assert_eq!(checkpoint.set_digest, sum.to_string(), "at {}", checkpoint.position);
                self.proven = checkpoint.position.parse::<Position>().unwrap().seq;
                self.checkpoints += 1;
            }
            Event::End(end) => self.ended = Some(end.reason),
        }
    }

    /// One history: every position is after those before it, and where only a checkpoint says so again, the same.
    fn reach(&mut self, id: Position, is_new: bool) {
        if let Some(last) = self.last {
            assert!(id.seq > last.seq || (!is_new && id == last), "{id} came after {last}");
        }
        self.last = Some(id);
    }

    fn agent(&mut self, id: Option<Position>, agent: &pb::AgentEvent) {
        assert_eq!(id.is_none(), self.staged.is_some(), "{agent:?}");
        if let Some(id) = id {
            assert_eq!(id.to_string(), agent.position);
            self.reach(id, true);
            self.seen.push(id.seq);
            self.sum = None;
        }
        let held = self.staged.as_mut().unwrap_or(&mut self.held);
        let name: AgentName = agent.agent.parse().unwrap();
        match &agent.raw_digest {
            Some(raw) => drop(held.insert(name, (agent.revision, raw.parse().unwrap()))),
            None => drop(held.remove(&name)),
        }
    }

    /// Holds it against the ledger: the same agents, and every change after the snapshot once.
    pub(super) fn equals(&self, facts: &[Fact]) {
        let (selects, named) = (&self.selects, &self.selects.agents);
        let named: Vec<AgentName> = named.iter().map(|name| name.parse().unwrap()).collect();
        let truth = Truth::of(facts, |agent| {
            let inside = selects.namespaces.iter().any(|namespace| namespace == agent.namespace());
            selects.all || inside || named.contains(agent)
        });
        assert_eq!(self.held, truth.live, "{selects:?}");
        assert_eq!(self.seen, truth.after(self.begun), "{selects:?} from {}", self.begun);
    }
}
