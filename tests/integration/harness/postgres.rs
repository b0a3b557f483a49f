//! Clusters: durability as configured, databases from templates, and each fault as PostgreSQL shows it.

use std::time::Duration;

use sqlx::postgres::PgPoolOptions;
use sqlx::{Connection as _, PgConnection, PgExecutor, PgPool};

use crate::support::eventually::{eventually, throughout};
use crate::support::postgres::{Cluster, Database, Settings, shared, url_at};
use crate::support::processes;
use crate::support::proxy::Proxy;

const SOON: Duration = Duration::from_secs(10);

/// Long enough for a server that answers, short enough to wait for one that does not.
const NO_ANSWER: Duration = Duration::from_millis(500);

async fn connect(url: &str) -> PgConnection {
    PgConnection::connect(url).await.unwrap_or_else(|error| panic!("{url}: {error}"))
}

async fn count<'c>(connection: impl PgExecutor<'c>) -> sqlx::Result<i64> {
    sqlx::query_scalar("SELECT count(*) FROM entry").fetch_one(connection).await
}

/// A pool of one session at most.
async fn pool(url: &str) -> PgPool {
    let pool = PgPoolOptions::new().max_connections(1).acquire_timeout(SOON / 10).connect(url).await;
    pool.unwrap_or_else(|error| panic!("{url}: {error}"))
}

/// A database with a table `entry` of one row, in a cluster of its own.
async fn with_one_row() -> (Cluster, String) {
    let cluster = Cluster::start(Settings::default()).await;
    let database = cluster.create_database().await;
    let mut connection = connect(&cluster.url(&database)).await;
    sqlx::raw_sql("CREATE TABLE entry (n bigint); INSERT INTO entry VALUES (1)")
        .execute(&mut connection)
        .await
        .expect("the owner can create tables");
    (cluster, database)
}

async fn insert(cluster: &Cluster, database: &str) {
    let mut connection = connect(&cluster.url(database)).await;
    let inserted = sqlx::raw_sql("INSERT INTO entry VALUES (2)").execute(&mut connection).await;
    inserted.expect("a primary takes writes");
}

#[tokio::test]
async fn shared_cluster_is_durable_and_orders_as_a_language_does() {
    let cluster = shared().await;
    assert_eq!(cluster.ask("SELECT current_setting('fsync')").await, "on");
    assert_eq!(cluster.ask("SELECT current_setting('synchronous_commit')").await, "on");
    // In the order of bytes it is the other way round; names of agents may hold both.
    assert_eq!(cluster.ask("SELECT ('a_b' < 'a-b')::text").await, "true");
}

#[tokio::test]
async fn databases_are_copies_of_a_template_that_is_prepared_once() {
    let mut prepared = 0;
    for _ in 0..2 {
        let database = Database::prepared("one_row", async |url| {
            prepared += 1;
            let mut connection = connect(&url).await;
            let made = sqlx::raw_sql("CREATE TABLE entry (n bigint); INSERT INTO entry VALUES (1)");
            made.execute(&mut connection).await.expect("the owner can create tables");
            // Left open on purpose: a careless caller must not spoil the template.
            std::mem::forget(connection);
        })
        .await;
        let mut connection = connect(database.url()).await;
        assert_eq!(count(&mut connection).await.expect("the table was copied"), 1);
        sqlx::raw_sql("INSERT INTO entry VALUES (2)").execute(&mut connection).await.expect("it is ours");
    }
    assert_eq!(prepared, 1);
}

#[tokio::test]
async fn product_role_is_no_superuser() {
    let database = Database::empty().await;
    let mut connection = connect(database.url()).await;
    let (superuser, name): (bool, String) = sqlx::query_as(
        "SELECT rolsuper, current_database()::text FROM pg_roles WHERE rolname = current_user",
    )
    .fetch_one(&mut connection)
    .await
    .expect("roles are public");
    assert_eq!((superuser, name.as_str()), (false, database.name()));
}

#[tokio::test]
async fn retired_databases_are_dropped() {
    let retired = Database::empty().await.name().to_owned();
    eventually(SOON, async || {
        // Each new one drops those whose tests are over.
        let _next = Database::empty().await;
        let query = format!("SELECT count(*)::text FROM pg_database WHERE datname = '{retired}'");
        match shared().await.ask(&query).await.as_str() {
            "0" => Ok(()),
            _ => Err(format!("{retired} is still there")),
        }
    })
    .await;
}

#[tokio::test]
async fn fast_cluster_does_not_sync() {
    let cluster = Cluster::start(Settings::fast().on_disk().with("work_mem", "5MB")).await;
    assert_eq!(cluster.ask("SELECT current_setting('fsync')").await, "off");
    assert_eq!(cluster.ask("SELECT current_setting('work_mem')").await, "5MB");
    cluster.set("work_mem", "6MB").await;
    eventually(SOON, async || {
        let now = cluster.ask("SELECT current_setting('work_mem')").await;
        if now == "6MB" { Ok(()) } else { Err(format!("work_mem is {now}")) }
    })
    .await;
}

