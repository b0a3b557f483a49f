//! Opening the ledger that the settings name.

use std::path::Path;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::{Error, Parts};
use crate::clock::Clock;
use crate::config::{Migrate, StoreUrl};
use crate::ledger::postgres::{Options, Postgres};
use crate::ledger::sqlite::Sqlite;

/// Opens a store, with its schema brought up to date or checked, and starts what it needs in the background.
///
/// # Errors
/// When the store cannot be reached or used.
pub async fn open(store: &StoreUrl, migrate: Migrate, pooled: bool) -> Result<Parts, Error> {
    match store {
        StoreUrl::Sqlite(path) => sqlite(path, migrate).await,
        StoreUrl::Postgres(url) => postgres(url, migrate, pooled).await,
    }
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
        store: Arc::new(ledger.clone()),
        replicas: Arc::new(ledger),
        nudges,
        tasks: vec![("nudges", nudging)],
        stop,
        clock: Clock::System,
    })
}
