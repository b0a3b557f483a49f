//! Confirming origins, and the service clock.
//!
//! Written by a connection of their own with `synchronous=NORMAL`, which waits for no disk: a tick a second would wake
//! it for ever, and a confirmation that a power cut takes back makes an origin look older than it is, never younger.
//! What a killed process had written stays. Whoever writes here holds the writer's place, so that nobody waits for
//! SQLite's own lock, and a register that was there first is seen.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::sqlite::{SqliteConnection, SqliteRow, SqliteSynchronous};
use sqlx::{Connection as _, Row as _};
use tokio::sync::OwnedMutexGuard;

use super::error::error;
use super::{BUSY, Sqlite, options};
use crate::ledger::stored;
use crate::ledger::{Confirmed, Error, Origins, RevisionKind, ServiceClock, ticked};
use crate::terms::{AgentName, Digest, Timestamp};

/// The current revision of agent ?1/?2.
const CURRENT: &str = "
    SELECT revision, kind, content_digest FROM revision
    WHERE namespace = ?1 AND name = ?2 ORDER BY revision DESC LIMIT 1";

const CONFIRM: &str = "
    UPDATE liveness SET origin_confirmed_at = ?4, confirmed_service = (SELECT elapsed FROM service)
    WHERE namespace = ?1 AND name = ?2 AND revision = ?3
    RETURNING ttl, confirmed_service";

const SERVICE: &str = "SELECT elapsed, advanced_at FROM service";

const TICK: &str = "UPDATE service SET elapsed = ?1, advanced_at = ?2";

/// A transaction in the writer's place. Dropped before it is committed, it closes its connection.
struct Lightly {
    // The connection is closed before its slot is free, and both before another may write.
    connection: SqliteConnection,
    slot: OwnedMutexGuard<Option<SqliteConnection>>,
    _writing: OwnedMutexGuard<Option<SqliteConnection>>,
}

impl Sqlite {
    async fn begin_lightly(&self, doing: &str) -> Result<Lightly, Error> {
        let failed = |error: sqlx::Error| self::error(doing, &error);
        let writing = tokio::time::timeout(BUSY, Arc::clone(&self.0.writer).lock_owned());
        let writing = writing.await.map_err(|_| {
            Error::Unavailable(format!("{doing}: other writes took longer than {} ms", BUSY.as_millis()))
        })?;
        let mut slot = Arc::clone(&self.0.origins).lock_owned().await;
        let mut connection = match slot.take() {
            Some(connection) => connection,
            None => {
                let options = options(&self.0.path).synchronous(SqliteSynchronous::Normal);
                SqliteConnection::connect_with(&options).await.map_err(failed)?
            }
        };
        sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut connection).await.map_err(failed)?;
        Ok(Lightly { connection, slot, _writing: writing })
    }
}

impl Lightly {
    async fn commit(mut self, doing: &str) -> Result<(), Error> {
        let done = sqlx::raw_sql("COMMIT").execute(&mut self.connection).await;
        done.map_err(|error| self::error(doing, &error))?;
        *self.slot = Some(self.connection);
        Ok(())
    }
}

#[async_trait]
impl Origins for Sqlite {
    async fn confirm(&self, items: &[(AgentName, Digest)]) -> Result<Vec<Confirmed>, Error> {
        let mut txn = self.begin_lightly("confirm").await?;
        let (at, mut all) = (self.0.clock.now().wall(), Vec::with_capacity(items.len()));
        for (agent, digest) in items {
            all.push(confirm(&mut txn.connection, agent, digest, at).await?);
        }
        txn.commit("confirm").await?;
        Ok(all)
    }
}

async fn confirm(
    connection: &mut SqliteConnection,
    agent: &AgentName,
    digest: &Digest,
    at: Timestamp,
) -> Result<Confirmed, Error> {
    let failed = |error: sqlx::Error| self::error("confirm", &error);
    let query = sqlx::query(CURRENT).bind(agent.namespace().to_owned()).bind(agent.name().to_owned());
    let Some(found) = query.fetch_optional(&mut *connection).await.map_err(failed)? else {
        return Ok(Confirmed::NotFound);
    };
    let (number, kind, content) = current(&found).map_err(failed)?;
    let revision = stored::number(number)?;
    if stored::revision_kind(&kind)? == RevisionKind::Tombstone {
        return Ok(Confirmed::Retired { revision });
    }
    if content.as_deref() != Some(digest.as_bytes()) {
        return Ok(Confirmed::OtherDigest { revision });
    }
    let query = sqlx::query(CONFIRM)
        .bind(agent.namespace().to_owned())
        .bind(agent.name().to_owned())
        .bind(number)
        .bind(at.as_micros());
    let Some(row) = query.fetch_optional(connection).await.map_err(failed)? else {
        return Err(Error::Corrupt(format!(
            "revision {number} of {agent} is not the one that is held alive"
        )));
    };
    let lease = (row.try_get("ttl").map_err(failed)?, row.try_get("confirmed_service").map_err(failed)?);
    Ok(Confirmed::Done { revision, at, lease: stored::lease(lease.0, lease.1)? })
}

fn current(row: &SqliteRow) -> Result<(i64, String, Option<Vec<u8>>), sqlx::Error> {
    Ok((row.try_get("revision")?, row.try_get("kind")?, row.try_get("content_digest")?))
}

#[async_trait]
impl ServiceClock for Sqlite {
    async fn tick(&self) -> Result<Duration, Error> {
        let failed = |error: sqlx::Error| self::error("tick", &error);
        let mut txn = self.begin_lightly("tick").await?;
        let row = sqlx::query(SERVICE).fetch_one(&mut txn.connection).await.map_err(failed)?;
        let (before, at) = (row.try_get("elapsed"), row.try_get("advanced_at"));
        let now = self.0.clock.now().wall().as_micros();
        let elapsed = ticked(before.map_err(failed)?, at.map_err(failed)?, now);
        let query = sqlx::query(TICK).bind(elapsed).bind(now);
        query.execute(&mut txn.connection).await.map_err(failed)?;
        txn.commit("tick").await?;
        stored::duration(elapsed)
    }
}
