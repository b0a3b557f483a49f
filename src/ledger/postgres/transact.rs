//! A batch's transaction under the ledger's lock: begin, look up, append, commit; one exchange each.
//!
//! Whatever does not end in a clean commit closes the connection, and the server rolls back. The server on its
//! part ends a transaction whose node fell silent: `idle_in_transaction_session_timeout` (a frozen lock holder
//! would otherwise block every node for as long as it is frozen), `lock_timeout`, `statement_timeout`. A server
//! that is blocked in sending to a frozen node obeys none of them, so no card bytes are read here, and
//! `tcp_user_timeout` ends what is sent and not taken (measured with 12 MB of answer: 2.5 s; without, the lock
//! was held for as long as the node was frozen). It does nothing for a socket of the same machine.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::postgres::PgRow;
use sqlx::{Executor as _, PgConnection};
use tokio::sync::Notify;
use tracing::Instrument as _;

use super::error::{commit_error, error, is_dead};
use super::lease::Lease;
use super::{Postgres, STEP, row};
use crate::ledger::stored::{self, change_to_json};
use crate::ledger::{CommitError, Error, FORGOTTEN_AT_ONCE, Head, Key, Rows, Seen, Store, Txn};
use crate::terms::Timestamp;

/// Begins, takes the lock, and reads the head with the snapshot of after the lock. One exchange.
///
/// The lock's key is the eight bytes `cardfenc` as a number. `synchronous_commit` is raised from `off` only:
/// `local`, `remote_write` and `remote_apply` are somebody's choice. A simple query answers in text, so the form
/// of its bytes is set, too. Statements are planned once per session and by their keys: a plan made for each
/// batch takes longer than the lookup of a lone write, and one made while a table is empty or was last counted
/// when it was small would scan it when it is not. A scan that is off and has no alternative is priced so high
/// that the server would compile it (measured: 110 ms each time), so that is off as well.
pub(super) const BEGIN: &str = "
    BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
    SET LOCAL idle_in_transaction_session_timeout = 1000;
    SET LOCAL lock_timeout = 4000;
    SET LOCAL statement_timeout = 4500;
    SET LOCAL tcp_user_timeout = 2000;
    SET LOCAL bytea_output = hex;
    SET LOCAL enable_seqscan = off;
    SET LOCAL jit = off;
    SET LOCAL plan_cache_mode = force_generic_plan;
    SELECT set_config('synchronous_commit', 'on', true)
        WHERE current_setting('synchronous_commit') = 'off';
    SELECT pg_advisory_xact_lock(7161130658036018787);
    SELECT l.id AS ledger_id, h.seq, h.digest,
           (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS micros, s.elapsed
    FROM ledger l
    LEFT JOIN LATERAL (SELECT seq, digest FROM entry ORDER BY seq DESC LIMIT 1) h ON true
    LEFT JOIN LATERAL (SELECT elapsed FROM service ORDER BY elapsed DESC LIMIT 1) s ON true
    WHERE l.one";

/// What each write of a batch is compared with. Every part is one step down a primary key: a lateral part with
/// a limit cannot become a join of whole tables.
pub(super) const LOOKUP: &str = "
    SELECT c.revision AS current_revision, c.seq AS current_seq, c.digest AS current_digest,
           c.kind AS current_kind, c.raw_digest AS current_raw_digest,
           c.content_digest AS current_content_digest,
           coalesce(c.raw_digest, before.raw_digest) AS last_card,
           q.names AS request_names, q.outcome AS request_outcome, q.revision AS request_revision,
           q.seq AS request_seq, q.digest AS request_digest, q.change AS request_change,
           v.registers, v.release, v.origin_confirmed_at, x.digest AS digest_at_expected
    FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[])
         WITH ORDINALITY AS k (namespace, name, principal, request_id, expect_seq, place)
    LEFT JOIN LATERAL (
        SELECT r.revision, r.seq, r.kind, r.raw_digest, r.content_digest, e.digest
        FROM revision r JOIN entry e ON e.seq = r.seq
        WHERE r.namespace = k.namespace AND r.name = k.name
        ORDER BY r.revision DESC LIMIT 1
    ) c ON true
    LEFT JOIN LATERAL (
        SELECT r.raw_digest FROM revision r
        WHERE c.kind = 'tombstone' AND r.namespace = k.namespace AND r.name = k.name AND r.revision < c.revision
        ORDER BY r.revision DESC LIMIT 1
    ) before ON true
    LEFT JOIN LATERAL (
        SELECT q.names, q.outcome, q.revision, r.seq, e.digest,
               CASE WHEN q.outcome <> 'unchanged' THEN r.change END AS change
        FROM request q
        JOIN revision r ON r.namespace = q.namespace AND r.name = q.name AND r.revision = q.revision
        JOIN entry e ON e.seq = r.seq
        WHERE q.principal = k.principal AND q.request_id = k.request_id
        LIMIT 1
    ) q ON true
    LEFT JOIN LATERAL (
        SELECT l.registers, l.release, l.origin_confirmed_at FROM liveness l
        WHERE l.namespace = k.namespace AND l.name = k.name
        LIMIT 1
    ) v ON true
    LEFT JOIN LATERAL (SELECT e.digest FROM entry e WHERE e.seq = k.expect_seq LIMIT 1) x ON true
    ORDER BY k.place";

