//! Heartbeats as a caller sends them.

use serde_json::json;

use super::support::{CARD, Reply, Server, card_with, members};

async fn post(server: &Server, path: &str, body: &serde_json::Value) -> Reply {
    server.send("POST", path, &[], body.to_string().as_bytes()).await
}

async fn registered(server: &Server, agent: &str, query: &str, card: &[u8]) -> String {
    let reply = server.send("PUT", &format!("/v1/agents/{agent}{query}"), &[], card).await;
    assert!(reply.status.is_success(), "{}", reply.text());
    reply.json()["content_digest"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_heartbeat_confirms_and_renews_the_lease() {
    let server = Server::start().await;
    let digest = registered(&server, "acme/sum", "?ttl=30s", CARD).await;
    let before = server.get("/v1/agents/acme/sum").await.json();
    assert_eq!(
        (&before["freshness"]["lease_ttl_ms"], &before["freshness"]["unconfirmed"]),
        (&30_000.into(), &false.into())
    );
    let reply = post(&server, "/v1/agents/acme/sum/confirm", &json!({ "content_digest": digest })).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.header("cache-control"), "no-store");
    assert_eq!(reply.header("cardfence-revision"), "1");
    let told = reply.json();
    assert_eq!(
        members(&told),
        ["agent", "freshness", "lease_ttl_ms", "origin_confirmed_at", "position", "revision"]
    );
    assert_eq!(
        (&told["agent"], &told["revision"], &told["position"], &told["lease_ttl_ms"]),
        (&"acme/sum".into(), &1.into(), &before["position"], &30_000.into())
    );
    assert_eq!(told["freshness"]["origin_confirmed_at"], told["origin_confirmed_at"]);
    assert!(told["origin_confirmed_at"].as_str() > before["freshness"]["origin_confirmed_at"].as_str());
    let after = server.get("/v1/agents/acme/sum").await.json();
    assert_eq!(after["freshness"]["origin_confirmed_at"], told["origin_confirmed_at"]);
    assert_eq!((&after["revision"], &after["position"]), (&before["revision"], &before["position"]));
    let listed = server.get("/v1/agents").await.json();
    assert_eq!(listed["items"][0]["freshness"]["unconfirmed"], false);
}

#[tokio::test]
async fn without_a_lease_nothing_is_said_of_one() {
    let server = Server::start().await;
    let digest = registered(&server, "acme/sum", "", CARD).await;
    let told =
        post(&server, "/v1/agents/acme/sum/confirm", &json!({ "content_digest": digest })).await.json();
    assert!(told.get("lease_ttl_ms").is_none() && told["freshness"].get("unconfirmed").is_none(), "{told}");
}

#[tokio::test]
async fn a_heartbeat_is_refused_by_what_is_current() {
    let server = Server::start().await;
    let old = registered(&server, "acme/sum", "", CARD).await;
    registered(&server, "acme/sum", "", &card_with("Summarizer", "Talker")).await;
    let body = json!({ "content_digest": old });
    let reply = post(&server, "/v1/agents/acme/sum/confirm", &body).await;
    assert_eq!((reply.status.as_u16(), reply.reason().as_str()), (412, "pin_mismatch"));
    assert_eq!((&reply.json()["revision"], &reply.json()["agent"]), (&2.into(), &"acme/sum".into()));
    let reply = post(&server, "/v1/agents/acme/none/confirm", &body).await;
    assert_eq!((reply.status.as_u16(), reply.reason().as_str()), (404, "agent_not_found"));
    assert!(reply.json()["freshness"].is_object(), "not found carries it too");
    server.send("DELETE", "/v1/agents/acme/sum", &[], b"").await;
    let reply = post(&server, "/v1/agents/acme/sum/confirm", &body).await;
    assert_eq!((reply.status.as_u16(), reply.reason().as_str()), (410, "agent_retired"));
    server.ledger.set_reachable(false);
    let reply = post(&server, "/v1/agents/acme/sum/confirm", &body).await;
    assert_eq!((reply.status.as_u16(), reply.reason().as_str()), (503, "store_unavailable"));
}

#[tokio::test]
async fn each_of_a_batch_is_confirmed_or_refused_by_itself() {
    let server = Server::start().await;
    let digest = registered(&server, "acme/sum", "", CARD).await;
    let item = |agent: &str| json!({ "agent": agent, "content_digest": digest });
    let body = json!({ "items": [item("acme/sum"), item("acme/none"), item("acme/sum")] });
    let reply = post(&server, "/v1/confirm", &body).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let told = reply.json();
    assert_eq!(members(&told), ["freshness", "items"]);
    let items = told["items"].as_array().unwrap();
    let agents: Vec<_> = items.iter().map(|item| item["agent"].as_str().unwrap()).collect();
    assert_eq!(agents, ["acme/sum", "acme/none", "acme/sum"]);
    assert_eq!((&items[0]["confirmed"]["revision"], items[0].get("problem")), (&1.into(), None));
    assert_eq!(items[1]["problem"]["reason"], "agent_not_found");
    assert!(items[2]["confirmed"].is_object());
    let metrics = server.get("/metrics").await;
    for line in [
        r#"cardfence_origin_confirmations_total{outcome="confirmed"} 2"#,
        r#"cardfence_origin_confirmations_total{outcome="agent_not_found"} 1"#,
    ] {
        assert!(metrics.text().contains(line), "{line}");
    }
    let full = json!({ "items": vec![item("acme/sum"); 1_000] });
    assert_eq!(post(&server, "/v1/confirm", &full).await.status, 200);
}

#[tokio::test]
async fn what_is_malformed_is_refused_with_its_place() {
    let server = Server::start().await;
    let digest = registered(&server, "acme/sum", "", CARD).await;
    let good = json!({ "agent": "acme/sum", "content_digest": digest });
    let one = "/v1/agents/acme/sum/confirm";
    for (path, body, named) in [
        (one, json!({}), "missing field `content_digest`"),
        (one, json!({ "content_digest": "sha256:abc" }), "content_digest: "),
        (one, json!({ "content_digest": digest, "at": 1 }), "unknown field `at`"),
        (one, json!([digest]), "expected an object with `content_digest`"),
        (
            "/v1/confirm",
            json!({ "items": [good, { "agent": "x", "content_digest": digest }] }),
            "items[1].agent",
        ),
        ("/v1/confirm", json!({ "items": vec![&good; 1_001] }), "1001 agents in one batch are too many"),
    ] {
        let reply = post(&server, path, &body).await;
        assert_eq!((reply.status.as_u16(), reply.reason().as_str()), (400, "invalid_argument"), "{body:.80}");
        let detail = reply.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(named), "{named} in {detail}");
    }
    for ttl in ["0", "999ms", "31d", "5", "any"] {
        let reply = server.send("PUT", &format!("/v1/agents/acme/sum?ttl={ttl}"), &[], CARD).await;
        assert_eq!((reply.status.as_u16(), reply.reason().as_str()), (400, "invalid_argument"), "{ttl}");
    }
    assert_eq!(server.get(one).await.status, 405);
}
