//! Sentences of the contract about watching.

use std::time::Duration;

use cardfence::card::Class;
use cardfence::clock::Clock;
use cardfence::ledger::memory::Memory;
use cardfence::registry::watch::Kind;
use cardfence::registry::{Because, Event, Read, Registry, Told, Watch};
use cardfence::server::{Node, Tuning};
use cardfence::terms::{Position, Reason};

use crate::subscriber::*;
use crate::support::{Valve, call, card, eventually, node_with, ready, register, retiring};

const LEDGER: &str = "00000000-0000-4000-8000-000000000001";

struct Watched {
    memory: Memory,
    valve: Valve,
    node: Node,
}

impl Watched {
    async fn start(tune: impl FnOnce(&mut Tuning)) -> Self {
        let (memory, valve) = (Memory::new(LEDGER, Clock::System), Valve::open());
        let node = node_with(&memory, &valve, Clock::System, tune);
        ready(&node.registry).await;
        Self { memory, valve, node }
    }

    fn registry(&self) -> &Registry {
        &self.node.registry
    }

    async fn put(&self, agent: &str, version: &str, skill: &str) -> Position {
        put(self.registry(), agent, version, skill).await
    }

    /// Registers `count` agents in one namespace.
    async fn fill(&self, namespace: &str, count: usize) {
        let mut writes = tokio::task::JoinSet::new();
        for n in 0..count {
            let (registry, agent) = (self.registry().clone(), format!("{namespace}/f{n}"));
            writes.spawn(async move { put(&registry, &agent, &n.to_string(), "s").await });
            if writes.len() == 2_000 {
                writes.join_next().await;
            }
        }
        while writes.join_next().await.is_some() {}
    }
}

async fn put(registry: &Registry, agent: &str, version: &str, skill: &str) -> Position {
    register(registry, agent, card(version, skill, "text/plain")).await.unwrap().position.unwrap()
}

fn told(event: Event) -> Told {
    match event {
        Event::Agent(told) => told,
        other => panic!("{other:?} is about no agent"),
    }
}

fn often(tuning: &mut Tuning) {
    tuning.registry.watch.checkpoint = Duration::from_millis(20);
}

#[tokio::test]
async fn snapshot_is_followed_by_live_events_without_a_gap() {
    let watched = Watched::start(often).await;
    watched.fill("acme", 300).await;
    watched.registry().retire(&call(watched.registry()), retiring("acme/f7")).await.unwrap();
    // Writers go on while subscribers come.
    let writing = {
        let registry = watched.registry().clone();
        tokio::spawn(async move {
            let mut last = None;
            for n in 0..400 {
                last = Some(put(&registry, &format!("acme/w{}", n % 20), &n.to_string(), "s").await);
            }
            last.unwrap()
        })
    };
    let mut subscribers = Vec::new();
    for _ in 0..20 {
        let mut stream = subscribe(watched.registry(), all()).await.unwrap();
        let mut copy = Copy::default();
        let first = next(&mut stream).await;
        assert!(matches!(first, Event::Reset { because: Because::Start, .. }), "{first:?}");
        copy.take(&first);
        until_synced(&mut stream, &mut copy).await;
        subscribers.push((stream, copy));
        tokio::task::yield_now().await;
    }
    let last = writing.await.unwrap();
    for (stream, copy) in &mut subscribers {
        until_at(stream, copy, last.seq).await;
        assert_eq!(copy.held.len(), 319);
        assert!(!copy.held.contains_key(&"acme/f7".parse().unwrap()));
        until(stream, copy, |event| matches!(event, Event::Checkpoint(_))).await;
    }
    watched.node.stop().await;
}

