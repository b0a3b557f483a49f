//! The ledger's suite over PostgreSQL, each case in a database of its own.

use async_trait::async_trait;
use cardfence::ledger::conformance::{Backend, Ledger};
use cardfence::ledger::postgres::{Options, Postgres};

use crate::support::postgres::Database;

pub(crate) fn options(url: &str) -> Options {
    Options::new([url]).expect("the url is well formed")
}

/// A database with the schema, made once and copied.
pub(crate) async fn database() -> Database {
    Database::prepared("ledger", async |url| {
        Postgres::migrate(&options(&url)).await.expect("the schema can be made");
    })
    .await
}

/// The ledger in it.
pub(crate) async fn open(url: &str) -> Postgres {
    Postgres::open(&options(url)).await.expect("the ledger can be opened")
}

struct InPostgres;

#[async_trait]
impl Backend for InPostgres {
    async fn fresh(&self) -> Ledger {
        let database = database().await;
        let mut ledger = Ledger::over(open(database.url()).await);
        ledger.keep.push(Box::new(database));
        ledger
    }
}

cardfence::ledger_conformance!(InPostgres);