/// The rows of a batch, in one statement; its parts see each other's rows only through the foreign key, which
/// is checked at its end.
pub(super) const APPEND: &str = "
    WITH entries AS (
        INSERT INTO entry (seq, digest, body_digest, body)
        SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::text[])
    ), revisions AS (
        INSERT INTO revision
            (namespace, name, revision, seq, kind, raw_digest, content_digest, change, card)
        SELECT * FROM unnest($5::text[], $6::text[], $7::bigint[], $8::bigint[], $9::text[],
                             $10::bytea[], $11::bytea[], $12::text[], $13::bytea[])
    ), requests AS (
        INSERT INTO request (principal, request_id, names, outcome, namespace, name, revision, at)
        SELECT * FROM unnest($14::text[], $15::text[], $16::bytea[], $17::text[], $18::text[],
                             $19::text[], $20::bigint[], $21::bigint[])
    )
    INSERT INTO liveness
        (namespace, name, revision, origin_confirmed_at, registers, release, ttl, confirmed_service)
    SELECT namespace, name, revision, confirmed, registers::bigint[], release, ttl, service
    FROM unnest($22::text[], $23::text[], $24::bigint[], $25::bigint[], $26::text[], $27::text[],
                $28::bigint[], $29::bigint[])
         AS l (namespace, name, revision, confirmed, registers, release, ttl, service)
    ON CONFLICT ON CONSTRAINT liveness_pkey DO UPDATE SET
        revision = excluded.revision,
        origin_confirmed_at = excluded.origin_confirmed_at,
        registers = excluded.registers,
        release = excluded.release,
        ttl = excluded.ttl,
        confirmed_service = excluded.confirmed_service";

/// The oldest requests of before $1, at most $2. Nobody else deletes while the lock is held.
pub(super) const FORGET: &str = "
    DELETE FROM request
    WHERE ctid = ANY (ARRAY(SELECT ctid FROM request WHERE at < $1 ORDER BY at LIMIT $2))";

/// Prepares the statements, so that a batch is not held up by it while it holds the lock.
pub(super) async fn prepare(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    for statement in [LOOKUP, APPEND, FORGET] {
        connection.prepare(sqlx::SqlSafeStr::into_sql_str(statement)).await?;
    }
    Ok(())
}

