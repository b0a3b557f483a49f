//! Nodes over a standby: reads come from it, freshness from its primary, and neither is taken for the other.

use std::cell::Cell;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::cards::{Card, Shape};
use crate::support::eventually::{eventually, throughout};
use crate::support::http::{Http, Reply};
use crate::support::postgres::{Cluster, Settings, url_at};
use crate::support::proxy::Proxy;
use crate::support::report;
use crate::support::server::Server;

const SOON: Duration = Duration::from_secs(10);

/// A primary with a node, a standby with a node, and a proxy between the standby's node and the primary.
struct World {
    primary: Cluster,
    standby: Cluster,
    database: String,
    authority: Proxy,
    /// Kept alive.
    _servers: [Server; 2],
    at_primary: Http,
    at_standby: Http,
}

async fn world() -> World {
    let primary = Cluster::start(Settings::default()).await;
    let database = primary.create_database().await;
    let first = Server::serve(&primary.url(&database)).await;
    let standby = primary.standby("standby").await;
    standby.caught_up_with(&primary).await;
    let authority = Proxy::start(primary.address()).await;
    let second = Server::standby(&standby.url(&database), &url_at(authority.address(), &database)).await;
    let (at_primary, at_standby) = (Http::to(&first.url()), Http::to(&second.url()));
    at_primary.until_ready().await;
    at_standby.until_ready().await;
    World { primary, standby, database, authority, _servers: [first, second], at_primary, at_standby }
}

fn card(version: &str, skill: &str, url: &str) -> String {
    Card::new(Shape::V10, "worker").version(version).skills(&[(skill, &["text/plain"])]).url(url).build()
}

fn staleness(json: &Value) -> Option<Duration> {
    json["freshness"]["staleness_ms"].as_u64().map(Duration::from_millis)
}

