//! Opening the ledger that the settings name: a store of this server's own, or an upstream to follow.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{Error, Parts, Writing};
use crate::clock::Clock;
use crate::config::{Authority, Config, Databases, Migrate, StoreUrl};
use crate::ledger::postgres::{Options, Postgres};
use crate::ledger::sqlite::Sqlite;
use crate::upstream::Upstream;

/// How the store is opened.
#[derive(Debug, Clone, Copy)]
pub struct Opening<'a> {
    pub store: &'a StoreUrl,
    /// Set where the store is a standby, which is then only read.
    pub authority: Option<&'a Authority>,
    pub migrate: Migrate,
    pub pooled: bool,
    /// What one exchange with an upstream may take.
    pub exchange: Duration,
}

impl<'a> Opening<'a> {
    /// As the settings say.
    pub fn of(config: &'a Config) -> Self {
        Self {
            store: &config.store,
            authority: config.authority.as_ref(),
            migrate: config.migrate,
            pooled: config.pooled,
            exchange: config.exchange_timeout,
        }
    }
}

/// Opens a store, with its schema brought up to date or checked, and starts what it needs in the background; or finds
/// what stands for it at upstreams, each of which gets one exchange's time for an answer.
///
/// # Errors
/// When the store cannot be reached or used.
pub async fn open(opening: Opening<'_>) -> Result<Parts, Error> {
    let Opening { store, authority, migrate, pooled, exchange } = opening;
    match (store, authority) {
        (StoreUrl::Sqlite(path), _) => sqlite(path, migrate).await,
        (StoreUrl::Upstream(urls), _) => follow(urls, exchange),
        (StoreUrl::Postgres(databases), None) => postgres(databases, migrate, pooled).await,
        (StoreUrl::Postgres(standbys), Some(Authority::Postgres(primaries))) => {
            standby(standbys, primaries, pooled).await
        }
        (StoreUrl::Postgres(standbys), Some(Authority::Upstream(urls))) => {
            standby_of_node(standbys, urls, pooled, exchange).await
        }
    }
}

/// What an edge of these upstreams is made of. Nobody is asked yet: until one is reached the edge is not ready.
///
/// # Errors
/// When a URL cannot be used.
pub fn follow<T: AsRef<str>>(urls: &[T], patience: Duration) -> Result<Parts, Error> {
    let upstream = Upstream::new(urls, patience)?;
    Ok(Parts {
        nudges: upstream.nudges(),
        entries: Arc::new(upstream.clone()),
        authority: None,
        history: Arc::new(upstream.clone()),
        writes: Writing::Elsewhere(Arc::new(upstream.clone())),
        origins: Arc::new(upstream.clone()),
        service: None,
        replicas: Arc::new(upstream),
        tasks: Vec::new(),
        stop: CancellationToken::new(),
        clock: Clock::System,
    })
}

async fn sqlite(path: &Path, migrate: Migrate) -> Result<Parts, Error> {
    if migrate == Migrate::Check {
        Sqlite::check(path).await?;
    }
    let ledger = Sqlite::open(path, Clock::System).await?;
    Ok(Parts::over(&ledger, Clock::System))
}

async fn postgres(databases: &Databases, migrate: Migrate, pooled: bool) -> Result<Parts, Error> {
    let mut options = Options::new(databases.urls())?;
    options.pooled = pooled;
    if migrate == Migrate::Apply {
        Postgres::migrate(&options).await?;
    }
    let ledger = Postgres::open(&options).await?;
    let stop = CancellationToken::new();
    let (nudges, nudging) = ledger.start_nudges(stop.child_token());
    Ok(Parts {
        entries: Arc::new(ledger.clone()),
        authority: None,
        history: Arc::new(ledger.clone()),
        writes: Writing::Here(Arc::new(ledger.clone())),
        origins: Arc::new(ledger.clone()),
        service: Some(Arc::new(ledger.clone())),
        replicas: Arc::new(ledger),
        nudges,
        tasks: vec![("nudges", nudging)],
        stop,
        clock: Clock::System,
    })
}

/// A standby to read from, and its primary to be proven by and to write to. Neither schema is touched: the
/// standby's cannot be, and it is what its primary's is.
async fn standby(standbys: &Databases, primaries: &Databases, pooled: bool) -> Result<Parts, Error> {
    let mut options = Options::new(standbys.urls())?;
    options.pooled = pooled;
    options.primary = false;
    let ledger = Postgres::open(&options).await?;
    let mut options = Options::new(primaries.urls())?;
    options.pooled = pooled;
    // The primary may be away: the standby is read all the same, and nothing is proven until it is back.
    let primary = Postgres::unchecked(&options);
    let stop = CancellationToken::new();
    let (nudges, nudging) = primary.start_nudges(stop.child_token());
    Ok(Parts {
        entries: Arc::new(ledger.clone()),
        authority: Some(Arc::new(primary.clone())),
        history: Arc::new(ledger),
        writes: Writing::Here(Arc::new(primary.clone())),
        origins: Arc::new(primary.clone()),
        service: Some(Arc::new(primary.clone())),
        replicas: Arc::new(primary),
        nudges,
        tasks: vec![("nudges", nudging)],
        stop,
        clock: Clock::System,
    })
}

/// A standby to read from, and a node to be proven by and to write through.
async fn standby_of_node(
    standbys: &Databases,
    urls: &[String],
    pooled: bool,
    exchange: Duration,
) -> Result<Parts, Error> {
    let mut options = Options::new(standbys.urls())?;
    options.pooled = pooled;
    options.primary = false;
    let ledger = Postgres::open(&options).await?;
    let Parts { entries, writes, origins, replicas, nudges, .. } = follow(urls, exchange)?;
    Ok(Parts {
        entries: Arc::new(ledger.clone()),
        authority: Some(entries),
        history: Arc::new(ledger),
        writes,
        origins,
        service: None,
        replicas,
        nudges,
        tasks: Vec::new(),
        stop: CancellationToken::new(),
        clock: Clock::System,
    })
}
