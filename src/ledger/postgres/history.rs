//! Reading the past, on a few sessions of their own.

use async_trait::async_trait;
use bytes::Bytes;
use sqlx::Row as _;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use tracing::Instrument as _;

use super::error::{error, is_dead};
use super::{Postgres, STEP, row};
use crate::ledger::stored;
use crate::ledger::{Entry, Error, History, Revision, chain};
use crate::terms::{AgentName, Digest};

macro_rules! revisions {
    ($which:literal) => {
        concat!(
            "SELECT r.namespace, r.name, r.revision, r.seq, r.kind, r.change, e.digest, e.body
             FROM revision r JOIN entry e ON e.seq = r.seq
             WHERE r.namespace = $1 AND r.name = $2 AND ",
            $which
        )
    };
}

pub(super) const ONE: &str = revisions!("r.revision = $3");

/// Numbers and sequence numbers of one agent rise together, so this walks back from the newest.
pub(super) const SOME: &str = revisions!("r.revision < $3 AND r.seq <= $4 ORDER BY r.revision DESC LIMIT $5");

pub(super) const CARD: &str =
    "SELECT card FROM revision WHERE namespace = $1 AND name = $2 AND revision = $3 AND card IS NOT NULL";

pub(super) const ENTRIES: &str =
    "SELECT seq, digest, body_digest, body FROM entry WHERE seq >= $1 ORDER BY seq LIMIT $2";

const DIGEST_AT: &str = "SELECT digest FROM entry WHERE seq = $1";
const LEDGER_ID: &str = "SELECT id FROM ledger";

type PgQuery = Query<'static, sqlx::Postgres, PgArguments>;

impl Postgres {
    /// Runs a read on one of the history sessions; once more when a kept session turns out to be dead.
    pub(super) async fn ask(
        &self,
        doing: &str,
        query: impl Fn() -> PgQuery + Send + Sync,
    ) -> Result<Vec<PgRow>, Error> {
        let asked = async {
            let mut lease = self.history.lease().await?;
            let read = match lease.session.read(query()).await {
                Err(error) if lease.kept_before && is_dead(&error) => {
                    drop(lease);
                    lease = self.history.lease_new().await?;
                    lease.session.read(query()).await
                }
                read => read,
            };
            let rows = read.map_err(|error| self::error(doing, &error))?;
            lease.give_back();
            Ok(rows)
        };
        let asked = asked.instrument(tracing::debug_span!("sql", statement = doing));
        tokio::time::timeout(STEP, asked).await.unwrap_or_else(|_| {
            Err(Error::Unavailable(format!("{doing}: no answer within {} ms", STEP.as_millis())))
        })
    }
}

#[async_trait]
impl History for Postgres {
    async fn revision(&self, agent: &AgentName, number: u64) -> Result<Option<Revision>, Error> {
        let query =
            || sqlx::query(ONE).bind(agent.namespace()).bind(agent.name()).bind(stored::count(number));
        self.ask("read a revision", query).await?.first().map(row::revision).transpose()
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
        let below = below.map_or(i64::MAX, stored::count);
        let query = || {
            sqlx::query(SOME)
                .bind(agent.namespace())
                .bind(agent.name())
                .bind(below)
                .bind(stored::count(seq))
                .bind(stored::limit(limit))
        };
        self.ask("read revisions", query).await?.iter().map(row::revision).collect()
    }

    async fn card(&self, agent: &AgentName, number: u64) -> Result<Option<Bytes>, Error> {
        let query =
            || sqlx::query(CARD).bind(agent.namespace()).bind(agent.name()).bind(stored::count(number));
        let rows = self.ask("read a card", query).await?;
        let card = rows.first().map(|row| row.try_get::<Vec<u8>, _>(0)).transpose();
        Ok(card.map_err(|error| self::error("read a card", &error))?.map(Bytes::from))
    }

    async fn entries(&self, from: u64, limit: usize) -> Result<Vec<Entry>, Error> {
        let query = || sqlx::query(ENTRIES).bind(stored::count(from)).bind(stored::limit(limit));
        self.ask("read entries", query).await?.iter().map(|row| row::entry(row, false)).collect()
    }

    async fn digest_at(&self, seq: u64) -> Result<Option<Digest>, Error> {
        let doing = "read a digest";
        let unreadable = |error| self::error(doing, &error);
        if seq == 0 {
            let rows = self.ask(doing, || sqlx::query(LEDGER_ID)).await?;
            let id = rows.first().map(|row| row.try_get::<String, _>(0)).transpose().map_err(unreadable)?;
            return Ok(id.map(|id| chain::origin(&id)));
        }
        let rows = self.ask(doing, || sqlx::query(DIGEST_AT).bind(stored::count(seq))).await?;
        let bytes = rows.first().map(|row| row.try_get::<Vec<u8>, _>(0)).transpose().map_err(unreadable)?;
        bytes.as_deref().map(stored::digest).transpose()
    }
}
