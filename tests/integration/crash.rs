//! `kill -9` at random moments while writers register: nothing that was acknowledged is lost, nothing is done
//! twice, the chain verifies and is dense.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::load::{Record, nothing_is_missing, verified, write};
use crate::support::eventually::eventually;
use crate::support::http::Http;
use crate::support::postgres::{Cluster, Database, Settings};
use crate::support::report;
use crate::support::scratch::Scratch;
use crate::support::server::Server;

const ROUNDS: usize = 20;
const POSTMASTER_ROUNDS: usize = 10;
const WRITERS: usize = 16;

#[tokio::test(flavor = "multi_thread")]
async fn killed_server_on_sqlite_loses_nothing_acknowledged() {
    let scratch = Scratch::on_disk("crash-sqlite");
    let store = format!("sqlite:{}", scratch.path().join("cards.db").display());
    kill_the_server(&store, "SQLite").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_server_on_postgres_loses_nothing_acknowledged() {
    let database = Database::empty().await;
    kill_the_server(database.url(), "PostgreSQL").await;
}

/// Sixteen writers, each with an agent of its own, and one pair that shares one.
fn start_writers(record: &Arc<Record>, base: &Arc<Mutex<String>>) -> Vec<tokio::task::JoinHandle<()>> {
    (0..WRITERS)
        .map(|n| {
            let agent = format!("crash/agent-{}", n.min(WRITERS - 2));
            let base = Arc::clone(base);
            tokio::spawn(write(Arc::clone(record), agent, format!("w{n}"), move || {
                base.lock().unwrap().clone()
            }))
        })
        .collect()
}

/// A moment that differs from round to round, the same in each run.
fn moment(round: usize) -> Duration {
    Duration::from_millis(40 + (round as u64 * 7919) % 400)
}

async fn kill_the_server(store: &str, name: &str) {
    let record = Arc::new(Record::default());
    let server = Server::serve(store).await;
    let base = Arc::new(Mutex::new(server.url()));
    let writers = start_writers(&record, &base);
    let mut server = server;
    for round in 0..ROUNDS {
        progress(&record, 20).await;
        // The kill is to fall into the middle of whatever is going on.
        tokio::time::sleep(moment(round)).await;
        server.kill_9();
        server = Server::serve(store).await;
        *base.lock().unwrap() = server.url();
    }
    progress(&record, 20).await;
    finish(&record, writers).await;
    check(&server.url(), &record, name, ROUNDS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_postmaster_loses_nothing_acknowledged() {
    let cluster = Cluster::start(Settings::default().on_disk()).await;
    let database = cluster.create_database().await;
    let server = Server::serve(&cluster.url(&database)).await;
    let record = Arc::new(Record::default());
    let base = Arc::new(Mutex::new(server.url()));
    let writers = start_writers(&record, &base);
    for round in 0..POSTMASTER_ROUNDS {
        progress(&record, 20).await;
        tokio::time::sleep(moment(round)).await;
        cluster.kill_9();
        cluster.restart().await;
    }
    progress(&record, 20).await;
    finish(&record, writers).await;
    check(&server.url(), &record, "PostgreSQL, postmaster killed", POSTMASTER_ROUNDS).await;
}

/// Waits until `more` further registers were acknowledged.
async fn progress(record: &Record, more: usize) {
    let before = record.count();
    eventually(Duration::from_secs(60), async || {
        let now = record.count();
        if now >= before + more { Ok(()) } else { Err(format!("{} of {more} registers", now - before)) }
    })
    .await;
}

/// Lets every writer finish the register that it is at, however often it must be sent.
async fn finish(record: &Record, writers: Vec<tokio::task::JoinHandle<()>>) {
    record.stop.store(true, Ordering::Release);
    for writer in writers {
        tokio::time::timeout(Duration::from_secs(60), writer).await.expect("a writer ends").unwrap();
    }
}

async fn check(url: &str, record: &Record, name: &str, rounds: usize) {
    let entries = verified(&Http::to(url)).await;
    nothing_is_missing(&entries, record);
    assert_eq!(entries.len(), record.count(), "every register that was retried until answered is there once");
    report(&format!(
        "{name}: {rounds} kills, {} registers acknowledged, {} retries, none lost, none twice",
        record.count(),
        record.retries.load(Ordering::Relaxed)
    ));
}
