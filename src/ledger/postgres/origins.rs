//! Confirming origins, and the service clock. Outside of the ledger's lock, one statement for each.
//!
//! # An old pod's heartbeat never confirms a new card
//!
//! A register that is on its way has its agent's liveness row locked, and a confirmation waits for it. What is current
//! was then read by the statement's snapshot, from before the wait, and says that the old card is. So the row is
//! compared as well: every write of an agent leaves the number of its current revision in the row, and `READ
//! COMMITTED` looks at the row again after the wait. It names another revision now, so nothing is written, and the
//! item is asked again with a snapshot of now.
//!
//! Rows are locked in the order in which the writer takes them, so that neither waits for the other in a circle. They
//! stay locked until the answer is sent, which is small enough for a frozen node's socket to hold it.
//!
//! Nothing waits for the disk here (`synchronous_commit = off`): a confirmation that a crash of the server takes back
//! makes an origin look older than it is, never younger, and the next one comes soon.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_trait::async_trait;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{Executor as _, PgConnection, Row as _};

use super::error::{error, is_dead};
use super::session::Session;
use super::transact::{bounded, column};
use super::{Postgres, row};
use crate::ledger::stored;
use crate::ledger::{Confirmed, Error, Origins, ServiceClock, TICK as BETWEEN_TICKS, TICK_MOST};
use crate::terms::{AgentName, Digest};

/// Confirms agents $1/$2 with content digests $3, each pair once, in the writer's order. A row for each.
pub(super) const CONFIRM: &str = "
    WITH asked AS (
        SELECT k.place, k.namespace, k.name, c.revision, c.content_digest = k.digest AS equal
        FROM unnest($1::text[], $2::text[], $3::bytea[])
             WITH ORDINALITY AS k (namespace, name, digest, place)
        LEFT JOIN LATERAL (
            SELECT r.revision, r.content_digest FROM revision r
            WHERE r.namespace = k.namespace AND r.name = k.name
            ORDER BY r.revision DESC LIMIT 1
        ) c ON true
        ORDER BY k.place
    ), held AS (
        SELECT a.place, a.namespace, a.name, a.revision
        FROM asked a
        CROSS JOIN LATERAL (
            SELECT l.revision FROM liveness l
            WHERE a.equal AND l.namespace = a.namespace AND l.name = a.name AND l.revision = a.revision
            FOR NO KEY UPDATE
        ) l
    ), moved AS (
        UPDATE liveness l SET
            origin_confirmed_at = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
            confirmed_service = greatest(l.confirmed_service, coalesce(s.elapsed, 0))
        FROM held h
        LEFT JOIN (SELECT elapsed FROM service ORDER BY elapsed DESC LIMIT 1) s ON true
        WHERE l.namespace = h.namespace AND l.name = h.name AND l.revision = h.revision
        RETURNING h.place, l.origin_confirmed_at, l.ttl, l.confirmed_service
    )
    SELECT a.revision, a.equal, m.origin_confirmed_at AS at, m.ttl, m.confirmed_service
    FROM asked a LEFT JOIN moved m ON m.place = a.place
    ORDER BY a.place";

/// Reads the clock on, and says how it stands: adds what passed since the last reading, $1 at most. A reading that is
/// younger than $2 stands, so that many nodes make hardly more rows than one. The row is made of the last one, so two
/// nodes that read at once do not add up. Once in ten minutes what is older than an hour is removed.
pub(super) const TICK: &str = "
    WITH last AS MATERIALIZED (
        SELECT coalesce(s.elapsed, 0) AS elapsed, n.now, coalesce(s.advanced_at, n.now - 1000000) AS advanced_at
        FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now) n
        LEFT JOIN (SELECT elapsed, advanced_at FROM service ORDER BY elapsed DESC LIMIT 1) s ON true
    ), next AS (
        INSERT INTO service (elapsed, advanced_at)
        SELECT elapsed + least(greatest(now - advanced_at, 1), $1), now FROM last
        WHERE now - advanced_at NOT BETWEEN 0 AND $2
        ON CONFLICT ON CONSTRAINT service_pkey DO NOTHING
        RETURNING elapsed
    ), old AS (
        DELETE FROM service
        WHERE elapsed < (SELECT elapsed FROM next) - 3600000000
          AND (SELECT elapsed FROM next) / 600000000 <> (SELECT elapsed FROM last) / 600000000
    )
    SELECT coalesce((SELECT elapsed FROM next), (SELECT elapsed FROM last)) AS elapsed";

