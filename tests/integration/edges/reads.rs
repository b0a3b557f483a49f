//! What an edge answers: the same as the node, as fresh as it says, the past included.

use crate::edges::{edge, metric, ready_edge, timeless};
use crate::support::cards::{Card, Shape};
use crate::support::http::Http;
use crate::support::postgres::Database;
use crate::support::server::{Launch, Server};

fn card(version: &str) -> Card {
    Card::new(Shape::V10, "reader").version(version)
}

#[tokio::test(flavor = "multi_thread")]
async fn edge_answers_what_the_node_answers_byte_for_byte() {
    let database = Database::empty().await;
    let node = Server::serve(database.url()).await;
    let edge = ready_edge(&node.url()).await;
    let (at_node, at_edge) = (Http::to(&node.url()), Http::to(&edge.url()));
    at_node.put_card("acme/one", "?note=first", &card("1").build()).await.expect(201);
    let second = card("2").skills(&[("renamed", &["text/html"])]).build();
    let written = at_node.put_card("acme/one", "?release=7", &second).await.expect(200).json();
    at_node.put_card("acme/two", "", &card("1").build()).await.expect(201);
    at_node.retire("acme/two").await.expect(200);
    let position = at_node.resolve("acme/one", "?max_staleness=0&wait=10s").await.expect(200).json()["freshness"]
        ["position"]
        .as_str()
        .unwrap()
        .to_owned();

    let raw = at_edge.raw_card("acme/one", &format!("?at_least={position}&wait=10s")).await.expect(200);
    assert_eq!(raw.body, second.as_bytes());
    let first = written["position"].as_str().unwrap();
    for path in [
        "/v1/agents/acme/one?max_staleness=0&wait=10s".to_owned(),
        format!("/v1/agents/acme/one?at={first}"),
        "/v1/agents?q=reader".to_owned(),
        "/v1/agents/acme/one/revisions".to_owned(),
        "/v1/agents/acme/two/revisions".to_owned(),
        "/v1/agents/acme/one/revisions/1".to_owned(),
        "/v1/agents/acme/two/revisions/2".to_owned(),
        "/v1/agents/acme/one/revisions/3".to_owned(),
        "/v1/agents/acme/one/diff?from=1&to=2".to_owned(),
        "/v1/agents/acme/two".to_owned(),
        "/v1/agents/acme/none".to_owned(),
        "/v1/agents/acme/one?skill=gone&wait=10s".to_owned(),
    ] {
        let (theirs, ours) = (at_node.get(&path).await, at_edge.get(&path).await);
        assert_eq!(ours.status, theirs.status, "{path}");
        assert_eq!(timeless(ours), timeless(theirs), "{path}");
    }
    let (theirs, ours) =
        (at_node.get("/v1/ledger").await.expect(200), at_edge.get("/v1/ledger").await.expect(200));
    assert_eq!(ours.body, theirs.body, "the ledger is the same bytes");

    let watermark = at_edge.get("/v1/watermark").await.expect(200).json();
    assert_eq!((&watermark["role"], &watermark["basis"]), (&"edge".into(), &"upstream".into()));
    assert_eq!(watermark["hops"], 1);
    assert_eq!(metric(&at_node, "cardfence_edges").await, 1);
    assert_eq!(metric(&at_edge, "cardfence_snapshots_taken_total").await, 0, "it has read every entry");
}

#[tokio::test(flavor = "multi_thread")]
async fn linearizable_read_through_an_edge_of_an_edge_sees_what_was_just_acknowledged() {
    let database = Database::empty().await;
    let node = Server::serve(database.url()).await;
    let near = ready_edge(&node.url()).await;
    let far = ready_edge(&near.url()).await;
    let (at_node, at_far) = (Http::to(&node.url()), Http::to(&far.url()));
    for round in 1..=100 {
        at_node.put_card("acme/one", "", &card(&round.to_string()).build()).await;
        let read = at_far.resolve("acme/one", "?max_staleness=0&wait=10s").await.expect(200).json();
        assert_eq!(read["revision"], round, "a write was acknowledged before the read began");
        assert_eq!(
            (&read["freshness"]["basis"], &read["freshness"]["hops"]),
            (&"upstream".into(), &2.into())
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn edge_is_not_ready_before_its_first_proof() {
    let edge = edge("http://127.0.0.1:1", &[]).await;
    let http = Http::to(&edge.url());
    http.get("/readyz").await.expect(503);
    let reply = http.resolve("acme/one", "?max_staleness=any&wait=0").await.expect(503);
    assert_eq!(reply.json()["reason"], "freshness_unverifiable", "absence is not known either");
    let reply = http.put_card("acme/one", "", &card("1").build()).await.expect(503);
    assert_eq!(reply.json()["reason"], "store_unavailable", "nothing was sent to anybody");
}

#[tokio::test(flavor = "multi_thread")]
async fn past_is_told_and_verified_through_an_edge_of_an_edge() {
    let database = Database::empty().await;
    let node = Server::serve(database.url()).await;
    let near = ready_edge(&node.url()).await;
    let far = ready_edge(&near.url()).await;
    let (at_node, at_far) = (Http::to(&node.url()), Http::to(&far.url()));
    for version in 1..=7 {
        at_node.put_card("acme/one", "", &card(&version.to_string()).build()).await;
    }
    at_far.resolve("acme/one", "?max_staleness=0&wait=10s").await.expect(200);
    let mut numbers = Vec::new();
    let mut token = String::new();
    loop {
        let query = if token.is_empty() { String::new() } else { format!("&page_token={token}") };
        let page =
            at_far.get(&format!("/v1/agents/acme/one/revisions?page_size=3{query}")).await.expect(200).json();
        numbers
            .extend(page["items"].as_array().unwrap().iter().map(|item| item["revision"].as_u64().unwrap()));
        match page["next_page_token"].as_str() {
            Some(next) if !next.is_empty() => token = next.to_owned(),
            _ => break,
        }
    }
    assert_eq!(numbers, [7, 6, 5, 4, 3, 2, 1]);
    let verified = Launch::cardfence(["ledger", "verify", "--server", &far.url()]).output().await;
    assert_eq!(verified.code, Some(0), "{verified:?}");
}
