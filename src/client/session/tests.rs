//! The session against a registry of a few lines: random histories, cuts, snapshots and lies, held against a fold of
//! what the registry acknowledged.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::card::{Card, Limits};
use crate::clock::{Clock, Hands};
use crate::terms::{SetDigest, Tag, Timestamp};

const AGENTS: usize = 5;

fn agent(n: usize) -> AgentName {
    format!("acme/agent-{n}").parse().unwrap()
}

fn card(version: u64) -> Arc<Card> {
    let text = format!(r#"{{"name":"A","url":"https://a.example","version":"{version}","skills":[]}}"#);
    Arc::new(Card::check(text.into(), &Limits::default()).unwrap())
}

/// One entry of the registry's ledger.
#[derive(Debug, Clone)]
struct Entry {
    agent: AgentName,
    revision: u64,
    position: Position,
    /// `None`: a retirement.
    card: Option<Arc<Card>>,
    acknowledged: Moment,
}

impl Entry {
    fn event(&self, bare: bool) -> Event {
        let (agent, revision, position) = (self.agent.clone(), self.revision, self.position);
        match &self.card {
            None => Event::Retired { agent, revision, position },
            Some(card) if bare => Event::Moved { agent, revision, position, raw_digest: card.raw_digest() },
            Some(card) => Event::Upsert(Arc::new(Revision {
                agent,
                number: revision,
                position,
                card: Arc::clone(card),
                registered_at: Timestamp::from_micros(0),
                registered_by: "anonymous".into(),
                immutable_versions: None,
            })),
        }
    }
}

/// A ledger, and one stream of it.
#[derive(Debug)]
struct Registry {
    clock: Clock,
    hands: Arc<Hands>,
    entries: Vec<Entry>,
    /// Changes with the history, and so do the tags of positions.
    history: u64,
    /// Entries that the open stream has sent.
    sent: usize,
    chance: u64,
}

impl Registry {
    fn new(seed: u64) -> Self {
        let hands = Arc::new(Hands::default());
        let clock = Clock::Manual(Arc::clone(&hands));
        Self { clock, hands, entries: Vec::new(), history: 1, sent: 0, chance: seed | 1 }
    }

    /// A number below `n`.
    fn below(&mut self, n: usize) -> usize {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        usize::try_from(self.chance % n as u64).unwrap()
    }

    fn position(&self, entries: usize) -> Position {
        // What two histories have in common has the same tags.
        let tag = self.entries[..entries].last().map_or(7, |entry| entry.position.tag.0);
        Position { seq: entries as u64, tag: Tag(tag) }
    }

    fn write(&mut self) {
        let name = agent(self.below(AGENTS));
        let before = self.entries.iter().rev().find(|entry| entry.agent == name);
        let revision = before.map_or(1, |entry| entry.revision + 1);
        let live = before.is_some_and(|entry| entry.card.is_some());
        let retire = live && self.below(4) == 0;
        let seq = self.entries.len() as u64 + 1;
        let position = Position { seq, tag: Tag(self.history * 1_000_000 + seq) };
        let card = (!retire).then(|| card(self.history * 1_000 + revision));
        self.hands.advance(Duration::from_millis(3));
        let acknowledged = self.clock.now();
        self.entries.push(Entry { agent: name, revision, position, card, acknowledged });
    }

    fn fold(&self, entries: usize) -> BTreeMap<AgentName, &Entry> {
        self.entries[..entries].iter().map(|entry| (entry.agent.clone(), entry)).collect()
    }

    fn sum(&self, entries: usize) -> String {
        let live = self.fold(entries).into_values().filter_map(|entry| {
            Some(SetDigest::of(&entry.agent, entry.revision, &entry.card.as_ref()?.raw_digest()))
        });
        live.fold(SetDigest::default(), SetDigest::plus).to_string()
    }

    /// How far a caller's position is of this history, if it is.
    fn knows(&self, position: &Position) -> bool {
        let seq = usize::try_from(position.seq).unwrap();
        seq <= self.entries.len() && self.position(seq) == *position
    }

    /// What the stream begins with.
    fn open(&mut self, from: Option<Position>) -> Vec<Event> {
        match from {
            Some(from) if self.knows(&from) && self.below(4) > 0 => {
                self.sent = usize::try_from(from.seq).unwrap();
                Vec::new()
            }
            _ => {
                let diverged = from.is_some_and(|from| !self.knows(&from));
                // A node may lag: the snapshot is of some earlier position.
                let lag = self.below(3).min(self.entries.len());
                self.sent = self.entries.len() - lag;
                let position = self.position(self.sent);
                let mut events = vec![Event::Reset { position, diverged }];
                events.extend(self.fold(self.sent).into_values().map(|entry| entry.event(false)));
                events.push(Event::Synced { position });
                events
            }
        }
    }

    /// All that was not sent yet.
    fn catch_up(&mut self) -> Vec<Event> {
        let unsent = self.entries[self.sent..].to_vec();
        self.sent = self.entries.len();
        unsent.iter().map(|entry| entry.event(entry.revision % 5 == 0)).collect()
    }

    fn checkpoint(&self, answer: Option<Confirmed>) -> Event {
        Event::Checkpoint { position: self.position(self.sent), set_digest: self.sum(self.sent), answer }
    }
}

/// The copy is the fold of the ledger at its position, and it holds all that was acknowledged before its proof.
fn holds(session: &Session, registry: &Registry) {
    let Some(copy) = session.copy() else { return };
    assert!(registry.knows(&copy.position), "a copy at {} of another history", copy.position);
    let at = usize::try_from(copy.position.seq).unwrap();
    let fold = registry.fold(at);
    assert_eq!(copy.len(), fold.len());
    for (name, entry) in fold {
        match (copy.get(&name).unwrap(), &entry.card) {
            (super::Entry::Live(held), Some(card)) => {
                assert_eq!((held.number, held.card.raw_digest()), (entry.revision, card.raw_digest()));
            }
            (super::Entry::Bare { revision, raw_digest }, Some(card)) => {
                assert_eq!((*revision, *raw_digest), (entry.revision, card.raw_digest()));
            }
            (super::Entry::Retired { revision }, None) => assert_eq!(*revision, entry.revision),
            (held, card) => panic!("{held:?} for {card:?}"),
        }
    }
    assert_eq!(copy.sum().to_string(), registry.sum(at));
    if let Some(proven) = copy.proven {
        let missing = registry.entries[at..].iter().find(|entry| !entry.acknowledged.at_or_after(&proven));
        assert!(missing.is_none(), "proven, and without {missing:?}");
    }
}

#[test]
fn a_copy_is_always_a_fold_of_the_ledger_and_never_proven_without_what_was_acknowledged() {
    let (mut proven, mut diverged, mut resumed) = (0, 0, 0);
    for seed in 1..=400 {
        let mut registry = Registry::new(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        let mut session = Session::new("test".into());
        for _ in 0..60 {
            match registry.below(10) {
                0..=3 => registry.write(),
                4 => {
                    // Cut, and connected again: perhaps to a registry that lost some of its entries meanwhile.
                    session.cut();
                    let lost = registry.below(12);
                    if lost > 0 && lost <= 3.min(registry.entries.len()) {
                        registry.entries.truncate(registry.entries.len() - lost);
                        registry.history += 1;
                        registry.write();
                        diverged += 1;
                    }
                    let from = session.resume_from();
                    session.opened();
                    let events = registry.open(from);
                    resumed += usize::from(from.is_some() && events.is_empty());
                    let all = events.len();
                    // The next cut may come in the middle of a snapshot.
                    let cut = registry.below(4) == 0;
                    let taken = if cut { registry.below(all + 1) } else { all };
                    for event in events.into_iter().take(taken) {
                        let told = session.receive(event);
                        assert!(!matches!(told, Some(Told::Over(_))), "{told:?}");
                    }
                    if taken < all || !session.is_open {
                        session.cut();
                    }
                }
                5..=6 if session.is_open => {
                    for event in registry.catch_up() {
                        let told = session.receive(event);
                        assert!(matches!(told, Some(Told::Changed { .. })), "{told:?}");
                        holds(&session, &registry);
                    }
                    let event = registry.checkpoint(None);
                    assert_eq!(session.receive(event), None);
                }
                7..=9 if session.is_open => {
                    session.want_proof();
                    let asked = registry.clock.now();
                    let Some(nonce) = session.next_confirm(asked) else { continue };
                    // Written while the confirmation is on its way; the registry need not know of it.
                    if registry.below(2) == 0 {
                        registry.write();
                    }
                    let received = registry.clock.now();
                    let known = registry.entries.len()
                        - registry.below(2).min(registry.entries.len() - registry.sent);
                    // It says how old its own proof was at the receipt: all before is sent.
                    let complete = registry.entries[known..].first().map(|entry| entry.acknowledged);
                    let staleness = complete.map_or(Duration::ZERO, |complete| received.since(&complete));
                    for entry in &registry.entries[registry.sent..known] {
                        session.receive(entry.event(false));
                    }
                    registry.sent = known;
                    let answer = Confirmed { nonce, staleness: Some(staleness) };
                    assert_eq!(session.receive(registry.checkpoint(Some(answer))), Some(Told::Proven));
                    proven += 1;
                }
                _ => {}
            }
            // Between a loss and the next stream the copy is of a history that nobody contradicted yet.
            if session.copy().is_some_and(|copy| registry.knows(&copy.position)) || session.is_open {
                holds(&session, &registry);
            }
        }
    }
    assert!(proven > 1_000 && diverged > 100 && resumed > 100, "{proven} {diverged} {resumed}");
}

/// A session with a whole copy of two agents, and the registry that it is of.
fn synced() -> (Session, Registry) {
    let mut registry = Registry::new(5);
    while registry.fold(registry.entries.len()).len() < 2 {
        registry.write();
    }
    let mut session = Session::new("test".into());
    session.opened();
    for event in registry.open(None).into_iter().chain(registry.catch_up()) {
        session.receive(event);
    }
    assert!(session.copy().is_some());
    (session, registry)
}

fn distrusted(told: Option<Told>, session: &Session) -> String {
    let Some(Told::Over(Over::Distrusted(why))) = told else { panic!("{told:?}") };
    assert!(
        session.copy().is_none() && session.resume_from().is_none(),
        "the next stream begins from the beginning"
    );
    why
}

#[test]
fn a_lying_set_digest_is_caught() {
    for asked in [false, true] {
        let (mut session, registry) = synced();
        session.want_proof();
        let nonce = session.next_confirm(registry.clock.now()).unwrap();
        let answer = asked.then_some(Confirmed { nonce, staleness: Some(Duration::ZERO) });
        let set_digest = SetDigest::default().to_string();
        let lie = Event::Checkpoint { position: registry.position(registry.sent), set_digest, answer };
        assert!(distrusted(session.receive(lie), &session).contains("adds up to"));
    }
}

#[test]
fn what_a_correct_server_does_not_send_ends_the_stream_and_the_copy() {
    let (_, registry) = synced();
    let (at, last) = (registry.position(registry.sent), registry.entries.last().unwrap().clone());
    let again = last.event(false);
    let back = Event::Moved {
        agent: last.agent.clone(),
        revision: last.revision,
        position: Position { seq: at.seq + 1, tag: Tag(1) },
        raw_digest: Digest::of(b"x"),
    };
    let earlier =
        Event::Checkpoint { position: registry.position(0), set_digest: registry.sum(0), answer: None };
    let other = Event::Synced { position: Position { seq: at.seq, tag: Tag(3) } };
    let unasked = registry.checkpoint(Some(Confirmed { nonce: "x".to_owned(), staleness: None }));
    for event in [again, back, earlier, other, unasked] {
        let (mut session, _) = synced();
        let told = session.receive(event);
        distrusted(told, &session);
    }
    // Inside a snapshot.
    for event in [registry.checkpoint(None), last.event(false)] {
        let (mut session, _) = synced();
        session.receive(Event::Reset { position: at, diverged: false });
        session.receive(last.event(false));
        let told = session.receive(event);
        distrusted(told, &session);
    }
    let mut session = Session::new("test".into());
    session.opened();
    let told = session.receive(last.event(false));
    distrusted(told, &session);
}

#[test]
fn an_old_copy_serves_until_the_new_one_is_whole_and_goes_at_once_with_its_history() {
    let (mut session, registry) = synced();
    let at = registry.position(registry.sent);
    session.want_proof();
    let nonce = session.next_confirm(registry.clock.now()).unwrap();
    session.receive(registry.checkpoint(Some(Confirmed { nonce, staleness: Some(Duration::ZERO) })));
    assert!(session.copy().unwrap().proven.is_some());
    session.receive(Event::Reset { position: at, diverged: false });
    assert!(session.copy().unwrap().proven.is_some(), "a new snapshot is no reason to stop");
    session.cut();
    assert!(session.copy().unwrap().proven.is_some(), "nor is a cut: it grows old");
    session.opened();
    session.receive(Event::Reset { position: at, diverged: false });
    for entry in registry.fold(registry.sent).into_values() {
        session.receive(entry.event(false));
    }
    assert_eq!(session.receive(Event::Synced { position: at }), Some(Told::Synced(at)));
    assert!(session.copy().unwrap().proven.is_none(), "it may come from a node that lags");
    session.receive(Event::Reset { position: at, diverged: true });
    assert!(session.copy().is_none());

    for (reason, kept) in [
        (Some(Reason::HistoryDiverged), false),
        (Some(Reason::PositionInFuture), false),
        (Some(Reason::Draining), true),
        (None, true),
    ] {
        let (mut session, _) = synced();
        assert_eq!(session.receive(Event::End(reason)), Some(Told::Over(Over::Ended(reason))));
        assert_eq!(session.copy().is_some(), kept);
    }
}

#[test]
fn confirmations_coalesce_and_a_nonce_does_not_outlive_its_stream() {
    let (mut session, registry) = synced();
    assert_eq!(session.next_confirm(registry.clock.now()), None, "nobody asked");
    session.want_proof();
    let first = session.next_confirm(registry.clock.now()).unwrap();
    session.want_proof();
    session.want_proof();
    assert_eq!(session.next_confirm(registry.clock.now()), None, "one at a time");
    let answer = |nonce, staleness| registry.checkpoint(Some(Confirmed { nonce, staleness }));
    assert_eq!(session.receive(answer(first.clone(), None)), Some(Told::Unproven));
    assert!(session.copy().unwrap().proven.is_none());
    let second = session.next_confirm(registry.clock.now()).unwrap();
    assert_eq!(session.next_confirm(registry.clock.now()), None, "one for all who asked meanwhile");
    assert_ne!(first, second);
    session.opened();
    let third = session.next_confirm(registry.clock.now()).unwrap();
    assert_ne!(second, third, "whoever waited still does");
    let told = session.receive(answer(second, Some(Duration::ZERO)));
    distrusted(told, &session);

    // Asked for before a snapshot, answered after it: everything that was acknowledged before is in it.
    let (mut session, registry) = synced();
    session.want_proof();
    let nonce = session.next_confirm(registry.clock.now()).unwrap();
    let at = registry.position(registry.sent);
    session.receive(Event::Reset { position: at, diverged: false });
    for entry in registry.fold(registry.sent).into_values() {
        session.receive(entry.event(false));
    }
    session.receive(Event::Synced { position: at });
    let answer = Confirmed { nonce, staleness: Some(Duration::ZERO) };
    assert_eq!(session.receive(registry.checkpoint(Some(answer))), Some(Told::Proven));
}
