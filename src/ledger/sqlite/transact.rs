//! A batch's transaction: `BEGIN IMMEDIATE`, look up, append, commit.
//!
//! Whatever does not end in a clean commit closes its connection, and SQLite rolls back. The statements run in
//! this process, so there are no exchanges to save: each write is looked up and written on its own.

use std::time::Duration;

use async_trait::async_trait;
use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteConnection};
use tokio::sync::OwnedMutexGuard;
use tracing::Instrument as _;

use super::error::{commit_error, error};
use super::{Sqlite, open_writer, row};
use crate::ledger::stored::{self, change_to_json};
use crate::ledger::{CommitError, Entry, Error, FORGOTTEN_AT_ONCE, Head, Key, Rows, Seen, Store, Txn};
use crate::terms::Timestamp;

const HEAD: &str = "
    SELECT l.id AS ledger_id, h.seq, h.digest, s.elapsed
    FROM ledger l JOIN service s LEFT JOIN (SELECT seq, digest FROM entry ORDER BY seq DESC LIMIT 1) h";

/// What one write is compared with: agent ?1/?2, principal ?3, request id ?4, expected sequence number ?5.
const LOOKUP: &str = "
    SELECT c.revision AS current_revision, c.seq AS current_seq, ce.digest AS current_digest,
           c.kind AS current_kind, c.raw_digest AS current_raw_digest,
           c.content_digest AS current_content_digest,
           coalesce(c.raw_digest, (
               SELECT b.raw_digest FROM revision b
               WHERE b.namespace = ?1 AND b.name = ?2 AND b.revision < c.revision
               ORDER BY b.revision DESC LIMIT 1
           )) AS last_card,
           q.names AS request_names, q.outcome AS request_outcome, q.revision AS request_revision,
           qr.seq AS request_seq, qe.digest AS request_digest,
           CASE WHEN q.outcome <> 'unchanged' THEN qr.change END AS request_change,
           v.registers, v.release, v.origin_confirmed_at, x.digest AS digest_at_asked
    FROM (SELECT 1)
    LEFT JOIN (
        SELECT * FROM revision WHERE namespace = ?1 AND name = ?2 ORDER BY revision DESC LIMIT 1
    ) c
    LEFT JOIN entry ce ON ce.seq = c.seq
    LEFT JOIN (
        request q
        JOIN revision qr ON qr.namespace = q.namespace AND qr.name = q.name AND qr.revision = q.revision
        JOIN entry qe ON qe.seq = qr.seq
    ) ON q.principal = ?3 AND q.request_id = ?4
    LEFT JOIN liveness v ON v.namespace = ?1 AND v.name = ?2
    LEFT JOIN entry x ON x.seq = ?5";

const APPEND_ENTRY: &str = "INSERT INTO entry (seq, digest, body_digest, body) VALUES (?1, ?2, ?3, ?4)";

const APPEND_REVISION: &str = "
    INSERT INTO revision (namespace, name, revision, seq, kind, raw_digest, content_digest, change, card)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";

const APPEND_REQUEST: &str = "
    INSERT INTO request (principal, request_id, names, outcome, namespace, name, revision, at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";

const PUT_LIVENESS: &str = "
    INSERT INTO liveness
        (namespace, name, revision, origin_confirmed_at, registers, release, ttl, confirmed_service)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
    ON CONFLICT (namespace, name) DO UPDATE SET
        revision = excluded.revision,
        origin_confirmed_at = excluded.origin_confirmed_at,
        registers = excluded.registers,
        release = excluded.release,
        ttl = excluded.ttl,
        confirmed_service = excluded.confirmed_service";

const FORGET: &str = "
    DELETE FROM request WHERE (principal, request_id) IN (
        SELECT principal, request_id FROM request WHERE at < ?1 ORDER BY at LIMIT ?2
    )";

#[async_trait]
impl Store for Sqlite {
    async fn begin(&self) -> Result<Box<dyn Txn>, Error> {
        let failed = |error: sqlx::Error| self::error("begin", &error);
        let mut slot = std::sync::Arc::clone(&self.0.writer).lock_owned().await;
        // Taken out until the transaction has ended well, so that nothing half done is used again.
        let mut connection = match slot.take() {
            Some(connection) => connection,
            None => open_writer(&self.0.path).await?,
        };
        sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut connection).await.map_err(failed)?;
        let row = sqlx::query(HEAD).fetch_one(&mut connection).await.map_err(failed)?;
        let (ledger_id, head) = row::head(&row)?;
        let service = row::service(&row)?;
        let now = self.0.clock.now().wall();
        Ok(Box::new(SqliteTransaction { slot, connection, failed: false, ledger_id, head, now, service }))
    }
}

