//! The incidents that this project comes from, each ended where it should have been.

use super::*;
use crate::card::{Class, ItemKind};

#[tokio::test]
async fn a_task_that_fails_with_unknown_skill_after_submitted_is_a_stale_card() {
    let registry = Registry::serving(summarize());
    let guard = registry.guard(Strictness::Strict);
    let negotiated = guard.start_task(&agent(), intent()).await.unwrap();
    // The agent is redeployed with another skill, under the same version.
    registry.register(card("translate-v1", "text/plain", true));
    let submitted = guard.check(&negotiated, &task("TASK_STATE_SUBMITTED", ""), Some(200)).await.unwrap();
    assert_eq!(submitted.state.as_deref(), Some("submitted"));
    let error = guard.check(&negotiated, &unknown_skill(), Some(200)).await.unwrap_err();
    assert!(matches!(error, Error::StaleAgentCard { registry_behind_origin: false, .. }), "{error}");
    let cards = error.cards();
    assert_eq!(cards.negotiated.as_ref().unwrap().revision, Some(1));
    assert_eq!(cards.fresh.as_ref().unwrap().revision, Some(2));
    let change = cards.change.as_ref().unwrap();
    assert!(change.silent && change.class == Class::Breaking);
    assert!(
        change.items.iter().any(|item| item.kind == ItemKind::SkillRemoved && item.subject == "summarize-v2")
    );
    assert_eq!(
        error.to_string(),
        "acme/summarizer (negotiated with revision 1, 2 is current, breaking change, silent): stale agent card: \
         the task is failed and says `unknown skill`"
    );
    // The next start is told before anything is sent.
    let error = guard.start_task(&agent(), intent()).await.unwrap_err();
    assert!(
        matches!(&error, Error::CapabilityMismatch { why, .. } if why.reason == Reason::SkillMissing),
        "{error}"
    );
    assert_eq!(error.cards().fresh.as_ref().unwrap().revision, Some(2), "read by itself");
    // And who asks for what there is now gets it.
    guard.start_task(&agent(), Intent::skill("translate-v1")).await.unwrap();
}

#[tokio::test]
async fn completed_with_text_where_markdown_was_negotiated_is_drift() {
    let registry = Registry::serving(summarize());
    let guard = registry.guard(Strictness::Strict);
    let negotiated = guard.start_task(&agent(), intent()).await.unwrap();
    let error = guard.check(&negotiated, &completed(&json!({"text": "x"})), Some(200)).await.unwrap_err();
    let Error::ArtifactSchemaDrift { drift, cards } = error else { panic!("{error}") };
    assert_eq!((drift.found.as_str(), drift.allowed.as_slice()), ("text", &["text/markdown".to_owned()][..]));
    assert_eq!(cards.fresh.unwrap().revision, Some(1), "the registry does not know of it yet");
    let reports = registry.reports.lock().unwrap().clone();
    assert_eq!((reports.len(), reports[0].kind, reports[0].revision), (1, "artifact", 1));
    let lenient = registry.guard(Strictness::Lenient);
    let negotiated = lenient.start_task(&agent(), intent()).await.unwrap();
    lenient.check(&negotiated, &completed(&json!({"text": "x"})), Some(200)).await.unwrap();
}

#[tokio::test]
async fn push_withdrawn_between_start_and_webhook_is_a_downgrade_now() {
    let registry = Registry::serving(summarize());
    let guard = registry.guard(Strictness::Strict);
    let intent = Intent { needs_push: true, ..intent() };
    let negotiated = guard.start_task(&agent(), intent).await.unwrap();
    assert_eq!(guard.register_webhook(&negotiated).await.unwrap().number, 1);
    registry.register(card("summarize-v2", "text/markdown", false));
    let error = guard.register_webhook(&negotiated).await.unwrap_err();
    assert!(matches!(error, Error::DiscoveryDowngrade { why: Gone::PushNotifications, .. }), "{error}");
    let change = error.cards().change.as_ref().unwrap();
    assert!(change.items.iter().any(|item| item.kind == ItemKind::PushNotificationsWithdrawn));
    // The task itself goes on: it is a breaking change elsewhere.
    let going = guard.continue_task(&negotiated).await.unwrap();
    assert_eq!((going.fresh.unwrap().number, going.change.unwrap().class), (2, Class::Breaking));
    registry.now(|served| served.card = None);
    let error = guard.register_webhook(&negotiated).await.unwrap_err();
    assert!(
        matches!(error, Error::DiscoveryDowngrade { why: Gone::Agent(Reason::AgentRetired), .. }),
        "{error}"
    );
}

