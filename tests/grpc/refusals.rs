//! What is refused, with which code, and what is said with it.

use std::time::{Duration, Instant};

use cardfence::proto::v1 as pb;
use tonic::{Code, Request};

use super::support::{Served, any, card, registering, said, within};

/// A caller's deadline, long enough that a busy machine does not decide who is first.
const DEADLINE: Duration = Duration::from_secs(2);

#[tokio::test]
async fn a_refused_card_names_all_its_violations() {
    let served = Served::start().await;
    let text = r#"{"skills":[{"id":"a"},{"id":"a"},{"name":"x"}],"version":"1","version":"2"}"#;
    let refused = said(served.registry.clone().register(registering("acme/a", text.into())).await);
    assert_eq!((refused.code, refused.reason.as_str()), (Code::InvalidArgument, "invalid_card"));
    let codes: Vec<_> = refused.problem.violations.iter().map(|v| v.code.as_str()).collect();
    for code in
        ["duplicate_key", "name_missing", "endpoint_missing", "skill_id_duplicate", "skill_id_missing"]
    {
        assert!(codes.contains(&code), "{code} in {codes:?}");
    }
    assert!(refused.problem.violations.iter().any(|v| v.pointer == "/version"));
    assert_eq!(refused.problem.agent.as_deref(), Some("acme/a"));
}

#[tokio::test]
async fn details_stay_within_four_kib_whatever_the_card_and_the_fence() {
    let served = Served::start().await;
    served.register("acme/a", card("1", &"s".repeat(4_000), 100 * 1024)).await;
    let skills = (0..500).map(|at| pb::SkillWanted { id: format!("skill-{at}"), ..Default::default() });
    let fence = pb::Fence { condition_count: 500, skills: skills.collect(), ..Default::default() };
    let refused = said(served.resolve("acme/a", fence).await);
    assert_eq!(refused.reason, "skill_missing");
    assert!(refused.len <= 4 * 1024, "{} bytes", refused.len);
    let problem = refused.problem;
    assert!(problem.card.is_none() && problem.card_omitted);
    assert!(problem.conditions.iter().any(|c| c.cut && c.found.ends_with('…')));
    assert!(problem.conditions_omitted > 0);
    // The default bound on staleness is a condition of the report, though not of the request.
    assert_eq!(problem.conditions.len() + problem.conditions_omitted as usize, 501);
    assert!(problem.detail.len() <= 512 && problem.detail.ends_with('…'));
}

#[tokio::test]
async fn a_fence_of_another_count_is_refused() {
    let served = Served::start().await;
    served.register("acme/a", card("1", "x", 0)).await;
    for count in [0, 2] {
        let fence = pb::Fence { condition_count: count, streaming: true, ..Default::default() };
        let refused = said(served.resolve("acme/a", fence).await);
        assert_eq!((refused.code, refused.reason.as_str()), (Code::InvalidArgument, "invalid_argument"));
        assert!(refused.problem.detail.contains(&format!("condition_count is {count}")));
    }
    let fence = pb::Fence { condition_count: 1, streaming: true, ..Default::default() };
    assert!(served.resolve("acme/a", fence).await.is_ok());
}

#[tokio::test]
async fn nothing_is_said_to_be_absent_before_the_first_proof() {
    let served = Served::unproven(false).await;
    let request = pb::ResolveRequest {
        agent: "acme/a".to_owned(),
        fence: Some(pb::Fence { condition_count: 1, max_staleness: Some(any()), ..Default::default() }),
        wait_ms: Some(50),
        ..Default::default()
    };
    let refused = said(served.registry.clone().resolve(request).await);
    assert_eq!((refused.code, refused.reason.as_str()), (Code::Unavailable, "freshness_unverifiable"));
    assert_eq!((refused.pushback.as_deref(), refused.problem.retry_after_ms), (Some("1000"), Some(1_000)));
    assert_eq!(refused.problem.freshness.unwrap().staleness_ms, None);
}

#[tokio::test]
async fn a_typed_refusal_arrives_before_the_deadline() {
    let served = Served::start().await;
    served.register("acme/a", card("1", "x", 0)).await;
    served.memory.set_reachable(false);
    let resolve = pb::ResolveRequest {
        agent: "acme/a".to_owned(),
        fence: Some(pb::Fence { condition_count: 1, max_staleness: Some(within(0)), ..Default::default() }),
        wait_ms: Some(10_000),
        ..Default::default()
    };
    let mut request = Request::new(resolve);
    request.set_timeout(DEADLINE);
    let asked = Instant::now();
    let refused = said(served.registry.clone().resolve(request).await);
    assert!(asked.elapsed() < DEADLINE);
    assert_eq!(refused.reason, "freshness_unverifiable");
    assert!(refused.problem.card.is_some(), "the card is held, though not proven");

    let mut request = Request::new(registering("acme/a", card("2", "x", 0)));
    request.set_timeout(DEADLINE);
    let asked = Instant::now();
    let refused = said(served.registry.clone().register(request).await);
    assert!(asked.elapsed() < DEADLINE);
    assert_eq!((refused.code, refused.reason.as_str()), (Code::Unavailable, "store_unavailable"));
}

#[tokio::test]
async fn malformed_values_are_refused_by_name() {
    let served = Served::start().await;
    let mut registry = served.registry.clone();
    let resolve =
        |agent: &str, wait_ms| pb::ResolveRequest { agent: agent.to_owned(), wait_ms, ..Default::default() };
    for (request, told) in [
        (resolve("Acme", None), "agent: `Acme`"),
        (resolve("", None), "agent: ``"),
        (resolve("a/b", Some(-1)), "wait_ms of -1 is negative"),
        (resolve("a/b", Some(10_001)), "wait of 10001ms is too long: at most 10s"),
    ] {
        let refused = said(registry.resolve(request).await);
        assert_eq!((refused.code, refused.reason.as_str()), (Code::InvalidArgument, "invalid_argument"));
        assert!(refused.problem.detail.starts_with(told), "{}", refused.problem.detail);
    }
    let mut text = pb::AgentFilter { q: Some(String::new()), ..Default::default() };
    for told in ["q: must not be empty", "url: must not be empty", "capability: `streeming` is none of"] {
        let list = pb::ListAgentsRequest { filter: Some(text.clone()), ..Default::default() };
        let refused = said(registry.list_agents(list).await);
        assert_eq!((refused.code, refused.reason.as_str()), (Code::InvalidArgument, "invalid_argument"));
        assert!(refused.problem.detail.starts_with(told), "{}", refused.problem.detail);
        text = match told {
            "q: must not be empty" => pb::AgentFilter { url: Some(String::new()), ..Default::default() },
            _ => pb::AgentFilter { capability: Some("streeming".to_owned()), ..Default::default() },
        };
    }
    for (from, to) in [(Some(0), Some(1)), (Some(1), Some(0))] {
        let diff = pb::DiffRevisionsRequest { agent: "a/b".to_owned(), from, to, ..Default::default() };
        let refused = said(registry.diff_revisions(diff).await);
        assert_eq!(refused.code, Code::InvalidArgument);
        assert!(refused.problem.detail.contains("numbered from 1"), "{}", refused.problem.detail);
    }
    let long =
        pb::RegisterRequest { note: Some("n".repeat(5_000)), ..registering("acme/a", card("1", "x", 0)) };
    assert_eq!(said(registry.register(long).await).code, Code::InvalidArgument);
    let spaced =
        pb::RegisterRequest { request_id: "a b".to_owned(), ..registering("acme/a", card("1", "x", 0)) };
    assert_eq!(said(registry.register(spaced).await).code, Code::InvalidArgument);
}
