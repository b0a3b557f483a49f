//! Register, retire, roll back.

use super::support::{CARD, Server, card_with, members};
use crate::terms::Digest;

const PATH: &str = "/v1/agents/acme/sum";

#[tokio::test]
async fn register_is_created_then_unchanged_then_updated() {
    let server = Server::start().await;
    let reply = server.send("PUT", PATH, &[("content-type", "application/json")], CARD).await;
    assert_eq!((reply.status.as_u16(), reply.header("location")), (201, PATH));
    assert_eq!(
        members(&reply.json()),
        [
            "agent",
            "card_version",
            "change",
            "content_digest",
            "dry_run",
            "generation",
            "negotiation_fingerprint",
            "outcome",
            "position",
            "raw_digest",
            "revision",
            "skill_fingerprint",
            "superseded",
            "warnings",
        ]
    );
    assert_eq!(reply.json()["outcome"], "created");
    assert!(reply.json()["change"].is_null());
    assert_eq!(reply.header("cardfence-position"), reply.json()["position"]);
    assert_eq!(reply.header("cardfence-revision"), "1");
    assert_eq!(reply.header("cache-control"), "no-store");
    let reply = server.send("PUT", PATH, &[("content-type", "application/a2a+json")], CARD).await;
    assert_eq!((reply.status.as_u16(), reply.json()["outcome"].as_str()), (200, Some("unchanged")));
    let silent = card_with("\"audio/wav\"", "\"text/plain\"");
    let reply = server.send("PUT", PATH, &[], &silent).await;
    assert_eq!((reply.status.as_u16(), reply.json()["outcome"].as_str()), (200, Some("updated")));
    let change = &reply.json()["change"];
    assert_eq!((&change["class"], &change["silent"]), (&"breaking".into(), &true.into()));
    assert_eq!(members(&change["items"][0]), ["class", "kind", "pointer", "subject"]);
}

#[tokio::test]
async fn expectations_are_met_or_conflict() {
    let server = Server::start().await;
    let first = server.put("acme/sum", CARD).await;
    let position = first["position"].as_str().unwrap();
    let raw = format!("\"{}\"", Digest::of(CARD).tagged());
    let content = format!("\"{}\"", first["content_digest"].as_str().unwrap());
    let other = format!("\"{}\"", Digest::of(b"other").tagged());
    let weak = format!("W/{raw}");
    let next = |n: u32| card_with("1.0.0", &format!("1.0.{n}"));
    for (query, headers, status, reason) in [
        ("", vec![("if-none-match", "*")], 412, "revision_conflict"),
        ("", vec![("if-match", other.as_str())], 412, "revision_conflict"),
        ("", vec![("if-match", weak.as_str())], 412, "revision_conflict"),
        ("?expect_revision=2", vec![], 412, "revision_conflict"),
        ("?expect_revision=1@1.9f86d081884c7d65", vec![], 412, "revision_conflict"),
        ("?expect_revision=1", vec![("if-match", other.as_str())], 400, "invalid_argument"),
        ("?expect_revision=9", vec![("if-match", raw.as_str())], 412, "revision_conflict"),
        ("?expect_revision=1", vec![("if-none-match", "*")], 400, "invalid_argument"),
    ] {
        let reply = server.send("PUT", &format!("{PATH}{query}"), &headers, &next(9)).await;
        let found = (reply.status.as_u16(), reply.reason());
        assert_eq!(found, (status, reason.to_owned()), "{query} {headers:?}: {}", reply.text());
        assert_eq!(reply.json()["agent"], "acme/sum", "{query} {headers:?}");
    }
    let reply = server.send("PUT", PATH, &[("if-match", &weak)], &next(9)).await;
    assert!(reply.json()["detail"].as_str().unwrap().contains(&format!("the strong tag is {raw}")));
    // What is met.
    let reply = server.send("PUT", PATH, &[("if-match", &raw)], &next(1)).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    server.send("PUT", &format!("{PATH}?expect_revision=2"), &[], CARD).await;
    let reply =
        server.send("PUT", &format!("{PATH}?expect_revision=3"), &[("if-match", &content)], &next(2)).await;
    assert_eq!(reply.json()["revision"], 4, "{}", reply.text());
    let reply = server.send("PUT", &format!("{PATH}?expect_revision=4@{position}"), &[], &next(3)).await;
    assert_eq!(reply.json()["revision"], 5, "{}", reply.text());
    let reply = server.send("PUT", "/v1/agents/acme/new", &[("if-none-match", "*")], CARD).await;
    assert_eq!(reply.status, 201);
    let reply = server.send("DELETE", &format!("{PATH}?expect_revision=1"), &[], b"").await;
    assert_eq!(reply.reason(), "revision_conflict");
}