#[tokio::test]
async fn a_held_task_whose_skill_mode_or_agent_is_gone_is_blocked() {
    let registry = Registry::serving(summarize());
    let guard = registry.guard(Strictness::Strict);
    let negotiated = guard.start_task(&agent(), intent()).await.unwrap();
    let going = guard.continue_task(&negotiated).await.unwrap();
    assert!(going.change.is_none() && going.warning.is_none());
    registry.register(card("summarize-v2", "text/plain", true));
    let error = guard.continue_task(&negotiated).await.unwrap_err();
    assert!(matches!(error, Error::TaskContinuationBlocked { why: Gone::Mode { .. }, .. }), "{error}");
    registry.register(card("translate-v1", "text/plain", true));
    let error = guard.continue_task(&negotiated).await.unwrap_err();
    assert!(matches!(error, Error::TaskContinuationBlocked { why: Gone::Skill(_), .. }), "{error}");
    assert_eq!(error.cards().fresh.as_ref().unwrap().revision, Some(3));
    registry.now(|served| served.card = None);
    let error = guard.continue_task(&negotiated).await.unwrap_err();
    assert!(matches!(error, Error::TaskContinuationBlocked { why: Gone::Agent(_), .. }), "{error}");
    assert_eq!(error.cards().change, Some(Change::retirement()));
    assert_eq!(guard.counts().continuation_blocked, 3);
}

#[tokio::test]
async fn a_registry_out_of_reach_refuses_a_start_and_a_webhook_and_warns_a_held_task() {
    let registry = Registry::serving(summarize());
    let guard = registry.guard(Strictness::Strict);
    let negotiated = guard.start_task(&agent(), intent()).await.unwrap();
    registry.now(|served| served.reachable = false);
    registry.hands.advance(60 * MINUTE);
    let error = guard.start_task(&agent(), intent()).await.unwrap_err();
    assert!(matches!(error, Error::DiscoveryUnavailable { .. }), "{error}");
    assert_eq!(error.cards().negotiated.as_ref().unwrap().revision, Some(1), "the card in hand is attached");
    let error = guard.register_webhook(&negotiated).await.unwrap_err();
    assert!(matches!(error, Error::DiscoveryUnavailable { .. }), "{error}");
    let going = guard.continue_task(&negotiated).await.unwrap();
    assert!(matches!(going.warning, Some(Error::DiscoveryUnavailable { .. })));
    assert!(going.fresh.is_none() && going.change.is_none());
    assert_eq!(guard.counts().discovery_unavailable, 3);
}

#[tokio::test]
async fn an_agent_that_is_retired_cannot_be_started() {
    let registry = Registry::serving(summarize());
    registry.now(|served| served.card = None);
    let guard = registry.guard(Strictness::Strict);
    let error = guard.start_task(&agent(), intent()).await.unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    assert_eq!(error.to_string(), "acme/summarizer: agent_retired: it is retired");
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_is_refused_and_is_no_evidence() {
    let registry = Registry::serving(summarize());
    let guard = registry.guard(Strictness::Strict);
    let negotiated = guard.start_task(&agent(), intent()).await.unwrap();
    let error = guard.check(&negotiated, &json!({"hello": "world"}), Some(200)).await.unwrap_err();
    assert!(matches!(error, Error::UnreadableResponse { .. }), "{error}");
    assert_eq!((registry.reports.lock().unwrap().len(), guard.counts().quarantined), (0, 0));
}
