//! Sentences of the contract about origins: heartbeats, their age, and leases on the service clock.

use std::sync::Arc;
use std::time::Duration;

use cardfence::clock::{Clock, Hands};
use cardfence::fence::Fence;
use cardfence::ledger::memory::Memory;
use cardfence::ledger::{CONFIRMED_AT_ONCE, ServiceClock as _};
use cardfence::registry::{ConfirmItem, Confirmation, Refusal, Register, Registry};
use cardfence::server::Node;
use cardfence::terms::{Digest, LeaseHeld, Origin, Reason};

use crate::support::*;

struct World {
    memory: Memory,
    valve: Valve,
    hands: Arc<Hands>,
    node: Node,
}

async fn world() -> World {
    let hands = Arc::new(Hands::default());
    hands.advance(Duration::from_secs(1_000_000));
    let clock = Clock::Manual(Arc::clone(&hands));
    let memory = Memory::new("00000000-0000-4000-8000-000000000009", clock.clone());
    let valve = Valve::open();
    let node = node(&memory, &valve, clock);
    ready(&node.registry).await;
    World { memory, valve, hands, node }
}

impl World {
    /// Lets so many seconds pass while the registry is up.
    async fn serve_for(&self, seconds: u64) {
        for _ in 0..seconds {
            self.hands.advance(Duration::from_secs(1));
            self.memory.tick().await.unwrap();
        }
    }
}

async fn leased(registry: &Registry, name: &str, version: &str, ttl: Option<Duration>) -> Digest {
    let request = Register { ttl, ..registering(name, card(version, "s", "text/plain")) };
    registry.register(&call(registry), request).await.unwrap().card.unwrap().content_digest()
}

async fn beat(registry: &Registry, name: &str, content_digest: Digest) -> Result<Confirmation, Refusal> {
    registry.confirm_origin(&call(registry), ConfirmItem { agent: agent(name), content_digest }).await
}

/// What a linearizable resolve tells of the agent's origin.
async fn origin(registry: &Registry, name: &str) -> Origin {
    resolve(registry, name, within(0), WAIT).await.unwrap().freshness.origin.unwrap()
}

fn held(ttl: Duration, lapsed: bool) -> Option<LeaseHeld> {
    Some(LeaseHeld { ttl, lapsed })
}

#[tokio::test]
async fn a_lapsed_lease_is_told_and_hides_nothing() {
    let w = world().await;
    let registry = &w.node.registry;
    let ttl = Duration::from_secs(10);
    let digest = leased(registry, "a/b", "1", Some(ttl)).await;
    leased(registry, "a/free", "1", None).await;
    assert_eq!(origin(registry, "a/b").await.lease, held(ttl, false));
    w.serve_for(12).await;
    assert_eq!(origin(registry, "a/b").await.lease, held(ttl, true));
    assert_eq!(origin(registry, "a/free").await.lease, None);
    let confirmed = beat(registry, "a/b", digest).await.unwrap();
    assert_eq!(confirmed.freshness.origin.unwrap().lease, held(ttl, false), "at once");
    assert_eq!(origin(registry, "a/b").await.lease, held(ttl, false));
    w.serve_for(12).await;
    let unchanged = leased(registry, "a/b", "1", Some(ttl)).await;
    assert_eq!((unchanged, origin(registry, "a/b").await.lease), (digest, held(ttl, false)));
    leased(registry, "a/b", "1", None).await;
    assert_eq!(origin(registry, "a/b").await.lease, None, "a register without a lease ends it");
    w.node.stop().await;
}

#[tokio::test]
async fn a_lease_does_not_lapse_while_the_registry_is_down() {
    let w = world().await;
    let ttl = Duration::from_secs(10);
    leased(&w.node.registry, "a/b", "1", Some(ttl)).await;
    w.node.stop().await;
    w.hands.advance(Duration::from_secs(24 * 3600));
    let node = node(&w.memory, &w.valve, Clock::Manual(Arc::clone(&w.hands)));
    ready(&node.registry).await;
    let registry = &node.registry;
    // The liveness table is read after the first proof.
    let mut lease = None;
    let until = tokio::time::Instant::now() + Duration::from_secs(10);
    while lease.is_none() {
        assert!(tokio::time::Instant::now() < until, "the lease was not read within 10 s");
        lease = origin(registry, "a/b").await.lease;
    }
    assert_eq!(lease, held(ttl, false), "a day of silence was the registry's");
    let w = World { node, ..w };
    w.serve_for(12).await;
    let registry = &w.node.registry;
    assert_eq!(origin(registry, "a/b").await.lease, held(ttl, true));
    w.node.stop().await;
}

