//! An asynchronous standby that lost the last entries is promoted, and nobody writes: the node serves the new
//! history or refuses; at no time is the lost card called fresh.

use std::time::{Duration, Instant};

use crate::support::cards::{Card, Shape};
use crate::support::eventually::eventually;
use crate::support::http::Http;
use crate::support::postgres::{Cluster, Settings, url_at};
use crate::support::proxy::Proxy;
use crate::support::report;
use crate::support::server::Server;

#[tokio::test(flavor = "multi_thread")]
async fn failover_that_lost_entries_is_noticed_without_a_write() {
    let primary = Cluster::start(Settings::default()).await;
    let database = primary.create_database().await;
    let standby = primary.standby("standby").await;
    let proxy = Proxy::start(primary.address()).await;
    let server = Server::serve(&url_at(proxy.address(), &database)).await;
    let http = Http::to(&server.url());
    let card = |version: &str| Card::new(Shape::V10, "split").version(version).build();

    let kept = http.put_card("acme/split", "", &card("1")).await.expect(201).json();
    standby.caught_up_with(&primary).await;
    standby.stop_receiving().await;
    let lost = http.put_card("acme/split", "", &card("2")).await.expect(200).json();
    let also_lost = http.put_card("acme/new", "", &card("1")).await.expect(201).json();
    http.resolve("acme/split", "?max_staleness=0&wait=10s").await.expect(200);

    primary.kill_9();
    let last_proof_at = Instant::now();
    standby.promote().await;
    proxy.retarget(standby.address()).await;

    // From here on, what is called linearizable is of the new history, and nothing lost is younger than the
    // moment the old primary was killed.
    let mut refused = 0;
    let mut bounded_old = 0;
    let until = Instant::now() + Duration::from_secs(60);
    let noticed = loop {
        assert!(Instant::now() < until, "the node did not notice within a minute");
        let bounded = http.resolve("acme/split", "?max_staleness=5s&wait=0").await;
        if bounded.status == 200 && bounded.json()["revision"] == 2 {
            let stated = Duration::from_millis(bounded.json()["freshness"]["staleness_ms"].as_u64().unwrap());
            let slack = Duration::from_millis(50);
            assert!(stated + slack >= last_proof_at.elapsed(), "the lost card is called {stated:?} old");
            bounded_old += 1;
        }
        let reply = http.resolve("acme/split", "?max_staleness=0&wait=200ms").await;
        match reply.status {
            200 => {
                assert_eq!(reply.json()["revision"], 1, "the lost card is called fresh");
                break last_proof_at.elapsed();
            }
            503 => {
                assert_eq!(reply.json()["reason"], "freshness_unverifiable", "{}", reply.json());
                refused += 1;
            }
            other => panic!("{other}: {}", reply.json()),
        }
    };
    // Nobody has written since. Lost positions are refused, kept ones pass, and what was lost is absent.
    let at = |json: &serde_json::Value| json["position"].as_str().unwrap().to_owned();
    for position in [at(&lost), at(&also_lost)] {
        let reply = http.resolve("acme/split", &format!("?at_least={position}&wait=5s")).await;
        let reason = reply.expect(409).json()["reason"].as_str().unwrap().to_owned();
        assert_eq!(reason, "position_in_future", "its number is not given again yet");
    }
    http.resolve("acme/split", &format!("?at_least={}&wait=5s", at(&kept))).await.expect(200);
    http.resolve("acme/new", "?wait=5s").await.expect(404);
    assert_eq!(
        http.get("/v1/agents/acme/split/revisions").await.expect(200).json()["items"]
            .as_array()
            .unwrap()
            .len(),
        1
    );

    // The same numbers are given again, to other entries: now the lost positions are of another history.
    let again = http.put_card("acme/split", "", &card("3")).await.expect(200).json();
    assert_eq!(again["revision"], 2);
    let reply = http.resolve("acme/split", &format!("?at_least={}&wait=5s", at(&lost))).await;
    assert_eq!(reply.expect(409).json()["reason"], "history_diverged");
    let reply = http.resolve("acme/split", &format!("?min_revision=2@{}&wait=5s", at(&lost))).await;
    assert_eq!(reply.expect(409).json()["reason"], "history_diverged");
    eventually(Duration::from_secs(5), async || {
        let metrics = String::from_utf8(http.get("/metrics").await.expect(200).body.to_vec()).unwrap();
        let reloads = metrics.lines().find(|line| line.starts_with("cardfence_reloads_total"));
        if reloads == Some("cardfence_reloads_total 1") { Ok(()) } else { Err(format!("{reloads:?}")) }
    })
    .await;
    report(&format!(
        "failover without a write: {refused} linearizable reads refused, {bounded_old} bounded ones honest about their age, the new history served after {} ms",
        noticed.as_millis()
    ));
}
