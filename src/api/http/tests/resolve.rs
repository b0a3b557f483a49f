//! The envelope: its members, its headers, its fences.

use super::support::{CARD, Server, card_with, members};
use crate::terms::Digest;
use crate::wire;

const PATH: &str = "/v1/agents/acme/sum";

#[tokio::test]
async fn envelope_has_the_members_of_the_contract_and_the_bytes_as_registered() {
    let server = Server::start().await;
    let registered = server.put("acme/sum", CARD).await;
    let reply = server.get(PATH).await;
    assert_eq!(reply.status, 200);
    assert_eq!(
        members(&reply.json()),
        [
            "agent",
            "card",
            "card_version",
            "content_digest",
            "freshness",
            "generation",
            "negotiation_fingerprint",
            "position",
            "raw_digest",
            "registered_at",
            "registered_by",
            "revision",
            "skill_fingerprint",
        ]
    );
    assert_eq!(
        members(&reply.json()["freshness"]),
        [
            "basis",
            "hops",
            "observed_redeploy_interval_ms",
            "origin_confirmed_at",
            "position",
            "proven_at",
            "revalidate_after_ms",
            "served_by",
            "staleness_ms",
        ]
    );
    let card = std::str::from_utf8(CARD).unwrap();
    assert!(reply.text().contains(card), "the card was written anew: {}", reply.text());
    let envelope: wire::Envelope = serde_json::from_slice(&reply.body).unwrap();
    assert_eq!(envelope.card.as_ref().unwrap().get(), card.trim());
    assert_eq!(envelope.raw_digest, Digest::of(CARD).tagged());
    for member in ["position", "content_digest", "raw_digest", "skill_fingerprint", "negotiation_fingerprint"]
    {
        assert_eq!(reply.json()[member], registered[member], "{member}");
    }
    assert_eq!(reply.header("content-type"), "application/json");
    assert_eq!(reply.header("cache-control"), "no-store");
    assert_eq!(reply.header("etag"), format!("W/\"{}\"", envelope.raw_digest));
    assert_eq!(reply.header("vary"), "Authorization, Accept-Encoding");
    assert_eq!(reply.header("cardfence-position"), envelope.freshness.position);
    assert_eq!(reply.header("cardfence-revision"), "1");
    assert_eq!(reply.header("cardfence-skill-fingerprint"), envelope.skill_fingerprint);
    let staleness = envelope.freshness.staleness_ms.unwrap();
    assert_eq!(reply.header("cardfence-staleness-ms"), staleness.to_string());
    assert!(staleness > 0, "rounded up");
}

#[tokio::test]
async fn fences_pass_or_are_refused_with_what_was_found_and_the_card() {
    let server = Server::start().await;
    let registered = server.put("acme/sum", CARD).await;
    let content = registered["content_digest"].as_str().unwrap();
    let skills = registered["skill_fingerprint"].as_str().unwrap();
    let negotiation = registered["negotiation_fingerprint"].as_str().unwrap();
    let position = registered["position"].as_str().unwrap();
    let other = Digest::of(b"other");
    for query in [
        "max_staleness=0".to_owned(),
        "max_staleness=any".to_owned(),
        format!("at_least={position}"),
        format!("min_revision=1@{position}"),
        "min_version=0.9".to_owned(),
        "skill=sum%3Bup;in=text/plain;out=text/markdown&skill=tell;out=AUDIO/WAV".to_owned(),
        "skill=tell&output_mode=audio/wav".to_owned(),
        "streaming=true&push_notifications=false".to_owned(),
        "extension=urn:x:one".to_owned(),
        format!("pin={content}&pin_skills={skills}&pin_negotiation={negotiation}"),
        "max_origin_age=1h".to_owned(),
        "wait=0".to_owned(),
    ] {
        let reply = server.get(&format!("{PATH}?{query}")).await;
        assert_eq!(reply.status, 200, "{query}: {}", reply.text());
    }
    for (query, status, reason) in [
        ("min_revision=2".to_owned(), 412, "revision_below_floor"),
        ("min_version=2".to_owned(), 412, "version_below_floor"),
        ("min_version=latest".to_owned(), 412, "version_incomparable"),
        ("skill=sum".to_owned(), 412, "skill_missing"),
        ("skill=tell;out=text/markdown".to_owned(), 412, "mode_missing"),
        ("skill=tell&input_mode=image/png".to_owned(), 412, "mode_missing"),
        ("push_notifications=true".to_owned(), 412, "capability_missing"),
        ("extension=urn:x:two".to_owned(), 412, "capability_missing"),
        (format!("pin={}", other.tagged()), 412, "pin_mismatch"),
        (format!("pin_skills={}", other.hex()), 412, "pin_mismatch"),
        (format!("pin_negotiation={}", other.hex()), 412, "pin_mismatch"),
        ("max_origin_age=0".to_owned(), 412, "origin_unconfirmed"),
        ("at_least=9.9f86d081884c7d65".to_owned(), 409, "position_in_future"),
        ("at_least=1.9f86d081884c7d65".to_owned(), 409, "history_diverged"),
        ("skill=sum&wait=0".to_owned(), 503, "freshness_unverifiable"),
    ] {
        let reply = server.get(&format!("{PATH}?{query}")).await;
        assert_eq!((reply.status.as_u16(), reply.reason().as_str()), (status, reason), "{query}");
        let problem: wire::Problem = serde_json::from_slice(&reply.body).unwrap();
        assert_eq!(problem.kind, format!("urn:cardfence:problem:{reason}"));
        assert_eq!((problem.status, problem.agent.as_deref()), (status, Some("acme/sum")));
        assert_eq!(problem.revision, Some(1));
        assert!(problem.conditions.iter().any(|c| c.outcome != "passed"), "{query}: {}", reply.text());
        assert!(reply.text().contains(std::str::from_utf8(CARD).unwrap()), "{query}: without its card");
        assert_eq!(reply.header("cache-control"), "no-store");
        assert_eq!(reply.header("etag"), "");
        assert_eq!(reply.header("cardfence-position"), problem.freshness.unwrap().position);
        assert_eq!(reply.header("retry-after").is_empty(), status != 503, "{query}");
    }
    let reply = server.get(&format!("{PATH}?skill=sum")).await;
    let condition = &reply.json()["conditions"][1];
    assert_eq!(members(condition), ["condition", "found", "outcome", "wanted"]);
    assert_eq!(condition["condition"], "skills");
}

