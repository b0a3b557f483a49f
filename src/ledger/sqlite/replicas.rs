//! The table of replicas: reports, on a connection of their own, and who has reported.
//!
//! That connection does not wait for the disk (`synchronous=NORMAL`): a report that is lost is made again seconds
//! later. What the ledger's connection acknowledges is on the disk all the same.

use std::time::Duration;

use async_trait::async_trait;
use sqlx::Connection as _;
use sqlx::sqlite::{SqliteConnection, SqliteSynchronous};

use super::read::bounded;
use super::{Sqlite, options, row};
use crate::ledger::replica::{FORGOTTEN_BY_A_REPORT, REPLICA_KEPT};
use crate::ledger::stored::{self, StoredReplica};
use crate::ledger::{Error, REPLICAS_MAX, Replica, Replicas};

/// Replica ?1 and what it says. A row of after ?14, which is now, is of a clock that was set back since.
const REPORT: &str = "
    INSERT INTO replica AS kept
        (replica, role, seq, tag, staleness_us, hops, version, via, omitted, omitted_seq, omitted_tag, reported_at,
         reporter)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?14 - ?12, ?13)
    ON CONFLICT (replica) DO UPDATE SET
        reporter = excluded.reporter,
        role = excluded.role,
        seq = excluded.seq,
        tag = excluded.tag,
        staleness_us = excluded.staleness_us,
        hops = excluded.hops,
        version = excluded.version,
        via = excluded.via,
        omitted = excluded.omitted,
        omitted_seq = excluded.omitted_seq,
        omitted_tag = excluded.omitted_tag,
        reported_at = excluded.reported_at
    WHERE kept.reported_at <= excluded.reported_at OR kept.reported_at > ?14";

const FORGET: &str = "
    DELETE FROM replica WHERE replica IN (
        SELECT replica FROM replica WHERE reported_at < ?1 ORDER BY reported_at LIMIT ?2
    )";

/// What ?1 named before and does not now; ?2 is a JSON array of names.
const FORGET_OMITTED: &str =
    "DELETE FROM replica WHERE reporter = ?1 AND replica NOT IN (SELECT value FROM json_each(?2))";

const REPLICAS: &str = "
    SELECT replica, role, seq, tag, staleness_us, hops, version, via, omitted, omitted_seq, omitted_tag,
           ?1 - reported_at AS silent_us
    FROM replica WHERE reported_at >= ?1 - ?2 ORDER BY reported_at DESC LIMIT ?3";

impl Sqlite {
    fn micros(&self) -> i64 {
        self.0.clock.now().wall().as_micros()
    }

    async fn report_through(
        &self,
        connection: &mut SqliteConnection,
        first: &Replica,
        replicas: &[Replica],
    ) -> Result<(), sqlx::Error> {
        let now = self.micros();
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
        let gone = now.saturating_sub(stored::micros(REPLICA_KEPT));
        sqlx::query(FORGET).bind(gone).bind(FORGOTTEN_BY_A_REPORT).execute(&mut *transaction).await?;
        for row in replicas.iter().map(StoredReplica::from) {
            let query = sqlx::query(REPORT)
                .bind(row.replica)
                .bind(row.role)
                .bind(row.seq)
                .bind(row.tag)
                .bind(row.staleness_us)
                .bind(row.hops)
                .bind(row.version)
                .bind(row.via)
                .bind(row.omitted)
                .bind(row.omitted_seq)
                .bind(row.omitted_tag)
                .bind(row.silent_us)
                .bind(first.replica.clone())
                .bind(now);
            query.execute(&mut *transaction).await?;
        }
        if first.omitted.is_some() {
            let names: Vec<&str> = replicas.iter().map(|replica| replica.replica.as_str()).collect();
            let names = serde_json::Value::from(names).to_string();
            let query = sqlx::query(FORGET_OMITTED).bind(first.replica.clone()).bind(names);
            query.execute(&mut *transaction).await?;
        }
        transaction.commit().await
    }
}

#[async_trait]
impl Replicas for Sqlite {
    async fn report(&self, replicas: &[Replica]) -> Result<(), Error> {
        let Some(first) = replicas.first() else { return Ok(()) };
        let doing = "report replicas";
        let mut slot = self.0.reports.lock().await;
        // Taken out until it is done, so that nothing half done is used again.
        let mut connection = match slot.take() {
            Some(connection) => connection,
            None => {
                let options = options(&self.0.path).synchronous(SqliteSynchronous::Normal);
                bounded(doing, SqliteConnection::connect_with(&options)).await?
            }
        };
        bounded(doing, self.report_through(&mut connection, first, replicas)).await?;
        *slot = Some(connection);
        Ok(())
    }

    async fn replicas(&self, within: Duration) -> Result<Vec<Replica>, Error> {
        let query = sqlx::query(REPLICAS)
            .bind(self.micros())
            .bind(stored::micros(within))
            .bind(stored::limit(REPLICAS_MAX));
        self.ask("read replicas", query).await?.iter().map(row::replica).collect()
    }
}
