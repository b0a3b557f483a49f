//! A node that is not ready, is shutting down, or has lost its store.

use std::sync::atomic::Ordering;

use super::support::{CARD, Server};

#[tokio::test]
async fn not_ready_and_never_not_found_before_the_first_proof() {
    let server = Server::start_unproven(false);
    let reply = server.get("/readyz").await;
    assert_eq!((reply.status.as_u16(), reply.reason().as_str()), (503, "freshness_unverifiable"));
    assert_eq!(reply.header("retry-after"), "1");
    assert_eq!(server.get("/livez").await.status, 200);
    for path in [
        "/v1/agents/a/b?wait=20ms",
        "/v1/agents/a/b?wait=0&max_staleness=any",
        "/agents/a/b/.well-known/agent-card.json?wait=20ms",
        "/v1/agents?wait=20ms",
        "/v1/agents?wait=20ms&max_staleness=any",
        "/v1/agents/a/b/revisions?wait=20ms&max_staleness=any",
        "/v1/ledger?wait=20ms",
    ] {
        let reply = server.get(path).await;
        assert_eq!(
            (reply.status.as_u16(), reply.reason().as_str()),
            (503, "freshness_unverifiable"),
            "{path}"
        );
        assert_eq!(reply.header("cardfence-staleness-ms"), "unknown", "{path}");
    }
    let watermark = server.get("/v1/watermark").await;
    assert_eq!(watermark.status, 200);
    assert!(watermark.json()["staleness_ms"].is_null());
    assert_eq!(watermark.json()["basis"], "unproven");
}

#[tokio::test]
async fn draining_is_not_ready_and_goes_on_answering() {
    let server = Server::start().await;
    assert_eq!(server.get("/readyz").await.status, 200);
    server.put("acme/sum", CARD).await;
    server.draining.store(true, Ordering::Release);
    let reply = server.get("/readyz").await;
    assert_eq!((reply.status.as_u16(), reply.reason().as_str()), (503, "draining"));
    assert_eq!(server.get("/livez").await.status, 200);
    assert_eq!(server.get("/v1/agents/acme/sum").await.status, 200);
}

#[tokio::test]
async fn a_lost_store_shows_in_the_answers_and_not_in_readiness() {
    let server = Server::start().await;
    server.put("acme/sum", CARD).await;
    server.lose_store().await;
    assert_eq!(server.get("/readyz").await.status, 200);
    assert_eq!(server.get("/v1/agents/acme/sum").await.status, 200, "within the default bound");
    let reply = server.get("/v1/agents/acme/sum?max_staleness=1ms&wait=50ms").await;
    assert_eq!((reply.status.as_u16(), reply.reason().as_str()), (503, "freshness_unverifiable"));
    assert!(reply.text().contains(std::str::from_utf8(CARD).unwrap()), "with the card");
    assert_eq!(reply.header("retry-after"), "1");
    let reply = server.get("/v1/agents/acme/none?wait=50ms").await;
    assert_eq!(reply.reason(), "freshness_unverifiable", "not found cannot be proven");
    assert_eq!(
        server.get("/v1/watermark?max_staleness=0&wait=50ms").await.reason(),
        "freshness_unverifiable"
    );
    assert_eq!(server.get("/v1/ledger?wait=50ms").await.reason(), "store_unavailable");
    let reply =
        server.send("PUT", "/v1/agents/acme/sum", &[], b"{\"name\":\"x\",\"url\":\"https://x\"}").await;
    assert_eq!((reply.status.as_u16(), reply.reason().as_str()), (503, "store_unavailable"));
}

#[tokio::test]
async fn metrics_are_text() {
    let server = Server::start().await;
    server.put("acme/sum", CARD).await;
    server.get("/v1/agents/acme/sum").await;
    let reply = server.get("/metrics").await;
    assert!(reply.header("content-type").starts_with("application/openmetrics-text"));
    assert!(reply.text().contains("cardfence_resolves_total{outcome=\"resolved\"} 1"), "{}", reply.text());
    assert!(reply.text().ends_with("# EOF\n"));
}

#[tokio::test]
async fn every_kind_of_resolve_is_counted_by_what_it_came_to() {
    let server = Server::start().await;
    let position = server.put("acme/sum", CARD).await["position"].as_str().unwrap().to_owned();
    let batch = |body: &'static [u8]| server.send("POST", "/v1/resolve", &[], body);
    batch(br#"{"agents":[{"agent":"acme/sum"},{"agent":"acme/none"},{"agent":"acme/sum"}]}"#).await;
    let reply = batch(br#"{"agents":[{"agent":"acme/sum"},{"agent":"acme/sum"}],"at_least":"9.9f86d081884c7d65","wait":"1s"}"#);
    assert_eq!(reply.await.reason(), "position_in_future");
    server.get(&format!("/v1/agents/acme/sum?at={position}")).await;
    server.get(&format!("/v1/agents/acme/none?at={position}")).await;
    let text = server.get("/metrics").await;
    for (outcome, times) in [("resolved", 3), ("agent_not_found", 2), ("position_in_future", 2)] {
        let line = format!("cardfence_resolves_total{{outcome=\"{outcome}\"}} {times}\n");
        assert!(text.text().contains(&line), "{line}{}", text.text());
    }
}