#[tokio::test]
async fn heartbeats_make_an_origin_young_and_no_revision() {
    let w = world().await;
    let registry = &w.node.registry;
    let digest = leased(registry, "a/b", "1", None).await;
    let fence = || Fence { max_origin_age: Some(Duration::from_secs(30)), ..within(0) };
    w.hands.advance(Duration::from_secs(60));
    let refused = resolve(registry, "a/b", fence(), WAIT).await.unwrap_err();
    assert_eq!(refused.reason(), Reason::OriginUnconfirmed);
    let before = registry.watermark().position;
    for _ in 0..4 {
        w.hands.advance(Duration::from_secs(20));
        let confirmed = beat(registry, "a/b", digest).await.unwrap();
        assert_eq!((confirmed.revision, confirmed.position), (1, Some(before)));
        assert_eq!(confirmed.freshness.origin.unwrap().confirmed_at, Some(confirmed.origin_confirmed_at));
        let resolved = resolve(registry, "a/b", fence(), WAIT).await.unwrap();
        assert_eq!(resolved.agent.revision, 1);
        let origin = resolved.freshness.origin.unwrap();
        assert_eq!(origin.confirmed_at, Some(confirmed.origin_confirmed_at));
        assert_eq!(origin.redeploy_interval, None, "a heartbeat is no deploy");
    }
    assert_eq!(registry.watermark().position, before);
    w.node.stop().await;
}

#[tokio::test]
async fn a_heartbeat_of_another_card_is_refused_and_names_the_current_revision() {
    let w = world().await;
    let registry = &w.node.registry;
    let old = leased(registry, "a/b", "1", None).await;
    leased(registry, "a/b", "2", None).await;
    let refused = beat(registry, "a/b", old).await.unwrap_err();
    assert_eq!((refused.reason(), refused.parts().revision), (Reason::PinMismatch, Some(2)));
    assert!(refused.parts().freshness.is_some());
    registry.retire(&call(registry), retiring("a/b")).await.unwrap();
    let refused = beat(registry, "a/b", old).await.unwrap_err();
    assert_eq!((refused.reason(), refused.parts().revision), (Reason::AgentRetired, Some(3)));
    let refused = beat(registry, "a/none", old).await.unwrap_err();
    assert_eq!((refused.reason(), refused.parts().revision), (Reason::AgentNotFound, None));
    let item = ConfirmItem { agent: agent("a/b"), content_digest: old };
    let many = vec![item; CONFIRMED_AT_ONCE + 1];
    let refused = registry.confirm_origins(&call(registry), many).await.unwrap_err();
    assert_eq!(refused.reason(), Reason::InvalidArgument);
    w.memory.set_reachable(false);
    let refused = beat(registry, "a/b", old).await.unwrap_err();
    assert_eq!(refused.reason(), Reason::StoreUnavailable);
    w.node.stop().await;
}

#[tokio::test]
async fn a_heartbeat_reaches_another_node() {
    let w = world().await;
    let other = node(&w.memory, &Valve::open(), Clock::Manual(Arc::clone(&w.hands)));
    let digest = leased(&w.node.registry, "a/b", "1", Some(Duration::from_secs(10))).await;
    ready(&other.registry).await;
    w.hands.advance(Duration::from_secs(3));
    // The other node confirms what the first one has not applied: its view is shut off.
    w.valve.set_open(false);
    let newer = leased(&other.registry, "a/b", "2", Some(Duration::from_secs(20))).await;
    assert_ne!(newer, digest);
    let w_call = w.node.registry.call(Some(Duration::from_millis(200)));
    let item = ConfirmItem { agent: agent("a/b"), content_digest: newer };
    let confirmed = w.node.registry.confirm_origin(&w_call, item).await.unwrap();
    assert_eq!((confirmed.revision, confirmed.position), (2, None), "done, and not applied here yet");
    let at = confirmed.origin_confirmed_at;
    let registry = &other.registry;
    let mut seen = None;
    let until = tokio::time::Instant::now() + Duration::from_secs(10);
    while seen != Some(at) {
        assert!(tokio::time::Instant::now() < until, "{seen:?} is not {at}");
        seen = origin(registry, "a/b").await.confirmed_at;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    w.valve.set_open(true);
    other.stop().await;
    w.node.stop().await;
}

#[tokio::test]
async fn a_lease_is_within_bounds_and_part_of_what_a_request_id_names() {
    let w = world().await;
    let registry = &w.node.registry;
    let asked = |ttl| Register {
        ttl,
        request_id: Some("deploy-1".parse().unwrap()),
        ..registering("a/b", card("1", "s", "text/plain"))
    };
    for ttl in [Duration::ZERO, Duration::from_millis(999), Duration::from_secs(30 * 24 * 3600 + 1)] {
        let refused = registry.register(&call(registry), asked(Some(ttl))).await.unwrap_err();
        assert_eq!(refused.reason(), Reason::InvalidArgument, "{refused}");
        assert!(refused.parts().detail.contains("1s to 30d"), "{refused}");
    }
    let ttl = Some(Duration::from_secs(1));
    registry.register(&call(registry), asked(ttl)).await.unwrap();
    assert!(registry.register(&call(registry), asked(ttl)).await.unwrap().replayed);
    for other in [None, Some(Duration::from_secs(2))] {
        let refused = registry.register(&call(registry), asked(other)).await.unwrap_err();
        assert_eq!(refused.reason(), Reason::InvalidArgument);
    }
    w.node.stop().await;
}