#[tokio::test]
async fn events_of_a_snapshot_include_tombstones_and_no_ids() {
    let watched = Watched::start(|_| {}).await;
    watched.put("acme/a", "1", "s").await;
    watched.put("acme/b", "1", "s").await;
    watched.registry().retire(&call(watched.registry()), retiring("acme/b")).await.unwrap();
    let mut stream = subscribe(watched.registry(), namespaces(&["acme"])).await.unwrap();
    let Event::Reset { position, because: Because::Start } = next(&mut stream).await else { panic!() };
    let (a, b) = (told(next(&mut stream).await), told(next(&mut stream).await));
    assert_eq!((a.kind, a.agent.name.as_str(), a.id(), a.with_card), (Kind::Upsert, "acme/a", None, true));
    assert_eq!((b.kind, b.agent.name.as_str(), b.id()), (Kind::Retired, "acme/b", None));
    assert!(matches!(next(&mut stream).await, Event::Synced { position: at } if at == position));
    let Event::Checkpoint(checkpoint) = next(&mut stream).await else { panic!() };
    assert_eq!(
        (checkpoint.position, checkpoint.staleness),
        (position, None),
        "a stream alone proves nothing"
    );
}

#[tokio::test]
async fn change_below_the_class_is_moved_without_its_card() {
    let watched = Watched::start(|_| {}).await;
    watched.put("acme/a", "1", "one").await;
    let breaking = Watch { class: Some(Class::Breaking), ..agents(&["acme/a", "acme/new"]) };
    let mut stream = subscribe(watched.registry(), breaking).await.unwrap();
    let mut copy = Copy::default();
    until_synced(&mut stream, &mut copy).await;
    watched.put("acme/a", "2", "one").await;
    watched.put("acme/new", "1", "one").await;
    watched.put("acme/a", "2", "two").await;
    watched.registry().retire(&call(watched.registry()), retiring("acme/a")).await.unwrap();
    let mut seen = Vec::new();
    while seen.len() < 4 {
        let event = next(&mut stream).await;
        copy.take(&event);
        if let Event::Agent(told) = event {
            seen.push((told.kind, told.with_card, told.change()));
        }
    }
    assert_eq!(
        seen,
        [
            (Kind::Moved, false, Some((Class::Cosmetic, false))),
            (Kind::Moved, false, None),
            (Kind::Upsert, true, Some((Class::Breaking, true))),
            (Kind::Retired, false, None),
        ]
    );
    // Thinned, and still known: the set digest agrees.
    confirmed(watched.registry(), &mut stream, &mut copy, "n").await;
    assert_eq!(copy.held.len(), 1);
}

#[tokio::test]
async fn resume_goes_on_after_the_last_id() {
    let watched = Watched::start(|_| {}).await;
    let first = watched.put("acme/a", "1", "s").await;
    let second = watched.put("acme/a", "2", "s").await;
    watched.put("other/b", "1", "s").await;
    let third = watched.put("acme/a", "3", "s").await;
    let from = Watch { from: Some(first), ..namespaces(&["acme"]) };
    let mut stream = subscribe(watched.registry(), from).await.unwrap();
    for expected in [second, third] {
        assert_eq!(told(next(&mut stream).await).id(), Some(expected));
    }
    assert!(matches!(next(&mut stream).await, Event::Synced { position } if position == third));
    assert!(matches!(next(&mut stream).await, Event::Checkpoint(_)));
    // From the head there is nothing to tell.
    let mut stream = subscribe(watched.registry(), Watch { from: Some(third), ..all() }).await.unwrap();
    assert!(matches!(next(&mut stream).await, Event::Synced { position } if position == third));
}

