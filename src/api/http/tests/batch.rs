//! Resolving many agents at once.

use serde_json::json;

use super::support::{CARD, Server, card_with, members};
use crate::wire;

async fn ask(server: &Server, body: &serde_json::Value) -> super::support::Reply {
    server.send("POST", "/v1/resolve", &[], body.to_string().as_bytes()).await
}

#[tokio::test]
async fn each_passes_or_is_refused_by_itself_at_one_position() {
    let server = Server::start().await;
    server.put("acme/sum", CARD).await;
    server.put("acme/talk", &card_with("Summarizer", "Talker")).await;
    let reply = ask(
        &server,
        &json!({ "agents": [
            { "agent": "acme/sum", "fence": { "skills": [{ "id": "tell", "output_modes": ["audio/wav"] }] } },
            { "agent": "acme/talk", "fence": { "skills": [{ "id": "nope" }], "max_staleness": "5s" } },
            { "agent": "acme/none" },
            { "agent": "acme/sum" },
        ], "max_staleness": "0", "wait": "1s" }),
    )
    .await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.header("cache-control"), "no-store");
    assert_eq!(members(&reply.json()), ["freshness", "items"]);
    assert!(reply.text().contains(std::str::from_utf8(CARD).unwrap()));
    let answer: wire::BatchAnswer = serde_json::from_slice(&reply.body).unwrap();
    let agents: Vec<_> = answer.items.iter().map(|item| item.agent.as_str()).collect();
    assert_eq!(agents, ["acme/sum", "acme/talk", "acme/none", "acme/sum"]);
    let resolved = answer.items[0].resolved.as_ref().unwrap();
    assert_eq!(resolved.card.as_ref().unwrap().get(), std::str::from_utf8(CARD).unwrap().trim());
    let problem = answer.items[1].problem.as_ref().unwrap();
    assert_eq!(
        (problem.reason.as_str(), problem.status, problem.card.is_some()),
        ("skill_missing", 412, true)
    );
    let absent = answer.items[2].problem.as_ref().unwrap();
    assert_eq!((absent.reason.as_str(), absent.status), ("agent_not_found", 404));
    assert!(answer.items[3].resolved.is_some());
    for item in &answer.items {
        let freshness = match (&item.resolved, &item.problem) {
            (Some(resolved), None) => &resolved.freshness,
            (None, Some(problem)) => problem.freshness.as_ref().unwrap(),
            both => panic!("{both:?}"),
        };
        assert_eq!(freshness.position, answer.freshness.position);
    }
}

#[tokio::test]
async fn past_three_mebibytes_cards_are_left_out_and_that_is_said() {
    let server = Server::start().await;
    let large = card_with("Sums up", &"x".repeat(200_000));
    let mut agents = Vec::new();
    for n in 0..20 {
        let name = format!("acme/a{n}");
        server.put(&name, &large).await;
        let fence = if n % 2 == 0 { json!({}) } else { json!({ "skills": [{ "id": "nope" }] }) };
        agents.push(json!({ "agent": name, "fence": fence }));
    }
    let reply = ask(&server, &json!({ "agents": agents })).await;
    assert_eq!(reply.status, 200);
    assert!(reply.body.len() < 3 * 1024 * 1024 + 64 * 1024, "{}", reply.body.len());
    let answer: wire::BatchAnswer = serde_json::from_slice(&reply.body).unwrap();
    let told: Vec<(bool, bool)> = answer
        .items
        .iter()
        .map(|item| match (&item.resolved, &item.problem) {
            (Some(resolved), _) => (resolved.card.is_some(), resolved.card_omitted),
            (None, Some(problem)) => (problem.card.is_some(), problem.card_omitted),
            (None, None) => panic!("{item:?}"),
        })
        .collect();
    assert!(told.iter().all(|(card, omitted)| card != omitted), "{told:?}");
    assert_eq!(told.iter().filter(|(card, _)| *card).count(), 15, "{told:?}");
    assert!(told[..15].iter().all(|(card, _)| *card));
}

#[tokio::test]
async fn problems_count_towards_the_three_mebibytes_too() {
    let server = Server::start().await;
    // Each condition that fails shows what was found: the skills, a kibibyte of them.
    server.put("acme/wide", &card_with("sum;up", &"s".repeat(2_000))).await;
    let skills = |count: usize| json!({ "skills": vec![json!({ "id": "nope" }); count] });
    for (agents, conditions) in [(10, 1_000), (1_000, 10)] {
        let wanted = json!({ "agent": "acme/wide", "fence": skills(conditions) });
        let reply = ask(&server, &json!({ "agents": vec![wanted; agents] })).await;
        assert_eq!(reply.status, 200, "{:.300}", reply.text());
        assert!(reply.body.len() <= 3 * 1024 * 1024, "{}", reply.body.len());
        let answer: wire::BatchAnswer = serde_json::from_slice(&reply.body).unwrap();
        assert_eq!(answer.items.len(), agents);
        for item in answer.items {
            let problem = item.problem.unwrap();
            assert_eq!(
                (problem.reason.as_str(), problem.agent.as_deref()),
                ("skill_missing", Some("acme/wide"))
            );
            assert!(problem.freshness.is_some() && problem.card.is_some() != problem.card_omitted);
            // The default bound on staleness is a condition too.
            assert_eq!(problem.conditions.len() as u64 + problem.conditions_omitted, conditions as u64 + 1);
            assert!(problem.conditions.iter().all(|condition| condition.found == "…"));
            assert_eq!(problem.conditions[0].outcome, "failed");
        }
    }
    let reply = ask(&server, &json!({ "agents": [{ "agent": "acme/wide", "fence": skills(1_001) }] })).await;
    assert_eq!(reply.reason(), "invalid_argument");
    // What is small is told whole.
    let reply = ask(&server, &json!({ "agents": [{ "agent": "acme/wide", "fence": skills(1) }] })).await;
    let problem = &reply.json()["items"][0]["problem"];
    assert!(problem["conditions"][1]["found"].as_str().unwrap().starts_with("sss"), "{problem}");
    assert!(problem.get("conditions_omitted").is_none());
}

#[tokio::test]
async fn the_header_bounds_a_batch_that_says_nothing() {
    let server = Server::start().await;
    server.put("acme/sum", CARD).await;
    server.lose_store().await;
    let body = json!({ "agents": [{ "agent": "acme/sum" }], "wait": "50ms" }).to_string();
    let zero = [("cache-control", "no-cache")];
    let reply = server.send("POST", "/v1/resolve", &zero, body.as_bytes()).await;
    assert_eq!((reply.status.as_u16(), reply.reason().as_str()), (503, "freshness_unverifiable"));
    let body = json!({ "agents": [{ "agent": "acme/sum" }], "max_staleness": "any" }).to_string();
    let reply = server.send("POST", "/v1/resolve", &zero, body.as_bytes()).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
}