fn reason(reply: &Reply) -> String {
    reply.json()["reason"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn standby_with_paused_replay_is_refused_with_its_true_bound_and_any_shows_the_old_card() {
    let w = world().await;
    let old = card("1.0.0", "summarize-v2", "https://old.example.com/rpc");
    w.at_primary.put_card("acme/worker", "", &old).await.expect(201);
    w.at_standby.resolve("acme/worker", "?max_staleness=0&wait=10s").await.expect(200);
    w.standby.pause_replay().await;
    // Nothing was written since: an idle standby is fresh, however long ago its last entry is.
    w.at_standby.resolve("acme/worker", "?max_staleness=0&wait=10s").await.expect(200);

    let new = card("1.1.0", "summarize-v3", "https://new.example.com/rpc");
    let deployed = w.at_primary.put_card("acme/worker", "", &new).await.expect(200).json();
    let acknowledged_at = Instant::now();
    let honest = Cell::new(0);
    let refused = eventually(SOON, async || {
        let reply = w.at_standby.resolve("acme/worker", "?max_staleness=500ms&wait=0").await;
        let stated = staleness(&reply.json());
        let least = acknowledged_at.elapsed();
        match reply.status {
            503 => Ok(reply),
            200 => {
                honest.set(honest.get() + 1);
                Err(format!("passes, {stated:?} old, {least:?} after the deploy"))
            }
            other => Err(format!("{other}: {}", reply.json())),
        }
    })
    .await;
    let asked_at = Instant::now();
    let refused_json = refused.json();
    assert_eq!(reason(&refused), "too_stale");
    assert_eq!(refused_json["revision"], 1);
    assert_eq!(refused_json["card"]["version"], "1.0.0", "the stale card is attached");

    // The bound is true at every moment: the card in hand was out of date from the deploy on.
    throughout(Duration::from_millis(500), async || {
        let before = acknowledged_at.elapsed();
        let reply = w.at_standby.resolve("acme/worker", "?max_staleness=500ms&wait=0").await;
        match (reply.status, staleness(&reply.json())) {
            (503, Some(stated)) if stated + Duration::from_millis(1) >= before => Ok(()),
            (status, stated) => Err(format!("{status}: {stated:?} old, {before:?} after the deploy")),
        }
    })
    .await;
    let at_once = Instant::now();
    w.at_standby.resolve("acme/worker", "?max_staleness=500ms&wait=0").await.expect(503);
    let at_once = at_once.elapsed();

    // With the default wait of a second the refusal comes within it.
    let waited = Instant::now();
    let refused = w.at_standby.resolve("acme/worker", "?max_staleness=500ms").await;
    let waited = waited.elapsed();
    assert_eq!((refused.status, reason(&refused).as_str()), (503, "freshness_unverifiable"));
    assert!(waited < Duration::from_millis(1_900), "it took {waited:?}");
    // What a resolver that asks for nothing would have been given.
    let any = w.at_standby.resolve("acme/worker", "?max_staleness=any").await.expect(200).json();
    assert_eq!(any["card"]["skills"][0]["id"], "summarize-v2");
    assert_eq!(any["card"]["supportedInterfaces"][0]["url"], "https://old.example.com/rpc");
    // A position of the new card is not there yet, and that is no other history.
    let at = deployed["position"].as_str().unwrap();
    let beyond =
        w.at_standby.resolve("acme/worker", &format!("?max_staleness=any&at_least={at}&wait=0")).await;
    assert_eq!((beyond.status, reason(&beyond).as_str()), (503, "position_not_reached"));

    w.standby.resume_replay().await;
    let fresh = w.at_standby.resolve("acme/worker", "?max_staleness=500ms&wait=10s").await.expect(200).json();
    assert_eq!(fresh["card"]["skills"][0]["id"], "summarize-v3");
    assert_eq!(fresh["freshness"]["basis"], "authority");
    assert_eq!(w.at_standby.metric("cardfence_reloads_total").await, 0.0);
    report(&format!(
        "paused replay: {} answers within the bound, refused {:?} after the deploy, at once in {at_once:?}, with the default wait in {waited:?}",
        honest.get(),
        asked_at - acknowledged_at
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn linearizable_read_of_a_standby_sees_what_was_acknowledged_at_the_primary() {
    let w = world().await;
    assert_eq!(w.at_standby.get("/v1/watermark").await.expect(200).json()["role"], "standby");
    let mut longest = Duration::ZERO;
    for n in 1..=40 {
        let written = card(&format!("{n}.0.0"), "s", "https://a.example.com/rpc");
        w.at_primary.put_card("acme/worker", "", &written).await;
        let asked = Instant::now();
        let read = w.at_standby.resolve("acme/worker", "?max_staleness=0&wait=10s").await.expect(200);
        longest = longest.max(asked.elapsed());
        assert_eq!(read.json()["revision"], n);
    }
    // A write through the standby's node goes to the primary, and its own answer waits for its own view.
    let through = card("41.0.0", "s", "https://a.example.com/rpc");
    let written = w.at_standby.put_card("acme/worker", "", &through).await.expect(200).json();
    let at = written["position"].as_str().unwrap();
    let read = w.at_standby.resolve("acme/worker", &format!("?at_least={at}&max_staleness=any&wait=0")).await;
    assert_eq!(read.expect(200).json()["revision"], 41);
    let read = w.at_primary.resolve("acme/worker", "?max_staleness=0&wait=10s").await.expect(200);
    assert_eq!(read.json()["revision"], 41);
    eventually(SOON, async || {
        let reply = w.at_standby.get("/v1/agents/acme/worker/revisions").await;
        match reply.status {
            200 if reply.json()["items"].as_array().unwrap().len() == 41 => Ok(()),
            other => Err(format!("{other}: the standby has not replayed what the view has")),
        }
    })
    .await;
    report(&format!("40 linearizable reads of a standby node, each after a write: at most {longest:?}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_authority_a_standby_is_unverifiable_and_says_so() {
    let w = world().await;
    w.at_primary.put_card("acme/worker", "", &card("1", "s", "https://a.example.com/rpc")).await.expect(201);
    w.at_standby.resolve("acme/worker", "?max_staleness=0&wait=10s").await.expect(200);
    w.authority.cut().await;
    let refused = eventually(SOON, async || {
        let reply = w.at_standby.resolve("acme/worker", "?max_staleness=200ms&wait=100ms").await;
        if reply.status == 503 { Ok(reply) } else { Err(format!("{}", reply.status)) }
    })
    .await;
    assert_eq!(reason(&refused), "freshness_unverifiable");

    // The replay goes on, and what it brings is shown as what it is.
    w.at_primary.put_card("acme/worker", "", &card("2", "s", "https://a.example.com/rpc")).await.expect(200);
    let moved = eventually(SOON, async || {
        let any = w.at_standby.resolve("acme/worker", "?max_staleness=any").await.expect(200).json();
        if any["revision"] == 2 { Ok(any) } else { Err(format!("revision {}", any["revision"])) }
    })
    .await;
    assert!(staleness(&moved).unwrap() > Duration::from_millis(200), "{moved}");
    let new = card("1", "s", "https://a.example.com/rpc");
    let written = w.at_standby.put_card("acme/new", "", &new).await;
    assert_eq!((written.status, reason(&written).as_str()), (503, "store_unavailable"));

    // One that starts without its authority has proven nothing at all.
    let authority = url_at(w.authority.address(), &w.database);
    let started = Server::standby(&w.standby.url(&w.database), &authority).await;
    let http = Http::to(&started.url());
    let any = eventually(SOON, async || {
        let reply = http.resolve("acme/worker", "?max_staleness=any&wait=0").await;
        if reply.status == 200 { Ok(reply.json()) } else { Err(reply.json().to_string()) }
    })
    .await;
    assert_eq!((staleness(&any), &any["freshness"]["basis"]), (None, &Value::from("unproven")));
    assert_eq!(any["revision"], 2);
    http.get("/readyz").await.expect(503);
    for query in ["?wait=100ms", "?max_staleness=10d&wait=0"] {
        let reply = http.resolve("acme/worker", query).await.expect(503);
        assert_eq!(reason(&reply), "freshness_unverifiable");
    }
    let absent = http.resolve("acme/nobody", "?max_staleness=any&wait=100ms").await.expect(503);
    assert_eq!(reason(&absent), "freshness_unverifiable", "not found is not said before the first proof");

    w.authority.heal().await;
    for http in [&http, &w.at_standby] {
        http.resolve("acme/worker", "?max_staleness=0&wait=10s").await.expect(200);
        http.resolve("acme/nobody", "?max_staleness=any&wait=10s").await.expect(404);
        assert_eq!(http.metric("cardfence_reloads_total").await, 0.0);
    }
    http.get("/readyz").await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn commit_that_a_standby_shows_before_its_primary_is_no_other_history() {
    let w = world().await;
    w.at_primary.put_card("acme/worker", "", &card("1", "s", "https://a.example.com/rpc")).await.expect(201);
    w.at_standby.resolve("acme/worker", "?max_staleness=0&wait=10s").await.expect(200);
    // The primary shows a commit when another standby has it, which stands still.
    let synchronous = w.primary.standby("synchronous").await;
    w.primary.set("synchronous_standby_names", "synchronous").await;
    eventually(SOON, async || {
        let state = "SELECT coalesce(string_agg(sync_state, ','), '') FROM pg_stat_replication \
                     WHERE application_name = 'synchronous'";
        let state = w.primary.ask(state).await;
        if state == "sync" { Ok(()) } else { Err(state) }
    })
    .await;
    for authority_away in [false, true] {
        let before =
            w.at_standby.resolve("acme/worker", "?max_staleness=0&wait=10s").await.expect(200).json();
        let before = before["revision"].as_u64().unwrap();
        synchronous.freeze();
        let version = format!("{}", before + 1);
        let next = card(&version, "s", "https://a.example.com/rpc");
        let http = w.at_primary.clone();
        let write = tokio::spawn(async move { http.put_card("acme/worker", "", &next).await });
        if authority_away {
            w.authority.cut().await;
            // Without the authority the node shows what the standby shows.
            eventually(SOON, async || {
                let any = w.at_standby.resolve("acme/worker", "?max_staleness=any").await.expect(200).json();
                if any["revision"] == before + 1 { Ok(()) } else { Err(any["revision"].to_string()) }
            })
            .await;
            w.authority.heal().await;
        } else {
            shown_by(&w.standby, &w.database, before + 1).await;
        }
        let served = Cell::new(0);
        throughout(Duration::from_millis(700), async || {
            let reply = w.at_standby.resolve("acme/worker", "?max_staleness=0&wait=200ms").await;
            match (reply.status, reply.json()["revision"].as_u64()) {
                (200, Some(revision)) if revision == before => {
                    served.set(served.get() + 1);
                    Ok(())
                }
                (503, _) if authority_away => Ok(()),
                (status, revision) => {
                    Err(format!("{status}: revision {revision:?} of {before} acknowledged"))
                }
            }
        })
        .await;
        assert!(authority_away || served.get() > 0);
        synchronous.thaw();
        write.await.unwrap().expect(200);
        let after = w.at_standby.resolve("acme/worker", "?max_staleness=0&wait=10s").await.expect(200).json();
        assert_eq!(after["revision"], before + 1);
        assert_eq!(w.at_standby.metric("cardfence_reloads_total").await, 0.0);
    }
}

/// Waits until the database itself shows so many entries.
async fn shown_by(cluster: &Cluster, database: &str, entries: u64) {
    eventually(SOON, async || {
        let mut connection = cluster.connect(database).await.map_err(|error| error.to_string())?;
        let count: i64 = sqlx::query_scalar("SELECT count(*) FROM entry")
            .fetch_one(&mut connection)
            .await
            .map_err(|error| error.to_string())?;
        if count == i64::try_from(entries).unwrap() { Ok(()) } else { Err(format!("{count} entries")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn restore_from_a_backup_is_noticed_by_nodes_and_standbys_without_a_write() {
    let w = world().await;
    let put = async |version: &str| {
        let card = card(version, "s", "https://a.example.com/rpc");
        w.at_primary.put_card("acme/worker", "", &card).await.json()["position"].as_str().unwrap().to_owned()
    };
    let kept = put("1").await;
    let lost = [put("2").await, put("3").await];
    for http in [&w.at_primary, &w.at_standby] {
        let read = http.resolve("acme/worker", "?max_staleness=0&wait=10s").await.expect(200);
        assert_eq!(read.json()["revision"], 3);
    }
    // The older state appears in place: no session ends by it.
    let mut connection = w.primary.connect(&w.database).await.unwrap();
    let restore = "BEGIN; DELETE FROM request; DELETE FROM revision WHERE seq > 1; \
                   DELETE FROM entry WHERE seq > 1; COMMIT";
    sqlx::raw_sql(restore).execute(&mut connection).await.unwrap();
    let restored_at = Instant::now();
    let mut noticed = Vec::new();
    for http in [&w.at_primary, &w.at_standby] {
        eventually(SOON, async || {
            let reply = http.resolve("acme/worker", "?max_staleness=0&wait=200ms").await;
            match (reply.status, reply.json()["revision"].as_u64()) {
                (200, Some(1)) => Ok(()),
                (503, _) => Err(reply.json().to_string()),
                (status, revision) => panic!("{status}: revision {revision:?} is called fresh"),
            }
        })
        .await;
        noticed.push(restored_at.elapsed());
        for position in &lost {
            let reply = http.resolve("acme/worker", &format!("?at_least={position}&wait=5s")).await;
            assert_eq!(reason(&reply.expect(409)), "position_in_future");
        }
        http.resolve("acme/worker", &format!("?at_least={kept}&wait=5s")).await.expect(200);
        assert_eq!(http.metric("cardfence_reloads_total").await, 1.0);
    }
    report(&format!("restore in place: noticed and served anew after {noticed:?} (node, standby node)"));
}

#[tokio::test(flavor = "multi_thread")]
async fn standby_that_keeps_a_lost_history_is_never_fresh_and_recovers_when_it_is_rebuilt() {
    let w = world().await;
    let other = w.primary.standby("other").await;
    w.at_primary.put_card("acme/worker", "", &card("1", "s", "https://a.example.com/rpc")).await.expect(201);
    other.caught_up_with(&w.primary).await;
    other.stop_receiving().await;
    let lost =
        w.at_primary.put_card("acme/worker", "", &card("2", "lost", "https://a.example.com/rpc")).await;
    let lost = lost.expect(200).json()["position"].as_str().unwrap().to_owned();
    w.at_standby.resolve("acme/worker", "?max_staleness=0&wait=10s").await.expect(200);
    // The other standby becomes the primary, and goes on; the node's own standby keeps what was lost.
    other.promote().await;
    w.authority.retarget(other.address()).await;
    let at_other = Server::serve(&other.url(&w.database)).await;
    let at_other = Http::to(&at_other.url());
    at_other.until_ready().await;
    at_other.put_card("acme/worker", "", &card("3", "kept", "https://a.example.com/rpc")).await.expect(200);
    throughout(Duration::from_secs(4), async || {
        let reply = w.at_standby.resolve("acme/worker", "?max_staleness=0&wait=100ms").await;
        let query = format!("?at_least={lost}&max_staleness=0&wait=0");
        let position = w.at_standby.resolve("acme/worker", &query).await;
        match (reply.status, position.status) {
            (503, 503 | 409) => Ok(()),
            passed => Err(format!("{passed:?}: what was lost is called fresh")),
        }
    })
    .await;
    let reloads = w.at_standby.metric("cardfence_reloads_total").await;
    assert!((1.0..8.0).contains(&reloads), "{reloads} reloads in four seconds");
    w.at_standby.resolve("acme/worker", "?max_staleness=any").await.expect(200);
    // Rebuilt from the new primary: here, what it lost is taken out in the old one's place.
    let mut connection = w.primary.connect(&w.database).await.unwrap();
    let rewind = "BEGIN; DELETE FROM request; DELETE FROM revision WHERE seq > 1; \
                  DELETE FROM entry WHERE seq > 1; COMMIT";
    sqlx::raw_sql(rewind).execute(&mut connection).await.unwrap();
    let mut from = other.connect(&w.database).await.unwrap();
    for table in ["entry", "revision"] {
        copy(&mut from, &mut connection, table).await;
    }
    let fresh = w.at_standby.resolve("acme/worker", "?max_staleness=0&wait=10s").await.expect(200).json();
    assert_eq!(fresh["card"]["skills"][0]["id"], "kept");
}

/// Copies the rows of the second entry.
async fn copy(from: &mut sqlx::PgConnection, to: &mut sqlx::PgConnection, table: &'static str) {
    let select = format!("SELECT row_to_json(t)::text FROM {table} t WHERE seq = 2");
    let row: String =
        sqlx::query_scalar(sqlx::AssertSqlSafe(select)).fetch_one(from).await.expect("the entry is there");
    let insert = format!("INSERT INTO {table} SELECT * FROM json_populate_record(NULL::{table}, $1::json)");
    sqlx::query(sqlx::AssertSqlSafe(insert)).bind(row).execute(to).await.expect("it fits");
}
