//! When the registry is asked, and when a card in hand serves.

use super::*;

/// How often the registry is asked for a second start, so much later.
async fn asked_again(registry: &Arc<Registry>, later: Duration, intent: Intent) -> usize {
    let guard = registry.guard(Strictness::Strict);
    let first = guard.start_task(&agent(), intent.clone()).await.unwrap();
    drop(first);
    registry.hands.advance(later);
    let before = registry.asked();
    let second = guard.start_task(&agent(), intent).await.unwrap();
    assert_eq!(second.from_memo(), registry.asked() == before);
    registry.asked() - before
}

#[tokio::test]
async fn a_card_in_hand_serves_while_it_is_confirmed_and_younger_than_the_task() {
    let registry = Registry::serving(summarize());
    assert_eq!(asked_again(&registry, 30 * MINUTE, intent()).await, 0);
    assert_eq!(asked_again(&registry, 41 * MINUTE, intent()).await, 1, "older than the task will take");
    let long = Intent { expected_duration: Some(1_000 * MINUTE), ..intent() };
    assert_eq!(asked_again(&registry, 119 * MINUTE, long.clone()).await, 0);
    assert_eq!(asked_again(&registry, 121 * MINUTE, long).await, 1, "twice the redeploy interval");
    let unknown = Intent { expected_duration: None, ..intent() };
    assert_eq!(asked_again(&registry, MINUTE, unknown).await, 1);
    registry.now(|served| served.redeploy_interval = None);
    assert_eq!(asked_again(&registry, MINUTE, intent()).await, 1, "nobody knows how often it is redeployed");
}

#[tokio::test]
async fn an_immutable_version_serves_a_task_shorter_than_its_age() {
    let registry = Registry::serving(summarize());
    let short = Intent { expected_duration: Some(MINUTE), ..intent() };
    assert_eq!(asked_again(&registry, 30 * MINUTE, short.clone()).await, 1);
    registry.now(|served| served.immutable_versions = Some(true));
    assert_eq!(asked_again(&registry, 30 * MINUTE, short.clone()).await, 0);
    assert_eq!(asked_again(&registry, 121 * MINUTE, short.clone()).await, 1, "its version was not confirmed");
    registry.now(|served| served.immutable_versions = Some(false));
    assert_eq!(asked_again(&registry, 30 * MINUTE, short).await, 1);
}

#[tokio::test]
async fn what_only_the_registry_can_judge_is_always_asked() {
    let registry = Registry::serving(summarize());
    let fences = [
        Fence { min_revision: Some("1".parse().unwrap()), ..Fence::default() },
        Fence { at_least: Some("3.00000000000000aa".parse().unwrap()), ..Fence::default() },
        Fence { max_staleness: Some(MaxStaleness::Within(Duration::from_secs(5))), ..Fence::default() },
    ];
    for fence in fences {
        assert_eq!(asked_again(&registry, MINUTE, Intent { fence, ..intent() }).await, 1);
    }
    let fence = Fence { max_staleness: Some(MaxStaleness::Within(5 * MINUTE)), ..Fence::default() };
    assert_eq!(asked_again(&registry, MINUTE, Intent { fence, ..intent() }).await, 0);
}

#[tokio::test]
async fn a_card_that_does_not_cover_the_task_is_asked_for_before_it_is_refused() {
    let registry = Registry::serving(summarize());
    let guard = registry.guard(Strictness::Strict);
    guard.start_task(&agent(), intent()).await.unwrap();
    registry.register(card("translate-v1", "text/plain", true));
    let started = guard.start_task(&agent(), Intent::skill("translate-v1")).await.unwrap();
    assert_eq!(started.revision().number, 2);
}

#[tokio::test]
async fn a_card_that_breaks_a_held_task_is_confirmed_for_every_start() {
    let registry = Registry::serving(summarize());
    let guard = registry.guard(Strictness::Strict);
    let held = guard.start_task(&agent(), intent()).await.unwrap();
    registry.register(card("translate-v1", "text/plain", true));
    let translate = Intent { expected_duration: Some(40 * MINUTE), ..Intent::skill("translate-v1") };
    for _ in 0..2 {
        assert!(!guard.start_task(&agent(), translate.clone()).await.unwrap().from_memo());
    }
    drop(held);
    assert!(guard.start_task(&agent(), translate).await.unwrap().from_memo());
}

#[tokio::test]
async fn a_task_of_another_process_is_resumed_and_held() {
    let registry = Registry::serving(summarize());
    let guard = registry.guard(Strictness::Strict);
    let resolved = guard.start_task(&agent(), intent()).await.unwrap().resolved().clone();
    let other = registry.guard(Strictness::Strict);
    let resumed = other.resume(resolved, intent());
    registry.register(card("translate-v1", "text/plain", true));
    assert!(matches!(other.continue_task(&resumed).await, Err(Error::TaskContinuationBlocked { .. })));
}
