//! The ledger in one SQLite file, for one process: the embedded store, and the default.
//!
//! The file is in WAL mode with `synchronous=FULL`: an acknowledged write is on the disk. Both are read back
//! after every opening, since SQLite ignores what it cannot do. One connection writes the ledger and another what
//! need not outlive a power cut, never at once; one keeps the reports of replicas; a few read, and each
//! [`Reading`](super::Reading) has its own.
//!
//! # One process
//!
//! A second process is refused by a lock of the operating system on a file beside the database, `<file>.lock`,
//! which dies with its holder, however that ends. The lock file stays where it is: removing it would let two
//! processes lock two files of one name. The database file itself is not locked this way, because closing any
//! descriptor of it would drop the locks that SQLite holds on it.

mod error;
mod migrate;
mod origins;
mod read;
mod replicas;
mod row;
mod transact;

use std::fmt;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePool, SqlitePoolOptions,
    SqliteSynchronous,
};
use sqlx::{ConnectOptions as _, Connection as _, Row as _};
use tokio::sync::Mutex;

use self::error::error;
use super::Error;
use crate::clock::Clock;

/// Within one process only reports write besides, so that one of them, a checkpoint or a closing connection is
/// all that is waited for.
const BUSY: Duration = Duration::from_secs(4);

/// The longest that a read may take.
const READ: Duration = Duration::from_secs(30);

const READERS: u32 = 4;

/// A ledger in a file. Clones share it.
#[derive(Clone)]
pub struct Sqlite(Arc<Inner>);

struct Inner {
    path: PathBuf,
    clock: Clock,
    /// The connection that writes, while no transaction has it. `None`: to be opened.
    writer: Arc<Mutex<Option<SqliteConnection>>>,
    /// The connection that writes confirmations and ticks. Taken by who holds `writer`.
    origins: Arc<Mutex<Option<SqliteConnection>>>,
    /// The connection that reports are kept through, between two of them.
    reports: Mutex<Option<SqliteConnection>>,
    readers: SqlitePool,
    /// Held until the last clone is gone.
    _lock: File,
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite").field("path", &self.0.path).finish_non_exhaustive()
    }
}

impl Sqlite {
    /// Refuses a file that holds no ledger of this program's schema. Changes nothing.
    ///
    /// # Errors
    /// [`Error::Unusable`] when there is none, or it is older, newer or changed.
    pub async fn check(path: impl AsRef<Path>) -> Result<(), Error> {
        let path = resolve(path.as_ref())?;
        let options = options(&path).read_only(true).create_if_missing(false);
        let connection = options.connect().await;
        let mut connection =
            connection.map_err(|_| unusable(&path, "there is no ledger, and none is to be made"))?;
        migrate::check(&mut connection, &path).await
    }

    /// Opens the ledger in `path`, makes the file where there is none, and brings its schema up to this
    /// program's. Entries are dated by `clock`.
    ///
    /// # Errors
    /// [`Error::Unusable`] when another process has the file, when it is no ledger of this program, or when it
    /// cannot be made durable.
    pub async fn open(path: impl AsRef<Path>, clock: Clock) -> Result<Self, Error> {
        // Made first where there is none, so that a link that led nowhere has its one true name, too.
        let made = File::options().create(true).append(true).open(path.as_ref());
        made.map_err(|error| unusable(path.as_ref(), error))?;
        let path = resolve(path.as_ref())?;
        let lock = lock(&path)?;
        let mut writer = open_writer(&path).await?;
        migrate::apply(&mut writer, &path).await?;
        let readers = SqlitePoolOptions::new()
            .max_connections(READERS)
            .acquire_timeout(BUSY)
            .connect_lazy_with(options(&path).read_only(true));
        let writer = Arc::new(Mutex::new(Some(writer)));
        let inner = Inner {
            path,
            clock,
            writer,
            origins: Arc::default(),
            reports: Mutex::new(None),
            readers,
            _lock: lock,
        };
        Ok(Self(Arc::new(inner)))
    }
}

fn unusable(path: &Path, what: impl fmt::Display) -> Error {
    Error::Unusable(format!("{}: {what}", path.display()))
}

/// The file's one true name, so that two ways to it meet at one lock.
fn resolve(path: &Path) -> Result<PathBuf, Error> {
    if let Ok(real) = path.canonicalize() {
        return Ok(real);
    }
    let name = path.file_name().ok_or_else(|| unusable(path, "the path names no file"))?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = folder.canonicalize().map_err(|error| unusable(folder, error))?;
    Ok(folder.join(name))
}

fn lock(path: &Path) -> Result<File, Error> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let beside = PathBuf::from(name);
    let file = File::options().create(true).append(true).open(&beside);
    let file = file.map_err(|error| unusable(&beside, error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            Err(unusable(path, "another process serves this file; one process at a time may"))
        }
        Err(TryLockError::Error(error)) => Err(unusable(&beside, error)),
    }
}

fn options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(BUSY)
        .disable_statement_logging()
}

async fn open_writer(path: &Path) -> Result<SqliteConnection, Error> {
    let options = options(path).create_if_missing(true);
    let opened = SqliteConnection::connect_with(&options).await;
    let mut connection = opened.map_err(|error| unusable(path, error))?;
    for (setting, wanted) in [("journal_mode", "wal"), ("synchronous", "2"), ("foreign_keys", "1")] {
        let found = pragma(&mut connection, setting).await?;
        if found != wanted {
            return Err(unusable(path, format!("{setting} is {found} where {wanted} was asked for")));
        }
    }
    Ok(connection)
}

async fn pragma(connection: &mut SqliteConnection, name: &'static str) -> Result<String, Error> {
    let query = match name {
        "journal_mode" => "SELECT CAST(journal_mode AS TEXT) FROM pragma_journal_mode",
        "synchronous" => "SELECT CAST(synchronous AS TEXT) FROM pragma_synchronous",
        _ => "SELECT CAST(foreign_keys AS TEXT) FROM pragma_foreign_keys",
    };
    let row = sqlx::query(query).fetch_one(connection).await;
    row.and_then(|row| row.try_get(0)).map_err(|error| self::error(name, &error))
}

#[cfg(test)]
mod tests;