#[async_trait]
impl Store for Postgres {
    async fn begin(&self) -> Result<Box<dyn Txn>, Error> {
        let begun = async {
            let mut lease = self.writer.lease().await?;
            let began = match begin(&mut lease).await {
                // The server ended it while it was kept; nothing was done on it.
                Err(error) if lease.kept_before && is_dead(&error) => {
                    drop(lease);
                    lease = self.writer.lease_new().await?;
                    begin(&mut lease).await
                }
                began => began,
            };
            let row = began.map_err(|error| self::error("begin", &error))?;
            let row = row.ok_or_else(|| Error::Unusable("the database holds no ledger".to_owned()))?;
            let (ledger_id, head, now, service) = row::head(&row)?;
            let committed = Arc::clone(&self.committed);
            let lease = Some(lease);
            Ok(PgTransaction { lease, ledger_id, head, now, service, wrote: false, committed })
        };
        let transaction = bounded("begin", begun).await?;
        Ok(Box::new(transaction))
    }
}

async fn begin(lease: &mut Lease) -> Result<Option<PgRow>, sqlx::Error> {
    let rows = sqlx::raw_sql(BEGIN).fetch_all(lease.session.connection()).await?;
    // One row of the lock, perhaps one of the setting, and last the head. Without a ledger the last is the lock's.
    Ok(rows.into_iter().next_back().filter(|row| sqlx::Row::len(row) == 5))
}

pub(super) async fn bounded<T>(
    doing: &str,
    call: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let call = call.instrument(tracing::debug_span!("sql", statement = doing));
    tokio::time::timeout(STEP, call).await.unwrap_or_else(|_| {
        Err(Error::Unavailable(format!("{doing}: no answer within {} ms", STEP.as_millis())))
    })
}

/// A transaction that holds the lock. Dropped before it is committed, it closes its connection.
struct PgTransaction {
    /// Taken out for each exchange and put back after it, so that one that failed or was dropped ends it.
    lease: Option<Lease>,
    ledger_id: String,
    head: Head,
    now: Timestamp,
    service: Duration,
    wrote: bool,
    committed: Arc<Notify>,
}

impl PgTransaction {
    fn lease(&mut self) -> Result<Lease, Error> {
        self.lease.take().ok_or_else(|| Error::Unavailable("the transaction is over".to_owned()))
    }

    async fn run(
        &mut self,
        doing: &str,
        query: sqlx::query::Query<'_, sqlx::Postgres, sqlx::postgres::PgArguments>,
    ) -> Result<Vec<PgRow>, Error> {
        let mut lease = self.lease()?;
        let ran = bounded(doing, async {
            lease.session.within(query).await.map_err(|error| self::error(doing, &error))
        });
        let rows = ran.await?;
        self.lease = Some(lease);
        Ok(rows)
    }
}

#[async_trait]
impl Txn for PgTransaction {
    fn ledger_id(&self) -> &str {
        &self.ledger_id
    }

    fn head(&self) -> Head {
        self.head
    }

    fn now(&self) -> Timestamp {
        self.now
    }

    fn service(&self) -> Duration {
        self.service
    }

    async fn lookup(&mut self, keys: &[Key]) -> Result<Vec<Seen>, Error> {
        let query = sqlx::query(LOOKUP)
            .bind(column(keys, |key| key.agent.namespace()))
            .bind(column(keys, |key| key.agent.name()))
            .bind(column(keys, |key| key.principal.as_str()))
            .bind(column(keys, |key| key.request_id.as_str()))
            .bind(column(keys, |key| key.expect_seq.map(stored::count)));
        let rows = self.run("look up", query).await?;
        if rows.len() != keys.len() {
            return Err(Error::Corrupt(format!("{} rows for {} writes", rows.len(), keys.len())));
        }
        rows.iter().zip(keys).map(|(row, key)| row::seen(row, &self.ledger_id, key.expect_seq)).collect()
    }

