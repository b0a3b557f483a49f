//! Sentences of the contract about writes.

use cardfence::card::Class;
use cardfence::clock::Clock;
use cardfence::ledger::memory::Memory;
use cardfence::ledger::{Expect, Outcome};
use cardfence::registry::{Register, Rollback};
use cardfence::terms::Reason;

use crate::support::*;

async fn fresh() -> (Memory, cardfence::server::Node) {
    let memory = Memory::new("00000000-0000-4000-8000-000000000001", Clock::System);
    let node = node(&memory, &Valve::open(), Clock::System);
    ready(&node.registry).await;
    (memory, node)
}

#[tokio::test]
async fn equal_bytes_are_unchanged_and_make_no_entry() {
    let (_memory, node) = fresh().await;
    let registry = &node.registry;
    let first = register(registry, "a/b", card("1", "s", "text/plain")).await.unwrap();
    assert_eq!((first.outcome, first.revision), (Outcome::Created, 1));
    let confirmed =
        resolve(registry, "a/b", within(0), WAIT).await.unwrap().freshness.origin.unwrap().confirmed_at;
    let second = register(registry, "a/b", card("1", "s", "text/plain")).await.unwrap();
    assert_eq!((second.outcome, second.revision, second.position), (Outcome::Unchanged, 1, first.position));
    let resolved = resolve(registry, "a/b", within(0), WAIT).await.unwrap();
    assert_eq!(resolved.freshness.position, first.position.unwrap());
    eventually(|| {
        let agent = resolved.agent.origin().confirmed_at;
        agent > confirmed
    })
    .await;
    node.stop().await;
}

#[tokio::test]
async fn a_silent_mutation_is_breaking_and_silent() {
    let (_memory, node) = fresh().await;
    let registry = &node.registry;
    register(registry, "a/b", card("1.0", "summarize-v2", "text/markdown")).await.unwrap();
    let written = register(registry, "a/b", card("1.0", "translate-v1", "text/plain")).await.unwrap();
    let change = written.change.unwrap();
    assert_eq!((change.class, change.silent), (Class::Breaking, true));
    assert_eq!(registry.metrics().silent_mutations.get(), 1);
    node.stop().await;
}

#[tokio::test]
async fn a_request_id_returns_the_first_outcome_and_says_when_it_is_superseded() {
    let (_memory, node) = fresh().await;
    let registry = &node.registry;
    let with_id =
        |id: &str, bytes| Register { request_id: Some(id.parse().unwrap()), ..registering("a/b", bytes) };
    let first =
        registry.register(&call(registry), with_id("r1", card("1", "s", "text/plain"))).await.unwrap();
    let again =
        registry.register(&call(registry), with_id("r1", card("1", "s", "text/plain"))).await.unwrap();
    assert_eq!((again.outcome, again.revision, again.superseded), (first.outcome, first.revision, false));
    register(registry, "a/b", card("2", "s", "text/plain")).await.unwrap();
    let late = registry.register(&call(registry), with_id("r1", card("1", "s", "text/plain"))).await.unwrap();
    assert_eq!((late.outcome, late.revision, late.superseded), (Outcome::Created, 1, true));
    let other =
        registry.register(&call(registry), with_id("r1", card("3", "s", "text/plain"))).await.unwrap_err();
    assert_eq!(other.reason(), Reason::InvalidArgument);
    let current = resolve(registry, "a/b", within(0), WAIT).await.unwrap();
    assert_eq!(current.agent.revision, 2, "a retry after a lost answer does not undo another's deploy");
    node.stop().await;
}

#[tokio::test]
async fn expect_is_compared_under_the_lock() {
    let (_memory, node) = fresh().await;
    let registry = &node.registry;
    let expecting = |expect, bytes| Register { expect, ..registering("a/b", bytes) };
    let one = card("1", "s", "text/plain");
    let absent = registry.register(&call(registry), expecting(Expect::Absent, one.clone())).await.unwrap();
    let refused = registry
        .register(&call(registry), expecting(Expect::Absent, card("2", "s", "text/plain")))
        .await
        .unwrap_err();
    assert_eq!((refused.reason(), refused.parts().revision), (Reason::RevisionConflict, Some(1)));
    let position = absent.position.unwrap();
    let at = |number, seen_at| Expect::Revision { number, seen_at };
    let foreign = "1.0000000000000000".parse().unwrap();
    for wrong in [at(2, None), at(1, Some(foreign)), Expect::Digest(cardfence::terms::Digest::of(b"x"))] {
        let refused = registry
            .register(&call(registry), expecting(wrong, card("2", "s", "text/plain")))
            .await
            .unwrap_err();
        assert_eq!(refused.reason(), Reason::RevisionConflict, "{wrong:?}");
    }
    let right = expecting(at(1, Some(position)), card("2", "s", "text/plain"));
    assert_eq!(registry.register(&call(registry), right).await.unwrap().revision, 2);
    node.stop().await;
}

