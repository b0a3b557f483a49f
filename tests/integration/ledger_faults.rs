//! Faults between the writer and PostgreSQL: what was acknowledged is there, what was not is there once or
//! not at all, and nobody blocks the others for long.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use cardfence::ledger::chain::Verifier;
use cardfence::ledger::conformance::{register, small_card, start_writer};
use cardfence::ledger::postgres::Postgres;
use cardfence::ledger::{
    CommitError, Entries as _, Entry, Error, Head, History as _, Key, Outcome, Receipt, Rows, Seen, Store,
    Txn,
};
use cardfence::terms::Timestamp;

use crate::ledger_conformance::{database, open, options};
use crate::support::eventually::eventually;
use crate::support::postgres::{Cluster, Settings, shared, url_at};
use crate::support::proxy::Proxy;

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A cluster of one's own with a ledger in it.
pub(crate) async fn ledger_in(settings: Settings) -> (Cluster, String) {
    let cluster = Cluster::start(settings).await;
    let name = cluster.create_database().await;
    Postgres::migrate(&options(&cluster.url(&name))).await.expect("the schema can be made");
    (cluster, name)
}

async fn read_all(store: &Postgres) -> Vec<Entry> {
    let mut reading = store.open().await.expect("it can be read");
    let mut all: Vec<Entry> = Vec::new();
    loop {
        let page = reading.read(all.len() as u64, 1000).await.expect("it can be read");
        if page.is_empty() {
            return all;
        }
        all.extend(page);
    }
}

/// Reads the ledger and verifies that it is dense and chained.
pub(crate) async fn verified(store: &Postgres) -> Vec<Entry> {
    let head = store.open().await.expect("it can be read").head(0).await.expect("it has a head");
    let mut verifier = Verifier::new(&head.ledger_id);
    let entries = read_all(store).await;
    for entry in &entries {
        verifier
            .take(entry.seq, &entry.digest, &entry.body_digest, Some(entry.body.as_bytes()))
            .unwrap_or_else(|broken| panic!("{broken}"));
    }
    entries
}

/// Each receipt's entry is in the ledger.
fn all_there(receipts: &[Receipt], entries: &[Entry]) {
    for receipt in receipts {
        let position = receipt.position.expect("it was written");
        let entry = entries.get(usize::try_from(position.seq).expect("it is small") - 1);
        assert_eq!(entry.map(Entry::position), Some(position), "an acknowledged write is lost");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_stores_on_one_database_stay_dense() {
    let database = database().await;
    let stores = [open(database.url()).await, open(database.url()).await];
    let writers: Vec<_> = stores.iter().map(|store| start_writer(Arc::new(store.clone()))).collect();
    let card = small_card("1.0", &["a"]);
    let begun = Instant::now();
    // More than a batch each, from tasks that go on when they are answered.
    let load = (0..64).map(|task| {
        let (writes, card) = (&writers[task % 2].0, &card);
        async move {
            let mut receipts = Vec::new();
            for turn in 0..25 {
                let write = register(&format!("dense/agent-{task}-{turn}"), card);
                receipts.push(writes.submit(write).await.expect("it is accepted"));
            }
            receipts
        }
    });
    let receipts: Vec<Receipt> = futures::future::join_all(load).await.concat();
    let took = begun.elapsed();
    let entries = verified(&stores[0]).await;
    assert_eq!(entries.len(), 1600);
    all_there(&receipts, &entries);
    crate::support::report(&format!(
        "1600 writes by two stores: {:.0} a second",
        1600.0 / took.as_secs_f64()
    ));
}

/// A node that is stopped between two exchanges holds the lock and says nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frozen_lock_holder_is_ended_within_a_second() {
    let database = database().await;
    let (frozen, other) = (open(database.url()).await, open(database.url()).await);
    let mut held = frozen.begin().await.expect("the lock is free");
    let begun = Instant::now();
    let (writes, _stop) = start_writer(Arc::new(other.clone()));
    writes.submit(register("frozen/other", &small_card("1.0", &["a"]))).await.expect("it is accepted");
    let waited = begun.elapsed();
    assert!(waited > Duration::from_millis(500) && waited < Duration::from_millis(1800), "waited {waited:?}");
    // When it comes to, it cannot write any more, and finds its way back.
    held.lookup(&[]).await.expect_err("the transaction was ended");
    let txn = frozen.begin().await.expect("a new session is opened");
    assert_eq!(txn.head().seq, 1);
}

/// The same with a network in between that passes nothing, whatever the node does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_holder_behind_a_frozen_network_is_ended_within_a_second() {
    let database = database().await;
    let proxy = Proxy::start(shared().await.address()).await;
    let frozen = open(&url_at(proxy.address(), database.name())).await;
    let other = open(database.url()).await;
    let held = frozen.begin().await.expect("the lock is free");
    proxy.freeze();
    let begun = Instant::now();
    drop(other.begin().await.expect("the lock is had"));
    let waited = begun.elapsed();
    assert!(waited < Duration::from_millis(1800), "waited {waited:?}");
    drop(held);
}

