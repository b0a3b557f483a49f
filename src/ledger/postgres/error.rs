//! The driver's errors as the ledger's. The driver's own type goes no further than this folder.

use sqlx::postgres::{PgDatabaseError, PgSeverity};

use crate::ledger::{CommitError, Error};

/// What an error of the driver means for the caller. `doing` says what was tried.
pub(super) fn error(doing: &str, error: &sqlx::Error) -> Error {
    match error {
        sqlx::Error::Database(database) => refused(doing, database.downcast_ref()),
        sqlx::Error::RowNotFound
        | sqlx::Error::ColumnNotFound(_)
        | sqlx::Error::ColumnIndexOutOfBounds { .. }
        | sqlx::Error::ColumnDecode { .. }
        | sqlx::Error::Decode(_)
        | sqlx::Error::TypeNotFound { .. } => Error::Corrupt(format!("{doing}: {error}")),
        // Whatever was asked for and cannot be had, such as encryption.
        sqlx::Error::Tls(_) => Error::Unusable(format!("{doing}: {error}")),
        // May quote what was configured, secrets included.
        sqlx::Error::Configuration(_) => Error::Unusable(format!("{doing}: the settings are malformed")),
        _ => Error::Unavailable(format!("{doing}: {error}")),
    }
}

fn refused(doing: &str, error: &PgDatabaseError) -> Error {
    let code = error.code();
    let constraint = error.constraint().map(|name| format!(" ({name})")).unwrap_or_default();
    let text = format!("{doing}: {code} {}{constraint}", error.message());
    match code.get(..2).unwrap_or_default() {
        // A row that the lock rules out, or that does not fit: somebody else writes here.
        "22" | "23" => Error::Corrupt(text),
        // No such database, role or object, no privilege, not understood.
        "28" | "3D" | "3F" | "42" => Error::Unusable(text),
        _ => Error::Unavailable(text),
    }
}

/// What an error in answer to `COMMIT` means. Only a plain error says that nothing was written: a server that
/// ends the session, shuts down or panics may do so after the commit is durable.
pub(super) fn commit_error(error: &sqlx::Error) -> CommitError {
    let doing = "commit";
    if let sqlx::Error::Database(database) = error {
        let database: &PgDatabaseError = database.downcast_ref();
        let class = database.code().get(..2).unwrap_or_default();
        if database.severity() == PgSeverity::Error && !matches!(class, "08" | "57" | "58" | "XX") {
            return CommitError::Refused(refused(doing, database));
        }
    }
    CommitError::Unknown(self::error(doing, error))
}

/// Whether a session that was kept was found dead, so that a new one may do better.
pub(super) fn is_dead(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed => true,
        sqlx::Error::Database(database) => {
            let database: &PgDatabaseError = database.downcast_ref();
            matches!(database.severity(), PgSeverity::Fatal | PgSeverity::Panic)
        }
        _ => false,
    }
}
