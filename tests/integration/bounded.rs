//! PostgreSQL frozen or gone: what is answered stays within its bound, then is refused; nothing hangs, and all
//! is well again without a restart.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::cards::{Card, Shape};
use crate::support::eventually::eventually;
use crate::support::http::Http;
use crate::support::postgres::{Cluster, Settings};
use crate::support::report;
use crate::support::server::Server;

/// Longer than any wait that is asked for here, with room for a busy machine.
const PROMPT: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread")]
async fn frozen_database_leaves_answers_within_their_bound_then_refusals() {
    let cluster = Cluster::start(Settings::default()).await;
    lost_and_found(&cluster, "frozen", || cluster.freeze(), async || cluster.thaw()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn absent_database_leaves_answers_within_their_bound_then_refusals() {
    let cluster = Cluster::start(Settings::default()).await;
    lost_and_found(&cluster, "gone", || cluster.kill_9(), async || cluster.restart().await).await;
}

async fn lost_and_found(cluster: &Cluster, name: &str, lose: impl FnOnce(), find: impl AsyncFnOnce()) {
    let database = cluster.create_database().await;
    let server = Server::serve(&cluster.url(&database)).await;
    let http = Http::to(&server.url());
    let card = Card::new(Shape::V10, "bounded").build();
    http.put_card("acme/bounded", "", &card).await.expect(201);
    http.resolve("acme/bounded", "?max_staleness=0&wait=10s").await.expect(200);

    let lost_at = Instant::now();
    lose();
    let mut answered = 0;
    let refused_after = loop {
        let (reply, age) = prompt(&http, "acme/bounded", "?max_staleness=2s&wait=0").await;
        match reply.status {
            200 => {
                assert!(staleness(&reply.json()["freshness"]).unwrap() <= 2_000, "{}", reply.json());
                assert!(age < Duration::from_secs(4), "it was answered {age:?} after the loss");
                answered += 1;
            }
            503 => {
                let problem = reply.json();
                assert_eq!(problem["reason"], "too_stale", "{problem}");
                assert_eq!(problem["card"]["name"], "bounded", "the card is attached");
                assert!(staleness(&problem["freshness"]).unwrap() > 2_000);
                break lost_at.elapsed();
            }
            other => panic!("{other}: {}", reply.json()),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(answered > 10, "{answered} answers within the bound");
    assert!(refused_after >= Duration::from_millis(1_500), "the bound was not used: {refused_after:?}");

    // Whoever waits is told as soon as the wait is over, and whoever accepts anything is served.
    let (reply, _) = prompt(&http, "acme/bounded", "?max_staleness=0&wait=300ms").await;
    assert_eq!(reply.expect(503).json()["reason"], "freshness_unverifiable");
    let (reply, _) = prompt(&http, "acme/bounded", "?max_staleness=any").await;
    assert_eq!(reply.expect(200).json()["revision"], 1);
    let (reply, _) = prompt(&http, "acme/nobody", "?max_staleness=any&wait=300ms").await;
    assert_eq!(reply.expect(503).json()["reason"], "freshness_unverifiable", "absence must be proven");
    let raw = http.raw_card("acme/bounded", "?max_staleness=1s&wait=0").await.expect(503);
    assert_eq!(raw.json()["reason"], "too_stale");
    http.get("/readyz").await.expect(200);
    // A write has its own, longer deadline, and says that it was not done, or that nobody can know.
    let began = Instant::now();
    let write =
        http.put_card("acme/bounded", "", &Card::new(Shape::V10, "bounded").version("2").build()).await;
    assert!(began.elapsed() < Duration::from_secs(20), "a write hung for {:?}", began.elapsed());
    let reason = write.json()["reason"].as_str().unwrap().to_owned();
    assert!(reason == "store_unavailable" || reason == "outcome_unknown", "{reason}");

    find().await;
    let found_at = Instant::now();
    eventually(Duration::from_secs(30), async || {
        let reply = http.resolve("acme/bounded", "?max_staleness=0&wait=1s").await;
        if reply.status == 200 { Ok(()) } else { Err(format!("{}: {}", reply.status, reply.json())) }
    })
    .await;
    report(&format!(
        "database {name}: {answered} answers within 2 s, the first refusal after {} ms, recovered {} ms after it was back",
        refused_after.as_millis(),
        found_at.elapsed().as_millis()
    ));
    http.put_card("acme/bounded", "", &Card::new(Shape::V10, "bounded").version("3").build())
        .await
        .expect(200);
}

async fn prompt(http: &Http, agent: &str, query: &str) -> (crate::support::http::Reply, Duration) {
    let began = Instant::now();
    let reply = http.resolve(agent, query).await;
    let took = began.elapsed();
    assert!(took < PROMPT, "{query} took {took:?}");
    (reply, took)
}

fn staleness(freshness: &Value) -> Option<u64> {
    freshness["staleness_ms"].as_u64()
}
