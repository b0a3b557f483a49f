//! The life of a card: registered, resolved, mutated without a word, caught, retired.

use cardfence::proto::v1 as pb;
use tonic::Code;

use super::support::{Served, card, registering, said, within};

#[tokio::test]
async fn a_card_is_registered_resolved_mutated_caught_and_retired() {
    let served = Served::start().await;
    let mut registry = served.registry.clone();
    let first = card("1.0", "summarize", 10);

    let written = served.register("acme/worker", first.clone()).await;
    assert_eq!((written.outcome(), written.revision), (pb::Outcome::Created, 1));
    assert_eq!(written.generation.as_deref(), Some("v1.0"));
    assert_eq!(written.change, None);
    let position = written.position.clone().unwrap();

    // Read your write, at the position that it was answered with, and byte for byte.
    let fence = pb::Fence { condition_count: 1, at_least: Some(position.clone()), ..Default::default() };
    let resolved = served.resolve("acme/worker", fence).await.unwrap();
    assert_eq!(resolved.card.as_ref(), Some(&first));
    assert_eq!((resolved.revision, &resolved.position), (1, &position));
    assert_eq!(resolved.card_version.as_deref(), Some("1.0"));
    assert_eq!(Some(&resolved.content_digest), written.content_digest.as_ref());
    assert_eq!(Some(&resolved.skill_fingerprint), written.skill_fingerprint.as_ref());
    let freshness = resolved.freshness.as_ref().unwrap();
    assert_eq!((freshness.basis(), freshness.served_by.as_str()), (pb::Basis::Authority, "tester"));
    assert!(freshness.staleness_ms.is_some() && freshness.proven_at.is_some());
    assert!(freshness.origin_confirmed_at.is_some());

    // Held already: no card, and a fresh block.
    let known = pb::ResolveRequest {
        agent: "acme/worker".to_owned(),
        known: vec![resolved.raw_digest.clone()],
        ..Default::default()
    };
    let held = registry.resolve(known).await.unwrap().into_inner();
    assert!(held.not_modified && held.card.is_none() && held.freshness.is_some());

    // Another skill under the same version.
    let written = served.register("acme/worker", card("1.0", "translate", 10)).await;
    assert_eq!((written.outcome(), written.revision), (pb::Outcome::Updated, 2));
    let change = written.change.unwrap();
    assert!(change.silent);
    assert_eq!(change.class(), pb::ChangeClass::Breaking);
    assert!(change.items.iter().any(|i| i.kind == "skill_removed" && i.subject == "summarize"));

    // The pin catches it; the refusal shows what is there now.
    let pinned =
        pb::Fence { condition_count: 1, pin: Some(resolved.content_digest.clone()), ..Default::default() };
    let said_pin = said(served.resolve("acme/worker", pinned).await);
    assert_eq!((said_pin.code, said_pin.reason.as_str()), (Code::FailedPrecondition, "pin_mismatch"));
    let problem = said_pin.problem;
    assert_eq!((problem.agent.as_deref(), problem.revision), (Some("acme/worker"), Some(2)));
    assert_eq!(problem.card, Some(card("1.0", "translate", 10)));
    assert_eq!(problem.conditions.len(), 1);
    let condition = &problem.conditions[0];
    assert_eq!((condition.condition.as_str(), condition.outcome()), ("pin", pb::ConditionOutcome::Failed));
    assert_eq!(condition.wanted, resolved.content_digest);
    assert!(problem.freshness.unwrap().staleness_ms.is_some());

    // So does the skill.
    let skilled = pb::Fence {
        condition_count: 1,
        skills: vec![pb::SkillWanted { id: "summarize".to_owned(), ..Default::default() }],
        ..Default::default()
    };
    assert_eq!(said(served.resolve("acme/worker", skilled).await).reason, "skill_missing");

    // Back to what was.
    let rollback = pb::RollbackRequest { agent: "acme/worker".to_owned(), to: 1, ..Default::default() };
    let written = registry.rollback(rollback).await.unwrap().into_inner();
    assert_eq!((written.revision, written.content_digest), (3, Some(resolved.content_digest)));

    let retire = pb::RetireRequest { agent: "acme/worker".to_owned(), ..Default::default() };
    let written = registry.retire(retire.clone()).await.unwrap().into_inner();
    assert_eq!((written.outcome(), written.revision), (pb::Outcome::Retired, 4));
    assert_eq!((written.raw_digest, written.generation), (None, None));
    let again = registry.retire(retire).await.unwrap().into_inner();
    assert_eq!(again.outcome(), pb::Outcome::Unchanged);

    let gone = said(served.resolve("acme/worker", pb::Fence::default()).await);
    assert_eq!((gone.code, gone.reason.as_str()), (Code::NotFound, "agent_retired"));
    assert!(gone.problem.freshness.is_some());
    assert_eq!(gone.pushback, None);
}

