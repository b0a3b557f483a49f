//! The card alone.

use super::support::{CARD, Server, card_with};
use crate::terms::Digest;

const PATH: &str = "/agents/acme/sum/.well-known/agent-card.json";
const LEGACY: &str = "/agents/acme/sum/.well-known/agent.json";

#[tokio::test]
async fn raw_card_is_the_bytes_registered_and_may_be_kept_when_unfenced() {
    let server = Server::start().await;
    server.put("acme/sum", CARD).await;
    let tag = format!("\"{}\"", Digest::of(CARD).tagged());
    for path in [PATH, LEGACY] {
        // Content is not coded, whatever is accepted.
        let reply = server.get_with(path, &[("accept-encoding", "gzip, br")]).await;
        assert_eq!((reply.status.as_u16(), reply.body.as_ref()), (200, CARD));
        assert_eq!(reply.header("content-type"), "application/json");
        assert_eq!(reply.header("content-encoding"), "");
        assert_eq!(reply.header("etag"), tag);
        assert_eq!(reply.header("cache-control"), "no-cache");
        assert_eq!(reply.header("age"), "1", "rounded up");
        assert_eq!(reply.header("cardfence-staleness-ms"), "");
        assert_eq!(reply.header("cardfence-revision"), "1");
        assert_ne!(reply.header("cardfence-position"), "");
        assert_ne!(reply.header("cardfence-skill-fingerprint"), "");
        assert_eq!(reply.header("vary"), "Authorization, Accept-Encoding");
    }
    let reply = server.get_with(PATH, &[("if-none-match", &tag)]).await;
    assert_eq!((reply.status.as_u16(), reply.body.len()), (304, 0));
    assert_eq!((reply.header("cache-control"), reply.header("age")), ("no-cache", "1"));
    assert_eq!(reply.header("etag"), tag);
    assert_eq!(reply.header("cardfence-staleness-ms"), "");
}

#[tokio::test]
async fn fenced_raw_card_is_for_its_caller_alone() {
    let server = Server::start().await;
    server.put("acme/sum", CARD).await;
    let by_query = format!("{PATH}?skill=tell");
    let by_known = format!("{PATH}?known={}", Digest::of(b"other").tagged());
    for (path, headers) in [
        (by_query.as_str(), &[][..]),
        (&by_known, &[]),
        (PATH, &[("cache-control", "max-age=5")]),
        (PATH, &[("cache-control", "only-if-cached")]),
    ] {
        let reply = server.get_with(path, headers).await;
        assert_eq!((reply.status.as_u16(), reply.body.as_ref()), (200, CARD), "{path} {headers:?}");
        assert_eq!(reply.header("cache-control"), "no-store", "{path} {headers:?}");
        assert_eq!(reply.header("age"), "");
        assert_ne!(reply.header("cardfence-staleness-ms"), "");
        assert!(reply.header("etag").starts_with("\"sha256:"));
    }
    let reply = server.get(&format!("{PATH}?skill=nope")).await;
    assert_eq!((reply.status.as_u16(), reply.reason().as_str()), (412, "skill_missing"));
    assert_eq!(reply.header("content-type"), "application/problem+json");
}

#[tokio::test]
async fn unknown_staleness_is_never_kept() {
    let server = Server::start().await;
    server.put("acme/sum", CARD).await;
    server.put("acme/other", CARD).await;
    server.lose_history().await;
    let reply = server.get(&format!("{PATH}?max_staleness=any")).await;
    assert_eq!(reply.header("cardfence-staleness-ms"), "unknown", "{}", reply.text());
    assert_eq!((reply.status.as_u16(), reply.header("cache-control")), (200, "no-store"));
    let reply = server.get("/v1/agents/acme/sum?max_staleness=any").await;
    assert!(reply.json()["freshness"]["staleness_ms"].is_null());
    assert_eq!(reply.json()["freshness"]["basis"], "unproven");
    let reply = server.get(&format!("{PATH}?wait=50ms")).await;
    assert_eq!((reply.status.as_u16(), reply.reason().as_str()), (503, "freshness_unverifiable"));
}

#[tokio::test]
async fn raw_card_follows_the_agent() {
    let server = Server::start().await;
    assert_eq!(server.get(PATH).await.reason(), "agent_not_found");
    server.put("acme/sum", CARD).await;
    let next = card_with("1.0.0", "1.0.1");
    server.put("acme/sum", &next).await;
    assert_eq!(server.get(PATH).await.body, next);
    server.send("DELETE", "/v1/agents/acme/sum", &[], b"").await;
    assert_eq!(server.get(PATH).await.status, 410);
}
