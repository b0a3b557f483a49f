//! Heartbeats and leases of real servers: what reaches another node, and what an outage of the registry is not.

use std::path::Path;
use std::time::Duration;

use futures::StreamExt as _;
use serde_json::{Value, json};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};

use crate::support::cards::{Card, Shape};
use crate::support::eventually::eventually;
use crate::support::http::Http;
use crate::support::postgres::Database;
use crate::support::scratch::Scratch;
use crate::support::server::Server;

async fn register(http: &Http, agent: &str, query: &str, version: &str) -> String {
    let card = Card::new(Shape::V10, "beating").version(version).build();
    let reply = http.put_card(agent, query, &card).await;
    assert!(matches!(reply.status, 200 | 201), "{}", String::from_utf8_lossy(&reply.body));
    reply.json()["content_digest"].as_str().expect("a digest").to_owned()
}

async fn beat(http: &Http, agent: &str, digest: &str) -> Value {
    let path = format!("/v1/agents/{agent}/confirm");
    http.post(&path, &json!({ "content_digest": digest })).await.expect(200).json()
}

async fn freshness(http: &Http, agent: &str) -> Value {
    let reply = http.resolve(agent, "?max_staleness=0&wait=10s").await.expect(200);
    reply.json()["freshness"].clone()
}

async fn until_unconfirmed_is(http: &Http, agent: &str, unconfirmed: bool) {
    eventually(Duration::from_secs(30), async || {
        let freshness = freshness(http, agent).await;
        if freshness["unconfirmed"] == unconfirmed { Ok(()) } else { Err(freshness.to_string()) }
    })
    .await;
}

/// As if the server had been down for so long: when it last ticked lies that much further back.
async fn age(store: &Path, by: Duration) {
    let mut file = SqliteConnectOptions::new().filename(store).connect().await.expect("it can be opened");
    let micros = i64::try_from(by.as_micros()).expect("it is no age of the world");
    let query = sqlx::query("UPDATE service SET advanced_at = advanced_at - ?1").bind(micros);
    query.execute(&mut file).await.expect("it is right");
    file.close().await.expect("it can be closed");
}

#[tokio::test(flavor = "multi_thread")]
async fn lease_does_not_lapse_while_the_registry_is_down() {
    let scratch = Scratch::new("origins");
    let file = scratch.path().join("ledger.db");
    let store = format!("sqlite:{}", file.display());
    let server = Server::serve(&store).await;
    let http = Http::to(&server.url());
    register(&http, "acme/long", "?ttl=60s", "1").await;
    let digest = register(&http, "acme/short", "?ttl=2s", "1").await;
    until_unconfirmed_is(&http, "acme/short", true).await;
    assert_eq!(freshness(&http, "acme/long").await["unconfirmed"], false);
    server.terminate().await;
    drop(server);
    age(&file, Duration::from_secs(24 * 3600)).await;

    let server = Server::serve(&store).await;
    let http = Http::to(&server.url());
    http.until_ready().await;
    until_unconfirmed_is(&http, "acme/long", false).await;
    until_unconfirmed_is(&http, "acme/short", true).await;
    // It is told, and never hidden.
    let listed = http.get("/v1/agents?max_staleness=0&wait=10s").await.expect(200).json();
    let marks: Vec<_> = listed["items"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|item| &item["freshness"]["unconfirmed"])
        .collect();
    assert_eq!(marks, [&Value::from(false), &true.into()]);
    assert_eq!(beat(&http, "acme/short", &digest).await["freshness"]["unconfirmed"], false);
    assert_eq!(freshness(&http, "acme/short").await["unconfirmed"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn heartbeat_on_one_node_reaches_the_other() {
    let database = Database::empty().await;
    let (one, two) = (Server::serve(database.url()).await, Server::serve(database.url()).await);
    let (one, two) = ((Http::to(&one.url()), one), (Http::to(&two.url()), two));
    let digest = register(&one.0, "acme/peer", "?ttl=60s", "1").await;
    let before = freshness(&two.0, "acme/peer").await;
    let told = beat(&one.0, "acme/peer", &digest).await;
    assert_ne!(told["origin_confirmed_at"], before["origin_confirmed_at"]);
    eventually(Duration::from_secs(30), async || {
        let found = freshness(&two.0, "acme/peer").await;
        let same = found["origin_confirmed_at"] == told["origin_confirmed_at"];
        if same && found["lease_ttl_ms"] == 60_000 { Ok(()) } else { Err(found.to_string()) }
    })
    .await;
    // What the other node registers refuses the old card's heartbeat here at once.
    register(&two.0, "acme/peer", "?ttl=60s", "2").await;
    let body = json!({ "content_digest": digest });
    let refused = one.0.post("/v1/agents/acme/peer/confirm", &body).await.expect(412);
    assert_eq!((&refused.json()["reason"], &refused.json()["revision"]), (&"pin_mismatch".into(), &2.into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn fleet_of_a_thousand_is_confirmed_in_one_request_without_an_entry() {
    let database = Database::empty().await;
    let server = Server::serve(database.url()).await;
    let http = Http::to(&server.url());
    let digests: Vec<_> = futures::stream::iter(0..1_000)
        .map(async |number| {
            let agent = format!("fleet/agent-{number}");
            let digest = register(&http, &agent, "", &number.to_string()).await;
            json!({ "agent": agent, "content_digest": digest })
        })
        .buffer_unordered(64)
        .collect()
        .await;
    let watermark = async || http.get("/v1/watermark?max_staleness=0&wait=10s").await.expect(200).json();
    let before = watermark().await["position"].clone();
    for _ in 0..3 {
        let answer = http.post("/v1/confirm", &json!({ "items": digests })).await.expect(200).json();
        let items = answer["items"].as_array().expect("items");
        let done = items.iter().filter(|item| item["confirmed"]["revision"] == 1).count();
        assert_eq!((items.len(), done), (1_000, 1_000));
    }
    assert_eq!(watermark().await["position"], before);
    let revisions = http.get("/v1/agents/fleet/agent-7/revisions").await.expect(200).json();
    assert_eq!(revisions["items"].as_array().map(Vec::len), Some(1));
}