#[tokio::test]
async fn a_repeated_request_id_gets_the_first_outcome() {
    let served = Served::start().await;
    let mut registry = served.registry.clone();
    let request = |skill, id: &str| pb::RegisterRequest {
        request_id: id.to_owned(),
        ..registering("acme/worker", card("1", skill, 0))
    };
    let first = registry.register(request("a", "one")).await.unwrap().into_inner();
    registry.register(request("b", "two")).await.unwrap();
    let repeated = registry.register(request("a", "one")).await.unwrap().into_inner();
    assert_eq!((repeated.outcome(), repeated.revision), (first.outcome(), 1));
    assert!(repeated.superseded && !first.superseded);
    let other = said(registry.register(request("c", "one")).await);
    assert_eq!((other.code, other.reason.as_str()), (Code::InvalidArgument, "invalid_argument"));
}

#[tokio::test]
async fn what_was_expected_is_what_is_written_over() {
    let served = Served::start().await;
    let mut registry = served.registry.clone();
    let expecting = |current| pb::RegisterRequest {
        expect: Some(pb::Expect { current: Some(current) }),
        ..registering("acme/worker", card("2", "b", 0))
    };
    use pb::expect::Current;
    let first = served.register("acme/worker", card("1", "a", 0)).await;
    let absent = said(registry.register(expecting(Current::Absent(pb::ExpectAbsent {}))).await);
    assert_eq!((absent.code, absent.reason.as_str()), (Code::Aborted, "revision_conflict"));
    assert_eq!(absent.problem.revision, Some(1));
    assert_eq!(absent.pushback.as_deref(), Some("-1"), "a blind retry would not help");
    let ninth = said(registry.register(expecting(Current::Revision("9".to_owned()))).await);
    assert_eq!(ninth.reason, "revision_conflict");

    let revision = format!("1@{}", first.position.unwrap());
    let dry = pb::RegisterRequest { dry_run: true, ..expecting(Current::Revision(revision.clone())) };
    let tried = registry.register(dry).await.unwrap().into_inner();
    assert_eq!((tried.outcome(), tried.position, tried.dry_run), (pb::Outcome::Updated, None, true));
    let done = registry.register(expecting(Current::Revision(revision))).await.unwrap().into_inner();
    assert_eq!((done.outcome(), done.revision), (pb::Outcome::Updated, 2));
    let same = registry.register(expecting(Current::Digest(done.raw_digest.unwrap()))).await.unwrap();
    assert_eq!(same.into_inner().outcome(), pb::Outcome::Unchanged);
}

#[tokio::test]
async fn linearizable_reads_see_what_was_acknowledged() {
    let served = Served::start().await;
    for revision in 1..=20 {
        served.register("acme/worker", card(&revision.to_string(), "a", 0)).await;
        let fence = pb::Fence { condition_count: 1, max_staleness: Some(within(0)), ..pb::Fence::default() };
        assert_eq!(served.resolve("acme/worker", fence).await.unwrap().revision, revision);
    }
}
