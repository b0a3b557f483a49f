//! The driver's errors as the ledger's. The driver's own type goes no further than this folder.

use crate::ledger::{CommitError, Error};

/// What an error of the driver means for the caller. `doing` says what was tried.
pub(super) fn error(doing: &str, error: &sqlx::Error) -> Error {
    let text = format!("{doing}: {error}");
    match error {
        sqlx::Error::Database(database) => match primary_code(database.code().as_deref()) {
            // Corrupt, constraint, mismatch, not a database.
            Some(11 | 19 | 20 | 26) => Error::Corrupt(text),
            // Permission, read-only, cannot open.
            Some(3 | 8 | 14) => Error::Unusable(text),
            _ => Error::Unavailable(text),
        },
        sqlx::Error::RowNotFound
        | sqlx::Error::ColumnNotFound(_)
        | sqlx::Error::ColumnIndexOutOfBounds { .. }
        | sqlx::Error::ColumnDecode { .. }
        | sqlx::Error::Decode(_) => Error::Corrupt(text),
        _ => Error::Unavailable(text),
    }
}

/// What an error in answer to `COMMIT` means. After one of the file system the frames may be in the log all the
/// same, and count after a crash.
pub(super) fn commit_error(error: &sqlx::Error) -> CommitError {
    let code = error.as_database_error().and_then(|database| primary_code(database.code().as_deref()));
    match code {
        // Busy, full, constraint.
        Some(5 | 13 | 19) => CommitError::Refused(self::error("commit", error)),
        _ => CommitError::Unknown(self::error("commit", error)),
    }
}

/// SQLite's extended codes hold the primary one in their low byte.
fn primary_code(code: Option<&str>) -> Option<u32> {
    code?.parse::<u32>().ok().map(|code| code & 0xff)
}