/// A transaction that holds the lock. Dropped before it is committed, it closes its connection.
struct SqliteTransaction {
    // The connection is closed before the slot is free.
    connection: SqliteConnection,
    slot: OwnedMutexGuard<Option<SqliteConnection>>,
    /// A step failed: what was written is not to be committed.
    failed: bool,
    ledger_id: String,
    head: Head,
    now: Timestamp,
    service: Duration,
}

impl SqliteTransaction {
    async fn run(
        &mut self,
        doing: &str,
        query: Query<'_, sqlx::Sqlite, SqliteArguments>,
    ) -> Result<u64, Error> {
        let span = tracing::debug_span!("sql", statement = doing);
        let done = query.execute(&mut self.connection).instrument(span).await;
        Ok(done.map_err(|error| self::error(doing, &error))?.rows_affected())
    }

    async fn append_entry(&mut self, entry: &Entry) -> Result<(), Error> {
        let query = sqlx::query(APPEND_ENTRY)
            .bind(stored::count(entry.seq))
            .bind(entry.digest.as_bytes().to_vec())
            .bind(entry.body_digest.as_bytes().to_vec())
            .bind(entry.body.to_string());
        self.run("append an entry", query).await.map(drop)
    }

    async fn append_rows(&mut self, rows: &Rows) -> Result<(), Error> {
        for entry in &rows.entries {
            self.append_entry(entry).await?;
        }
        for (revision, card) in &rows.revisions {
            let change = revision.change.as_ref().map(change_to_json).transpose()?;
            let query = sqlx::query(APPEND_REVISION)
                .bind(revision.agent.namespace().to_owned())
                .bind(revision.agent.name().to_owned())
                .bind(stored::count(revision.number))
                .bind(stored::count(revision.position.seq))
                .bind(revision.kind.as_str())
                .bind(revision.facts.as_ref().map(|facts| facts.raw_digest.as_bytes().to_vec()))
                .bind(revision.facts.as_ref().map(|facts| facts.content_digest.as_bytes().to_vec()))
                .bind(change)
                .bind(card.as_ref().map(|card| card.bytes().to_vec()));
            self.run("append a revision", query).await?;
        }
        for row in &rows.requests {
            let query = sqlx::query(APPEND_REQUEST)
                .bind(row.principal.as_str().to_owned())
                .bind(row.request_id.as_str().to_owned())
                .bind(row.names.as_bytes().to_vec())
                .bind(row.outcome.as_str())
                .bind(row.agent.namespace().to_owned())
                .bind(row.agent.name().to_owned())
                .bind(stored::count(row.revision))
                .bind(row.at.as_micros());
            self.run("append a request", query).await?;
        }
        for row in &rows.liveness {
            let query = sqlx::query(PUT_LIVENESS)
                .bind(row.agent.namespace().to_owned())
                .bind(row.agent.name().to_owned())
                .bind(stored::count(row.revision))
                .bind(row.origin_confirmed_at.as_micros())
                .bind(row::registers_to_json(&row.registers))
                .bind(row.release.clone())
                .bind(row.lease.map(|lease| stored::micros(lease.ttl)))
                .bind(row.lease.map_or(0, |lease| stored::micros(lease.confirmed)));
            self.run("put liveness", query).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl Txn for SqliteTransaction {
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
        let mut all = Vec::with_capacity(keys.len());
        for key in keys {
            let query = sqlx::query(LOOKUP)
                .bind(key.agent.namespace().to_owned())
                .bind(key.agent.name().to_owned())
                .bind(key.principal.as_str().to_owned())
                .bind(key.request_id.as_str().to_owned())
                .bind(key.expect_seq.map(stored::count));
            let row = query.fetch_one(&mut self.connection).await;
            let row = row.map_err(|error| self::error("look up", &error))?;
            all.push(row::seen(&row, &self.ledger_id, key.expect_seq)?);
        }
        Ok(all)
    }

    async fn append(&mut self, rows: &Rows) -> Result<(), Error> {
        // Also when this future is dropped half way.
        self.failed = true;
        self.append_rows(rows).await?;
        self.failed = false;
        Ok(())
    }

    async fn forget_requests(&mut self, before: Timestamp) -> Result<u64, Error> {
        let query = sqlx::query(FORGET).bind(before.as_micros()).bind(stored::count(FORGOTTEN_AT_ONCE));
        self.run("forget", query).await
    }

    async fn commit(self: Box<Self>) -> Result<(), CommitError> {
        let Self { mut connection, mut slot, failed, .. } = *self;
        if failed {
            let text = "the batch was not written whole".to_owned();
            return Err(CommitError::Refused(Error::Unavailable(text)));
        }
        match sqlx::raw_sql("COMMIT").execute(&mut connection).await {
            Ok(_) => {
                *slot = Some(connection);
                Ok(())
            }
            Err(error) => Err(commit_error(&error)),
        }
    }
}