#[tokio::test]
async fn resume_beyond_the_log_reads_the_ledger_and_idle_subscribers_sleep_through_it() {
    let watched = Watched::start(|tuning| {
        tuning.registry.watch.checkpoint = Duration::from_secs(600);
        // The memory ledger copies itself for each transaction, so there should be few.
        tuning.writer.queue = 4_096;
        tuning.writer.batch = 2_048;
        tuning.writer.batch_bytes = 16 << 20;
    })
    .await;
    let first = watched.put("acme/a", "1", "s").await;
    let mut idle = subscribe(watched.registry(), agents(&["acme/a"])).await.unwrap();
    let mut copy = Copy::default();
    until_synced(&mut idle, &mut copy).await;
    let retired = watched.put("acme/b", "1", "s").await;
    watched.registry().retire(&call(watched.registry()), retiring("acme/b")).await.unwrap();
    watched.fill("other", 10_000).await;
    let wakes = watched.registry().metrics().subscriber_wakes.get();
    assert_eq!(wakes, 0, "nothing concerned the only subscriber");
    // It is not too slow either: what passed did not concern it.
    let last = watched.put("acme/a", "2", "s").await;
    until_at(&mut idle, &mut copy, last.seq).await;
    assert_eq!(watched.registry().metrics().subscriber_wakes.get(), 1);

    let mut stream =
        subscribe(watched.registry(), Watch { from: Some(first), ..namespaces(&["acme"]) }).await.unwrap();
    let events =
        [told(next(&mut stream).await), told(next(&mut stream).await), told(next(&mut stream).await)];
    let seen =
        events.each_ref().map(|told| (told.kind, told.agent.name.as_str(), told.id().map(|id| id.seq)));
    assert_eq!(
        seen,
        [
            (Kind::Upsert, "acme/b", Some(retired.seq)),
            (Kind::Retired, "acme/b", Some(retired.seq + 1)),
            (Kind::Upsert, "acme/a", Some(last.seq)),
        ]
    );
    assert!(matches!(next(&mut stream).await, Event::Synced { position } if position == last));
    // Everything, from the beginning: each entry once, in order, and the sum of what is live.
    let mut whole = Copy::default();
    whole.last = Some(first);
    let (call, name) = (call(watched.registry()), "acme/a".parse().unwrap());
    let past = watched.registry().resolve_at(&call, &name, &first, &Read::default()).await.unwrap();
    whole.held.insert(name, (1, past.revision.facts.unwrap().raw_digest));
    let mut stream = subscribe(watched.registry(), Watch { from: Some(first), ..all() }).await.unwrap();
    until(&mut stream, &mut whole, |event| matches!(event, Event::Checkpoint(_))).await;
    assert_eq!((whole.last, whole.resets.len()), (Some(last), 0));
    assert_eq!(whole.events, last.seq - 1 + 2);
    watched.node.stop().await;
}

#[tokio::test]
async fn position_of_another_history_is_answered_with_a_reset() {
    let watched = Watched::start(|_| {}).await;
    let kept = watched.put("acme/a", "1", "s").await;
    for lost in ["1.00000000000000aa", "99.00000000000000aa"] {
        let from = Watch { from: Some(lost.parse().unwrap()), ..all() };
        let mut stream = subscribe(watched.registry(), from).await.unwrap();
        let reset = next(&mut stream).await;
        assert!(
            matches!(reset, Event::Reset { position, because: Because::HistoryDiverged } if position == kept),
            "{reset:?}"
        );
    }
    // Where it cannot be told whether it is, nothing is given.
    watched.valve.set_open(false);
    let from = Watch { from: Some("99.00000000000000aa".parse().unwrap()), ..all() };
    let refusal = subscribe(watched.registry(), from).await.unwrap_err();
    assert_eq!(refusal.reason(), Reason::FreshnessUnverifiable);
    assert!(refusal.parts().retry_after.is_some());
}

#[tokio::test]
async fn diverged_history_ends_streams_and_is_never_resumed() {
    let watched = Watched::start(|_| {}).await;
    let kept = watched.put("acme/a", "1", "s").await;
    let mut stream = subscribe(watched.registry(), all()).await.unwrap();
    let mut copy = Copy::default();
    until_synced(&mut stream, &mut copy).await;
    watched.put("acme/lost", "1", "s").await;
    until_at(&mut stream, &mut copy, 2).await;
    let forked = watched.memory.forked_at(1).await;
    watched.memory.become_like(&forked).await;
    assert_eq!(ended(&mut stream, &mut copy).await, Reason::HistoryDiverged);
    // Its own last position is not resumed from: a snapshot of what there is takes its place.
    let again = copy.resumed(&all());
    let mut stream = loop {
        match subscribe(watched.registry(), again.clone()).await {
            Ok(stream) => break stream,
            Err(refusal) => assert_eq!(refusal.reason(), Reason::FreshnessUnverifiable),
        }
    };
    until_synced(&mut stream, &mut copy).await;
    assert_eq!(copy.resets, [Because::Start, Because::HistoryDiverged]);
    assert_eq!((copy.last, copy.held.len()), (Some(kept), 1));
}

