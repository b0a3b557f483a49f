//! Sentences of the contract about freshness and positions.

use std::sync::Arc;
use std::time::Duration;

use cardfence::clock::{Clock, Hands};
use cardfence::fence::{Fence, Outcome, SkillWanted};
use cardfence::ledger::memory::Memory;
use cardfence::registry::{Batch, Read};
use cardfence::terms::{MaxStaleness, Position, Reason};

use crate::support::*;

const ID: &str = "00000000-0000-4000-8000-000000000002";

struct World {
    memory: Memory,
    valve: Valve,
    hands: Arc<Hands>,
    node: cardfence::server::Node,
}

async fn world() -> World {
    let hands = Arc::new(Hands::default());
    hands.advance(Duration::from_secs(1_000_000));
    let clock = Clock::Manual(Arc::clone(&hands));
    let memory = Memory::new(ID, clock.clone());
    let valve = Valve::open();
    let node = node(&memory, &valve, clock);
    ready(&node.registry).await;
    World { memory, valve, hands, node }
}

#[tokio::test]
async fn passes_are_bounded_and_too_old_is_refused_with_the_card() {
    let w = world().await;
    let registry = &w.node.registry;
    register(registry, "a/b", card("1", "s", "text/plain")).await.unwrap();
    w.valve.set_open(false);
    resolve(registry, "a/b", within(5_000), NOW).await.unwrap();
    w.hands.advance(Duration::from_secs(6));
    let refused = resolve(registry, "a/b", within(5_000), NOW).await.unwrap_err();
    assert_eq!(refused.reason(), Reason::TooStale);
    assert!(refused.parts().card.is_some(), "the stale card is attached");
    let freshness = refused.parts().freshness.as_ref().unwrap();
    assert!(freshness.staleness.unwrap() >= Duration::from_secs(6), "the true bound is told");
    let waited = resolve(registry, "a/b", within(5_000), Duration::from_millis(30)).await.unwrap_err();
    assert_eq!(waited.reason(), Reason::FreshnessUnverifiable);
    resolve(registry, "a/b", any(), NOW).await.unwrap();
    w.valve.set_open(true);
    resolve(registry, "a/b", within(0), WAIT).await.unwrap();
    w.node.stop().await;
}

#[tokio::test]
async fn a_pin_replaces_the_default_bound_and_not_an_explicit_one() {
    let w = world().await;
    let registry = &w.node.registry;
    let written = register(registry, "a/b", card("1", "s", "text/plain")).await.unwrap();
    let pin = Some(written.card.unwrap().content_digest());
    w.valve.set_open(false);
    w.hands.advance(Duration::from_secs(3600));
    let pinned = Fence { pin, ..Fence::default() };
    resolve(registry, "a/b", pinned.clone(), NOW).await.unwrap();
    let unpinned = resolve(registry, "a/b", Fence::default(), NOW).await.unwrap_err();
    assert_eq!(unpinned.reason(), Reason::TooStale);
    let both = Fence { max_staleness: Some(MaxStaleness::Within(Duration::from_secs(5))), ..pinned };
    assert_eq!(resolve(registry, "a/b", both, NOW).await.unwrap_err().reason(), Reason::TooStale);
    w.node.stop().await;
}

#[tokio::test]
async fn refusals_are_linearizable() {
    let w = world().await;
    let registry = &w.node.registry;
    register(registry, "a/b", card("1", "s", "text/plain")).await.unwrap();
    w.valve.set_open(false);
    let wants = Fence {
        skills: vec![SkillWanted { id: "t".to_owned(), ..SkillWanted::default() }],
        ..within(60_000)
    };
    // The view is fresh enough to pass, but too old to refuse by content.
    let refused = resolve(registry, "a/b", wants.clone(), NOW).await.unwrap_err();
    assert_eq!(refused.reason(), Reason::FreshnessUnverifiable);
    let skills = refused.parts().conditions.iter().find(|c| c.condition == "skills").unwrap();
    assert_eq!(skills.outcome, Outcome::Failed, "the content outcome is beside it");
    let absent = resolve(registry, "no/body", within(60_000), Duration::from_millis(20)).await.unwrap_err();
    assert_eq!(absent.reason(), Reason::FreshnessUnverifiable);
    w.valve.set_open(true);
    let refused = resolve(registry, "a/b", wants, WAIT).await.unwrap_err();
    assert_eq!(refused.reason(), Reason::SkillMissing);
    let absent = resolve(registry, "no/body", within(60_000), WAIT).await.unwrap_err();
    assert_eq!(absent.reason(), Reason::AgentNotFound);
    assert!(absent.parts().freshness.is_some(), "absent as of when");
    w.node.stop().await;
}

#[tokio::test]
async fn a_position_beyond_the_head_is_in_the_future_and_a_foreign_one_diverged() {
    let w = world().await;
    let registry = &w.node.registry;
    let at = register(registry, "a/b", card("1", "s", "text/plain")).await.unwrap().position.unwrap();
    let fence = |position: Position| Fence { at_least: Some(position), ..Fence::default() };
    resolve(registry, "a/b", fence(at), NOW).await.unwrap();
    let future = Position { seq: 99, tag: at.tag };
    assert_eq!(
        resolve(registry, "a/b", fence(future), WAIT).await.unwrap_err().reason(),
        Reason::PositionInFuture
    );
    let foreign = Position { seq: 1, tag: cardfence::terms::Tag(7) };
    assert_eq!(
        resolve(registry, "a/b", fence(foreign), WAIT).await.unwrap_err().reason(),
        Reason::HistoryDiverged
    );
    w.valve.set_open(false);
    let unasked = resolve(registry, "a/b", fence(foreign), Duration::from_millis(20)).await.unwrap_err();
    assert_eq!(unasked.reason(), Reason::FreshnessUnverifiable, "a question, not a verdict");
    w.node.stop().await;
}