/// What the statements here depend on.
const SETTINGS: [&str; 4] = [
    "synchronous_commit = off",
    "lock_timeout = 4000",
    "statement_timeout = 4500",
    "idle_in_transaction_session_timeout = 1000",
];

/// How often the items that a register overtook are asked again.
const ROUNDS: usize = 4;

type PgQuery<'q> = Query<'q, sqlx::Postgres, PgArguments>;

/// Settles a session of its own, and prepares the statements.
pub(super) async fn prepare(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    let settings: String = SETTINGS.iter().map(|setting| format!("SET {setting}; ")).collect();
    let isolation = "SET default_transaction_isolation = 'read committed'";
    sqlx::raw_sql(sqlx::AssertSqlSafe(format!("{settings}{isolation}"))).execute(&mut *connection).await?;
    for statement in [CONFIRM, TICK] {
        connection.prepare(sqlx::SqlSafeStr::into_sql_str(statement)).await?;
    }
    Ok(())
}

async fn run(session: &mut Session, query: PgQuery<'_>) -> Result<Vec<PgRow>, sqlx::Error> {
    if !session.is_pooled() {
        return query.fetch_all(session.connection()).await;
    }
    let settings: String = SETTINGS.iter().map(|setting| format!("SET LOCAL {setting}; ")).collect();
    let begin = format!("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; {settings}");
    sqlx::raw_sql(sqlx::AssertSqlSafe(begin)).execute(session.connection()).await?;
    let rows = session.within(query).await?;
    sqlx::raw_sql("COMMIT").execute(session.connection()).await?;
    Ok(rows)
}

impl Postgres {
    /// Runs a statement; once more when a kept session turns out to be dead, since both may be repeated.
    async fn run_lightly<'q>(
        &self,
        doing: &str,
        query: impl Fn() -> PgQuery<'q> + Send + Sync,
    ) -> Result<Vec<PgRow>, Error> {
        let ran = bounded(doing, async {
            let mut lease = self.origins.lease().await?;
            let rows = match run(&mut lease.session, query()).await {
                Err(error) if lease.kept_before && is_dead(&error) => {
                    drop(lease);
                    lease = self.origins.lease_new().await?;
                    run(&mut lease.session, query()).await
                }
                rows => rows,
            };
            let rows = rows.map_err(|error| self::error(doing, &error))?;
            lease.give_back();
            Ok(rows)
        });
        ran.await
    }

    /// `None` for those that a register overtook.
    async fn confirm_once(&self, items: &[&(AgentName, Digest)]) -> Result<Vec<Option<Confirmed>>, Error> {
        let query = || {
            sqlx::query(CONFIRM)
                .bind(column(items, |(agent, _)| agent.namespace()))
                .bind(column(items, |(agent, _)| agent.name()))
                .bind(column(items, |(_, digest)| digest.as_bytes().as_slice()))
        };
        let rows = self.run_lightly("confirm", query).await?;
        if rows.len() != items.len() {
            return Err(Error::Corrupt(format!("{} rows for {} confirmations", rows.len(), items.len())));
        }
        rows.iter().map(row::confirmed).collect()
    }
}

#[async_trait]
impl Origins for Postgres {
    async fn confirm(&self, items: &[(AgentName, Digest)]) -> Result<Vec<Confirmed>, Error> {
        let mut left: BTreeSet<&(AgentName, Digest)> = items.iter().collect();
        let mut done = BTreeMap::new();
        for _ in 0..ROUNDS {
            if left.is_empty() {
                break;
            }
            let asked: Vec<_> = left.iter().copied().collect();
            for (item, confirmed) in asked.iter().zip(self.confirm_once(&asked).await?) {
                if let Some(confirmed) = confirmed {
                    left.remove(item);
                    done.insert(*item, confirmed);
                }
            }
        }
        let overtaken = || Error::Unavailable("confirm: registers were faster each time".to_owned());
        items.iter().map(|item| done.get(item).copied().ok_or_else(overtaken)).collect()
    }
}

#[async_trait]
impl ServiceClock for Postgres {
    async fn tick(&self) -> Result<Duration, Error> {
        let query =
            || sqlx::query(TICK).bind(stored::micros(TICK_MOST)).bind(stored::micros(BETWEEN_TICKS / 2));
        let rows = self.run_lightly("tick", query).await?;
        let elapsed = rows.first().map(|row| row.try_get::<i64, _>("elapsed")).transpose();
        let elapsed = elapsed.map_err(|error| self::error("tick", &error))?;
        stored::duration(elapsed.unwrap_or(0))
    }
}
