//! The HTTP wire of the real binary over a file: what was answered before a restart is answered after it.

use http::Method;
use serde_json::json;

use super::support::cards::{Card, Shape};
use super::support::http::{Http, Reply};
use super::support::scratch::Scratch;
use super::support::server::Server;

const AGENT: &str = "/v1/agents/acme/sum";

/// Every answer about the past, whose bytes must not change, but for how old it is.
async fn past(http: &Http, positions: &[String]) -> Vec<String> {
    let mut answers =
        vec![String::from_utf8_lossy(&http.get("/v1/ledger").await.expect(200).body).into_owned()];
    for path in [
        format!("{AGENT}/revisions"),
        format!("{AGENT}/revisions/1"),
        format!("{AGENT}/diff?from=1&to=2"),
        format!("{AGENT}?at={}", positions[0]),
        format!("{AGENT}?max_staleness=0"),
    ] {
        let mut answer = http.get(&path).await.expect(200).json();
        let freshness = answer["freshness"].take();
        assert!(freshness["staleness_ms"].is_u64(), "{path}: {freshness}");
        answers.push(format!("{path}: {answer}"));
    }
    answers
}

fn tag(reply: &Reply) -> String {
    String::from_utf8_lossy(reply.headers["etag"].as_bytes()).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_registered_is_served_byte_for_byte_after_a_restart() {
    let scratch = Scratch::new("http");
    let store = format!("sqlite:{}", scratch.path().join("ledger.db").display());
    let server = Server::serve(&store).await;
    let http = Http::to(&server.url());
    http.until_ready().await;
    let first = Card::new(Shape::V03, "Sum").version("1.0.0").skills(&[("sum", &["text/plain"])]).build();
    let second = Card::new(Shape::V03, "Sum").version("1.0.0").skills(&[("sum", &["audio/wav"])]).build();
    let mut positions = Vec::new();
    for (card, status) in [(&first, 201), (&second, 200)] {
        let written = http.put_card("acme/sum", "", card).await.expect(status).json();
        positions.push(written["position"].as_str().unwrap().to_owned());
    }
    let raw = http.raw_card("acme/sum", "").await.expect(200);
    assert_eq!(raw.body, second.as_bytes());
    let before = past(&http, &positions).await;
    assert!(server.terminate().await.success());

    let server = Server::serve(&store).await;
    let http = Http::to(&server.url());
    let at_least = format!("?at_least={}&min_revision=2@{}&wait=10s", positions[1], positions[0]);
    http.resolve("acme/sum", &at_least).await.expect(200);
    assert_eq!(past(&http, &positions).await, before);
    let tag = tag(&raw);
    let known = [("if-none-match", tag.as_str())];
    http.send(Method::GET, "/agents/acme/sum/.well-known/agent.json", &known, "").await.expect(304);
    let wanted = json!({ "agents": [
        { "agent": "acme/sum", "fence": { "skills": [{ "id": "sum", "output_modes": ["text/plain"] }] } },
        { "agent": "acme/sum", "fence": { "min_revision": 2 } },
    ] });
    let batch = http.post("/v1/resolve", &wanted).await.expect(200).json();
    assert_eq!(batch["items"][0]["problem"]["reason"], "mode_missing");
    assert_eq!(batch["items"][1]["resolved"]["revision"], 2);
    http.send(Method::POST, &format!("{AGENT}/rollback?to=1"), &[], "").await.expect(200);
    assert_eq!(http.raw_card("acme/sum", "?max_staleness=0").await.expect(200).body, first.as_bytes());
    http.retire("acme/sum").await.expect(200);
    http.resolve("acme/sum", "").await.expect(410);
}
