//! The table of replicas: reports, on a session of their own so that they wait for no write, and who has reported.
//!
//! Reports are not synchronous: one that is lost is made again seconds later.

use std::time::Duration;

use async_trait::async_trait;
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use tracing::Instrument as _;

use super::error::{error, is_dead};
use super::{Postgres, STEP, row};
use crate::ledger::replica::{FORGOTTEN_BY_A_REPORT, REPLICA_KEPT};
use crate::ledger::stored::{self, StoredReplica};
use crate::ledger::{Error, REPLICAS_MAX, Replica, Replicas};

/// Keeps what replicas $1 and so on say, reported by $13, and forgets a few that have been silent for longer than
/// $14. Rows are locked in the order of their names, so that two nodes that report one edge do not deadlock. A
/// row of the future is of a clock that was set back since.
pub(super) const REPORT: &str = "
    WITH clock AS MATERIALIZED (
        SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS micros
    ), forgotten AS (
        DELETE FROM replica WHERE replica = ANY (ARRAY(
            SELECT o.replica FROM replica o
            WHERE o.reported_at < (SELECT micros FROM clock) - $14 AND o.replica <> ALL ($1)
            ORDER BY o.reported_at LIMIT $15 FOR UPDATE SKIP LOCKED
        ))
    )
    INSERT INTO replica AS kept
        (replica, reporter, role, seq, tag, staleness_us, hops, version, via, omitted, omitted_seq, omitted_tag,
         reported_at)
    SELECT t.replica, $13, t.role, t.seq, t.tag, t.staleness_us, t.hops, t.version, t.via,
           t.omitted, t.omitted_seq, t.omitted_tag, (SELECT micros FROM clock) - t.silent_us
    FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::text[],
                $8::text[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[])
         AS t (replica, role, seq, tag, staleness_us, hops, version, via, omitted, omitted_seq, omitted_tag,
               silent_us)
    ON CONFLICT ON CONSTRAINT replica_pkey DO UPDATE SET
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
    WHERE kept.reported_at <= excluded.reported_at
       OR kept.reported_at > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

/// What $1 named before and does not now. Rare: it names all while there are few.
const FORGET_OMITTED: &str = "DELETE FROM replica WHERE reporter = $1 AND replica <> ALL ($2)";

/// Those that spoke within $1, the latest first.
pub(super) const REPLICAS: &str = "
    WITH clock AS MATERIALIZED (
        SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS micros
    )
    SELECT replica, role, seq, tag, staleness_us, hops, version, via, omitted, omitted_seq, omitted_tag,
           (SELECT micros FROM clock) - reported_at AS silent_us
    FROM replica WHERE reported_at >= (SELECT micros FROM clock) - $1
    ORDER BY reported_at DESC LIMIT $2";

type PgQuery = Query<'static, sqlx::Postgres, PgArguments>;

impl Postgres {
    async fn write_report(&self, query: impl Fn() -> PgQuery + Send + Sync) -> Result<(), Error> {
        let doing = "report replicas";
        let written = async {
            let mut lease = self.reports.lease().await?;
            let done = match lease.session.write(query()).await {
                Err(error) if lease.kept_before && is_dead(&error) => {
                    drop(lease);
                    lease = self.reports.lease_new().await?;
                    lease.session.write(query()).await
                }
                done => done,
            };
            done.map_err(|error| self::error(doing, &error))?;
            lease.give_back();
            Ok(())
        };
        let written = written.instrument(tracing::debug_span!("sql", statement = doing));
        tokio::time::timeout(STEP, written).await.unwrap_or_else(|_| {
            Err(Error::Unavailable(format!("{doing}: no answer within {} ms", STEP.as_millis())))
        })
    }
}

#[async_trait]
impl Replicas for Postgres {
    async fn report(&self, replicas: &[Replica]) -> Result<(), Error> {
        let Some(first) = replicas.first() else { return Ok(()) };
        let mut rows: Vec<StoredReplica> = replicas.iter().map(StoredReplica::from).collect();
        rows.sort_by(|a, b| a.replica.cmp(&b.replica));
        let query = || {
            sqlx::query(REPORT)
                .bind(column(&rows, |row| row.replica.clone()))
                .bind(column(&rows, |row| row.role.clone()))
                .bind(column(&rows, |row| row.seq))
                .bind(column(&rows, |row| row.tag))
                .bind(column(&rows, |row| row.staleness_us))
                .bind(column(&rows, |row| row.hops))
                .bind(column(&rows, |row| row.version.clone()))
                .bind(column(&rows, |row| row.via.clone()))
                .bind(column(&rows, |row| row.omitted))
                .bind(column(&rows, |row| row.omitted_seq))
                .bind(column(&rows, |row| row.omitted_tag))
                .bind(column(&rows, |row| row.silent_us))
                .bind(first.replica.clone())
                .bind(stored::micros(REPLICA_KEPT))
                .bind(FORGOTTEN_BY_A_REPORT)
        };
        self.write_report(query).await?;
        // Only after: what is gone must already be known to be among the omitted.
        if first.omitted.is_some() {
            let query = || {
                sqlx::query(FORGET_OMITTED)
                    .bind(first.replica.clone())
                    .bind(column(&rows, |row| row.replica.clone()))
            };
            self.write_report(query).await?;
        }
        Ok(())
    }

    async fn replicas(&self, within: Duration) -> Result<Vec<Replica>, Error> {
        let query = || sqlx::query(REPLICAS).bind(stored::micros(within)).bind(stored::limit(REPLICAS_MAX));
        self.ask("read replicas", query).await?.iter().map(row::replica).collect()
    }
}

fn column<T>(rows: &[StoredReplica], cell: impl Fn(&StoredReplica) -> T) -> Vec<T> {
    rows.iter().map(cell).collect()
}
