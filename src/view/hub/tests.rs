//! Who is woken, and what a cursor may jump over.

use std::sync::Arc;

use super::*;
use crate::ledger::chain::{link, origin};
use crate::ledger::{Body, CardKept, Entry, Kind, Registered};
use crate::terms::{Digest, Principal, Timestamp};

const ID: &str = "ledger";

/// Entries as a ledger would give them.
struct Writer {
    seq: u64,
    digest: Digest,
    revisions: HashMap<String, u64>,
}

impl Writer {
    fn new() -> Self {
        Self { seq: 0, digest: origin(ID), revisions: HashMap::new() }
    }

    fn register(&mut self, subject: &str) -> Entry {
        let text = format!(
            r#"{{"name":"A","url":"https://a.example/rpc","version":"{}","skills":[]}}"#,
            self.seq + 1
        );
        let card = crate::card::Card::check(text.into(), &crate::card::Limits::default()).unwrap();
        let revision = self.revisions.entry(subject.to_owned()).and_modify(|n| *n += 1).or_insert(1);
        self.seq += 1;
        let kind = Kind::CardRegistered(Registered {
            revision: *revision,
            raw_digest: card.raw_digest(),
            content_digest: card.content_digest(),
            skill_fingerprint: card.skill_fingerprint(),
            negotiation_fingerprint: card.negotiation_fingerprint(),
            generation: card.generation(),
            card_version: None,
            release: None,
            class: None,
            silent: None,
            source: None,
        });
        let body = Body {
            seq: self.seq,
            kind,
            subject: subject.to_owned(),
            principal: Principal::anonymous(),
            at: Timestamp::from_micros(1),
            request_id: "r".parse().unwrap(),
            note: None,
            salt: String::new(),
        };
        let body: Arc<str> = body.to_canonical().unwrap().into();
        let body_digest = Digest::of(body.as_bytes());
        self.digest = link(&self.digest, &body_digest);
        let card = Some(CardKept::Checked(Arc::new(card)));
        Entry { seq: self.seq, digest: self.digest, body_digest, body, card }
    }
}

fn served(state: &State, generation: u64) -> Arc<Served> {
    Arc::new(Served {
        generation,
        state: Arc::new(state.clone()),
        proof: None,
        loaded: true,
        ready: true,
        doubted: false,
        diverged: false,
        unsupported: false,
        node: "node".into(),
    })
}

fn named(name: &str) -> Selection {
    Selection::of(vec![name.parse().unwrap()], Vec::new())
}

fn within(namespace: &str) -> Selection {
    Selection::of(Vec::new(), vec![namespace.to_owned()])
}

#[test]
fn a_change_wakes_those_whom_it_concerns_once_and_nobody_else() {
    let (mut writer, mut state) = (Writer::new(), State::empty(ID));
    let hub = Arc::new(Hub::new(served(&state, 0)));
    let (all, _) = hub.seat(Selection::all());
    let (acme, _) = hub.seat(within("acme"));
    let (a, _) = hub.seat(named("acme/a"));
    let (b, _) = hub.seat(named("other/b"));
    for subject in ["acme/a", "acme/x", "acme/a"] {
        state.fold(writer.register(subject)).unwrap();
    }
    assert_eq!(hub.take(served(&state, 0)).len(), 3, "one wake for each of three changes or fewer");
    let ahead = |first| Some(Ahead { first, torn: false });
    assert_eq!([&all, &acme, &a, &b].map(|seat| seat.ahead(3)), [ahead(1), ahead(1), ahead(1), None]);
    assert_eq!(a.ahead(0), None, "nothing is known of what was not loaded yet");
    a.done(2);
    assert_eq!((a.ahead(2), a.ahead(3)), (None, ahead(3)));
    a.done(3);
    assert_eq!(a.ahead(3), None);
    // A commit elsewhere.
    state.fold(writer.register("other/c")).unwrap();
    assert_eq!(hub.take(served(&state, 0)).len(), 1, "the one that takes everything");
    assert_eq!((a.ahead(4), b.ahead(4)), (None, None));
    // Nothing new.
    assert_eq!(hub.take(served(&state, 0)).len(), 0);
}

