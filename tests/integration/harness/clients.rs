//! The HTTP helper against a server of ours that says back what it got, and the synthetic cards.

use std::collections::BTreeSet;

use axum::Router;
use axum::body::Bytes;
use axum::extract::Request;
use http::Method;
use serde_json::json;
use tokio::task::JoinSet;

use crate::support::cards::{Card, Shape};
use crate::support::http::Http;

/// Says back method, path with query, type and body, under status 203.
async fn start_mirror(tasks: &mut JoinSet<()>) -> Http {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("port 0 is always free");
    let base = format!("http://{}", listener.local_addr().expect("it is bound"));
    let router = Router::new().fallback(async |request: Request| {
        let (head, body) = request.into_parts();
        let body = axum::body::to_bytes(body, usize::MAX).await.unwrap_or_default();
        let kind = head.headers.get("content-type").and_then(|kind| kind.to_str().ok());
        let said = json!({
            "method": head.method.as_str(), "uri": head.uri.to_string(), "type": kind,
            "body": String::from_utf8_lossy(&body),
        });
        (
            http::StatusCode::NON_AUTHORITATIVE_INFORMATION,
            [("x-mirror", "yes")],
            Bytes::from(said.to_string()),
        )
    });
    tasks.spawn(async move {
        axum::serve(listener, router).await.ok();
    });
    Http::to(&base)
}

#[tokio::test]
async fn http_helper_sends_what_it_is_told() {
    let mut tasks = JoinSet::new();
    let http = start_mirror(&mut tasks).await;
    let reply = http.put_card("ns/name", "?expect_revision=1", "{}").await.expect(203);
    assert_eq!(reply.header("x-mirror"), Some("yes"));
    assert_eq!(
        reply.json(),
        json!({"method": "PUT", "uri": "/v1/agents/ns/name?expect_revision=1", "type": "application/json", "body": "{}"})
    );
    let uri = |reply: crate::support::http::Reply| reply.json()["uri"].as_str().map(str::to_owned);
    assert_eq!(
        uri(http.resolve("ns/name", "?skill=a;in=b").await).as_deref(),
        Some("/v1/agents/ns/name?skill=a;in=b")
    );
    let raw = uri(http.raw_card("ns/name", "").await);
    assert_eq!(raw.as_deref(), Some("/agents/ns/name/.well-known/agent-card.json"));
    assert_eq!(http.retire("ns/name").await.json()["method"], "DELETE");
    assert_eq!(http.post("/v1/resolve", &json!({"agents": []})).await.json()["body"], r#"{"agents":[]}"#);
}

#[tokio::test]
async fn http_helper_says_every_cause_of_a_failure() {
    let http = Http::to("http://127.0.0.1:1");
    let failure = http.try_send(Method::GET, "/", &[], "").await.expect_err("nobody listens there");
    assert!(failure.contains("refused"), "{failure}");
}

#[test]
fn cards_are_repeatable_and_of_realistic_size() {
    for shape in [Shape::V02, Shape::V03, Shape::V10] {
        let card = Card::new(shape, "weather").version("2.1.0").url("https://moved.example.com");
        assert_eq!(card.build(), card.build());
        assert!((1_500..3_500).contains(&card.build().len()), "{shape:?}: {} bytes", card.build().len());
        let value = card.to_value();
        assert_eq!(value["version"], "2.1.0");
        assert!(value.to_string().contains("https://moved.example.com"));
        assert_eq!(value.get("url").is_none(), shape == Shape::V10);
    }
    let large = Card::new(Shape::V10, "large").many_skills(100).description_bytes(5_000).build();
    assert!(large.len() > 30_000, "{} bytes", large.len());
}

#[test]
fn cards_differ_in_what_is_varied() {
    let base = Card::new(Shape::V03, "weather");
    let all = [
        base.build(),
        base.clone().skills(&[("summarize-v3", &["text/html"])]).build(),
        base.clone().streaming(false).build(),
        base.push_notifications(false).build(),
    ];
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
}
