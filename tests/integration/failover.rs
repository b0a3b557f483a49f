//! A standby is promoted: behind an address that is re-pointed, and found by the nodes' own list of databases, with
//! and without lost entries, with and without a write afterwards. What survived is served, what was lost is refused,
//! and at no time is a lost card called fresh.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::load::{Acked, Record, write};
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

/// How long a lost position may take to be refused, counted from when the new primary takes writes.
const NOTICED_WITHIN: Duration = Duration::from_secs(2);

/// What happens to a primary under load from two nodes that know both databases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Replication {
    /// The standby lacks the last entries; whether anybody writes to it once it is promoted.
    Asynchronous {
        writes_go_on: bool,
    },
    Synchronous,
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_find_the_new_primary_by_their_list_and_refuse_what_was_lost() {
    fail_over(Replication::Asynchronous { writes_go_on: true }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_refuse_what_was_lost_also_when_nobody_writes_afterwards() {
    fail_over(Replication::Asynchronous { writes_go_on: false }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_synchronous_replication_no_acknowledged_write_is_lost() {
    fail_over(Replication::Synchronous).await;
}

async fn fail_over(replication: Replication) {
    let primary = Cluster::start(Settings::default()).await;
    let database = primary.create_database().await;
    let standby = primary.standby("standby").await;
    if replication == Replication::Synchronous {
        primary.set("synchronous_standby_names", "standby").await;
        eventually(Duration::from_secs(10), async || {
            let state = primary.ask("SELECT string_agg(sync_state, ',') FROM pg_stat_replication").await;
            if state == "sync" { Ok(()) } else { Err(state) }
        })
        .await;
    }
    let store = format!("{},{}", primary.url(&database), standby.url(&database));
    let servers = [Server::serve(&store).await, Server::serve(&store).await];
    let nodes = servers.each_ref().map(|server| Http::to(&server.url()));
    let record = Arc::new(Record::default());
    let writers: Vec<_> = (0..4)
        .map(|n| {
            let base = servers[n % 2].url();
            tokio::spawn(write(Arc::clone(&record), format!("acme/w{n}"), "load".to_owned(), move || {
                base.clone()
            }))
        })
        .collect();
    more_writes(&record, 40).await;
    standby.caught_up_with(&primary).await;
    if replication != Replication::Synchronous {
        standby.stop_receiving().await;
    }
    more_writes(&record, 40).await;
    let mut writing = Some(writers);
    if replication == (Replication::Asynchronous { writes_go_on: false }) {
        stop(&record, writing.take()).await;
    }
    primary.kill_9();
    standby.promote().await;
    let promoted_at = Instant::now();
    let noticed = noticed(&record, &standby, &database, &nodes, promoted_at).await;
    let mut written_again = None;
    if writing.is_some() {
        // The load goes on at the new primary, with nobody re-pointing anything.
        more_writes(&record, 20).await;
        written_again = Some(promoted_at.elapsed());
    }
    let lost = judge(&record, &standby, &database, &nodes).await;
    stop(&record, writing).await;
    assert_eq!(lost == 0, replication == Replication::Synchronous, "{lost} were lost");
    assert!(noticed < NOTICED_WITHIN, "a lost position was refused {noticed:?} after the promotion");
    report(&format!(
        "{replication:?}: {lost} lost, refused within {noticed:?} of the promotion, 20 more writes after {written_again:?}"
    ));
}

async fn more_writes(record: &Record, more: usize) {
    let wanted = record.count() + more;
    eventually(Duration::from_secs(60), async || {
        let count = record.count();
        if count >= wanted { Ok(()) } else { Err(format!("{count} of {wanted} acknowledged")) }
    })
    .await;
}

async fn stop(record: &Record, writers: Option<Vec<tokio::task::JoinHandle<()>>>) {
    record.stop.store(true, Ordering::Release);
    for writer in writers.into_iter().flatten() {
        writer.await.unwrap();
    }
}

/// The positions that a database holds.
async fn positions(cluster: &Cluster, database: &str) -> BTreeSet<String> {
    let mut connection = cluster.connect(database).await.unwrap();
    let query = "SELECT seq || '.' || left(encode(digest, 'hex'), 16) FROM entry";
    sqlx::query_scalar(query).fetch_all(&mut connection).await.unwrap().into_iter().collect()
}

/// What was acknowledged so far, and whether `promoted` holds it.
async fn acknowledged(record: &Record, promoted: &Cluster, database: &str) -> Vec<(String, Acked, bool)> {
    let all: Vec<(String, Acked)> = {
        let all = record.acked.lock().unwrap();
        all.iter().flat_map(|(agent, all)| all.iter().map(|acked| (agent.clone(), acked.clone()))).collect()
    };
    let held = positions(promoted, database).await;
    all.into_iter()
        .map(|(agent, acked)| {
            let kept = held.contains(&acked.position);
            (agent, acked, kept)
        })
        .collect()
}

/// How long after the promotion every node has refused a lost position; none calls it linearizable before.
async fn noticed(
    record: &Record,
    promoted: &Cluster,
    database: &str,
    nodes: &[Http],
    promoted_at: Instant,
) -> Duration {
    let all = acknowledged(record, promoted, database).await;
    let Some((agent, lost, _)) = all.into_iter().find(|(_, _, kept)| !kept) else { return Duration::ZERO };
    let refused = nodes.iter().map(async |http| {
        let query = format!("?at_least={}&max_staleness=0&wait=100ms", lost.position);
        eventually(Duration::from_secs(10), async || {
            let reply = http.resolve(&agent, &query).await;
            match reply.status {
                409 => Ok(promoted_at.elapsed()),
                503 => Err(reply.json().to_string()),
                other => panic!("{other}: lost {} passes: {}", lost.position, reply.json()),
            }
        })
        .await
    });
    futures::future::join_all(refused).await.into_iter().max().unwrap_or_default()
}

/// Holds what the nodes say of every acknowledged write against what the new primary holds. How many were lost.
async fn judge(record: &Record, promoted: &Cluster, database: &str, nodes: &[Http]) -> usize {
    let all = acknowledged(record, promoted, database).await;
    let mut lost = 0;
    for (agent, acked, kept) in &all {
        lost += usize::from(!kept);
        for http in nodes {
            for bound in ["0", "5s", "any"] {
                let query = format!("?at_least={}&max_staleness={bound}&wait=5s", acked.position);
                let reply = http.resolve(agent, &query).await;
                let json = reply.json();
                if *kept {
                    assert!(
                        reply.status == 200 && json["revision"].as_u64() >= Some(acked.revision),
                        "{json}"
                    );
                } else {
                    let reason = json["reason"].as_str().unwrap_or_default();
                    let refused = matches!(reason, "history_diverged" | "position_in_future");
                    assert!(reply.status == 409 && refused, "lost {}: {json}", acked.position);
                }
            }
        }
    }
    lost
}

#[tokio::test(flavor = "multi_thread")]
async fn primary_that_hangs_is_passed_over_for_the_next_in_the_list() {
    let primary = Cluster::start(Settings::default()).await;
    let database = primary.create_database().await;
    let standby = primary.standby("standby").await;
    let server = Server::serve(&format!("{},{}", primary.url(&database), standby.url(&database))).await;
    let http = Http::to(&server.url());
    let card = |version: &str| Card::new(Shape::V10, "hung").version(version).build();
    http.put_card("acme/hung", "", &card("1")).await.expect(201);
    standby.caught_up_with(&primary).await;
    primary.freeze();
    let hung_at = Instant::now();
    standby.promote().await;
    let read = eventually(Duration::from_secs(20), async || {
        let reply = http.resolve("acme/hung", "?max_staleness=0&wait=10s").await;
        if reply.status == 200 { Ok(hung_at.elapsed()) } else { Err(reply.json().to_string()) }
    })
    .await;
    // A write that was sent to the hung one is done again at the new one.
    let written = eventually(Duration::from_secs(20), async || {
        let reply = http.put_card("acme/hung", "", &card("2")).await;
        if reply.status == 200 { Ok(hung_at.elapsed()) } else { Err(reply.json().to_string()) }
    })
    .await;
    // Thawed, it would take writes again; no session goes back to it.
    primary.thaw();
    let position = http.resolve("acme/hung", "?max_staleness=0&wait=10s").await.expect(200).json();
    assert_eq!((&position["revision"], &position["card"]["version"]), (&2.into(), &"2".into()));
    assert_eq!(http.metric("cardfence_reloads_total").await, 0.0);
    report(&format!("primary hangs: linearizable again after {read:?}, written again after {written:?}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn good_position_does_not_pass_at_a_node_that_follows_the_old_primary() {
    let primary = Cluster::start(Settings::default()).await;
    let database = primary.create_database().await;
    let old = Server::serve(&primary.url(&database)).await;
    let old = (Http::to(&old.url()), old);
    let standby = primary.standby("standby").await;
    let card = |version: &str| Card::new(Shape::V10, "split").version(version).build();
    let common = old.0.put_card("acme/split", "", &card("1")).await.expect(201).json();
    standby.caught_up_with(&primary).await;
    standby.stop_receiving().await;
    // Nobody has put the old primary down: both take writes.
    standby.promote().await;
    let new = Server::serve(&standby.url(&database)).await;
    let new = (Http::to(&new.url()), new);
    let at = |json: &serde_json::Value| json["position"].as_str().unwrap().to_owned();
    let beyond = at(&new.0.put_card("acme/split", "", &card("2")).await.expect(200).json());
    let reason = async |http: &Http, position: &str| {
        for bound in ["0", "5s", "any"] {
            let query = format!("?at_least={position}&max_staleness={bound}&wait=0");
            let refused = http.resolve("acme/split", &query).await;
            assert!(matches!(refused.status, 409 | 503), "{position} passes: {}", refused.json());
        }
        let refused = http.resolve("acme/split", &format!("?at_least={position}&wait=5s")).await;
        refused.expect(409).json()["reason"].as_str().unwrap().to_owned()
    };
    assert_eq!(reason(&old.0, &beyond).await, "position_in_future");
    let other = at(&old.0.put_card("acme/split", "", &card("3")).await.expect(200).json());
    assert_eq!(reason(&old.0, &beyond).await, "history_diverged");
    assert_eq!(reason(&new.0, &other).await, "history_diverged");
    for http in [&old.0, &new.0] {
        http.resolve("acme/split", &format!("?at_least={}&max_staleness=0&wait=5s", at(&common)))
            .await
            .expect(200);
    }
}