#[tokio::test]
async fn absent_and_retired_agents_are_told_apart_and_dated() {
    let server = Server::start().await;
    let reply = server.get(PATH).await;
    assert_eq!((reply.status.as_u16(), reply.reason().as_str()), (404, "agent_not_found"));
    assert_ne!(reply.header("cardfence-position"), "");
    assert!(reply.json()["freshness"]["staleness_ms"].is_u64());
    server.put("acme/sum", CARD).await;
    server.send("DELETE", PATH, &[], b"").await;
    let reply = server.get(PATH).await;
    assert_eq!((reply.status.as_u16(), reply.reason().as_str()), (410, "agent_retired"));
    assert_eq!(reply.json()["revision"], 2);
}

#[tokio::test]
async fn known_is_not_modified_with_a_refreshed_freshness() {
    let server = Server::start().await;
    server.put("acme/sum", CARD).await;
    let digest = Digest::of(CARD).tagged();
    let (strong, weak) = (format!("\"{digest}\""), format!("W/\"{digest}\""));
    let list = format!("\"other\", {weak}");
    let known = format!("{PATH}?known={digest}");
    for (path, tag) in
        [(PATH, strong.as_str()), (PATH, &weak), (PATH, &list), (PATH, "*"), (&known, "\"other\"")]
    {
        let reply = server.get_with(path, &[("if-none-match", tag)]).await;
        assert_eq!((reply.status.as_u16(), reply.body.len()), (304, 0), "{path} {tag}");
        assert_eq!(reply.header("etag"), weak);
        assert_eq!(reply.header("cache-control"), "no-store");
        assert_ne!(reply.header("cardfence-staleness-ms"), "");
        assert_eq!(reply.header("cardfence-revision"), "1");
    }
    let other = format!("\"{}\"", Digest::of(b"other").tagged());
    assert_eq!(server.get_with(PATH, &[("if-none-match", &other)]).await.status, 200);
    // Judged after the fence.
    let reply = server.get_with(&format!("{PATH}?skill=nope"), &[("if-none-match", &strong)]).await;
    assert_eq!(reply.reason(), "skill_missing");
    server.put("acme/sum", &card_with("1.0.0", "1.0.1")).await;
    assert_eq!(server.get_with(PATH, &[("if-none-match", &strong)]).await.status, 200);
}

#[tokio::test]
async fn head_says_what_get_does_without_a_body() {
    let server = Server::start().await;
    server.put("acme/sum", CARD).await;
    for path in
        [PATH, "/agents/acme/sum/.well-known/agent-card.json", "/v1/agents", "/readyz", "/v1/agents/a/b"]
    {
        let get = server.get(path).await;
        let head = server.send("HEAD", path, &[], b"").await;
        assert_eq!((head.status, head.body.len()), (get.status, 0), "{path}");
        assert_eq!(head.header("content-type"), get.header("content-type"), "{path}");
        assert_eq!(head.header("etag"), get.header("etag"), "{path}");
        assert!(head.header("content-length").parse::<usize>().unwrap() > 0, "{path}");
    }
}

#[tokio::test]
async fn a_nonce_is_given_back_on_every_answer() {
    let server = Server::start().await;
    server.put("acme/sum", CARD).await;
    for path in [PATH, "/v1/agents/acme/none", "/v1/agents?nope=1", "/nowhere", "/livez"] {
        let reply = server.get_with(path, &[("cardfence-nonce", "n-1~")]).await;
        assert_eq!(reply.header("cardfence-nonce"), "n-1~", "{path}");
        assert_eq!(server.get(path).await.header("cardfence-nonce"), "", "{path}");
    }
}

#[tokio::test]
async fn cache_control_of_the_request_is_a_fence() {
    let server = Server::start().await;
    server.put("acme/sum", CARD).await;
    for directive in ["no-cache", "max-age=5", "max-stale=5, max-age=7", "max-stale", "no-transform"] {
        let reply = server.get_with(PATH, &[("cache-control", directive)]).await;
        assert_eq!(reply.status, 200, "{directive}: {}", reply.text());
    }
    server.lose_store().await;
    // Zero, and nothing can be asked: refused. The query beats the header.
    let zero = [("cache-control", "max-stale=60, no-cache")];
    let reply = server.get_with(&format!("{PATH}?wait=50ms"), &zero).await;
    assert_eq!((reply.status.as_u16(), reply.reason().as_str()), (503, "freshness_unverifiable"));
    assert_eq!(server.get_with(&format!("{PATH}?max_staleness=1h"), &zero).await.status, 200);
    let held = [("cache-control", "no-cache, only-if-cached")];
    let reply = server.get_with(PATH, &held).await;
    assert_eq!((reply.status.as_u16(), reply.reason().as_str()), (503, "too_stale"), "{}", reply.text());
    assert_eq!(server.get_with(PATH, &[("cache-control", "max-stale")]).await.status, 200);
}