#[test]
fn a_seat_that_is_left_is_not_looked_at_again() {
    let (mut writer, mut state) = (Writer::new(), State::empty(ID));
    let hub = Arc::new(Hub::new(served(&state, 0)));
    let seats = [hub.seat(Selection::all()).0, hub.seat(within("acme")).0, hub.seat(named("acme/a")).0];
    drop(seats);
    state.fold(writer.register("acme/a")).unwrap();
    assert_eq!(hub.take(served(&state, 0)).len(), 0);
    let lists = locked(&hub.lists);
    assert!(lists.all.is_empty() && lists.namespaces.is_empty() && lists.agents.is_empty());
}

#[test]
fn a_seat_begins_where_its_state_is_or_earlier() {
    let (mut writer, mut state) = (Writer::new(), State::empty(ID));
    for _ in 0..3 {
        state.fold(writer.register("acme/a")).unwrap();
    }
    let hub = Arc::new(Hub::new(served(&state, 0)));
    let (seat, at) = hub.seat(named("acme/a"));
    assert_eq!((at.state.head().seq, seat.ahead(3)), (3, None));
    seat.begin(1, 3);
    assert_eq!(seat.ahead(3), Some(Ahead { first: 2, torn: false }));
}

#[test]
fn a_new_generation_wakes_all() {
    let state = State::empty(ID);
    let hub = Arc::new(Hub::new(served(&state, 0)));
    let (_a, _) = hub.seat(named("acme/a"));
    let (_all, _) = hub.seat(Selection::all());
    assert!(hub.stands(0));
    let contradicted = Served { diverged: true, ..(*served(&state, 1)).clone() };
    assert_eq!(hub.take(Arc::new(contradicted)).len(), 2);
    assert!(!hub.stands(0) && !hub.stands(1));
}

#[test]
fn a_log_that_does_not_reach_back_is_told_and_read_around() {
    let (mut writer, mut state) = (Writer::new(), State::empty(ID));
    let hub = Arc::new(Hub::new(served(&state, 0)));
    let (seat, _) = hub.seat(named("acme/a"));
    for n in 0..9_000 {
        state.fold(writer.register(&format!("acme/b{}", n % 7))).unwrap();
    }
    assert!(state.log().since(0).is_none());
    assert_eq!(hub.take(served(&state, 0)).len(), 1);
    assert_eq!(seat.ahead(9_000), Some(Ahead { first: 1, torn: true }));
    seat.done(5_000);
    assert_eq!(seat.ahead(9_000), Some(Ahead { first: 5_001, torn: true }));
    seat.done(9_000);
    assert_eq!(seat.ahead(9_000), None);
}

#[test]
fn overlapping_selectors_count_an_agent_once() {
    let (mut writer, mut state) = (Writer::new(), State::empty(ID));
    for subject in ["acme/a", "acme-x/a", "acme/b", "other/c"] {
        state.fold(writer.register(subject)).unwrap();
    }
    let names = |selection: &Selection| {
        selection.agents(&state).iter().map(|agent| agent.name.to_string()).collect::<Vec<_>>()
    };
    let both = Selection::of(
        vec!["acme/a".parse().unwrap(), "other/c".parse().unwrap(), "other/none".parse().unwrap()],
        vec!["acme".to_owned()],
    );
    assert_eq!(names(&both), ["acme/a", "acme/b", "other/c"]);
    let expected = both.agents(&state).iter().map(|agent| agent.sum()).reduce(SetDigest::plus).unwrap();
    assert_eq!(both.sum(&state), expected);
    assert_eq!(names(&Selection::all()).len(), 4);
    assert_eq!(Selection::all().sum(&state), state.sum());
    for agent in state.agents_from(std::ops::Bound::Unbounded) {
        let found = names(&both).contains(&agent.name.to_string());
        assert_eq!(both.matches(&agent.name), found, "{}", agent.name);
    }
}

#[tokio::test]
async fn waiting_for_the_hub_ends_with_a_later_generation() {
    let state = State::empty(ID);
    let hub = Arc::new(Hub::new(served(&state, 0)));
    let soon = || Instant::now() + std::time::Duration::from_millis(20);
    assert!(hub.reach(0, 0, soon()).await);
    assert!(!hub.reach(0, 1, soon()).await);
    hub.take(served(&state, 1));
    let late = Instant::now() + std::time::Duration::from_secs(60);
    assert!(!hub.reach(0, 1, late).await, "it will not be reached in that generation any more");
    assert!(hub.reach(1, 0, late).await);
}
