//! An edge that is cut off: it says how old it may be, serves within its bounds, then refuses, and comes back.

use std::time::{Duration, Instant};

use crate::edges::{SOON, metric, ready_edge};
use crate::support::cards::{Card, Shape};
use crate::support::eventually::eventually;
use crate::support::http::Http;
use crate::support::postgres::Database;
use crate::support::proxy::Proxy;
use crate::support::report;
use crate::support::server::Server;

/// An edge may have been told something just before the network stood still.
const SLACK: Duration = Duration::from_millis(100);

fn card() -> Card {
    Card::new(Shape::V03, "worker")
}

#[tokio::test(flavor = "multi_thread")]
async fn frozen_edge_serves_within_the_bound_then_refuses_and_comes_back_by_itself() {
    let database = Database::empty().await;
    let node = Server::serve(database.url()).await;
    let proxy = Proxy::start(node.address()).await;
    let near = ready_edge(&format!("http://{}", proxy.address())).await;
    let far = ready_edge(&near.url()).await;
    let (at_node, at_far) = (Http::to(&node.url()), Http::to(&far.url()));
    at_node.put_card("acme/worker", "", &card().build()).await.expect(201);
    at_far.resolve("acme/worker", "?max_staleness=0&wait=10s").await.expect(200);

    proxy.freeze();
    let frozen_at = Instant::now();
    let refused = eventually(SOON, async || {
        let reply = at_far.resolve("acme/worker", "?max_staleness=2s&wait=0").await;
        let elapsed = frozen_at.elapsed();
        let stated = reply.json()["freshness"]["staleness_ms"].as_u64().map(Duration::from_millis);
        let stated = stated.expect("it was proven once");
        // The age that it tells is not less than it is, however many hops away the standstill is.
        assert!(stated + SLACK >= elapsed.saturating_sub(SLACK), "{stated:?} was told after {elapsed:?}");
        match reply.status {
            200 if stated <= Duration::from_secs(2) => Err(format!("{stated:?} old")),
            503 => Ok(reply.json()),
            other => panic!("{other}: {}", reply.json()),
        }
    })
    .await;
    assert_eq!(refused["reason"], "too_stale");
    assert_eq!(
        refused["card"]["name"],
        serde_json::from_str::<serde_json::Value>(&card().build()).unwrap()["name"]
    );
    assert!(frozen_at.elapsed() + SLACK >= Duration::from_secs(2), "it refused before it had to");

    at_far.resolve("acme/worker", "?max_staleness=any&wait=0").await.expect(200);
    let absent = at_far.resolve("acme/none", "?max_staleness=any&wait=0").await.expect(503);
    assert_eq!(absent.json()["reason"], "freshness_unverifiable", "nobody can say that there is none");
    let waited = Instant::now();
    let absent = at_far.resolve("acme/none", "?max_staleness=any").await.expect(503);
    assert!(waited.elapsed() < Duration::from_secs(3), "{:?}", waited.elapsed());
    assert_eq!(absent.json()["reason"], "freshness_unverifiable");
    at_node.put_card("acme/worker", "", &card().version("2").build()).await.expect(200);

    proxy.thaw();
    let back = eventually(SOON, async || {
        let reply = at_far.resolve("acme/worker", "?max_staleness=0&wait=1s").await;
        if reply.status == 200 { Ok(reply.json()) } else { Err(reply.json().to_string()) }
    })
    .await;
    assert_eq!(back["revision"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn incident_an_edge_behind_a_deploy_refuses_what_the_default_of_others_would_have_served() {
    let database = Database::empty().await;
    let node = Server::serve(database.url()).await;
    let proxy = Proxy::start(node.address()).await;
    let edge = ready_edge(&format!("http://{}", proxy.address())).await;
    let (at_node, at_edge) = (Http::to(&node.url()), Http::to(&edge.url()));
    let old = card().skills(&[("summarize", &["text/plain"])]).url("https://old.example.com/a2a").build();
    let new = card().skills(&[("summarize-v2", &["text/plain"])]).url("https://new.example.com/a2a").build();
    at_node.put_card("acme/worker-7", "", &old).await.expect(201);
    at_edge.resolve("acme/worker-7", "?max_staleness=0&wait=10s").await.expect(200);

    proxy.cut().await;
    let cut_at = Instant::now();
    let silent = at_node.put_card("acme/worker-7", "", &new).await.expect(200).json();
    assert_eq!(silent["change"]["silent"], true, "the card's own version stayed the same");
    eventually(SOON, async || {
        let reply = at_edge.resolve("acme/worker-7", "?max_staleness=1500ms&wait=0").await;
        if reply.status == 503 { Ok(()) } else { Err(format!("{}", reply.status)) }
    })
    .await;

    // Refused at once, with the card that would have been served, and how old it may be.
    let asked = Instant::now();
    let refused =
        at_edge.resolve("acme/worker-7", "?max_staleness=1500ms&wait=0&skill=summarize").await.expect(503);
    let (took, refused) = (asked.elapsed(), refused.json());
    let age = cut_at.elapsed();
    assert!(took < Duration::from_millis(500), "{took:?}");
    assert_eq!(refused["reason"], "too_stale");
    assert_eq!(refused["card"]["url"], "https://old.example.com/a2a");
    let stated = Duration::from_millis(refused["freshness"]["staleness_ms"].as_u64().unwrap());
    assert!(stated + SLACK >= age.saturating_sub(took), "{stated:?} was told after {age:?}");
    assert!(stated <= age + Duration::from_secs(1), "{stated:?} is more than it can be after {age:?}");
    // With the default wait it asks first, and still refuses in time.
    let asked = Instant::now();
    at_edge.resolve("acme/worker-7", "?max_staleness=1500ms").await.expect(503);
    assert!(asked.elapsed() < Duration::from_secs(2), "{:?}", asked.elapsed());
    // What resolvers do by default: the skill is there, the endpoint answers nobody.
    let any = at_edge
        .resolve("acme/worker-7", "?max_staleness=any&wait=0&skill=summarize")
        .await
        .expect(200)
        .json();
    assert_eq!(any["card"]["url"], "https://old.example.com/a2a");

    let snapshots = metric(&at_edge, "cardfence_snapshots_taken_total").await;
    proxy.heal().await;
    let healed_at = Instant::now();
    let back = eventually(SOON, async || {
        let reply = at_edge.resolve("acme/worker-7", "?max_staleness=1500ms&wait=0").await;
        if reply.status == 200 { Ok(reply.json()) } else { Err(reply.json().to_string()) }
    })
    .await;
    assert_eq!(back["card"]["url"], "https://new.example.com/a2a");
    let reply = at_edge.resolve("acme/worker-7", "?skill=summarize&wait=10s").await.expect(412);
    assert_eq!(reply.json()["reason"], "skill_missing");
    assert_eq!(
        metric(&at_edge, "cardfence_snapshots_taken_total").await,
        snapshots,
        "it went on by position"
    );
    report(&format!(
        "edge cut off {age:?}: refused in {took:?}; back {:?} after the cut was mended",
        healed_at.elapsed()
    ));
}
