//! The schema: made once however many start at once, checked, and refused when it is not this program's.

use std::time::Duration;

use cardfence::ledger::conformance::{Ledger, register, small_card};
use cardfence::ledger::postgres::Postgres;
use cardfence::ledger::{Confirmed, Entries as _, Error};
use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::{Connection as _, SqlSafeStr as _};

use crate::ledger_conformance::{database, open, options};
use crate::support::postgres::{Database, shared};

fn unusable<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    match result {
        Err(Error::Unusable(text)) => text,
        other => panic!("it should be unusable, not {other:?}"),
    }
}

async fn alter(database: &Database, statement: &'static str) {
    let mut connection = shared().await.connect(database.name()).await.expect("the cluster answers");
    sqlx::raw_sql(statement).execute(&mut connection).await.expect("the statement is right");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_that_start_at_once_make_one_ledger() {
    for _ in 0..5 {
        let database = Database::empty().await;
        let options = options(database.url());
        let migrators = (0..6).map(|_| Postgres::migrate(&options));
        for result in futures::future::join_all(migrators).await {
            result.expect("each waits for the first and finds it done");
        }
        let mut ids = Vec::new();
        for _ in 0..2 {
            let mut reading = open(database.url()).await.open().await.expect("it can be read");
            ids.push(reading.head(0).await.expect("it has a head").ledger_id);
        }
        assert_eq!(ids[0], ids[1]);
        assert_eq!(ids[0].len(), 36, "{}", ids[0]);
        Postgres::migrate(&options).await.expect("nothing is left to do");
    }
}

#[tokio::test]
async fn each_new_ledger_has_its_own_id() {
    let mut ids = Vec::new();
    for _ in 0..2 {
        let database = Database::empty().await;
        Postgres::migrate(&options(database.url())).await.expect("the schema can be made");
        let mut reading = open(database.url()).await.open().await.expect("it can be read");
        ids.push(reading.head(0).await.expect("it has a head").ledger_id);
    }
    assert_ne!(ids[0], ids[1]);
}

#[tokio::test]
async fn a_database_without_schema_is_refused_and_left_alone() {
    let database = Database::empty().await;
    let text = unusable(Postgres::open(&options(database.url())).await);
    assert!(text.contains("run the migrations"), "{text}");
    let tables = "SELECT count(*)::text FROM pg_tables WHERE schemaname = 'public'";
    let mut connection = shared().await.connect(database.name()).await.expect("the cluster answers");
    let count: String =
        sqlx::query_scalar(tables).fetch_one(&mut connection).await.expect("it can be counted");
    assert_eq!(count, "0");
}

#[tokio::test]
async fn a_newer_an_older_and_a_changed_schema_are_refused() {
    let newer = database().await;
    alter(&newer, "INSERT INTO cardfence_migration VALUES (9999, 'later', now(), true, '\\x00', 1)").await;
    for result in [
        Postgres::open(&options(newer.url())).await.map(drop),
        Postgres::migrate(&options(newer.url())).await,
    ] {
        let text = unusable(result);
        assert!(text.contains("newer than this program"), "{text}");
    }

    let changed = database().await;
    alter(&changed, "UPDATE cardfence_migration SET checksum = '\\x00'").await;
    for result in [
        Postgres::open(&options(changed.url())).await.map(drop),
        Postgres::migrate(&options(changed.url())).await,
    ] {
        let text = unusable(result);
        assert!(text.contains("another file"), "{text}");
    }

    let older = database().await;
    alter(&older, "DELETE FROM cardfence_migration").await;
    let text = unusable(Postgres::open(&options(older.url())).await);
    assert!(text.contains("older than this program"), "{text}");
}

/// A database of the first schema, with an agent in it, goes on as if it had always had this one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_schema_is_brought_up_with_what_it_holds() {
    let (new, old) = (database().await, Database::empty().await);
    let card = small_card("1.0", &["a"]);
    let written = Ledger::over(open(new.url()).await);
    let write = register("acme/old", &card).under("anonymous", "deploy-1").of_release("7");
    let receipt = written.submit(write.clone()).await.expect("it is accepted");
    let held =
        written.entries.open().await.expect("it can be read").liveness(None).await.expect("it can be read");

    let mut from = shared().await.connect(new.name()).await.expect("the cluster answers");
    let mut into = sqlx::PgConnection::connect(old.url()).await.expect("the cluster answers");
    let first = include_str!("../../migrations/postgres/0001_ledger.sql");
    let first = Migration::new(1, "ledger".into(), MigrationType::Simple, first.into_sql_str(), false);
    let mut migrator = Migrator::with_migrations(vec![first]);
    migrator.dangerous_set_table_name("cardfence_migration");
    migrator.run_direct(None, &mut into, false).await.expect("the first schema can be made");
    sqlx::raw_sql("DELETE FROM ledger").execute(&mut into).await.expect("it is empty");
    for table in ["ledger", "entry", "revision", "request", "liveness"] {
        let rows = format!("SELECT coalesce(json_agg(t), '[]')::text FROM {table} t");
        let rows: String =
            sqlx::query_scalar(sqlx::AssertSqlSafe(rows)).fetch_one(&mut from).await.expect("rows");
        let copy =
            format!("INSERT INTO {table} SELECT * FROM json_populate_recordset(null::{table}, $1::json)");
        sqlx::query(sqlx::AssertSqlSafe(copy)).bind(rows).execute(&mut into).await.expect("they fit");
    }
    let text = unusable(Postgres::open(&options(old.url())).await);
    assert!(text.contains("older than this program: migration 2 is missing"), "{text}");

    Postgres::migrate(&options(old.url())).await.expect("it can be brought up");
    let ledger = Ledger::over(open(old.url()).await);
    let liveness = ledger.entries.open().await.expect("it can be read").liveness(None).await;
    assert_eq!(liveness.expect("it can be read"), held);
    let again = ledger.submit(write).await.expect("it was accepted");
    assert_eq!((again.replayed, again.position), (true, receipt.position));
    let answers = ledger.confirm(&[("acme/old", &card)]).await;
    assert!(matches!(answers[..], [Confirmed::Done { revision: 1, lease: None, .. }]), "{answers:?}");
    let leased = register("acme/old", &card).with_lease(Duration::from_secs(30));
    ledger.submit(leased).await.expect("it is accepted");
}

#[tokio::test]
async fn a_missing_database_and_a_wrong_password_are_unusable_and_secret() {
    let database = database().await;
    let missing = format!("{}_missing", database.url());
    unusable(Postgres::open(&options(&missing)).await);
    let wrong = database.url().replacen("cardfence@", "nobody:hunter2@", 1);
    assert_ne!(wrong, database.url());
    let options = options(&wrong);
    let text = unusable(Postgres::open(&options).await);
    for text in [text, format!("{options:?}")] {
        assert!(!text.contains("hunter2"), "{text}");
    }
    let malformed = cardfence::ledger::postgres::Options::new(["postgres://u:hunter2@h:notaport/db"]);
    let text = unusable(malformed);
    assert!(!text.contains("hunter2"), "{text}");
}

#[tokio::test]
async fn a_database_of_another_encoding_is_refused() {
    let name = "test_latin1";
    let cluster = shared().await;
    cluster
        .execute(
            "CREATE DATABASE test_latin1 OWNER cardfence TEMPLATE template0 ENCODING LATIN1 \
             LOCALE 'C' LOCALE_PROVIDER libc",
        )
        .await;
    let text = unusable(Postgres::migrate(&options(&cluster.url(name))).await);
    assert!(text.contains("UTF8"), "{text}");
}
