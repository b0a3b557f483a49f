//! Reading the ledger in order, on one session of one server.
//!
//! The head is one statement, and so of one moment. A page is bounded by entries and by bytes; the lengths of
//! cards are known without reading them, since they are stored apart and uncompressed.

use std::sync::Arc;

use async_trait::async_trait;
use sqlx::Row as _;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;

use super::error::error;
use super::session::{Connector, Role, Session};
use super::{Postgres, READ, row};
use crate::ledger::stored::{self, PAGE_BYTES};
use crate::ledger::{Entries, Entry, Error, HeadReport, LIVENESS_PAGE, Liveness, Reading};
use crate::terms::Timestamp;

/// When this server was started: what tells it from another one behind the same address.
macro_rules! server {
    () => {
        "(extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint AS server"
    };
}

/// The head, the digest at $1, the service clock, and what the server says of itself.
pub(super) const HEAD: &str = concat!(
    "SELECT pg_is_in_recovery() AS in_recovery, l.id AS ledger_id, h.seq, h.digest,
            a.digest AS digest_at_asked, s.elapsed,
            (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS micros, ",
    server!(),
    "
     FROM ledger l
     LEFT JOIN LATERAL (SELECT seq, digest FROM entry ORDER BY seq DESC LIMIT 1) h ON true
     LEFT JOIN LATERAL (SELECT digest FROM entry WHERE seq = $1 LIMIT 1) a ON true
     LEFT JOIN LATERAL (SELECT elapsed FROM service ORDER BY elapsed DESC LIMIT 1) s ON true
     WHERE l.one"
);

/// At most $2 entries after $1, and no further one once the page holds $3 bytes. Only the cards of the rows
/// that are sent are read.
pub(super) const PAGE: &str = concat!(
    "SELECT p.seq, p.digest, p.body_digest, p.body, p.card, ",
    server!(),
    "
     FROM (
         SELECT e.seq, e.digest, e.body_digest, e.body, r.card,
                sum(octet_length(e.body) + coalesce(octet_length(r.card), 0)) OVER (
                    ORDER BY e.seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
                ) AS before
         FROM (SELECT * FROM entry WHERE seq > $1 ORDER BY seq LIMIT $2) e
         LEFT JOIN LATERAL (SELECT card FROM revision WHERE revision.seq = e.seq LIMIT 1) r ON true
     ) p
     WHERE p.before IS NULL OR p.before < $3
     ORDER BY p.seq"
);

/// What was confirmed at or after $1, oldest first, at most $2 rows.
pub(super) const LIVENESS: &str = "
    SELECT namespace, name, revision, origin_confirmed_at, registers, ttl, confirmed_service FROM liveness
    WHERE origin_confirmed_at >= $1 ORDER BY origin_confirmed_at LIMIT $2";

#[async_trait]
impl Entries for Postgres {
    async fn open(&self) -> Result<Box<dyn Reading>, Error> {
        let session = self.connector.open(Role::Follow).await?;
        Ok(Box::new(Following {
            session: Some(session),
            server: None,
            connector: Arc::clone(&self.connector),
        }))
    }
}

/// One session of one server.
struct Following {
    /// Taken out for each call and put back after it, so that one that failed or was dropped ends it.
    session: Option<Session>,
    /// The server that answered first. Behind PgBouncer a later answer could be another's.
    server: Option<i64>,
    connector: Arc<Connector>,
}

impl Following {
    async fn ask(
        &mut self,
        doing: &str,
        query: Query<'_, sqlx::Postgres, PgArguments>,
    ) -> Result<Vec<PgRow>, Error> {
        let Some(mut session) = self.session.take() else {
            return Err(Error::Unavailable(format!("{doing}: the session has ended")));
        };
        let rows = match tokio::time::timeout(READ, session.read(query)).await {
            Ok(rows) => rows.map_err(|error| self::error(doing, &error))?,
            Err(_) => {
                let text = format!("{doing}: no answer within {} ms", READ.as_millis());
                return Err(Error::Unavailable(text));
            }
        };
        self.session = Some(session);
        Ok(rows)
    }

    fn same_server(&mut self, row: Option<&PgRow>) -> Result<(), Error> {
        let Some(row) = row else { return Ok(()) };
        let server: i64 = row.try_get("server").map_err(|error| self::error("read a row", &error))?;
        if *self.server.get_or_insert(server) != server {
            self.session = None;
            return Err(Error::Unavailable("another server answers at this address".to_owned()));
        }
        Ok(())
    }
}

#[async_trait]
impl Reading for Following {
    async fn head(&mut self, asked: u64) -> Result<HeadReport, Error> {
        let rows = self.ask("read the head", sqlx::query(HEAD).bind(stored::count(asked))).await?;
        self.same_server(rows.first())?;
        let row = rows.first().ok_or_else(|| Error::Unusable("the database holds no ledger".to_owned()))?;
        let report = row::head_report(row, asked)?;
        // A server in recovery is followed only by those who want a standby.
        if let Some(server) = self.server.filter(|_| !report.in_recovery || self.connector.takes_standbys()) {
            self.connector.follows(server);
        }
        Ok(report)
    }

    async fn read(&mut self, after: u64, limit: usize) -> Result<Vec<Entry>, Error> {
        let query = sqlx::query(PAGE).bind(stored::count(after)).bind(stored::limit(limit)).bind(PAGE_BYTES);
        let rows = self.ask("read entries", query).await?;
        self.same_server(rows.first())?;
        rows.iter().map(|row| row::entry(row, true)).collect()
    }

    async fn liveness(&mut self, since: Option<Timestamp>) -> Result<Vec<Liveness>, Error> {
        let since = since.map_or(i64::MIN, Timestamp::as_micros);
        let query = sqlx::query(LIVENESS).bind(since).bind(stored::limit(LIVENESS_PAGE));
        self.ask("read liveness", query).await?.iter().map(row::liveness).collect()
    }
}