/// The server is blocked in sending a large answer, and obeys no statement's time-out: the socket's own ends it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_holder_that_does_not_read_is_ended() {
    let database = database().await;
    let proxy = Proxy::start(shared().await.address()).await;
    let frozen = open(&url_at(proxy.address(), database.name())).await;
    let other = open(database.url()).await;
    let (writes, _stop) = start_writer(Arc::new(other.clone()));
    // Replays of large changes, the one thing of size that a lookup returns.
    let skills: Vec<String> = (0..900).map(|number| format!("skill-{number:04}")).collect();
    let skills: Vec<&str> = skills.iter().map(String::as_str).collect();
    let (small, large) = (small_card("1.0", &[]), small_card("1.0", &skills));
    let mut keys = Vec::new();
    for number in 0..120 {
        let name = format!("large/agent-{number}");
        writes.submit(register(&name, &small)).await.expect("it is accepted");
        let write = register(&name, &large).against(&small);
        keys.push(Key {
            agent: write.agent.clone(),
            principal: write.principal.clone(),
            request_id: write.request_id.clone(),
            expect_seq: None,
        });
        writes.submit(write).await.expect("it is accepted");
    }
    let mut held = frozen.begin().await.expect("the lock is free");
    proxy.freeze_answers();
    let begun = Instant::now();
    let lookup = tokio::spawn(async move { held.lookup(&keys).await.map(drop) });
    // Not the store's own limit for the wait, but how often it has to try.
    let waited = eventually(PATIENCE, async || {
        other.begin().await.map(|_| begun.elapsed()).map_err(|error| error.to_string())
    })
    .await;
    crate::support::report(&format!("a lock holder that does not read was ended after {waited:?}"));
    assert!(waited < Duration::from_secs(12), "waited {waited:?}");
    lookup.abort();
}

/// A store whose commits meet a fault, once.
#[derive(Debug)]
struct Faulty {
    store: Postgres,
    fault: Arc<Fault>,
}

#[derive(Debug)]
struct Fault {
    proxy: Proxy,
    /// A store that reaches the database directly.
    direct: Postgres,
    /// The commit arrives and its answer does not; else the commit does not arrive.
    arrives: bool,
    /// How many commits still meet it.
    left: std::sync::atomic::AtomicU32,
}

#[async_trait]
impl Store for Faulty {
    async fn begin(&self) -> Result<Box<dyn Txn>, Error> {
        let txn = self.store.begin().await?;
        let after = txn.head().seq + 1;
        Ok(Box::new(FaultyTxn { txn, after, wrote: false, fault: Arc::clone(&self.fault) }))
    }
}

struct FaultyTxn {
    txn: Box<dyn Txn>,
    after: u64,
    wrote: bool,
    fault: Arc<Fault>,
}

#[async_trait]
impl Txn for FaultyTxn {
    fn ledger_id(&self) -> &str {
        self.txn.ledger_id()
    }
    fn head(&self) -> Head {
        self.txn.head()
    }
    fn now(&self) -> Timestamp {
        self.txn.now()
    }
    fn service(&self) -> std::time::Duration {
        self.txn.service()
    }
    async fn lookup(&mut self, keys: &[Key]) -> Result<Vec<Seen>, Error> {
        self.txn.lookup(keys).await
    }
    async fn append(&mut self, rows: &Rows) -> Result<(), Error> {
        self.wrote = true;
        self.txn.append(rows).await
    }
    async fn forget_requests(&mut self, before: Timestamp) -> Result<u64, Error> {
        self.txn.forget_requests(before).await
    }
    async fn commit(self: Box<Self>) -> Result<(), CommitError> {
        use std::sync::atomic::Ordering;
        let Self { txn, after, wrote, fault } = *self;
        let one_less = |left: u32| left.checked_sub(1);
        // The commit of a transaction that wrote nothing has no answer to lose.
        if !wrote || fault.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_err() {
            return txn.commit().await;
        }
        if fault.arrives {
            fault.proxy.freeze_answers()
        } else {
            fault.proxy.freeze()
        }
        let breaking = async {
            if fault.arrives {
                eventually(PATIENCE, async || match fault.direct.digest_at(after).await {
                    Ok(Some(_)) => Ok(()),
                    other => Err(format!("the commit has not arrived: {other:?}")),
                })
                .await;
            }
            fault.proxy.cut().await;
            fault.proxy.heal().await;
        };
        let (committed, ()) = futures::future::join(txn.commit(), breaking).await;
        assert!(matches!(committed, Err(CommitError::Unknown(_))), "{committed:?}");
        committed
    }
}

