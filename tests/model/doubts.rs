//! What contradicts a view that is not the authority's own: asked again for two seconds, then another history.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use cardfence::clock::{Clock, Hands};
use cardfence::fence::Fence;
use cardfence::ledger::memory::Memory;
use cardfence::ledger::{Entries, Entry, Error, HeadReport, Liveness, Reading};
use cardfence::registry::Registry;
use cardfence::server::{Node, Parts, Tuning};
use cardfence::telemetry::Metrics;
use cardfence::terms::{Basis, Position, Reason, Timestamp};

use crate::support::*;

const ID: &str = "00000000-0000-4000-8000-000000000004";
const PATIENCE: Duration = Duration::from_secs(2);

/// An upstream node, as far as a view sees one: a ledger, so many hops from its database.
#[derive(Debug)]
struct Upstream(Memory, AtomicU32);

struct Session(Box<dyn Reading>, u32);

#[async_trait::async_trait]
impl Entries for Upstream {
    async fn open(&self) -> Result<Box<dyn Reading>, Error> {
        Ok(Box::new(Session(self.0.open().await?, self.1.load(Ordering::Acquire))))
    }
}

#[async_trait::async_trait]
impl Reading for Session {
    async fn head(&mut self, asked: u64) -> Result<HeadReport, Error> {
        Ok(HeadReport { hops: self.1, ..self.0.head(asked).await? })
    }
    async fn read(&mut self, after: u64, limit: usize) -> Result<Vec<Entry>, Error> {
        self.0.read(after, limit).await
    }
    async fn liveness(&mut self, since: Option<Timestamp>) -> Result<Vec<Liveness>, Error> {
        self.0.liveness(since).await
    }
}

/// A ledger of two entries, and the same with the first alone.
struct World {
    hands: Arc<Hands>,
    clock: Clock,
    memory: Memory,
    both: Memory,
    first: Memory,
    second: Position,
}

async fn world() -> World {
    let hands = Arc::new(Hands::default());
    hands.advance(Duration::from_secs(1_000_000));
    let clock = Clock::Manual(Arc::clone(&hands));
    let memory = Memory::new(ID, clock.clone());
    let writer = node(&memory, &Valve::open(), clock.clone());
    ready(&writer.registry).await;
    register(&writer.registry, "a/b", card("1", "s", "text/plain")).await.unwrap();
    let second = register(&writer.registry, "a/b", card("2", "s", "text/plain")).await.unwrap();
    writer.stop().await;
    let (both, first) = (memory.forked_at(2).await, memory.forked_at(1).await);
    World { hands, clock, memory, both, first, second: second.position.unwrap() }
}

fn edge(w: &World, hops: u32) -> Node {
    let entries = Arc::new(Upstream(w.memory.clone(), AtomicU32::new(hops)));
    let mut tuning = Tuning::named("edge");
    tuning.feed.poll = Duration::from_millis(5);
    tuning.feed.backoff = Duration::from_millis(20);
    Node::start(Parts { entries, ..Parts::over(&w.memory, w.clock.clone()) }, tuning, Metrics::new())
}

fn reloads(registry: &Registry) -> u64 {
    registry.metrics().reloads.get()
}

async fn doubts(w: &World, registry: &Registry) {
    let at_second = Fence { at_least: Some(w.second), ..any() };
    let refused = |wait| resolve(registry, "a/b", within(0), Duration::from_millis(wait));
    // Nothing is proven meanwhile, and a position that may be lost does not pass, whatever age is accepted.
    for _ in 0..5 {
        assert_eq!(refused(30).await.unwrap_err().reason(), Reason::FreshnessUnverifiable);
        let position = resolve(registry, "a/b", at_second.clone(), Duration::from_millis(10)).await;
        assert_eq!(position.unwrap_err().reason(), Reason::FreshnessUnverifiable);
    }
    assert_eq!(resolve(registry, "a/b", any(), NOW).await.unwrap().agent.revision, 2);
    assert_eq!(reloads(registry), 0);
}

#[tokio::test]
async fn an_upstream_that_went_back_is_asked_again_for_two_seconds() {
    let w = world().await;
    let edge = edge(&w, 1);
    let registry = &edge.registry;
    let resolved = resolve(registry, "a/b", within(0), WAIT).await.unwrap();
    assert_eq!((resolved.agent.revision, resolved.freshness.basis), (2, Basis::Upstream));
    // A balancer leads to a node that lags, and then to one that does not.
    w.memory.become_like(&w.first).await;
    doubts(&w, registry).await;
    w.hands.advance_boot(PATIENCE - Duration::from_millis(100));
    doubts(&w, registry).await;
    w.memory.become_like(&w.both).await;
    assert_eq!(resolve(registry, "a/b", within(0), WAIT).await.unwrap().agent.revision, 2);
    assert_eq!(reloads(registry), 0);
    // It stays that way: the history is another.
    w.memory.become_like(&w.first).await;
    doubts(&w, registry).await;
    w.hands.advance_boot(PATIENCE);
    assert_eq!(resolve(registry, "a/b", within(0), WAIT).await.unwrap().agent.revision, 1);
    assert_eq!(reloads(registry), 1);
    let at_second = Fence { at_least: Some(w.second), ..any() };
    let refused = resolve(registry, "a/b", at_second, Duration::from_millis(50)).await.unwrap_err();
    assert_eq!(refused.reason(), Reason::PositionInFuture);
    edge.stop().await;
}

#[tokio::test]
async fn a_primary_that_went_back_is_not_asked_twice() {
    let w = world().await;
    let node = edge(&w, 0);
    let registry = &node.registry;
    assert_eq!(resolve(registry, "a/b", within(0), WAIT).await.unwrap().agent.revision, 2);
    w.memory.become_like(&w.first).await;
    assert_eq!(resolve(registry, "a/b", within(0), WAIT).await.unwrap().agent.revision, 1);
    assert_eq!(reloads(registry), 1);
    node.stop().await;
}

#[tokio::test]
async fn a_standby_that_moved_on_alone_is_asked_about_for_two_seconds() {
    let w = world().await;
    let (source, authority) = (Valve::open(), Valve::open());
    let primary = Memory::new(ID, w.clock.clone());
    primary.become_like(&w.first).await;
    w.memory.become_like(&w.first).await;
    let node = standby_node((&w.memory, &source), (&primary, &authority), w.clock.clone());
    let registry = &node.registry;
    assert_eq!(resolve(registry, "a/b", within(0), WAIT).await.unwrap().agent.revision, 1);
    // What the standby has and the primary has not is not shown while the primary answers.
    w.memory.become_like(&w.both).await;
    for _ in 0..10 {
        assert_eq!(resolve(registry, "a/b", within(0), WAIT).await.unwrap().agent.revision, 1);
    }
    // Without the primary it is shown, and not proven.
    primary.set_reachable(false);
    eventually(|| registry.watermark().position.seq == 2).await;
    primary.set_reachable(true);
    doubts(&w, registry).await;
    primary.become_like(&w.both).await;
    assert_eq!(resolve(registry, "a/b", within(0), WAIT).await.unwrap().agent.revision, 2);
    assert_eq!(reloads(registry), 0);
    // The primary has lost it for good, and the standby is rebuilt later than that is noticed.
    primary.become_like(&w.first).await;
    doubts(&w, registry).await;
    w.hands.advance_boot(PATIENCE);
    assert_eq!(resolve(registry, "a/b", within(0), WAIT).await.unwrap().agent.revision, 1);
    assert_eq!(reloads(registry), 1);
    node.stop().await;
}
