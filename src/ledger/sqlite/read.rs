//! Reading the file: the ledger in order, on a connection of its own, and the past, on a few shared ones.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::TryStreamExt as _;
use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteConnection, SqliteRow};
use sqlx::{Connection as _, Row as _};
use tracing::Instrument as _;

use super::error::error;
use super::{READ, Sqlite, options, row};
use crate::clock::Clock;
use crate::ledger::stored::{self, PAGE_BYTES};
use crate::ledger::{
    CardKept, Entries, Entry, Error, HeadReport, History, LIVENESS_PAGE, Liveness, Reading, Revision, chain,
};
use crate::terms::{AgentName, Digest, Tag, Timestamp};

/// The head, the digest at ?1, and the service clock.
const HEAD: &str = "
    SELECT l.id AS ledger_id, h.seq, h.digest, a.digest AS digest_at_asked, s.elapsed
    FROM ledger l
    JOIN service s
    LEFT JOIN (SELECT seq, digest FROM entry ORDER BY seq DESC LIMIT 1) h
    LEFT JOIN entry a ON a.seq = ?1";

const PAGE: &str = "
    SELECT e.seq, e.digest, e.body_digest, e.body, r.card
    FROM entry e LEFT JOIN revision r ON r.seq = e.seq
    WHERE e.seq > ?1 ORDER BY e.seq LIMIT ?2";

const LIVENESS: &str = "
    SELECT namespace, name, revision, origin_confirmed_at, registers, ttl, confirmed_service FROM liveness
    WHERE origin_confirmed_at >= ?1 ORDER BY origin_confirmed_at LIMIT ?2";

const SOME: &str = "
    SELECT r.namespace, r.name, r.revision, r.seq, r.kind, r.change, e.digest, e.body
    FROM revision r JOIN entry e ON e.seq = r.seq
    WHERE r.namespace = ?1 AND r.name = ?2 AND r.revision >= ?3 AND r.revision < ?4 AND r.seq <= ?5
    ORDER BY r.revision DESC LIMIT ?6";

const CARD: &str =
    "SELECT card FROM revision WHERE namespace = ?1 AND name = ?2 AND revision = ?3 AND card IS NOT NULL";

const ENTRIES: &str =
    "SELECT seq, digest, body_digest, body FROM entry WHERE seq >= ?1 ORDER BY seq LIMIT ?2";

const DIGEST_AT: &str = "
    SELECT l.id AS ledger_id, e.digest AS digest_at_asked FROM ledger l LEFT JOIN entry e ON e.seq = ?1";

pub(super) type SqliteQuery<'q> = Query<'q, sqlx::Sqlite, SqliteArguments>;