#[tokio::test]
async fn a_request_id_gives_the_first_outcome_again() {
    let server = Server::start().await;
    let key = [("idempotency-key", "deploy-1")];
    let reply = server.send("PUT", PATH, &key, CARD).await;
    assert_eq!(reply.status, 201);
    server.put("acme/sum", &card_with("1.0.0", "1.0.1")).await;
    let again = server.send("PUT", PATH, &key, CARD).await;
    assert_eq!(
        (again.json()["outcome"].as_str(), again.json()["revision"].as_u64()),
        (Some("created"), Some(1))
    );
    assert_eq!(again.json()["superseded"], true);
    assert_eq!(again.json()["position"], reply.json()["position"]);
    let other = server.send("PUT", PATH, &key, &card_with("1.0.0", "2.0.0")).await;
    assert_eq!(other.reason(), "invalid_argument");
}

#[tokio::test]
async fn release_note_source_and_dry_run_are_taken() {
    let server = Server::start().await;
    let reply = server.send("PUT", &format!("{PATH}?dry_run=true"), &[], CARD).await;
    assert_eq!((reply.status.as_u16(), reply.json()["outcome"].as_str()), (200, Some("created")));
    assert_eq!(
        (&reply.json()["dry_run"], &reply.json()["position"]),
        (&true.into(), &serde_json::Value::Null)
    );
    assert_eq!(server.get(PATH).await.status, 404);
    let query = "?release=7&note=one%3B%20two%20%C3%A4+&source=git:abc&dry_run=false";
    assert_eq!(server.send("PUT", &format!("{PATH}{query}"), &[], CARD).await.status, 201);
    let item = &server.get(&format!("{PATH}/revisions")).await.json()["items"][0];
    assert_eq!((&item["release"], &item["note"]), (&"7".into(), &"one; two ä+".into()));
    assert_eq!(item["source"], "git:abc");
    let next = card_with("1.0.0", "1.0.1");
    let reply = server.send("PUT", &format!("{PATH}?release=6"), &[], &next).await;
    assert_eq!((reply.status.as_u16(), reply.reason().as_str()), (409, "release_superseded"));
    assert_eq!(reply.json()["change"]["class"], "cosmetic", "{}", reply.text());
}

