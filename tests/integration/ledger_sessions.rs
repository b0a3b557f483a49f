//! The sessions of a PostgreSQL ledger: which server they reach, with which settings, and that their loss is
//! noticed, bounded and made good.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cardfence::ledger::conformance::{agent, register, small_card, start_writer};
use cardfence::ledger::postgres::Postgres;
use cardfence::ledger::{Entries as _, Error, History as _, Outcome, Store as _};
use cardfence::terms::{RequestId, Tag};

use crate::ledger_conformance::{database, open, options};
use crate::ledger_faults::{PATIENCE, ledger_in, verified};
use crate::support::cards::{Card, Shape};
use crate::support::http::Http;
use crate::support::postgres::{Cluster, Settings, shared, url_at};
use crate::support::proxy::Proxy;
use crate::support::server::Server;

/// Sessions that the server ended while they were kept are replaced without the caller noticing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ended_sessions_are_replaced() {
    let database = database().await;
    let store = open(database.url()).await;
    let name = agent("ended/worker");
    let terminate = format!(
        "SELECT count(pg_terminate_backend(pid, 5000))::text FROM pg_stat_activity WHERE datname = '{}'",
        database.name()
    );
    for turn in 0..3 {
        store.begin().await.expect("the lock is free").commit().await.expect("nothing to commit");
        store.revision(&name, 1).await.expect("history can be read");
        let ended = shared().await.ask(&terminate).await;
        assert_eq!(ended, "2", "a writer and a reader were kept in turn {turn}");
        store.revision(&name, 1).await.expect("history can be read");
        store.begin().await.expect("the lock is free").commit().await.expect("nothing to commit");
    }
    let mut reading = store.open().await.expect("it can be read");
    shared().await.ask(&terminate).await;
    // A reading is of one session: it ends, and says so at every further call.
    reading.head(0).await.expect_err("the session was ended");
    reading.head(0).await.expect_err("it stays ended");
}

/// What a role or a database sets as its defaults weakens nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn defaults_of_the_database_weaken_nothing() {
    let database = database().await;
    let cluster = shared().await;
    for setting in [
        "synchronous_commit = off",
        "default_transaction_isolation = 'serializable'",
        "default_transaction_read_only = on",
        "statement_timeout = '1ms'",
        "idle_in_transaction_session_timeout = 0",
        "idle_session_timeout = '10ms'",
        "enable_indexscan = off",
        "bytea_output = 'escape'",
        "\"DateStyle\" = 'German'",
        "extra_float_digits = 0",
    ] {
        cluster.execute(&format!("ALTER DATABASE {} SET {setting}", database.name())).await;
    }
    let mut spy = cluster.connect(database.name()).await.expect("the cluster answers");
    let allowing =
        "SET default_transaction_read_only = off; SET statement_timeout = 0; SET idle_session_timeout = 0;";
    sqlx::raw_sql(allowing).execute(&mut spy).await.expect("the statements are right");
    let spying = "
        CREATE TABLE spied AS SELECT ''::text AS durable, ''::text AS isolation LIMIT 0;
        GRANT ALL ON spied TO cardfence;
        CREATE FUNCTION spy() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            INSERT INTO spied VALUES (current_setting('synchronous_commit'), current_setting('transaction_isolation'));
            RETURN NEW;
        END $$;
        CREATE TRIGGER spy BEFORE INSERT ON entry FOR EACH ROW EXECUTE FUNCTION spy();";
    sqlx::raw_sql(spying).execute(&mut spy).await.expect("the statements are right");

    let stores = [open(database.url()).await, open(database.url()).await];
    let writers: Vec<_> = stores.iter().map(|store| start_writer(Arc::new(store.clone()))).collect();
    let card = small_card("1.0", &["a"]);
    let load = (0..40)
        .map(|number| writers[number % 2].0.submit(register(&format!("defaults/agent-{number}"), &card)));
    for answer in futures::future::join_all(load).await {
        answer.expect("it is accepted");
    }
    assert_eq!(verified(&stores[0]).await.len(), 40);
    let spied: Vec<(String, String)> = sqlx::query_as("SELECT DISTINCT durable, isolation FROM spied")
        .fetch_all(&mut spy)
        .await
        .expect("it was spied");
    assert_eq!(spied, [("on".to_owned(), "read committed".to_owned())]);
}

/// A server that may forget what it acknowledged is warned about at start, once, and one that does not is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_that_may_forget_is_warned_about_at_start() {
    let warning = "this server may lose or damage acknowledged writes when it crashes";
    for (setting, durable) in [("fsync", false), ("full_page_writes", false), ("work_mem", true)] {
        let value = if durable { "5MB" } else { "off" };
        let cluster = Cluster::start(Settings::default().with(setting, value)).await;
        let server = Server::serve(&cluster.url(&cluster.create_database().await)).await;
        let http = Http::to(&server.url());
        http.until_ready().await;
        let at_start = server.stderr();
        http.put_card("acme/any", "", &Card::new(Shape::V10, "any").build()).await.expect(201);
        server.terminate().await;
        for said in [at_start, server.stderr()] {
            let warned: Vec<&str> = said.lines().filter(|line| line.contains(warning)).collect();
            assert_eq!(warned.len(), usize::from(!durable), "{setting}: {said}");
            assert!(warned.iter().all(|line| line.contains(&format!("{setting}=\"off\""))), "{warned:?}");
        }
    }
}

