//! Writes through an edge: forwarded, answered once the edge itself serves them, and done once.

use http::Method;
use serde_json::{Value, json};

use crate::edges::{SOON, edge, ready_edge};
use crate::support::cards::{Card, Shape};
use crate::support::eventually::eventually;
use crate::support::http::{Http, Reply};
use crate::support::postgres::Database;
use crate::support::proxy::Proxy;
use crate::support::server::Server;

fn card(version: &str) -> String {
    Card::new(Shape::V10, "writer").version(version).build()
}

async fn put(http: &Http, query: &str, id: &str, card: &str) -> Reply {
    let headers = [("content-type", "application/json"), ("idempotency-key", id)];
    http.send(Method::PUT, &format!("/v1/agents/acme/one{query}"), &headers, card.to_owned()).await
}

async fn roll_back(http: &Http, to: u64, id: &str) -> Reply {
    let path = format!("/v1/agents/acme/one/rollback?to={to}");
    http.send(Method::POST, &path, &[("idempotency-key", id)], "").await
}

fn facts(json: &Value) -> Value {
    json!([json["outcome"], json["revision"], json["position"], json["change"]])
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_is_written_through_an_edge_of_an_edge_as_at_the_node() {
    let database = Database::empty().await;
    let node = Server::serve(database.url()).await;
    let near = ready_edge(&node.url()).await;
    let far = ready_edge(&near.url()).await;
    let (at_node, at_far) = (Http::to(&node.url()), Http::to(&far.url()));

    let dry = put(&at_far, "?dry_run=true", "dry", &card("1")).await.json();
    assert_eq!((&dry["outcome"], &dry["position"]), (&"created".into(), &Value::Null));
    let first = put(&at_far, "?note=hello", "a", &card("1")).await.expect(201).json();
    // It is answered once this edge serves it: with no wait at all.
    let served = at_far.resolve("acme/one", "?max_staleness=5s&wait=0").await.expect(200).json();
    assert_eq!((&served["revision"], &served["position"]), (&1.into(), &first["position"]));
    let renamed = Card::new(Shape::V10, "writer").version("1").skills(&[("other", &["text/plain"])]).build();
    let second = put(&at_far, "?expect_revision=1&release=5", "b", &renamed).await.expect(200).json();
    assert_eq!((&second["change"]["class"], &second["change"]["silent"]), (&"breaking".into(), &true.into()));
    assert_eq!(put(&at_far, "", "c", &renamed).await.expect(200).json()["outcome"], "unchanged");

    // The same id is the same write, whichever server it comes to.
    for http in [&at_far, &at_node] {
        let again = put(http, "?expect_revision=1&release=5", "b", &renamed).await.expect(200).json();
        assert_eq!(facts(&again), facts(&second));
        let other = put(http, "", "b", &card("9")).await.expect(400).json();
        assert_eq!(other["reason"], "invalid_argument");
    }
    let conflict = put(&at_far, "?expect_revision=1", "d", &card("3")).await.expect(412).json();
    assert_eq!((&conflict["reason"], &conflict["revision"]), (&"revision_conflict".into(), &2.into()));
    let lower = put(&at_far, "?release=4", "e", &card("3")).await.expect(409).json();
    assert_eq!(lower["reason"], "release_superseded");
    let invalid = put(&at_far, "", "f", r#"{"name":1}"#).await.expect(400).json();
    assert_eq!(invalid["reason"], "invalid_card");
    assert!(!invalid["violations"].as_array().unwrap().is_empty());

    let back = roll_back(&at_far, 1, "g").await.expect(200).json();
    assert_eq!((&back["outcome"], &back["revision"]), (&"updated".into(), &3.into()));
    assert_eq!(facts(&roll_back(&at_node, 1, "g").await.expect(200).json()), facts(&back));
    let source = at_node.get("/v1/agents/acme/one/revisions/3").await.expect(200).json()["source"].clone();
    assert_eq!(source, "rollback:1");
    assert_eq!(roll_back(&at_far, 9, "h").await.expect(404).json()["reason"], "revision_not_found");

    assert_eq!(at_far.retire("acme/one").await.expect(200).json()["outcome"], "retired");
    at_far.resolve("acme/one", "").await.expect(410);
    assert_eq!(at_far.retire("acme/one").await.expect(200).json()["outcome"], "unchanged");
    assert_eq!(at_far.retire("acme/none").await.expect(404).json()["reason"], "agent_not_found");
    assert_eq!(
        at_node.get("/v1/watermark").await.json()["position"],
        at_far.get("/v1/watermark").await.json()["position"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn write_whose_answer_is_lost_on_the_way_is_done_once_and_told() {
    let database = Database::empty().await;
    let node = Server::serve(database.url()).await;
    let proxy = Proxy::start(node.address()).await;
    let edge = ready_edge(&format!("http://{}", proxy.address())).await;
    let (at_node, at_edge) = (Http::to(&node.url()), Http::to(&edge.url()));
    proxy.freeze_answers();
    let writing = tokio::spawn(async move { put(&at_edge, "", "only", &card("1")).await });
    eventually(SOON, async || match at_node.resolve("acme/one", "?max_staleness=0&wait=5s").await.status {
        200 => Ok(()),
        other => Err(format!("the write has not come to the node: {other}")),
    })
    .await;
    proxy.cut().await;
    proxy.heal().await;
    let written = writing.await.unwrap().expect(201).json();
    assert_eq!((&written["outcome"], &written["revision"]), (&"created".into(), &1.into()));
    let ledger = at_node.get("/v1/ledger").await.expect(200);
    assert_eq!(ledger.body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn write_that_nobody_tells_of_is_of_unknown_outcome_until_it_is_sent_again() {
    let database = Database::empty().await;
    let node = Server::serve(database.url()).await;
    let proxy = Proxy::start(node.address()).await;
    let edge = edge(&format!("http://{}", proxy.address()), &["--write-timeout", "2s"]).await;
    let at_edge = Http::to(&edge.url());
    at_edge.until_ready().await;
    proxy.freeze_answers();
    let unknown = put(&at_edge, "", "only", &card("1")).await.expect(504).json();
    assert_eq!(unknown["reason"], "outcome_unknown");
    proxy.thaw();
    let written = eventually(SOON, async || {
        let reply = put(&at_edge, "", "only", &card("1")).await;
        if reply.status == 201 {
            Ok(reply.json())
        } else {
            Err(format!("{}: {}", reply.status, reply.json()))
        }
    })
    .await;
    assert_eq!(written["revision"], 1);
}