/// The answer to a commit is lost. The writer finds out by itself, and each write is done once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_commit_answer_is_resolved_by_the_writer() {
    for arrives in [true, false] {
        let database = database().await;
        let proxy = Proxy::start(shared().await.address()).await;
        let store = open(&url_at(proxy.address(), database.name())).await;
        let direct = open(database.url()).await;
        let left = 5.into();
        let fault = Arc::new(Fault { proxy, direct: direct.clone(), arrives, left });
        let (writes, _stop) = start_writer(Arc::new(Faulty { store, fault: Arc::clone(&fault) }));
        let card = small_card("1.0", &["a"]);
        let load = (0..40).map(|number| writes.submit(register(&format!("lost/agent-{number}"), &card)));
        let answers = futures::future::join_all(load).await;
        let mut receipts = Vec::new();
        for answer in answers {
            let receipt = answer.expect("the writer found out");
            assert_eq!((receipt.outcome, receipt.revision), (Outcome::Created, 1));
            assert!(!receipt.superseded);
            receipts.push(receipt);
        }
        for number in 0..5 {
            let name = format!("lost/again-{number}");
            receipts.push(writes.submit(register(&name, &card)).await.expect("the writer found out"));
        }
        assert_eq!(fault.left.load(std::sync::atomic::Ordering::SeqCst), 0, "every fault was met");
        let entries = verified(&direct).await;
        assert_eq!(entries.len(), 45, "each write was done once (arrives: {arrives})");
        all_there(&receipts, &entries);
    }
}

/// Two nodes write without pause while the server is killed, again and again.
async fn survives(kill: impl Fn(&Cluster)) {
    let (cluster, name) = ledger_in(Settings::default()).await;
    let url = cluster.url(&name);
    let stores = [open(&url).await, open(&url).await];
    let writers: Vec<_> = stores.iter().map(|store| start_writer(Arc::new(store.clone()))).collect();
    let card = small_card("1.0", &["a"]);
    let stop = tokio_util::sync::CancellationToken::new();
    let load: Vec<_> = (0..16)
        .map(|task| {
            let (writes, card, stop) = (Arc::clone(&writers[task % 2].0), Arc::clone(&card), stop.clone());
            tokio::spawn(async move {
                let mut receipts = Vec::new();
                while !stop.is_cancelled() {
                    let name = format!("kill/agent-{task}-{}", receipts.len());
                    receipts
                        .push(writes.submit(register(&name, &card)).await.expect("it is accepted in time"));
                }
                receipts
            })
        })
        .collect();
    let seen = async || Ok::<_, Error>(stores[0].open().await?.head(0).await?.head.seq);
    let mut reached = 0;
    for _ in 0..3 {
        reached = eventually(PATIENCE, async || match seen().await {
            Ok(seq) if seq > reached + 200 => Ok(seq),
            other => Err(format!("the load stands at {other:?}")),
        })
        .await;
        kill(&cluster);
        cluster.restart().await;
    }
    eventually(PATIENCE, async || match seen().await {
        Ok(seq) if seq > reached + 200 => Ok(()),
        other => Err(format!("the load stands at {other:?}")),
    })
    .await;
    stop.cancel();
    let mut receipts = Vec::new();
    for task in load {
        receipts.extend(task.await.expect("the load does not fail"));
    }
    let entries = verified(&stores[0]).await;
    all_there(&receipts, &entries);
    assert_eq!(entries.len(), receipts.len(), "each write was done once");
    crate::support::report(&format!("{} acknowledged writes over three kills, none lost", receipts.len()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_postmaster_loses_nothing_acknowledged() {
    survives(Cluster::kill_9).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crashed_server_loses_nothing_acknowledged() {
    survives(Cluster::crash).await;
}