/// A frozen database is given up on, in every role, and found again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frozen_database_is_given_up_on_and_found_again() {
    let database = database().await;
    let proxy = Proxy::start(shared().await.address()).await;
    let store = open(&url_at(proxy.address(), database.name())).await;
    let name = agent("frozen/worker");
    store.revision(&name, 1).await.expect("history can be read");
    store.begin().await.expect("the lock is free").commit().await.expect("nothing to commit");
    proxy.freeze();
    let begun = Instant::now();
    let (revision, txn, reading) =
        futures::future::join3(store.revision(&name, 1), store.begin(), store.open()).await;
    for error in [revision.err(), txn.err(), reading.err()] {
        assert!(matches!(error, Some(Error::Unavailable(_))), "{error:?}");
    }
    assert!(begun.elapsed() < Duration::from_secs(8), "took {:?}", begun.elapsed());
    proxy.cut().await;
    proxy.heal().await;
    store.revision(&name, 1).await.expect("history can be read");
    store.begin().await.expect("the lock is free").commit().await.expect("nothing to commit");
}

/// Servers in recovery are passed over where a primary is wanted, and can be read where one is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn standby_is_read_and_not_written() {
    let (primary, name) = ledger_in(Settings::default()).await;
    let standby = primary.standby("standby").await;
    standby.caught_up_with(&primary).await;
    let urls = [standby.url(&name), primary.url(&name)];
    let both =
        cardfence::ledger::postgres::Options::new(urls.iter().map(String::as_str)).expect("well formed");
    let store = Postgres::open(&both).await.expect("the primary is found");
    let (writes, _stop) = start_writer(Arc::new(store.clone()));
    writes.submit(register("standby/worker", &small_card("1.0", &["a"]))).await.expect("it is accepted");
    let head = store.open().await.expect("it can be read").head(0).await.expect("it has a head");
    assert!(!head.in_recovery);

    standby.caught_up_with(&primary).await;
    let mut alone = options(&urls[0]);
    alone.primary = false;
    let reader = Postgres::open(&alone).await.expect("a standby can be opened");
    let seen = reader.open().await.expect("it can be read").head(1).await.expect("it has a head");
    assert_eq!(
        (seen.in_recovery, seen.head, seen.tag_at_asked),
        (true, head.head, Some(Tag::from(&head.head.digest)))
    );
    assert_eq!(verified(&reader).await.len(), 1);
    match reader.begin().await {
        Err(Error::Unavailable(text)) => assert!(text.contains("during recovery"), "{text}"),
        other => panic!("a standby was written to: {:?}", other.map(|txn| txn.head())),
    }
    // The primary goes, the standby takes its place, and the same store finds it.
    primary.stop().await;
    standby.promote().await;
    // Writes go where the view is: until it follows the new primary, they are refused.
    let early = writes.submit(register("standby/early", &small_card("1.0", &["a"]))).await;
    assert!(early.is_err(), "{early:?}");
    let followed = store.open().await.expect("it can be read").head(0).await.expect("it has a head");
    assert!(!followed.in_recovery);
    writes.submit(register("standby/after", &small_card("1.0", &["a"]))).await.expect("it is accepted");
    assert_eq!(verified(&store).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nudges_reach_other_nodes_and_survive_their_connection() {
    let database = database().await;
    let (here, there) = (open(database.url()).await, open(database.url()).await);
    let stop = tokio_util::sync::CancellationToken::new();
    let (_own, sending) = here.start_nudges(stop.clone());
    let (mut heard, listening) = there.start_nudges(stop.clone());
    // The first change says that somebody listens now.
    tokio::time::timeout(PATIENCE, heard.changed()).await.expect("it listens").expect("the task lives");
    let (writes, _stop) = start_writer(Arc::new(here.clone()));
    let card = small_card("1.0", &["a"]);
    let nudged = async |heard: &mut tokio::sync::watch::Receiver<u64>, turn: u32| {
        // A nudge may be lost, so it is asked for again.
        for attempt in 0..50 {
            heard.mark_unchanged();
            let write = register(&format!("nudge/agent-{turn}-{attempt}"), &card);
            writes.submit(write).await.expect("it is accepted");
            if tokio::time::timeout(Duration::from_millis(500), heard.changed()).await.is_ok() {
                return attempt;
            }
        }
        panic!("no nudge was heard in turn {turn}");
    };
    nudged(&mut heard, 0).await;
    assert_eq!(nudged(&mut heard, 1).await, 0, "in peace every commit nudges");
    let terminate = format!(
        "SELECT count(pg_terminate_backend(pid, 5000))::text FROM pg_stat_activity WHERE datname = '{}'",
        database.name()
    );
    shared().await.ask(&terminate).await;
    nudged(&mut heard, 2).await;
    stop.cancel();
    sending.await.expect("it ends in peace");
    listening.await.expect("it ends in peace");
}

/// A request id is kept as any caller may send it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_of_a_batch_share_nothing_but_the_transaction() {
    let database = database().await;
    let store = open(database.url()).await;
    let (writes, _stop) = start_writer(Arc::new(store.clone()));
    let card = small_card("1.0", &["a"]);
    let odd = ["{\"a\",NULL}", "NULL", "a,b", "\\", "\"", "'", "$1", "%s", "{}"];
    let load = odd.iter().enumerate().map(|(number, id)| {
        writes
            .submit(register(&format!("odd/agent-{number}"), &card).under("an \"odd\" {principal}, NULL", id))
    });
    for answer in futures::future::join_all(load).await {
        assert_eq!(answer.expect("it is accepted").outcome, Outcome::Created);
    }
    for (number, id) in odd.iter().enumerate() {
        let id: RequestId = id.parse().expect("it is visible ASCII");
        let again = register(&format!("odd/agent-{number}"), &card);
        let again = again.under("an \"odd\" {principal}, NULL", id.as_str());
        let receipt = writes.submit(again).await.expect("it is replayed");
        assert_eq!(receipt.outcome, Outcome::Created, "{id}");
    }
    assert_eq!(verified(&store).await.len(), odd.len());
}
