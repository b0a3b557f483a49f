//! Opening sessions: which servers, in which order, with which settings.
//!
//! Nothing is kept from one connection to the next but which server answered last. Settings that a transaction
//! depends on are set in that transaction (`transact`); what is set here only bounds and looks after the session.

use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use sqlx::postgres::{PgArguments, PgConnectOptions, PgRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection, Row as _};

use super::error::error;
use super::{READ, STEP, origins, transact};
use crate::ledger::Error;

/// A server that was not there for so long is given up.
const CONNECT: Duration = Duration::from_secs(3);

/// The same where there is another one to try. Less than a view gives an exchange, so that it gets past it.
const CONNECT_OF_SEVERAL: Duration = Duration::from_secs(1);

/// The oldest server that the statements here are written for: `client_connection_check_interval` is of 14.
const OLDEST_SERVER: i32 = 140_000;

/// Which database, and how it is reached.
#[derive(Clone)]
pub struct Options {
    servers: Vec<PgConnectOptions>,
    /// A primary is wanted: servers in recovery are passed over. `false` is for a node that reads a standby.
    pub primary: bool,
    /// The URL leads to PgBouncer in transaction mode.
    pub pooled: bool,
    /// Sessions that read history; one more waits for one of them.
    pub history_sessions: usize,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("servers", &self.servers.iter().map(name).collect::<Vec<_>>())
            .field("primary", &self.primary)
            .field("pooled", &self.pooled)
            .field("history_sessions", &self.history_sessions)
            .finish()
    }
}

impl Options {
    /// The primary database behind `urls`, each `postgres://user:password@host:port/database`, tried in order.
    ///
    /// # Errors
    /// [`Error::Unusable`] when there is none, or one cannot be read. The text does not repeat it.
    pub fn new<'a>(urls: impl IntoIterator<Item = &'a str>) -> Result<Self, Error> {
        let servers = urls
            .into_iter()
            .enumerate()
            .map(|(index, url)| {
                url.parse::<PgConnectOptions>().map_err(|_| {
                    let text =
                        "is malformed: postgres://user:password@host:port/database is wanted, one host each";
                    Error::Unusable(format!("database url {} {text}", index + 1))
                })
            })
            .collect::<Result<Vec<_>, _>>()?;
        if servers.is_empty() {
            return Err(Error::Unusable("no database url is given".to_owned()));
        }
        Ok(Self { servers, primary: true, pooled: false, history_sessions: 4 })
    }
}

/// A server for logs: without user and password.
fn name(server: &PgConnectOptions) -> String {
    let host = match server.get_socket() {
        Some(path) => path.display().to_string(),
        None => server.get_host().to_owned(),
    };
    format!("{host}:{}/{}", server.get_port(), server.get_database().unwrap_or_default())
}

/// What a session is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// One exchange at a time, for a caller that waits.
    History,
    /// The view's feed, which may load a lot.
    Follow,
    Writer,
    /// Confirms origins and ticks.
    Origins,
    /// What may be lost, since it is said again.
    Report,
    Nudge,
    Migrate,
}

impl Role {
    /// What bounds and looks after a session of its own. Not for one that is shared through PgBouncer.
    ///
    /// The server finds out within some ten seconds that a node vanished, also when it is blocked in sending
    /// to it, and while a statement waits; and it does not end a session because it was idle. Every table is
    /// read by an index that it has, also by a plan that was made before there were statistics.
    fn settings(self) -> String {
        let (statement, read_only) = match self {
            Self::History => (STEP - Duration::from_millis(500), true),
            Self::Follow => (READ - Duration::from_millis(500), true),
            Self::Writer | Self::Origins | Self::Report | Self::Nudge => {
                (STEP - Duration::from_millis(500), false)
            }
            Self::Migrate => (Duration::ZERO, false),
        };
        let lossy = if self == Self::Report { "SET synchronous_commit = off;" } else { "" };
        format!(
            "{lossy} SET statement_timeout = {}; SET default_transaction_read_only = {read_only}; \
             SET idle_session_timeout = 0; SET enable_seqscan = off; SET jit = off; SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; \
             SET tcp_keepalives_count = 3; SET tcp_user_timeout = 10000;",
            statement.as_millis()
        )
    }
}

/// Opens sessions.
pub(super) struct Connector {
    options: Options,
    /// The server that answered last; it is tried first.
    last: AtomicUsize,
    /// When the server that the view follows was started, which tells servers apart; 0 while nobody follows.
    followed: AtomicI64,
    /// When the server was started that was last warned about.
    warned: AtomicI64,
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.options.servers.iter().map(name)).finish()
    }
}

