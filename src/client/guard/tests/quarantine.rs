//! After evidence nothing is started again with the card that it speaks against.

use futures::StreamExt;
use futures::future::join_all;

use super::*;

#[tokio::test]
async fn evidence_leads_to_one_read_one_report_and_never_to_a_start_with_the_stale_card() {
    let registry = Registry::serving(summarize());
    let guard = registry.guard(Strictness::Strict);
    let negotiated = guard.start_task(&agent(), intent()).await.unwrap();
    let mut events = guard.events();
    let before = registry.asked();
    // The agent was redeployed without registering: the registry serves what it knows.
    let answer = unknown_skill();
    let checks = join_all((0..20).map(|_| guard.check(&negotiated, &answer, Some(200)))).await;
    for error in checks.into_iter().map(Result::unwrap_err) {
        assert!(error.registry_behind_origin(), "{error}");
        assert!(error.cards().change.is_none());
    }
    assert_eq!((registry.asked() - before, registry.reports.lock().unwrap().len()), (1, 1));
    // A task that is found out much later is told how things are then.
    registry.hands.advance(MINUTE);
    guard.check(&negotiated, &answer, Some(200)).await.unwrap_err();
    assert_eq!((registry.asked() - before, registry.reports.lock().unwrap().len()), (2, 2));
    assert_eq!((guard.counts().quarantined, guard.counts().stale_card_evidence), (1, 21));
    let told = events.next().await.unwrap();
    assert!(matches!(told, Observed::Event(Event::StaleCardEvidence { revision: 1, .. })), "{told:?}");

    for _ in 0..3 {
        registry.hands.advance(MINUTE);
        let error = guard.start_task(&agent(), intent()).await.unwrap_err();
        assert!(matches!(&error, Error::StaleAgentCard { why: Stale::Quarantined, .. }), "{error}");
        assert!(error.registry_behind_origin());
    }
    assert_eq!(guard.counts().quarantine_refused, 3);
}

#[tokio::test]
async fn a_quarantined_card_is_released_by_a_later_confirmation_of_its_origin_and_by_nothing_else() {
    let registry = Registry::serving(summarize());
    let guard = registry.guard(Strictness::Strict);
    let negotiated = guard.start_task(&agent(), intent()).await.unwrap();
    registry.hands.advance(MINUTE);
    guard.check(&negotiated, &unknown_skill(), None).await.unwrap_err();
    // What was confirmed before the evidence counts for nothing, even when it becomes known only now.
    registry.now(|served| served.confirmed_at = 30);
    guard.start_task(&agent(), intent()).await.unwrap_err();
    registry.hands.advance(MINUTE);
    registry.now(|served| served.confirmed_at = 110);
    let started = guard.start_task(&agent(), intent()).await.unwrap();
    assert_eq!((started.revision().number, guard.counts().released), (1, 1));
    guard.start_task(&agent(), intent()).await.unwrap();
}

#[tokio::test]
async fn without_a_proof_after_the_evidence_nothing_is_released() {
    let registry = Registry::serving(summarize());
    let guard = registry.guard(Strictness::Strict);
    let negotiated = guard.start_task(&agent(), intent()).await.unwrap();
    registry.now(|served| served.reachable = false);
    let error = guard.check(&negotiated, &unknown_skill(), None).await.unwrap_err();
    assert!(error.cards().fresh.is_none() && !error.registry_behind_origin());
    assert!(matches!(guard.start_task(&agent(), intent()).await, Err(Error::DiscoveryUnavailable { .. })));
    registry.hands.advance(MINUTE);
    registry.now(|served| (served.reachable, served.confirmed_at) = (true, 50));
    // It was confirmed after the evidence, and nobody can tell: the first proof is what later ones are held against.
    let error = guard.start_task(&agent(), intent()).await.unwrap_err();
    assert!(error.registry_behind_origin(), "{error}");
    registry.hands.advance(MINUTE);
    registry.now(|served| served.confirmed_at = 110);
    guard.start_task(&agent(), intent()).await.unwrap();
}

#[tokio::test]
async fn a_registry_that_catches_up_ends_it() {
    let registry = Registry::serving(summarize());
    let guard = registry.guard(Strictness::Strict);
    let negotiated = guard.start_task(&agent(), intent()).await.unwrap();
    guard.check(&negotiated, &unknown_skill(), None).await.unwrap_err();
    registry.register(card("translate-v1", "text/plain", true));
    let started = guard.start_task(&agent(), Intent::skill("translate-v1")).await.unwrap();
    assert_eq!(started.revision().number, 2);
    // Another task of the old card fails, too: where the agent went is known by now.
    let before = registry.asked();
    let error = guard.check(&negotiated, &unknown_skill(), None).await.unwrap_err();
    assert_eq!(error.cards().fresh.as_ref().unwrap().revision, Some(2));
    assert_eq!((registry.asked(), registry.reports.lock().unwrap().len()), (before, 1));
}

#[tokio::test]
async fn a_read_that_began_before_the_evidence_starts_no_task() {
    let registry = Registry::serving(summarize());
    let guard = registry.guard(Strictness::Strict);
    let negotiated = guard.start_task(&agent(), intent()).await.unwrap();
    registry.hands.advance(60 * MINUTE);
    let (agent, answer) = (agent(), unknown_skill());
    let start = guard.start_task(&agent, intent());
    let (started, checked) = futures::join!(start, guard.check(&negotiated, &answer, None));
    assert!(checked.is_err());
    assert!(matches!(started, Err(Error::StaleAgentCard { why: Stale::Quarantined, .. })), "{started:?}");
}

#[tokio::test]
async fn a_report_that_hangs_or_is_not_taken_holds_nothing_up_for_long() {
    #[derive(Debug)]
    struct Hangs;
    #[async_trait]
    impl Reports for Hangs {
        async fn report(&self, _: &Report) -> Result<Reported, answer::Error> {
            std::future::pending().await
        }
    }
    let registry = Registry::serving(summarize());
    let settings = Settings {
        report_within: Duration::from_millis(1),
        clock: registry.clock.clone(),
        ..Settings::default()
    };
    let guard = Guard::with(Arc::clone(&registry), Hangs, settings);
    let negotiated = guard.start_task(&agent(), intent()).await.unwrap();
    let error = guard.check(&negotiated, &unknown_skill(), None).await.unwrap_err();
    assert!(error.registry_behind_origin());
    assert_eq!(guard.counts().drift_failed, 1);
}