#[tokio::test]
async fn slow_subscriber_is_told_and_resumes_where_it_was() {
    let watched = Watched::start(|tuning| tuning.registry.watch.blocked = Duration::from_millis(50)).await;
    let mut stream = subscribe(watched.registry(), all()).await.unwrap();
    let mut copy = Copy::default();
    until_synced(&mut stream, &mut copy).await;
    watched.fill("acme", 100).await;
    let slow = || {
        let ended = &watched.registry().metrics().streams_ended;
        ended
            .get_or_create(&cardfence::telemetry::metrics::ReasonLabels { reason: "subscriber_too_slow" })
            .get()
    };
    eventually(|| slow() == 1).await;
    assert_eq!(ended(&mut stream, &mut copy).await, Reason::SubscriberTooSlow);
    let got = copy.last.unwrap().seq;
    assert!((1..100).contains(&got), "{got}");
    let mut stream = subscribe(watched.registry(), copy.resumed(&all())).await.unwrap();
    until_at(&mut stream, &mut copy, 100).await;
    assert_eq!((copy.held.len(), copy.resets.len()), (100, 1));
}

#[tokio::test]
async fn confirmation_proves_what_was_committed_elsewhere_before_it() {
    let (memory, valve) = (Memory::new(LEDGER, Clock::System), Valve::open());
    let slow = |tuning: &mut Tuning| tuning.feed.poll = Duration::from_secs(60);
    let here = node_with(&memory, &valve, Clock::System, slow);
    let elsewhere = node_with(&memory, &Valve::open(), Clock::System, |_| {});
    ready(&here.registry).await;
    ready(&elsewhere.registry).await;
    let mut stream = subscribe(&here.registry, agents(&["acme/a"])).await.unwrap();
    let mut copy = Copy::default();
    until_synced(&mut stream, &mut copy).await;
    for n in 1..=20 {
        let committed = put(&elsewhere.registry, "acme/a", &n.to_string(), "s").await;
        let checkpoint = confirmed(&here.registry, &mut stream, &mut copy, &format!("n{n}")).await;
        assert_eq!((checkpoint.position, checkpoint.staleness), (committed, Some(Duration::ZERO)));
        assert_eq!(copy.held.values().next().unwrap().0, n);
    }
    // One that concerns others moves the position all the same.
    let committed = put(&elsewhere.registry, "acme/other", "1", "s").await;
    let checkpoint = confirmed(&here.registry, &mut stream, &mut copy, "x").await;
    assert_eq!(checkpoint.position, committed);

    // Without an answer of the authority the bound is the old one, and says so.
    valve.set_open(false);
    put(&elsewhere.registry, "acme/a", "late", "s").await;
    let checkpoint = confirmed(&here.registry, &mut stream, &mut copy, "y").await;
    assert_eq!(checkpoint.position, committed);
    assert!(checkpoint.staleness.is_some_and(|staleness| !staleness.is_zero()), "{checkpoint:?}");
}

#[tokio::test]
async fn confirmations_are_answered_each_and_bounded() {
    let watched = Watched::start(|_| {}).await;
    let registry = watched.registry();
    let mut stream = subscribe(registry, all()).await.unwrap();
    let mut copy = Copy::default();
    until_synced(&mut stream, &mut copy).await;
    watched.valve.set_open(false);
    let mut accepted = 0;
    let refusal = loop {
        match registry.confirm_stream(&call(registry), stream.id(), &format!("n{accepted}")) {
            Ok(()) => accepted += 1,
            Err(refusal) => break refusal,
        }
    };
    assert_eq!((refusal.reason(), accepted), (Reason::Overloaded, 16));
    watched.valve.set_open(true);
    for n in 0..accepted {
        let nonce = format!("n{n}");
        let answers =
            |event: &Event| matches!(event, Event::Checkpoint(c) if c.nonce.as_deref() == Some(&*nonce));
        until(&mut stream, &mut copy, answers).await;
    }
    for bad in ["", "a b", "ü", &"x".repeat(129)] {
        let refusal = stream.confirm(bad, call(registry).arrival).unwrap_err();
        assert_eq!(refusal.reason(), Reason::InvalidArgument, "{bad}");
    }
    let elsewhere = registry.confirm_stream(&call(registry), "0123", "n").unwrap_err();
    assert_eq!(elsewhere.reason(), Reason::StreamNotHere);
    let id = stream.id().to_owned();
    drop(stream);
    let gone = registry.confirm_stream(&call(registry), &id, "n").unwrap_err();
    assert_eq!(gone.reason(), Reason::StreamNotHere);
}