pub(super) async fn bounded<T>(
    doing: &str,
    call: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, Error> {
    match tokio::time::timeout(READ, call).await {
        Ok(done) => done.map_err(|error| self::error(doing, &error)),
        Err(_) => Err(Error::Unavailable(format!("{doing}: no answer within {} ms", READ.as_millis()))),
    }
}

#[async_trait]
impl Entries for Sqlite {
    async fn open(&self) -> Result<Box<dyn Reading>, Error> {
        let options = options(&self.0.path).read_only(true);
        let connection = bounded("open", SqliteConnection::connect_with(&options)).await?;
        Ok(Box::new(Following { connection, clock: self.0.clock.clone() }))
    }
}

struct Following {
    connection: SqliteConnection,
    clock: Clock,
}

#[async_trait]
impl Reading for Following {
    async fn head(&mut self, asked: u64) -> Result<HeadReport, Error> {
        let query = sqlx::query(HEAD).bind(stored::count(asked));
        let row = bounded("read the head", query.fetch_one(&mut self.connection)).await?;
        let (ledger_id, head) = row::head(&row)?;
        let tag_at_asked = row::digest_at(&row, &ledger_id, asked)?.as_ref().map(Tag::from);
        let wall = self.clock.now().wall();
        let (age, hops, service) = (Some(Duration::ZERO), 0, row::service(&row)?);
        Ok(HeadReport { ledger_id, in_recovery: false, head, tag_at_asked, wall, age, hops, service })
    }

    async fn read(&mut self, after: u64, limit: usize) -> Result<Vec<Entry>, Error> {
        let read = async {
            let query = sqlx::query(PAGE).bind(stored::count(after)).bind(stored::limit(limit));
            let mut rows = query.fetch(&mut self.connection);
            let mut page = Vec::new();
            let mut bytes = 0;
            // Dropping the rows ends the statement, so that the page can end where it is full.
            while bytes < PAGE_BYTES {
                let Some(row) = rows.try_next().await? else { break };
                let entry = row::entry(&row, true);
                bytes += entry.as_ref().map_or(0, size);
                page.push(entry);
            }
            Ok(page)
        };
        bounded("read entries", read).await?.into_iter().collect()
    }

    async fn liveness(&mut self, since: Option<Timestamp>) -> Result<Vec<Liveness>, Error> {
        let since = since.map_or(i64::MIN, Timestamp::as_micros);
        let query = sqlx::query(LIVENESS).bind(since).bind(stored::limit(LIVENESS_PAGE));
        let rows = bounded("read liveness", query.fetch_all(&mut self.connection)).await?;
        rows.iter().map(row::liveness).collect()
    }
}

fn size(entry: &Entry) -> i64 {
    let card = match &entry.card {
        Some(CardKept::Bytes(bytes)) => bytes.len(),
        _ => 0,
    };
    stored::limit(entry.body.len() + card)
}

impl Sqlite {
    pub(super) async fn ask(&self, doing: &str, query: SqliteQuery<'_>) -> Result<Vec<SqliteRow>, Error> {
        let rows = bounded(doing, query.fetch_all(&self.0.readers));
        rows.instrument(tracing::debug_span!("sql", statement = doing)).await
    }

    async fn some(
        &self,
        agent: &AgentName,
        numbers: std::ops::Range<i64>,
        seq: i64,
        limit: usize,
    ) -> Result<Vec<Revision>, Error> {
        let query = sqlx::query(SOME)
            .bind(agent.namespace().to_owned())
            .bind(agent.name().to_owned())
            .bind(numbers.start)
            .bind(numbers.end)
            .bind(seq)
            .bind(stored::limit(limit));
        self.ask("read revisions", query).await?.iter().map(row::revision).collect()
    }
}

#[async_trait]
impl History for Sqlite {
    async fn revision(&self, agent: &AgentName, number: u64) -> Result<Option<Revision>, Error> {
        let number = stored::count(number);
        Ok(self.some(agent, number..number.saturating_add(1), i64::MAX, 1).await?.pop())
    }

    async fn revision_at(&self, agent: &AgentName, seq: u64) -> Result<Option<Revision>, Error> {
        Ok(self.revisions(agent, None, seq, 1).await?.pop())
    }

    async fn revisions(
        &self,
        agent: &AgentName,
        below: Option<u64>,
        seq: u64,
        limit: usize,
    ) -> Result<Vec<Revision>, Error> {
        self.some(agent, 0..below.map_or(i64::MAX, stored::count), stored::count(seq), limit).await
    }

    async fn card(&self, agent: &AgentName, number: u64) -> Result<Option<Bytes>, Error> {
        let query = sqlx::query(CARD)
            .bind(agent.namespace().to_owned())
            .bind(agent.name().to_owned())
            .bind(stored::count(number));
        let rows = self.ask("read a card", query).await?;
        let card = rows.first().map(|row| row.try_get::<Vec<u8>, _>(0)).transpose();
        Ok(card.map_err(|error| self::error("read a card", &error))?.map(Bytes::from))
    }

    async fn entries(&self, from: u64, limit: usize) -> Result<Vec<Entry>, Error> {
        let query = sqlx::query(ENTRIES).bind(stored::count(from)).bind(stored::limit(limit));
        self.ask("read entries", query).await?.iter().map(|row| row::entry(row, false)).collect()
    }

    async fn digest_at(&self, seq: u64) -> Result<Option<Digest>, Error> {
        let rows = self.ask("read a digest", sqlx::query(DIGEST_AT).bind(stored::count(seq))).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let ledger_id: String =
            row.try_get("ledger_id").map_err(|error| self::error("read a digest", &error))?;
        if seq == 0 { Ok(Some(chain::origin(&ledger_id))) } else { row::digest_at(row, &ledger_id, seq) }
    }
}