#[tokio::test]
async fn retire_leaves_a_tombstone_and_rollback_brings_it_back() {
    let server = Server::start().await;
    let reply = server.send("DELETE", PATH, &[], b"").await;
    assert_eq!((reply.status.as_u16(), reply.reason().as_str()), (404, "agent_not_found"));
    assert!(
        reply.json()["freshness"]["position"].is_string() && !reply.header("cardfence-position").is_empty()
    );
    let reply = server.send("POST", &format!("{PATH}/rollback?to=1"), &[], b"").await;
    assert_eq!((reply.status.as_u16(), reply.reason().as_str()), (404, "agent_not_found"));
    assert!(reply.json()["freshness"]["position"].is_string());
    server.put("acme/sum", CARD).await;
    let reply = server.send("DELETE", &format!("{PATH}?note=gone"), &[], b"").await;
    assert_eq!((reply.status.as_u16(), reply.json()["outcome"].as_str()), (200, Some("retired")));
    assert_eq!(reply.json()["change"]["items"][0]["kind"], "agent_retired");
    assert_eq!(
        (&reply.json()["revision"], &reply.json()["raw_digest"]),
        (&2.into(), &serde_json::Value::Null)
    );
    let reply = server.send("DELETE", PATH, &[], b"").await;
    assert_eq!((reply.status.as_u16(), reply.json()["outcome"].as_str()), (200, Some("unchanged")));
    let reply = server.send("POST", &format!("{PATH}/rollback?to=2"), &[], b"").await;
    assert_eq!((reply.status.as_u16(), reply.reason().as_str()), (404, "revision_not_found"));
    assert!(reply.json()["freshness"]["origin_confirmed_at"].is_string(), "{}", reply.text());
    let reply = server.send("POST", &format!("{PATH}/rollback?to=9"), &[], b"").await;
    assert_eq!((reply.status.as_u16(), reply.reason().as_str()), (404, "revision_not_found"));
    assert!(reply.json()["freshness"]["position"].is_string(), "{}", reply.text());
    let reply = server.send("POST", &format!("{PATH}/rollback?to=1"), &[], b"").await;
    assert_eq!((reply.status.as_u16(), reply.json()["outcome"].as_str()), (201, Some("created")));
    assert_eq!(reply.json()["revision"], 3);
    assert_eq!(server.get("/agents/acme/sum/.well-known/agent.json").await.body, CARD);
    let item = &server.get(&format!("{PATH}/revisions")).await.json()["items"][0];
    assert_eq!(item["source"], "rollback:1");
}

#[tokio::test]
async fn a_body_that_is_too_large_is_not_read_on() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    let server = Server::start().await;
    let given = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&given);
    let chunks = futures::stream::iter(0..1_000).map(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        Ok::<_, std::io::Error>(bytes::Bytes::from_static(&[b' '; 16 * 1024]))
    });
    use futures::StreamExt as _;
    let body = axum::body::Body::from_stream(chunks);
    let request = http::Request::put(PATH).body(body).unwrap();
    let reply = server.answer(request).await;
    assert_eq!((reply.status.as_u16(), reply.reason().as_str()), (413, "payload_too_large"));
    assert!(given.load(Ordering::SeqCst) <= 18, "{given:?} chunks were read");
    let told = [("content-length", "262145")];
    assert_eq!(server.send("PUT", PATH, &told, b"").await.status, 413);
}

/// A card of 100 skills that take modes of their own, or 300 long ones by default.
fn wide(own: &str) -> Vec<u8> {
    let modes: Vec<String> = (0..300).map(|n| format!("\"text/{}{n}\"", "m".repeat(400))).collect();
    let skills: Vec<String> = (0..100).map(|n| format!(r#"{{"id":"s{n}","name":"S"{own}}}"#)).collect();
    let (modes, skills) = (modes.join(","), skills.join(","));
    format!(
        r#"{{"name":"A","url":"https://a.example","version":"1","defaultInputModes":[{modes}],"skills":[{skills}]}}"#
    )
    .into_bytes()
}

#[tokio::test]
async fn a_change_of_any_size_is_told_in_bounds_and_says_what_is_missing() {
    let server = Server::start().await;
    server.put("acme/sum", &wide(r#","inputModes":["a/b"]"#)).await;
    let reply = server.send("PUT", PATH, &[], &wide("")).await;
    assert_eq!(reply.status, 200, "{:.300}", reply.text());
    assert!(reply.body.len() <= 3 * 1024 * 1024, "{}", reply.body.len());
    let change = &reply.json()["change"];
    assert_eq!((&change["class"], &change["silent"]), (&"breaking".into(), &true.into()));
    assert!(!change["items"].as_array().unwrap().is_empty());
    let list = server.get(&format!("{PATH}/revisions")).await.json();
    assert_eq!(&list["items"][0]["change"], change);
}