#[tokio::test]
async fn a_failover_that_lost_entries_is_noticed_without_any_write() {
    let w = world().await;
    let registry = &w.node.registry;
    register(registry, "a/b", card("1", "s", "text/plain")).await.unwrap();
    let lost = register(registry, "a/b", card("2", "t", "text/plain")).await.unwrap();
    let promoted = w.memory.forked_at(1).await;
    w.memory.become_like(&promoted).await;
    eventually(|| registry.metrics().reloads.get() == 1).await;
    let resolved = resolve(registry, "a/b", within(0), WAIT).await.unwrap();
    assert_eq!(resolved.agent.revision, 1, "the new history is served");
    let fence = Fence { at_least: lost.position, ..Fence::default() };
    let refused = resolve(registry, "a/b", fence.clone(), WAIT).await.unwrap_err();
    assert_eq!(refused.reason(), Reason::PositionInFuture);
    // The same number is given again, to another entry.
    register(registry, "a/b", card("3", "u", "text/plain")).await.unwrap();
    let refused = resolve(registry, "a/b", fence, WAIT).await.unwrap_err();
    assert_eq!(refused.reason(), Reason::HistoryDiverged);
    w.node.stop().await;
}

#[tokio::test]
async fn during_a_reload_nothing_of_the_lost_history_is_fresh() {
    let w = world().await;
    let registry = &w.node.registry;
    register(registry, "a/b", card("1", "s", "text/plain")).await.unwrap();
    register(registry, "a/b", card("2", "t", "text/plain")).await.unwrap();
    let promoted = w.memory.forked_at(1).await;
    w.memory.become_like(&promoted).await;
    // Whatever is answered as fresh from now on is of the new history.
    let until = tokio::time::Instant::now() + Duration::from_millis(300);
    let mut answers = 0;
    while tokio::time::Instant::now() < until {
        match resolve(registry, "a/b", within(0), Duration::from_millis(50)).await {
            Ok(resolved) => assert_eq!(resolved.agent.revision, 1),
            Err(refusal) => assert_eq!(refusal.reason(), Reason::FreshnessUnverifiable),
        }
        answers += 1;
    }
    assert!(answers > 10);
    w.node.stop().await;
}

#[tokio::test]
async fn a_node_does_not_answer_not_found_before_its_first_proof() {
    let clock = Clock::System;
    let memory = Memory::new(ID, clock.clone());
    let valve = Valve::open();
    valve.set_open(false);
    let node = node(&memory, &valve, clock);
    assert!(!node.registry.is_ready());
    for fence in [any(), within(60_000), Fence::default()] {
        let refused = resolve(&node.registry, "a/b", fence, Duration::from_millis(20)).await.unwrap_err();
        assert_eq!(refused.reason(), Reason::FreshnessUnverifiable);
    }
    valve.set_open(true);
    let refused = resolve(&node.registry, "a/b", any(), WAIT).await.unwrap_err();
    assert_eq!(refused.reason(), Reason::AgentNotFound);
    node.stop().await;
}

#[tokio::test]
async fn a_thousand_linearizable_reads_share_confirmations() {
    let w = world().await;
    let registry = &w.node.registry;
    register(registry, "a/b", card("1", "s", "text/plain")).await.unwrap();
    let before = w.valve.asked();
    let reads = (0..1_000).map(|_| resolve(registry, "a/b", within(0), WAIT));
    for read in futures::future::join_all(reads).await {
        read.unwrap();
    }
    // Two would do; the view also asks by itself every 5 ms here.
    let asked = w.valve.asked() - before;
    assert!(asked < 100, "the authority was asked {asked} times");
    w.node.stop().await;
}

#[tokio::test]
async fn max_origin_age_counts_by_the_authoritys_clock() {
    let w = world().await;
    let registry = &w.node.registry;
    register(registry, "a/b", card("1", "s", "text/plain")).await.unwrap();
    let fence = |secs| Fence { max_origin_age: Some(Duration::from_secs(secs)), ..within(3_600_000) };
    w.hands.advance(Duration::from_secs(60));
    resolve(registry, "a/b", fence(61), WAIT).await.unwrap();
    let refused = resolve(registry, "a/b", fence(59), WAIT).await.unwrap_err();
    assert_eq!(refused.reason(), Reason::OriginUnconfirmed);
    register(registry, "a/b", card("1", "s", "text/plain")).await.unwrap();
    resolve(registry, "a/b", fence(59), WAIT).await.unwrap();
    w.node.stop().await;
}

#[tokio::test]
async fn an_item_of_a_batch_is_not_refused_for_the_position_of_another() {
    let w = world().await;
    let registry = &w.node.registry;
    let at = register(registry, "a/b", card("1", "s", "text/plain")).await.unwrap().position.unwrap();
    let foreign = Position { seq: 1, tag: cardfence::terms::Tag(7) };
    let fence = |at_least| Fence { at_least, ..Fence::default() };
    let batch = Batch {
        agents: vec![
            (agent("a/b"), fence(Some(at))),
            (agent("a/b"), fence(Some(foreign))),
            (agent("a/b"), fence(None)),
            (agent("no/body"), fence(None)),
        ],
        read: Read { wait: Some(WAIT), ..Read::default() },
    };
    let (items, freshness) = registry.resolve_batch(&call(registry), &batch).await.unwrap();
    let told: Vec<_> = items.iter().map(|item| item.outcome.as_ref().err().map(|r| r.reason())).collect();
    assert_eq!(told, [None, Some(Reason::HistoryDiverged), None, Some(Reason::AgentNotFound)]);
    assert_eq!(freshness.position, at, "one position for all");
    w.node.stop().await;
}