impl Connector {
    pub(super) fn new(options: Options) -> Self {
        Self { options, last: AtomicUsize::new(0), followed: AtomicI64::new(0), warned: AtomicI64::new(0) }
    }

    pub(super) fn pooled(&self) -> bool {
        self.options.pooled
    }

    /// The view follows the server that was started at `server`: what is written and read of the past has to be
    /// there, too, or an answer would mix two histories.
    pub(super) fn follows(&self, server: i64) {
        self.followed.store(server, Ordering::Release);
    }

    /// Whether a session may be used beside what the view follows.
    pub(super) fn is_followed(&self, session: &Session) -> bool {
        let followed = self.followed.load(Ordering::Acquire);
        // Behind PgBouncer a session is of no server in particular.
        followed == 0 || session.pooled || session.server == followed
    }

    /// Whether a server in recovery will do.
    pub(super) fn takes_standbys(&self) -> bool {
        !self.options.primary
    }

    /// Opens a session of the first server that is wanted and answers.
    pub(super) async fn open(&self, role: Role) -> Result<Session, Error> {
        let count = self.options.servers.len();
        let first = self.last.load(Ordering::Relaxed);
        let limit = if count > 1 { CONNECT_OF_SEVERAL } else { CONNECT };
        let mut failed = None;
        for index in (0..count).map(|step| (first + step) % count) {
            let server = &self.options.servers[index];
            let passed = Passed { last: &self.last, index, next: (index + 1) % count };
            let opened = tokio::time::timeout(limit, self.open_at(server, role)).await;
            let opened = opened.unwrap_or_else(|_| {
                Err(Error::Unavailable(format!("no connection within {} ms", limit.as_millis())))
            });
            match opened {
                Ok(session) => {
                    drop(passed);
                    self.last.store(index, Ordering::Relaxed);
                    return Ok(session);
                }
                Err(error) => {
                    if count > 1 {
                        tracing::debug!(server = name(server), %error, "a database server was passed over");
                    }
                    failed = Some(error);
                }
            }
        }
        Err(failed.unwrap_or_else(|| Error::Unusable("no database url is given".to_owned())))
    }

    /// The settings of a server that was reached just now, for the one kind of session that the driver insists on
    /// opening itself.
    pub(super) async fn reachable(&self, role: Role) -> Result<PgConnectOptions, Error> {
        drop(self.open(role).await?);
        Ok(self.settle(&self.options.servers[self.last.load(Ordering::Relaxed)]))
    }

    fn settle(&self, server: &PgConnectOptions) -> PgConnectOptions {
        let application = server.get_application_name().unwrap_or("cardfence");
        server
            .clone()
            .application_name(application)
            // PgBouncer refuses the parameter, and no floats are read.
            .extra_float_digits(None)
            .statement_cache_capacity(if self.options.pooled { 0 } else { 32 })
            .disable_statement_logging()
    }

    async fn open_at(&self, server: &PgConnectOptions, role: Role) -> Result<Session, Error> {
        let pooled = self.options.pooled;
        let failed = |error: &sqlx::Error| self::error("connect", error);
        let mut connection =
            PgConnection::connect_with(&self.settle(server)).await.map_err(|e| failed(&e))?;
        let settings = if pooled { String::new() } else { role.settings() };
        let facts = format!(
            "{settings} SELECT pg_is_in_recovery(), current_setting('server_version_num')::int, \
             current_setting('server_encoding'), current_setting('fsync'), current_setting('full_page_writes'), \
             (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint"
        );
        let facts =
            sqlx::raw_sql(AssertSqlSafe(facts)).fetch_one(&mut connection).await.map_err(|e| failed(&e))?;
        let facts = PgServer::from_row(&facts).map_err(|e| failed(&e))?;
        self.judge(&facts, server, role)?;
        if !pooled {
            best_effort(&mut connection).await.map_err(|e| failed(&e))?;
        }
        match role {
            Role::Writer if !pooled => transact::prepare(&mut connection).await.map_err(|e| failed(&e))?,
            Role::Origins if !pooled => origins::prepare(&mut connection).await.map_err(|e| failed(&e))?,
            _ => {}
        }
        Ok(Session { connection, pooled, server: facts.started })
    }

