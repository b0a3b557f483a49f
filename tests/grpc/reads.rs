//! Batches, lists and watermarks.

use cardfence::proto::v1 as pb;
use tonic::Code;

use super::support::{Served, any, card, said, within};

fn item(agent: &str, fence: Option<pb::Fence>) -> pb::BatchAgent {
    pb::BatchAgent { agent: agent.to_owned(), fence }
}

fn skill(id: &str) -> pb::Fence {
    let skills = vec![pb::SkillWanted { id: id.to_owned(), ..Default::default() }];
    pb::Fence { condition_count: 1, skills, ..Default::default() }
}

#[tokio::test]
async fn a_batch_answers_each_agent_by_itself_at_one_position() {
    let served = Served::start().await;
    served.register("acme/a", card("1", "x", 0)).await;
    served.register("acme/b", card("1", "x", 0)).await;
    let agents = vec![
        item("acme/b", Some(skill("x"))),
        item("acme/none", None),
        item("acme/a", Some(skill("y"))),
        item("acme/a", None),
    ];
    let request = pb::BatchResolveRequest { agents, max_staleness: Some(within(0)), ..Default::default() };
    let answer = served.registry.clone().batch_resolve(request).await.unwrap().into_inner();
    let position = answer.freshness.unwrap().position;
    let mut told = Vec::new();
    for item in answer.items {
        match item.outcome.unwrap() {
            pb::batch_item::Outcome::Resolved(resolved) => {
                assert!(resolved.card.is_some() && !resolved.card_omitted);
                assert_eq!(resolved.freshness.unwrap().position, position);
                told.push((item.agent, "resolved".to_owned()));
            }
            pb::batch_item::Outcome::Problem(problem) => {
                assert_eq!(problem.freshness.unwrap().position, position);
                told.push((item.agent, problem.reason));
            }
        }
    }
    let told: Vec<_> = told.iter().map(|(agent, outcome)| (agent.as_str(), outcome.as_str())).collect();
    let expected = [
        ("acme/b", "resolved"),
        ("acme/none", "agent_not_found"),
        ("acme/a", "skill_missing"),
        ("acme/a", "resolved"),
    ];
    assert_eq!(told, expected);
}

#[tokio::test]
async fn a_batch_past_three_mib_comes_without_some_cards() {
    let served = Served::start().await;
    served.register("acme/a", card("1", "x", 200_000)).await;
    served.register("acme/small", card("1", "x", 0)).await;
    let mut agents = vec![item("acme/a", None); 20];
    agents.extend(vec![item("acme/a", Some(skill("y"))); 20]);
    agents.push(item("acme/small", None));
    let request = pb::BatchResolveRequest { agents, ..Default::default() };
    let answer = served.registry.clone().batch_resolve(request).await.unwrap().into_inner();
    assert!(prost::Message::encoded_len(&answer) <= 3 << 20);
    assert_eq!(answer.items.len(), 41);
    let mut cards = 0;
    for item in &answer.items {
        let (card, omitted) = match item.outcome.as_ref().unwrap() {
            pb::batch_item::Outcome::Resolved(resolved) => (&resolved.card, resolved.card_omitted),
            pb::batch_item::Outcome::Problem(problem) => (&problem.card, problem.card_omitted),
        };
        assert_eq!(card.is_none(), omitted);
        cards += usize::from(card.is_some());
    }
    assert_eq!(cards, 16, "fifteen large ones fit, and the small one");
}

#[tokio::test]
async fn a_batch_that_is_malformed_is_refused_as_a_whole() {
    let served = Served::start().await;
    let mut registry = served.registry.clone();
    let many = pb::BatchResolveRequest { agents: vec![item("a/b", None); 1_001], ..Default::default() };
    let many = said(registry.batch_resolve(many).await);
    assert_eq!((many.code, many.reason.as_str()), (Code::InvalidArgument, "invalid_argument"));
    let wrong = pb::Fence { condition_count: 2, ..skill("x") };
    let wrong = pb::BatchResolveRequest {
        agents: vec![item("a/b", None), item("a/c", Some(wrong))],
        ..Default::default()
    };
    let wrong = said(registry.batch_resolve(wrong).await);
    assert!(wrong.problem.detail.starts_with("agents[1]: condition_count is 2"), "{}", wrong.problem.detail);
}

#[tokio::test]
async fn lists_go_on_page_by_page() {
    let served = Served::start().await;
    let names = ["acme/a", "acme/b", "acme/c", "beta/a", "beta/b"];
    for (at, name) in names.iter().enumerate() {
        served.register(name, card("1", if at % 2 == 0 { "even" } else { "odd" }, 0)).await;
    }
    let mut registry = served.registry.clone();
    let mut request = pb::ListAgentsRequest { page_size: Some(2), ..Default::default() };
    let mut listed = Vec::new();
    loop {
        let page = registry.list_agents(request.clone()).await.unwrap().into_inner();
        let position = &page.freshness.as_ref().unwrap().position;
        for item in &page.items {
            let freshness = item.freshness.as_ref().unwrap();
            assert!(item.card.is_none() && freshness.origin_confirmed_at.is_some());
            assert_eq!(&freshness.position, position);
        }
        assert_eq!(page.complete, page.next_page_token.is_empty());
        listed.extend(page.items.into_iter().map(|item| item.agent));
        if page.complete {
            break;
        }
        request.page_token = page.next_page_token;
    }
    assert_eq!(listed, names);

    let filter = pb::AgentFilter {
        skill: Some("even".to_owned()),
        namespace: Some("acme".to_owned()),
        ..Default::default()
    };
    let even = pb::ListAgentsRequest { filter: Some(filter), ..Default::default() };
    let page = registry.list_agents(even).await.unwrap().into_inner();
    let found: Vec<_> = page.items.iter().map(|item| item.agent.as_str()).collect();
    assert_eq!((found, page.complete), (vec!["acme/a", "acme/c"], true));

    let filter = pb::AgentFilter { skill: Some("odd".to_owned()), ..Default::default() };
    let other = pb::ListAgentsRequest { filter: Some(filter), ..request.clone() };
    assert_eq!(said(registry.list_agents(other).await).code, Code::InvalidArgument);
    let none = pb::ListAgentsRequest { page_size: Some(0), ..Default::default() };
    assert_eq!(said(registry.list_agents(none).await).code, Code::InvalidArgument);
    let filter = pb::AgentFilter { namespace: Some("No".to_owned()), ..Default::default() };
    let bad = pb::ListAgentsRequest { filter: Some(filter), ..Default::default() };
    assert_eq!(said(registry.list_agents(bad).await).code, Code::InvalidArgument);
}

#[tokio::test]
async fn the_watermark_says_where_the_view_stands() {
    let served = Served::start().await;
    let written = served.register("acme/a", card("1", "x", 0)).await;
    let mut watch = served.watch();
    let linearizable = pb::WatermarkRequest { max_staleness: Some(within(0)), ..Default::default() };
    let watermark = watch.watermark(linearizable).await.unwrap().into_inner();
    assert_eq!((Some(watermark.position), watermark.head), (written.position, 1));
    assert_eq!((watermark.ledger_id.as_str(), watermark.role.as_str()), ("ledger", "node"));
    assert!(watermark.staleness_ms.is_some());
    let future = pb::WatermarkRequest {
        at_least: Some("9.00000000000000aa".to_owned()),
        max_staleness: Some(any()),
        ..Default::default()
    };
    let future = said(watch.watermark(future).await);
    assert_eq!((future.code, future.reason.as_str()), (Code::OutOfRange, "position_in_future"));
}