    async fn append(&mut self, rows: &Rows) -> Result<(), Error> {
        let changes = rows
            .revisions
            .iter()
            .map(|(revision, _)| revision.change.as_ref().map(change_to_json).transpose())
            .collect::<Result<Vec<_>, _>>()?;
        let Rows { entries, revisions, requests, liveness } = rows;
        let query = sqlx::query(APPEND)
            .bind(column(entries, |entry| stored::count(entry.seq)))
            .bind(column(entries, |entry| entry.digest.as_bytes().as_slice()))
            .bind(column(entries, |entry| entry.body_digest.as_bytes().as_slice()))
            .bind(column(entries, |entry| &*entry.body))
            .bind(column(revisions, |(revision, _)| revision.agent.namespace()))
            .bind(column(revisions, |(revision, _)| revision.agent.name()))
            .bind(column(revisions, |(revision, _)| stored::count(revision.number)))
            .bind(column(revisions, |(revision, _)| stored::count(revision.position.seq)))
            .bind(column(revisions, |(revision, _)| revision.kind.as_str()))
            .bind(column(revisions, |(revision, _)| {
                revision.facts.as_ref().map(|facts| facts.raw_digest.as_bytes().as_slice())
            }))
            .bind(column(revisions, |(revision, _)| {
                revision.facts.as_ref().map(|facts| facts.content_digest.as_bytes().as_slice())
            }))
            .bind(changes)
            .bind(column(revisions, |(_, card)| card.as_ref().map(|card| &card.bytes()[..])))
            .bind(column(requests, |row| row.principal.as_str()))
            .bind(column(requests, |row| row.request_id.as_str()))
            .bind(column(requests, |row| row.names.as_bytes().as_slice()))
            .bind(column(requests, |row| row.outcome.as_str()))
            .bind(column(requests, |row| row.agent.namespace()))
            .bind(column(requests, |row| row.agent.name()))
            .bind(column(requests, |row| stored::count(row.revision)))
            .bind(column(requests, |row| row.at.as_micros()))
            .bind(column(liveness, |row| row.agent.namespace()))
            .bind(column(liveness, |row| row.agent.name()))
            .bind(column(liveness, |row| stored::count(row.revision)))
            .bind(column(liveness, |row| row.origin_confirmed_at.as_micros()))
            .bind(column(liveness, |row| array(&row.registers)))
            .bind(column(liveness, |row| row.release.as_deref()))
            .bind(column(liveness, |row| row.lease.map(|lease| stored::micros(lease.ttl))))
            .bind(column(liveness, |row| row.lease.map_or(0, |lease| stored::micros(lease.confirmed))));
        self.run("append", query).await?;
        self.wrote |= !entries.is_empty();
        Ok(())
    }

    async fn forget_requests(&mut self, before: Timestamp) -> Result<u64, Error> {
        let mut lease = self.lease()?;
        let forgotten = bounded("forget", async {
            let persistent = !lease.session.is_pooled();
            let query = sqlx::query(FORGET)
                .bind(before.as_micros())
                .bind(stored::count(FORGOTTEN_AT_ONCE))
                .persistent(persistent);
            query.execute(lease.session.connection()).await.map_err(|error| self::error("forget", &error))
        });
        let forgotten = forgotten.await?.rows_affected();
        self.lease = Some(lease);
        Ok(forgotten)
    }

    async fn commit(mut self: Box<Self>) -> Result<(), CommitError> {
        let mut lease = self.lease().map_err(CommitError::Refused)?;
        let commit = sqlx::raw_sql("COMMIT").execute(lease.session.connection());
        let commit = commit.instrument(tracing::debug_span!("sql", statement = "commit"));
        match tokio::time::timeout(STEP, commit).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(commit_error(&error)),
            Err(_) => {
                let text = format!("commit: no answer within {} ms", STEP.as_millis());
                return Err(CommitError::Unknown(Error::Unavailable(text)));
            }
        }
        lease.give_back();
        if self.wrote {
            self.committed.notify_one();
        }
        Ok(())
    }
}

/// One column of a batch, for `unnest`.
pub(super) fn column<'a, R, T>(rows: &'a [R], cell: impl Fn(&'a R) -> T) -> Vec<T> {
    rows.iter().map(cell).collect()
}

/// An array within a column of text: `unnest` would flatten an array of arrays.
fn array(times: &[Timestamp]) -> String {
    let mut text = String::from("{");
    for (index, time) in times.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        text.push_str(&time.as_micros().to_string());
    }
    text.push('}');
    text
}