    /// Refuses a server that cannot be used, and warns of one that forgets.
    fn judge(&self, facts: &PgServer, server: &PgConnectOptions, role: Role) -> Result<(), Error> {
        if facts.version < OLDEST_SERVER {
            let text = format!("PostgreSQL {} is too old: 14 or later is wanted", facts.version / 10_000);
            return Err(Error::Unusable(text));
        }
        if facts.encoding != "UTF8" {
            return Err(Error::Unusable(format!(
                "the database's encoding is {}: UTF8 is wanted",
                facts.encoding
            )));
        }
        if self.options.primary && facts.in_recovery && self.options.servers.len() > 1 {
            return Err(Error::Unavailable(format!("{} is in recovery: a primary is wanted", name(server))));
        }
        // Said at start, and of each server that takes its place; a migration is followed by a start.
        let forgets = facts.fsync == "off" || facts.full_page_writes == "off";
        if forgets
            && role != Role::Migrate
            && self.warned.swap(facts.started, Ordering::Relaxed) != facts.started
        {
            tracing::warn!(
                server = name(server),
                fsync = facts.fsync,
                full_page_writes = facts.full_page_writes,
                "this server may lose or damage acknowledged writes when it crashes"
            );
        }
        Ok(())
    }
}

/// An attempt to reach a server. Unless it succeeds, the next one begins with the next server, also when the
/// caller's patience ended first: a server that hangs would otherwise be all that is ever tried.
struct Passed<'a> {
    last: &'a AtomicUsize,
    index: usize,
    next: usize,
}

impl Drop for Passed<'_> {
    fn drop(&mut self) {
        // Somebody else may have found one meanwhile.
        let _ = self.last.compare_exchange(self.index, self.next, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// What some servers' platforms lack: the end of a wait for the lock that nobody waits for any more.
async fn best_effort(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    match sqlx::raw_sql("SET client_connection_check_interval = 500").execute(connection).await {
        Err(sqlx::Error::Database(error)) => {
            tracing::debug!(%error, "the server does not watch its clients while they wait");
            Ok(())
        }
        result => result.map(drop),
    }
}

/// What a server says of itself.
struct PgServer {
    in_recovery: bool,
    version: i32,
    encoding: String,
    fsync: String,
    full_page_writes: String,
    /// Microseconds since the epoch.
    started: i64,
}

impl PgServer {
    fn from_row(row: &PgRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            in_recovery: row.try_get(0)?,
            version: row.try_get(1)?,
            encoding: row.try_get(2)?,
            fsync: row.try_get(3)?,
            full_page_writes: row.try_get(4)?,
            started: row.try_get(5)?,
        })
    }
}

/// One connection to one server. Dropping it closes the connection.
pub(super) struct Session {
    connection: PgConnection,
    pooled: bool,
    /// When its server was started.
    server: i64,
}

impl Session {
    pub(super) fn is_pooled(&self) -> bool {
        self.pooled
    }

    pub(super) fn connection(&mut self) -> &mut PgConnection {
        &mut self.connection
    }

    /// Runs a read outside of a write transaction.
    pub(super) async fn read(
        &mut self,
        query: Query<'_, sqlx::Postgres, PgArguments>,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        if !self.pooled {
            return query.fetch_all(&mut self.connection).await;
        }
        // Preparing and running are two exchanges, which must reach the same server.
        sqlx::raw_sql("BEGIN READ ONLY").execute(&mut self.connection).await?;
        let rows = query.persistent(false).fetch_all(&mut self.connection).await?;
        sqlx::raw_sql("COMMIT").execute(&mut self.connection).await?;
        Ok(rows)
    }

    /// Runs a write that is a transaction of its own, and may be lost.
    pub(super) async fn write(
        &mut self,
        query: Query<'_, sqlx::Postgres, PgArguments>,
    ) -> Result<(), sqlx::Error> {
        if !self.pooled {
            return query.execute(&mut self.connection).await.map(drop);
        }
        sqlx::raw_sql("BEGIN; SET LOCAL synchronous_commit = off").execute(&mut self.connection).await?;
        query.persistent(false).execute(&mut self.connection).await?;
        sqlx::raw_sql("COMMIT").execute(&mut self.connection).await.map(drop)
    }

    /// Runs a statement inside of a write transaction.
    pub(super) async fn within(
        &mut self,
        query: Query<'_, sqlx::Postgres, PgArguments>,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        query.persistent(!self.pooled).fetch_all(&mut self.connection).await
    }
}
