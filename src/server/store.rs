//! Opening the ledger that the settings name: a store of this server's own, or an upstream to follow.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{Error, Parts, Writing};
use crate::clock::Clock;
use crate::config::{Config, Migrate, StoreUrl};
use crate::ledger::postgres::{Options, Postgres};
use crate::ledger::sqlite::Sqlite;
use crate::upstream::Upstream;

/// Opens a store, with its schema brought up to date or checked, and starts what it needs in the background; or finds
/// what stands for it at upstreams, each of which gets one exchange's time for an answer.
///
/// # Errors
/// When the store cannot be reached or used.
pub async fn open(config: &Config) -> Result<Parts, Error> {
    match &config.store {
        StoreUrl::Sqlite(path) => sqlite(path, config.migrate).await,
        StoreUrl::Postgres(url) => postgres(url, config.migrate, config.pooled).await,
        StoreUrl::Upstream(urls) => follow(urls, config.exchange_timeout),
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
        history: Arc::new(upstream.clone()),
        writes: Writing::Elsewhere(Arc::new(upstream)),
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

async fn postgres(url: &str, migrate: Migrate, pooled: bool) -> Result<Parts, Error> {
    let mut options = Options::new([url])?;
    options.pooled = pooled;
    if migrate == Migrate::Apply {
        Postgres::migrate(&options).await?;
    }
    let ledger = Postgres::open(&options).await?;
    let stop = CancellationToken::new();
    let (nudges, nudging) = ledger.start_nudges(stop.child_token());
    Ok(Parts {
        entries: Arc::new(ledger.clone()),
        history: Arc::new(ledger.clone()),
        writes: Writing::Here(Arc::new(ledger)),
        nudges,
        tasks: vec![("nudges", nudging)],
        stop,
        clock: Clock::System,
    })
}