#[tokio::test]
async fn frozen_cluster_keeps_connections_and_answers_after_the_thaw() {
    let (cluster, database) = with_one_row().await;
    let mut connection = connect(&cluster.url(&database)).await;
    cluster.freeze();
    // Dropping a query in flight would leave the connection unusable: it is kept, and answered later.
    let mut query = std::pin::pin!(count(&mut connection));
    assert!(tokio::time::timeout(NO_ANSWER, &mut query).await.is_err(), "a frozen server does not answer");
    cluster.thaw();
    let counted = tokio::time::timeout(SOON, query).await.expect("a thawed server answers");
    assert_eq!(counted.expect("the connection is the same"), 1);
}

#[tokio::test]
async fn killed_postmaster_takes_its_sessions_along_and_restarts_with_all_commits() {
    let (cluster, database) = with_one_row().await;
    let session = pool(&cluster.url(&database)).await;
    let before = cluster.pid();
    cluster.kill_9();
    assert_eq!(cluster.pid(), None);
    eventually(SOON, async || match count(&session).await {
        Err(_) => Ok(()),
        Ok(_) => Err("the session still answers".to_owned()),
    })
    .await;
    cluster.restart().await;
    assert_ne!(cluster.pid(), before);
    assert_eq!(count(&mut connect(&cluster.url(&database)).await).await.expect("the table survives"), 1);
}

#[tokio::test]
async fn crashed_cluster_recovers() {
    let (cluster, database) = with_one_row().await;
    cluster.crash();
    assert!(processes::inside(cluster.data()).is_empty());
    assert!(PgConnection::connect(&cluster.url(&database)).await.is_err());
    cluster.restart().await;
    cluster.wait_ready(SOON).await;
    assert!(cluster.log().contains("automatic recovery in progress"), "{}", cluster.log());
    assert_eq!(count(&mut connect(&cluster.url(&database)).await).await.expect("the table survives"), 1);
}

#[tokio::test]
async fn stopped_cluster_restarts_without_recovery() {
    let (cluster, database) = with_one_row().await;
    cluster.stop().await;
    assert!(PgConnection::connect(&cluster.url(&database)).await.is_err());
    cluster.restart().await;
    assert!(!cluster.log().contains("automatic recovery in progress"), "{}", cluster.log());
}

#[tokio::test]
async fn standby_follows_and_paused_replay_holds_it_back() {
    let (primary, database) = with_one_row().await;
    let standby = primary.standby("standby1").await;
    standby.caught_up_with(&primary).await;
    assert_eq!(
        primary.ask("SELECT application_name || ' ' || sync_state FROM pg_stat_replication").await,
        "standby1 async"
    );
    let session = pool(&standby.url(&database)).await;
    assert_eq!(count(&session).await.expect("a hot standby answers"), 1);

    standby.pause_replay().await;
    insert(&primary, &database).await;
    let stays = throughout(NO_ANSWER, async || match count(&session).await {
        Ok(1) => Ok(()),
        shown => Err(format!("a paused standby shows {shown:?}")),
    });
    stays.await;
    standby.resume_replay().await;
    standby.caught_up_with(&primary).await;
    assert_eq!(count(&session).await.expect("a hot standby answers"), 2);
}

#[tokio::test]
async fn promoted_standby_lacks_what_it_never_received() {
    let (primary, database) = with_one_row().await;
    let standby = primary.standby("standby1").await;
    standby.caught_up_with(&primary).await;
    let proxy = Proxy::start(primary.address()).await;
    let url = url_at(proxy.address(), &database);
    assert_eq!(count(&mut connect(&url).await).await.expect("the proxy passes"), 1);

    standby.stop_receiving().await;
    insert(&primary, &database).await;
    assert_eq!(count(&mut connect(&url).await).await.expect("the proxy passes"), 2);
    primary.crash();
    standby.promote().await;
    proxy.retarget(standby.address()).await;
    assert_eq!(count(&mut connect(&url).await).await.expect("the new primary answers"), 1);
    insert(&standby, &database).await;
    // Its databases do not collide with those that it copied.
    standby.create_database().await;
}

#[tokio::test]
async fn synchronous_standby_that_is_frozen_holds_commits_back() {
    let (primary, database) = with_one_row().await;
    let standby = primary.standby("standby1").await;
    primary.set("synchronous_standby_names", "FIRST 1 (standby1)").await;
    eventually(SOON, async || {
        let state = primary
            .ask("SELECT coalesce(string_agg(sync_state, ','), 'none') FROM pg_stat_replication")
            .await;
        if state == "sync" { Ok(()) } else { Err(state) }
    })
    .await;
    insert(&primary, &database).await;
    standby.freeze();
    let mut write = std::pin::pin!(insert(&primary, &database));
    assert!(tokio::time::timeout(NO_ANSWER, &mut write).await.is_err(), "nobody acknowledges the commit");
    standby.thaw();
    tokio::time::timeout(SOON, write).await.expect("the thawed standby acknowledges it");
}
