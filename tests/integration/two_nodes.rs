//! Two nodes on one PostgreSQL: one history, and linearizable reads on either never miss an acknowledged write.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::load::{Record, nothing_is_missing, put, verified, write};
use crate::support::cards::{Card, Shape};
use crate::support::eventually::eventually;
use crate::support::http::Http;
use crate::support::postgres::Database;
use crate::support::report;
use crate::support::server::Server;

const CHECKED_FOR: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread")]
async fn card_registered_through_one_node_is_resolved_through_the_other() {
    let database = Database::empty().await;
    let (one, two) = (Server::serve(database.url()).await, Server::serve(database.url()).await);
    let card = Card::new(Shape::V10, "peer").build();
    Http::to(&one.url()).put_card("acme/peer", "", &card).await.expect(201);
    // Linearizable: at once. Bounded: within its bound, which the next poll keeps well.
    let at_once = Http::to(&two.url()).resolve("acme/peer", "?max_staleness=0&wait=10s").await.expect(200);
    assert_eq!(at_once.json()["revision"], 1);
    let bounded = Http::to(&two.url()).resolve("acme/peer", "?max_staleness=5s&wait=0").await.expect(200);
    assert!(bounded.json()["freshness"]["staleness_ms"].as_u64().unwrap() <= 5_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn linearizable_reads_on_either_node_never_miss_an_acknowledged_write() {
    let database = Database::empty().await;
    let nodes = [Server::serve(database.url()).await, Server::serve(database.url()).await];
    let urls: Vec<String> = nodes.iter().map(Server::url).collect();
    let record = Arc::new(Record::default());
    let writers: Vec<_> = (0..8)
        .map(|n| {
            let url = urls[n % 2].clone();
            tokio::spawn(write(
                Arc::clone(&record),
                format!("two/agent-{}", n / 2),
                format!("w{n}"),
                move || url.clone(),
            ))
        })
        .collect();
    let reads = Arc::new(AtomicU64::new(0));
    let until = Instant::now() + CHECKED_FOR;
    let readers: Vec<_> = (0..4)
        .map(|n| {
            let (record, reads, http) = (Arc::clone(&record), Arc::clone(&reads), Http::to(&urls[n % 2]));
            tokio::spawn(async move {
                let mut turn = n;
                while Instant::now() < until {
                    turn += 1;
                    let agent = format!("two/agent-{}", turn % 4);
                    let floor = newest(&record, &agent);
                    let reply = http.resolve(&agent, "?max_staleness=0&wait=10s").await;
                    if floor == 0 && reply.status == 404 {
                        continue;
                    }
                    let found = reply.expect(200).json()["revision"].as_u64().unwrap();
                    assert!(found >= floor, "{agent}: {found} was read after {floor} was acknowledged");
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for reader in readers {
        reader.await.unwrap();
    }
    record.stop.store(true, Ordering::Release);
    for writer in writers {
        writer.await.unwrap();
    }
    let entries = verified(&Http::to(&urls[0])).await;
    nothing_is_missing(&entries, &record);
    assert_eq!(entries.len(), record.count());
    let reads = reads.load(Ordering::Relaxed);
    assert!(reads > 100, "{reads} reads");
    report(&format!(
        "two nodes, {} s: {} acknowledged writes on both, {reads} linearizable reads, none missed one",
        CHECKED_FOR.as_secs(),
        record.count()
    ));
}

/// The newest revision of an agent that was acknowledged so far.
fn newest(record: &Record, agent: &str) -> u64 {
    let acked = record.acked.lock().unwrap();
    acked.get(agent).into_iter().flatten().map(|acked| acked.revision).max().unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn frozen_writer_does_not_hold_the_others_up() {
    let database = Database::empty().await;
    let (frozen, other) = (Server::serve(database.url()).await, Server::serve(database.url()).await);
    let record = Arc::new(Record::default());
    let base = Arc::new(Mutex::new(frozen.url()));
    let writers: Vec<_> = (0..16)
        .map(|n| {
            let base = Arc::clone(&base);
            tokio::spawn(write(Arc::clone(&record), format!("cold/agent-{n}"), format!("w{n}"), move || {
                base.lock().unwrap().clone()
            }))
        })
        .collect();
    let watched = sqlx_connect(database.url()).await;
    let mut inside = 0;
    let mut slowest = Duration::ZERO;
    for round in 0..12 {
        // Under this load a moment inside a transaction is not rare; whether it was one is looked up.
        tokio::time::sleep(Duration::from_millis(150 + round * 17)).await;
        frozen.freeze().await;
        if holds_the_lock(&watched).await {
            inside += 1;
        }
        let began = Instant::now();
        let card = Card::new(Shape::V10, "warm").version(&round.to_string()).build();
        eventually(Duration::from_secs(3), async || {
            match put(&Http::to(&other.url()), "warm/agent", &card, &format!("warm-{round}")).await {
                Ok(reply) if matches!(reply.status, 200 | 201) => Ok(()),
                Ok(reply) => Err(format!("{}: {}", reply.status, String::from_utf8_lossy(&reply.body))),
                Err(failure) => Err(failure),
            }
        })
        .await;
        slowest = slowest.max(began.elapsed());
        frozen.thaw();
    }
    record.stop.store(true, Ordering::Release);
    for writer in writers {
        tokio::time::timeout(Duration::from_secs(60), writer).await.expect("a writer ends").unwrap();
    }
    let mut entries = verified(&Http::to(&other.url())).await;
    entries.retain(|entry| entry["body"]["subject"] != "warm/agent");
    nothing_is_missing(&entries, &record);
    assert_eq!(
        entries.len(),
        record.count(),
        "nothing of a frozen batch is half done, and nothing is done twice"
    );
    report(&format!(
        "12 freezes, {inside} of them while the frozen node held the lock: the other node's write took {} ms at most",
        slowest.as_millis()
    ));
    assert!(inside > 0, "no freeze fell into a transaction, so nothing was shown");
}

async fn sqlx_connect(url: &str) -> tokio::sync::Mutex<sqlx::PgConnection> {
    use sqlx::Connection as _;
    tokio::sync::Mutex::new(sqlx::PgConnection::connect(url).await.unwrap())
}

/// Whether a session of this database holds an advisory lock, and goes on holding it.
async fn holds_the_lock(watched: &tokio::sync::Mutex<sqlx::PgConnection>) -> bool {
    let query = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted \
                 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    let mut connection = watched.lock().await;
    // What the server was still doing when the node froze is over after this.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let held: i64 = sqlx::query_scalar(query).fetch_one(&mut *connection).await.unwrap();
    held > 0
}