#[tokio::test]
async fn an_older_release_cannot_put_its_card_back() {
    let (_memory, node) = fresh().await;
    let registry = &node.registry;
    let released =
        |release: &str, bytes| Register { release: Some(release.to_owned()), ..registering("a/b", bytes) };
    let old = card("1", "s", "text/plain");
    let new = card("2", "s", "text/plain");
    registry.register(&call(registry), released("41", old.clone())).await.unwrap();
    registry.register(&call(registry), released("42", new.clone())).await.unwrap();
    let refused = registry.register(&call(registry), released("41", old.clone())).await.unwrap_err();
    assert_eq!(refused.reason(), Reason::ReleaseSuperseded);
    assert!(refused.parts().change.is_some(), "the refusal shows the change");
    // Unchanged registers count: release 50 with the same card raises the floor.
    registry.register(&call(registry), released("50", new)).await.unwrap();
    let refused = registry.register(&call(registry), released("49", old.clone())).await.unwrap_err();
    assert_eq!(refused.reason(), Reason::ReleaseSuperseded);
    assert!(register(registry, "a/b", old).await.is_ok(), "a register without a release is not compared");
    node.stop().await;
}

#[tokio::test]
async fn a_tombstone_equals_nothing_and_counting_goes_on() {
    let (_memory, node) = fresh().await;
    let registry = &node.registry;
    let bytes = card("1", "s", "text/plain");
    let absent = registry.retire(&call(registry), retiring("a/b")).await.unwrap_err();
    assert_eq!(absent.reason(), Reason::AgentNotFound);
    register(registry, "a/b", bytes.clone()).await.unwrap();
    let retired = registry.retire(&call(registry), retiring("a/b")).await.unwrap();
    assert_eq!((retired.outcome, retired.revision), (Outcome::Retired, 2));
    let again = registry.retire(&call(registry), retiring("a/b")).await.unwrap();
    assert_eq!((again.outcome, again.revision), (Outcome::Unchanged, 2));
    let gone = resolve(registry, "a/b", within(0), WAIT).await.unwrap_err();
    assert_eq!((gone.reason(), gone.parts().revision), (Reason::AgentRetired, Some(2)));
    let back = register(registry, "a/b", card("1", "t", "text/plain")).await.unwrap();
    assert_eq!((back.outcome, back.revision), (Outcome::Created, 3));
    assert_eq!(back.change.unwrap().class, Class::Breaking, "compared with the last card");
    node.stop().await;
}

#[tokio::test]
async fn a_dry_run_does_everything_but_the_commit() {
    let (memory, node) = fresh().await;
    let registry = &node.registry;
    register(registry, "a/b", card("1", "s", "text/plain")).await.unwrap();
    let dry = Register { dry_run: true, ..registering("a/b", card("1", "t", "text/plain")) };
    let written = registry.register(&call(registry), dry).await.unwrap();
    assert_eq!((written.outcome, written.revision, written.position), (Outcome::Updated, 2, None));
    assert!(written.change.unwrap().silent);
    assert_eq!(cardfence::ledger::History::entries(&memory, 1, 10).await.unwrap().len(), 1);
    node.stop().await;
}

#[tokio::test]
async fn a_rollback_registers_earlier_bytes_as_a_new_revision() {
    let (_memory, node) = fresh().await;
    let registry = &node.registry;
    let first = card("1", "s", "text/plain");
    register(registry, "a/b", first.clone()).await.unwrap();
    register(registry, "a/b", card("2", "t", "text/plain")).await.unwrap();
    let rollback = |to| Rollback {
        agent: agent("a/b"),
        to,
        expect: Expect::Any,
        request_id: None,
        note: None,
        dry_run: false,
    };
    let written = registry.rollback(&call(registry), rollback(1)).await.unwrap();
    assert_eq!((written.outcome, written.revision), (Outcome::Updated, 3));
    assert_eq!(resolve(registry, "a/b", within(0), WAIT).await.unwrap().card.bytes(), &first);
    let missing = registry.rollback(&call(registry), rollback(9)).await.unwrap_err();
    assert_eq!(missing.reason(), Reason::RevisionNotFound);
    node.stop().await;
}

#[tokio::test]
async fn concurrent_registers_of_one_agent_are_all_judged_against_what_is_current() {
    let (_memory, node) = fresh().await;
    let registry = &node.registry;
    let writers = (0..32).map(|n| async move {
        register(registry, "a/b", card(&n.to_string(), &format!("skill-{n}"), "text/plain")).await.unwrap()
    });
    let all = futures::future::join_all(writers).await;
    let mut revisions: Vec<u64> = all.iter().map(|written| written.revision).collect();
    revisions.sort_unstable();
    assert_eq!(revisions, (1..=32).collect::<Vec<_>>());
    for written in all.iter().filter(|written| written.revision > 1) {
        let change = written.change.as_ref().unwrap();
        assert_eq!(change.class, Class::Breaking, "each replaced the skill of another: {change:?}");
    }
    node.stop().await;
}
