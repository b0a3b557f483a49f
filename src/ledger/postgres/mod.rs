//! The ledger in PostgreSQL: the engine of every deployment with more than one node.
//!
//! # Sessions
//!
//! Nothing is shared between what must not wait for each other: history reads have a few sessions of their
//! own (`lease`), confirmations of origins have two, the writer and the reports keep one each, every
//! [`Reading`](super::Reading) owns one, and the nudge has one. All are opened in one place (`session`), which tries a list of servers in order, since
//! sqlx knows no URLs with several hosts. A session goes back to its keeper only after a clean exchange: a call
//! that failed, timed out or was dropped closes its connection, and no cancel is ever sent (one that comes late
//! would hit the next statement). So nothing that happened on a broken connection can be seen on a later one.
//! That, and the list of servers, is why sqlx's pool is not used: it takes a connection back from a dropped call.
//!
//! # A write
//!
//! At most four exchanges (`transact`): begin, lock and head; what the batch is compared with; the rows; commit.
//! The lock is `pg_advisory_xact_lock`, and the head is read in the statement after it: in one statement with
//! the lock it would be the head of before the wait. The isolation is named, because a role's default of
//! `repeatable read` would keep the snapshot of the wait, too.
//!
//! # PgBouncer
//!
//! In transaction mode ([`Options::pooled`]) nothing is prepared or set beyond a transaction, and every read is
//! wrapped in one, since PgBouncer may change the server at the end of each. That costs exchanges; a direct URL
//! is the better choice for the few sessions a node has. Migrations and nudges need a direct URL.

mod error;
mod follow;
mod history;
mod lease;
mod migrate;
mod nudge;
mod origins;
mod replicas;
mod row;
mod session;
mod transact;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use self::lease::Sessions;
use self::session::{Connector, Role};
use super::Error;

pub use self::nudge::Nudges;
pub use self::session::Options;

/// The longest that one call may take, by what it is for. The server is told a little less, so that its answer
/// comes first; the callers' own deadlines are usually shorter still.
const STEP: Duration = Duration::from_secs(5);
const READ: Duration = Duration::from_secs(30);

/// Confirmations that are under way at once, ticks included; one more waits for one of them.
const ORIGINS_SESSIONS: usize = 2;

/// The statements that every read, confirmation and batch runs, by name: for the test of their plans.
#[cfg(any(test, feature = "testing"))]
pub const HOT_STATEMENTS: [(&str, &str); 12] = [
    ("head", follow::HEAD),
    ("page", follow::PAGE),
    ("liveness", follow::LIVENESS),
    ("lookup", transact::LOOKUP),
    ("forget", transact::FORGET),
    ("confirm", origins::CONFIRM),
    ("tick", origins::TICK),
    ("revision", history::ONE),
    ("revisions", history::SOME),
    ("card", history::CARD),
    ("report", replicas::REPORT),
    ("replicas", replicas::REPLICAS),
];

/// A ledger in a PostgreSQL database. Clones share it.
#[derive(Clone)]
pub struct Postgres {
    connector: Arc<Connector>,
    history: Sessions,
    writer: Sessions,
    origins: Sessions,
    reports: Sessions,
    committed: Arc<Notify>,
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").field("servers", &self.connector).finish_non_exhaustive()
    }
}

impl Postgres {
    /// Opens the ledger, and refuses one that is not of this program's schema. Changes nothing.
    ///
    /// # Errors
    /// [`Error::Unusable`] when the schema is missing, older or newer, or the server cannot be used;
    /// [`Error::Unavailable`] when no server answers.
    pub async fn open(options: &Options) -> Result<Self, Error> {
        let ledger = Self::unchecked(options);
        migrate::check(&ledger.connector).await?;
        Ok(ledger)
    }

    /// The same without a look at the schema, nor at whether a server answers: for the primary of a standby that was
    /// opened, whose schema is its primary's.
    pub fn unchecked(options: &Options) -> Self {
        let connector = Arc::new(Connector::new(options.clone()));
        Self {
            history: Sessions::new(Arc::clone(&connector), Role::History, options.history_sessions),
            writer: Sessions::new(Arc::clone(&connector), Role::Writer, 1),
            origins: Sessions::new(Arc::clone(&connector), Role::Origins, ORIGINS_SESSIONS),
            reports: Sessions::new(Arc::clone(&connector), Role::Report, 1),
            connector,
            committed: Arc::default(),
        }
    }

    /// Brings the schema up to this program's, under a lock, forward only; makes the ledger where there is none.
    ///
    /// # Errors
    /// [`Error::Unusable`] when the schema is newer than this program or was changed by hand, when the role may
    /// not, or when the options say `pooled`.
    pub async fn migrate(options: &Options) -> Result<(), Error> {
        migrate::apply(&Connector::new(options.clone())).await
    }
}
