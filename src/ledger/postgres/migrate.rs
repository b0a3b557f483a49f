//! The schema: brought up to this program's under a lock, or checked.
//!
//! sqlx's migrator applies the files of `migrations/postgres`, each in a transaction of its own, and keeps a
//! checksum of each. Two programs that start at once wait for one another: the migrator holds a lock of the
//! session while it works, which is why it needs a session of its own and not PgBouncer's.

use std::time::Duration;

use sqlx::Row as _;
use sqlx::SqlSafeStr as _;
use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::postgres::PgRow;

use super::STEP;
use super::error::error;
use super::session::{Connector, Role};
use crate::ledger::Error;

/// The longest that a migration, or the wait for another program's, may take.
const WITHIN: Duration = Duration::from_secs(600);

/// Which migrations were applied is kept here.
const TABLE: &str = "cardfence_migration";

fn migrator() -> Migrator {
    let ledger = include_str!("../../../migrations/postgres/0001_ledger.sql");
    let service = include_str!("../../../migrations/postgres/0002_service.sql");
    let replicas = include_str!("../../../migrations/postgres/0003_replicas.sql");
    let files = [(1, "ledger", ledger), (2, "service", service), (3, "replicas", replicas)];
    let migrations = files.into_iter().map(|(version, name, sql)| {
        Migration::new(version, name.into(), MigrationType::Simple, sql.into_sql_str(), false)
    });
    let mut migrator = Migrator::with_migrations(migrations.collect());
    migrator.dangerous_set_table_name(TABLE);
    migrator
}

/// Applies what is missing.
pub(super) async fn apply(connector: &Connector) -> Result<(), Error> {
    if connector.pooled() {
        let text = "migrations hold a lock of the session, which PgBouncer in transaction mode does not keep: \
                    run them over a direct url";
        return Err(Error::Unusable(text.to_owned()));
    }
    let mut session = connector.open(Role::Migrate).await?;
    let migrator = migrator();
    let run = migrator.run_direct(None, session.connection(), false);
    match tokio::time::timeout(WITHIN, run).await {
        Ok(result) => result.map_err(|error| refused(&error)),
        Err(_) => Err(Error::Unavailable(format!("migrations took longer than {} s", WITHIN.as_secs()))),
    }
}

fn refused(error: &MigrateError) -> Error {
    match error {
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => {
            self::error("migrate", error)
        }
        MigrateError::VersionMissing(version) => newer(*version),
        MigrateError::VersionMismatch(version) => changed(*version),
        other => Error::Unusable(format!("migrate: {other}")),
    }
}

fn newer(version: i64) -> Error {
    Error::Unusable(format!("the schema is newer than this program: it has migration {version}"))
}

fn changed(version: i64) -> Error {
    Error::Unusable(format!("migration {version} was applied from another file than this program's"))
}

/// Says whether the schema is this program's. Writes nothing, so that a standby can be asked as well.
pub(super) async fn check(connector: &Connector) -> Result<(), Error> {
    let checked = async {
        let mut session = connector.open(Role::History).await?;
        let failed = |error: sqlx::Error| self::error("check the schema", &error);
        let exists = "SELECT to_regclass('cardfence_migration') IS NOT NULL";
        let exists = session.read(sqlx::query(exists)).await.map_err(failed)?;
        let exists = exists.first().map(|row| row.try_get(0)).transpose().map_err(failed)?;
        if exists != Some(true) {
            return Err(Error::Unusable("the database holds no ledger yet: run the migrations".to_owned()));
        }
        let applied = "SELECT version, checksum, success FROM cardfence_migration ORDER BY version";
        session.read(sqlx::query(applied)).await.map_err(failed)
    };
    let applied = tokio::time::timeout(STEP, checked).await.unwrap_or_else(|_| {
        Err(Error::Unavailable(format!("check the schema: no answer within {} ms", STEP.as_millis())))
    })?;
    compare(&applied)
}

fn compare(applied: &[PgRow]) -> Result<(), Error> {
    let migrator = migrator();
    let unreadable = |error: sqlx::Error| self::error("check the schema", &error);
    let mut known = migrator.iter();
    for row in applied {
        let version: i64 = row.try_get(0).map_err(unreadable)?;
        let checksum: Vec<u8> = row.try_get(1).map_err(unreadable)?;
        let success: bool = row.try_get(2).map_err(unreadable)?;
        match known.next() {
            _ if !success => {
                return Err(Error::Unusable(format!("migration {version} was applied in part only")));
            }
            None => return Err(newer(version)),
            Some(expected) if expected.version != version || expected.checksum != checksum => {
                return Err(changed(version));
            }
            Some(_) => {}
        }
    }
    match known.next() {
        Some(missing) => {
            let text =
                format!("the schema is older than this program: migration {} is missing", missing.version);
            Err(Error::Unusable(text))
        }
        None => Ok(()),
    }
}
