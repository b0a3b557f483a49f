//! The schema of the file, brought up to this program's. The process holds the file's lock, so nobody else can.

use std::path::Path;

use sqlx::SqlSafeStr as _;
use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::sqlite::SqliteConnection;

use super::error::error;
use super::unusable;
use crate::ledger::Error;

/// Which migrations were applied is kept here.
const TABLE: &str = "cardfence_migration";

/// Refuses a file whose schema is not this program's. Changes nothing.
pub(super) async fn check(connection: &mut SqliteConnection, path: &Path) -> Result<(), Error> {
    let applied: Vec<(i64, Vec<u8>)> =
        sqlx::query_as("SELECT version, checksum FROM cardfence_migration WHERE success ORDER BY version")
            .fetch_all(connection)
            .await
            .map_err(|_| unusable(path, "it holds no ledger, and none is to be made"))?;
    let expected: Vec<(i64, Vec<u8>)> =
        migrator().iter().map(|migration| (migration.version, migration.checksum.to_vec())).collect();
    if applied == expected { Ok(()) } else { Err(unusable(path, "its schema is not this program's")) }
}

/// Brings the schema up to this program's.
pub(super) async fn apply(connection: &mut SqliteConnection, path: &Path) -> Result<(), Error> {
    migrator().run_direct(None, connection, false).await.map_err(|error| match error {
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => {
            self::error("migrate", &error)
        }
        MigrateError::VersionMissing(version) => {
            unusable(path, format!("the schema is newer than this program: it has migration {version}"))
        }
        MigrateError::VersionMismatch(version) => {
            unusable(path, format!("migration {version} was applied from another file than this program's"))
        }
        other => unusable(path, other),
    })
}

fn migrator() -> Migrator {
    migrator_to(i64::MAX)
}

/// Makes the first schema there was.
#[cfg(test)]
pub(super) fn only_first() -> Migrator {
    migrator_to(1)
}

/// The migrations up to `last`.
fn migrator_to(last: i64) -> Migrator {
    let ledger = include_str!("../../../migrations/sqlite/0001_ledger.sql");
    let service = include_str!("../../../migrations/sqlite/0002_service.sql");
    let replicas = include_str!("../../../migrations/sqlite/0003_replicas.sql");
    let files = [(1, "ledger", ledger), (2, "service", service), (3, "replicas", replicas)];
    let files = files.into_iter().filter(|(version, ..)| *version <= last);
    let migrations = files.map(|(version, name, sql)| {
        Migration::new(version, name.into(), MigrationType::Simple, sql.into_sql_str(), false)
    });
    let mut migrator = Migrator::with_migrations(migrations.collect());
    migrator.dangerous_set_table_name(TABLE);
    migrator
}
