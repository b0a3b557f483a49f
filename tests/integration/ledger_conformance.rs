//! The ledger's suite over PostgreSQL, each case in a database of its own.

use async_trait::async_trait;
use cardfence::ledger::conformance::{Backend, Ledger, small_card};
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

/// A page ends where it is full, and the next begins there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_are_bounded_by_bytes() {
    let ledger = InPostgres.fresh().await;
    let skills: Vec<String> = (0..450).map(|number| format!("{number:0200}")).collect();
    let skills: Vec<&str> = skills.iter().map(String::as_str).collect();
    let card = small_card("1.0", &skills);
    let count = (8 << 20) / card.bytes().len() + 5;
    for number in 0..count {
        ledger.register(&format!("page/agent-{number}"), &card).await;
    }
    let mut reading = ledger.entries.open().await.expect("it can be read");
    let first = reading.read(0, 1000).await.expect("it can be read");
    assert!(first.len() < count && first.len() > count / 2, "{} of {count}", first.len());
    assert_eq!(ledger.read_all().await.len(), count);
}