#[tokio::test]
async fn streams_end_of_age_and_first_of_all_on_drain() {
    let short = |tuning: &mut Tuning| tuning.registry.watch.max_age = Duration::from_millis(100);
    let watched = Watched::start(short).await;
    let mut stream = subscribe(watched.registry(), all()).await.unwrap();
    assert_eq!(ended(&mut stream, &mut Copy::default()).await, Reason::MaxAge);

    let watched = Watched::start(|_| {}).await;
    let mut stream = subscribe(watched.registry(), all()).await.unwrap();
    let mut copy = Copy::default();
    until_synced(&mut stream, &mut copy).await;
    watched.registry().end_streams();
    assert_eq!(ended(&mut stream, &mut copy).await, Reason::Draining);
    let refusal = subscribe(watched.registry(), all()).await.unwrap_err();
    assert_eq!(refusal.reason(), Reason::Draining);
    let metrics = watched.registry().metrics().clone();
    watched.node.stop().await;
    assert_eq!(metrics.subscribers.get(), 0);
}

#[tokio::test]
async fn one_subscriber_too_many_is_refused_and_leaving_makes_room() {
    let watched = Watched::start(|tuning| tuning.registry.watch.subscribers = 2).await;
    let first = subscribe(watched.registry(), all()).await.unwrap();
    let _second = subscribe(watched.registry(), all()).await.unwrap();
    let refusal = subscribe(watched.registry(), all()).await.unwrap_err();
    assert_eq!(refusal.reason(), Reason::Overloaded);
    drop(first);
    let metrics = watched.registry().metrics();
    eventually(|| metrics.subscribers.get() == 1).await;
    subscribe(watched.registry(), all()).await.unwrap();
}

#[tokio::test]
async fn change_is_written_once_for_all_who_are_sent_it() {
    let watched = Watched::start(|_| {}).await;
    let mut streams = Vec::new();
    for _ in 0..3 {
        let mut stream = subscribe(watched.registry(), all()).await.unwrap();
        until_synced(&mut stream, &mut Copy::default()).await;
        next(&mut stream).await;
        streams.push(stream);
    }
    watched.put("acme/a", "1", "s").await;
    let written = std::sync::atomic::AtomicUsize::new(0);
    for stream in &mut streams {
        let told = told(next(stream).await);
        let form = told.form(0, || {
            written.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            bytes::Bytes::from_static(b"form")
        });
        assert_eq!(form, "form");
    }
    assert_eq!(written.into_inner(), 1);
}

#[tokio::test]
async fn what_cannot_be_watched_is_refused() {
    let watched = Watched::start(|_| {}).await;
    for watch in [
        Watch::default(),
        namespaces(&["Acme"]),
        namespaces(&[""]),
        Watch { class: Some(Class::Cosmetic), ..all() },
        Watch { agents: vec!["a/b".parse().unwrap(); 1_001], ..Watch::default() },
    ] {
        let refusal = subscribe(watched.registry(), watch.clone()).await.unwrap_err();
        assert_eq!(refusal.reason(), Reason::InvalidArgument, "{watch:?}");
    }
    let memory = Memory::new(LEDGER, Clock::System);
    memory.set_reachable(false);
    let unproven = node_with(&memory, &Valve::open(), Clock::System, |tuning| {
        tuning.registry.default_wait = Duration::from_millis(50);
    });
    let refusal = subscribe(&unproven.registry, all()).await.unwrap_err();
    assert_eq!(refusal.reason(), Reason::FreshnessUnverifiable);
}
