//! Replicas: a tree of registries that report to one another, and whom a write waits for.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use cardfence::clock::{Clock, Hands};
use cardfence::ledger::memory::Memory;
use cardfence::ledger::{Error, Replica, Replicas};
use cardfence::registry::{Read, Registry, Replicated, ReplicatedWait};
use cardfence::server::{Node, Parts, Tuning};
use cardfence::telemetry::Metrics;
use cardfence::terms::{Position, Reason, Tag};

use crate::support::*;

const ID: &str = "00000000-0000-4000-8000-000000000003";
const LONG: Duration = Duration::from_secs(20);

/// What a node that hangs off another reports to, in place of a wire.
#[derive(Debug)]
struct Upstream(Registry);

#[async_trait]
impl Replicas for Upstream {
    async fn report(&self, replicas: &[Replica]) -> Result<(), Error> {
        self.0.report(replicas.to_vec()).map_err(|refusal| Error::Unavailable(refusal.to_string()))
    }

    async fn replicas(&self, within: Duration) -> Result<Vec<Replica>, Error> {
        let list = self.0.replicas(&call(&self.0), Some(within), &Read::default()).await;
        let list = list.map_err(|refusal| Error::Unavailable(refusal.to_string()))?;
        Ok(list.items.into_iter().map(|listed| listed.replica).collect())
    }
}

/// A node that follows `memory` through a valve, and reports to `replicas`.
fn named(name: &str, memory: &Memory, valve: &Valve, replicas: Arc<dyn Replicas>) -> Node {
    let parts = Parts { entries: valve.before(memory), replicas, ..Parts::over(memory, Clock::System) };
    let mut tuning = Tuning::named(name);
    tuning.feed.poll = Duration::from_millis(5);
    Node::start(parts, tuning, Metrics::new())
}

/// Registers one more card and waits for all replicas.
async fn replicated(registry: &Registry, version: &str, wait: Duration) -> (Position, Replicated) {
    let call = call(registry);
    let written =
        registry.register(&call, registering("a/b", card(version, "s", "text/plain"))).await.unwrap();
    let wait = Some(ReplicatedWait::new(wait).unwrap());
    let written = registry.wait_replicated(&call, written, wait).await;
    (written.position.unwrap(), written.replicas.unwrap())
}

async fn names(registry: &Registry) -> Vec<(String, Option<String>)> {
    let list = registry.replicas(&call(registry), None, &Read::default()).await.unwrap();
    list.items.into_iter().map(|listed| (listed.replica.replica, listed.replica.via)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_waits_for_a_whole_tree_and_names_who_lags() {
    let memory = Memory::new(ID, Clock::System);
    let valve = Valve::open();
    let top = named("top", &memory, &Valve::open(), Arc::new(memory.clone()));
    let middle = named("middle", &memory, &Valve::open(), Arc::new(Upstream(top.registry.clone())));
    let leaf = named("leaf", &memory, &valve, Arc::new(Upstream(middle.registry.clone())));
    let expected: Vec<(String, Option<String>)> =
        [("leaf", Some("middle")), ("middle", Some("top")), ("top", None)]
            .map(|(name, via)| (name.to_owned(), via.map(str::to_owned)))
            .into();
    for registry in [&top.registry, &leaf.registry] {
        let until = tokio::time::Instant::now() + LONG;
        while !registry.is_ready() || names(registry).await != expected {
            assert!(tokio::time::Instant::now() < until, "{:?}", names(registry).await);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    let (_, all) = replicated(&top.registry, "1", LONG).await;
    assert_eq!((all.complete, all.applied, all.missing.len()), (true, 3, 0));
    // Written below, the same holds: the question goes up the tree.
    let (before, all) = replicated(&leaf.registry, "2", LONG).await;
    assert_eq!((all.complete, all.applied), (true, 3));
    valve.set_open(false);
    let (written, some) = replicated(&top.registry, "3", Duration::from_millis(400)).await;
    assert_eq!((some.complete, some.applied), (false, 2));
    let missing: Vec<_> = some.missing.iter().map(|m| (m.replica.as_str(), m.position)).collect();
    assert_eq!(missing, [("leaf", before)]);
    assert_eq!(top.registry.watermark().position, written, "the write stands");
    // An unchanged register waits for the revision that it found.
    let (found, again) = replicated(&top.registry, "3", Duration::ZERO).await;
    assert_eq!((found, again.complete, again.missing.len()), (written, false, 1));
    valve.set_open(true);
    let (_, all) = replicated(&top.registry, "3", LONG).await;
    assert_eq!((all.complete, all.applied), (true, 3));
    for node in [leaf, middle, top] {
        node.stop().await;
    }
}

fn said(name: &str, position: Position, silent: u64) -> Replica {
    Replica {
        replica: name.to_owned(),
        role: "edge".to_owned(),
        position,
        staleness: None,
        hops: 1,
        version: "1".to_owned(),
        via: None,
        silent: Duration::from_secs(silent),
        omitted: None,
    }
}

#[tokio::test]
async fn a_replica_that_was_silent_for_a_minute_is_not_waited_for() {
    let hands = Arc::new(Hands::default());
    hands.advance(Duration::from_secs(1_000_000));
    let clock = Clock::Manual(Arc::clone(&hands));
    let memory = Memory::new(ID, clock.clone());
    let node = node(&memory, &Valve::open(), clock);
    ready(&node.registry).await;
    let nowhere = Position { seq: 0, tag: Tag(0) };
    memory.report(&[said("gone", nowhere, 0)]).await.unwrap();
    hands.advance(Duration::from_secs(20));
    memory.report(&[said("slow", nowhere, 0)]).await.unwrap();
    hands.advance(Duration::from_secs(41));
    let (_, found) = replicated(&node.registry, "1", Duration::from_millis(100)).await;
    let missing: Vec<_> = found.missing.iter().map(|m| (m.replica.as_str(), m.silent.as_secs())).collect();
    assert_eq!((found.complete, missing), (false, vec![("slow", 41)]));
    hands.advance(Duration::from_secs(20));
    let (_, found) = replicated(&node.registry, "2", LONG).await;
    assert_eq!((found.complete, found.applied), (true, 1));
    node.stop().await;
}

#[tokio::test]
async fn a_position_of_another_history_is_no_progress() {
    let memory = Memory::new(ID, Clock::System);
    let node = node(&memory, &Valve::open(), Clock::System);
    ready(&node.registry).await;
    let (first, _) = replicated(&node.registry, "1", Duration::ZERO).await;
    // It has as many entries as the next write makes, and others.
    let other = Position { seq: first.seq + 1, tag: Tag(0xdead) };
    memory.report(&[said("lost", other, 0)]).await.unwrap();
    let (position, found) = replicated(&node.registry, "2", Duration::from_millis(200)).await;
    assert_eq!((position.seq, found.complete, found.missing[0].position), (other.seq, false, other));
    let list = node.registry.replicas(&call(&node.registry), None, &Read::default()).await.unwrap();
    let lost = list.items.iter().find(|listed| listed.replica.replica == "lost").unwrap();
    assert_eq!(lost.behind, None);
    memory.report(&[said("lost", position, 0)]).await.unwrap();
    let (_, found) = replicated(&node.registry, "2", LONG).await;
    assert_eq!((found.complete, found.applied), (true, 2));
    node.stop().await;
}

#[tokio::test]
async fn a_node_that_shuts_down_answers_who_waits() {
    let memory = Memory::new(ID, Clock::System);
    let node = node(&memory, &Valve::open(), Clock::System);
    ready(&node.registry).await;
    memory.report(&[said("lost", Position { seq: 1, tag: Tag(0xdead) }, 0)]).await.unwrap();
    let registry = node.registry.clone();
    let waiting = tokio::spawn(async move { replicated(&registry, "1", LONG).await });
    eventually(|| node.registry.watermark().position.seq == 1).await;
    node.registry.drain();
    let answered = tokio::time::timeout(LONG / 2, waiting).await.expect("it does not wait out its time");
    let (_, found) = answered.unwrap();
    assert_eq!((found.complete, found.applied, found.missing.len()), (false, 1, 1));
    node.stop().await;
}

#[tokio::test]
async fn a_lost_store_makes_no_error_of_a_write_that_is_done() {
    let memory = Memory::new(ID, Clock::System);
    let node = node(&memory, &Valve::open(), Clock::System);
    let registry = &node.registry;
    ready(registry).await;
    let call = call(registry);
    let written = registry.register(&call, registering("a/b", card("1", "s", "text/plain"))).await.unwrap();
    memory.set_reachable(false);
    let wait = ReplicatedWait::new(Duration::from_millis(50)).unwrap();
    let told = registry.wait_replicated(&call, written, Some(wait)).await.replicas.unwrap();
    assert_eq!((told.complete, told.applied, told.missing), (false, 1, vec![]), "who counts is not known");
    let refused = registry.replicas(&call, None, &Read::default()).await.unwrap_err();
    assert_eq!(refused.reason(), Reason::StoreUnavailable);
    node.stop().await;
}
