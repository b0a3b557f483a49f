//! More than one server behind one address: what a node follows, writes to and reads the past from may differ for
//! a while after a fail-over, and no answer may mix them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cardfence::clock::{Clock, Hands};
use cardfence::fence::Fence;
use cardfence::ledger::memory::Memory;
use cardfence::ledger::{Entries, Entry, Error, HeadReport, Liveness, Reading};
use cardfence::registry::{Read, Start};
use cardfence::server::{Node, Parts, Tuning};
use cardfence::telemetry::Metrics;
use cardfence::terms::{MaxStaleness, Reason, Timestamp};
use tokio::sync::watch;

use crate::support::*;

const ID: &str = "00000000-0000-4000-8000-000000000002";

#[derive(Debug, Clone)]
struct Switch {
    a: Memory,
    b: Arc<tokio::sync::Mutex<Option<Memory>>>,
    on_b: Arc<AtomicBool>,
    head_gate: watch::Sender<bool>,
    asked: Arc<std::sync::atomic::AtomicUsize>,
}

impl Switch {
    fn over(a: &Memory) -> Self {
        Self {
            a: a.clone(),
            b: Arc::default(),
            on_b: Arc::default(),
            head_gate: watch::Sender::new(true),
            asked: Arc::default(),
        }
    }
}

struct Sess {
    s: Switch,
    is_b: bool,
    inner: Box<dyn Reading>,
}
#[async_trait::async_trait]
impl Entries for Switch {
    async fn open(&self) -> Result<Box<dyn Reading>, Error> {
        let is_b = self.on_b.load(Ordering::SeqCst);
        let m = if is_b { self.b.lock().await.clone().unwrap() } else { self.a.clone() };
        Ok(Box::new(Sess { s: self.clone(), is_b, inner: m.open().await? }))
    }
}
impl Sess {
    fn live(&self) -> Result<(), Error> {
        if self.is_b != self.s.on_b.load(Ordering::SeqCst) {
            Err(Error::Unavailable("gone".into()))
        } else {
            Ok(())
        }
    }
}
#[async_trait::async_trait]
impl Reading for Sess {
    async fn head(&mut self, asked: u64) -> Result<HeadReport, Error> {
        self.live()?;
        let r = self.inner.head(asked).await;
        self.s.asked.fetch_add(1, Ordering::SeqCst);
        let mut open = self.s.head_gate.subscribe();
        open.wait_for(|o| *o).await.unwrap();
        r
    }
    async fn read(&mut self, after: u64, limit: usize) -> Result<Vec<Entry>, Error> {
        self.live()?;
        self.inner.read(after, limit).await
    }
    async fn liveness(&mut self, since: Option<Timestamp>) -> Result<Vec<Liveness>, Error> {
        self.live()?;
        self.inner.liveness(since).await
    }
}

fn start(s: &Switch, history: &Memory, poll_ms: u64) -> Node {
    let parts = Parts {
        entries: Arc::new(s.clone()),
        history: Arc::new(history.clone()),
        ..Parts::over(&s.a, Clock::System)
    };
    let mut t = Tuning::named("r");
    t.feed.poll = Duration::from_millis(poll_ms);
    t.feed.exchange = Duration::from_secs(5);
    t.feed.backoff = Duration::from_millis(20);
    Node::start(parts, t, Metrics::new())
}

#[tokio::test]
async fn a_commit_on_another_server_is_not_proven_by_the_followed_one() {
    let a = Memory::new(ID, Clock::System);
    let s = Switch::over(&a);
    let node = start(&s, &a, 300);
    let registry = &node.registry;
    ready(registry).await;
    register(registry, "a/b", card("1", "s", "text/plain")).await.unwrap();
    // B is promoted with entry 1, and somebody else writes another entry 2 there.
    let b = a.forked_at(1).await;
    let other = start(&Switch::over(&b), &b, 5);
    ready(&other.registry).await;
    register(&other.registry, "a/b", card("1", "other", "text/plain")).await.unwrap();
    other.stop().await;
    *s.b.lock().await = Some(b.clone());
    // The feed's session ends, the next one is B's; its head is in flight while the writer commits on A.
    s.head_gate.send_replace(false);
    s.on_b.store(true, Ordering::SeqCst);
    let asked = s.asked.load(Ordering::SeqCst);
    let reader = registry.clone();
    let read = tokio::spawn(async move { resolve(&reader, "a/b", within(0), WAIT).await });
    eventually(|| s.asked.load(Ordering::SeqCst) > asked).await;
    let writer = registry.clone();
    let write = tokio::spawn(async move { register(&writer, "a/b", card("1", "lost", "text/plain")).await });
    eventually(|| registry.watermark().position.seq == 2).await;
    s.head_gate.send_replace(true);
    let resolved = read.await.unwrap().unwrap();
    assert!(resolved.card.normal().skill("other").is_some(), "the lost card is called fresh");
    assert_eq!(registry.metrics().reloads.get(), 1);
    write.abort();
    node.stop().await;
}

#[tokio::test]
async fn a_store_that_lacks_what_the_view_holds_tells_nothing_of_the_past() {
    let a = Memory::new(ID, Clock::System);
    let s = Switch::over(&a);
    let first = start(&s, &a, 5);
    ready(&first.registry).await;
    register(&first.registry, "a/b", card("1", "s", "text/plain")).await.unwrap();
    let at = register(&first.registry, "a/b", card("2", "t", "text/plain")).await.unwrap().position.unwrap();
    let node = start(&s, &a.forked_at(1).await, 5);
    let r = &node.registry;
    ready(r).await;
    let read = Read { max_staleness: Some(MaxStaleness::Within(Duration::ZERO)), ..Read::default() };
    let refused = [
        r.resolve_at(&call(r), &agent("a/b"), &at, &read).await.map(drop),
        r.revisions(&call(r), &agent("a/b"), None, Start::Newest, &read).await.map(drop),
        r.revision(&call(r), &agent("a/b"), 2, &read).await.map(drop),
        r.ledger(&call(r), 2, None, &read).await.map(drop),
        r.diff(&call(r), &agent("a/b"), None, None, &read).await.map(drop),
    ];
    for refusal in refused {
        assert_eq!(refusal.unwrap_err().reason(), Reason::FreshnessUnverifiable);
    }
    node.stop().await;
    first.stop().await;
}

#[derive(Debug, Clone)]
struct Ahead {
    inner: Memory,
    other: Arc<tokio::sync::Mutex<Option<cardfence::registry::Registry>>>,
    stuck: Arc<AtomicBool>,
    armed: Arc<AtomicBool>,
}
struct AheadSess {
    a: Ahead,
    inner: Box<dyn Reading>,
}
#[async_trait::async_trait]
impl Entries for Ahead {
    async fn open(&self) -> Result<Box<dyn Reading>, Error> {
        Ok(Box::new(AheadSess { a: self.clone(), inner: self.inner.open().await? }))
    }
}
#[async_trait::async_trait]
impl Reading for AheadSess {
    async fn head(&mut self, asked: u64) -> Result<HeadReport, Error> {
        if self.a.stuck.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        self.inner.head(asked).await
    }
    async fn read(&mut self, after: u64, limit: usize) -> Result<Vec<Entry>, Error> {
        self.inner.read(after, limit).await
    }
    async fn liveness(&mut self, since: Option<Timestamp>) -> Result<Vec<Liveness>, Error> {
        if self.a.armed.swap(false, Ordering::SeqCst) {
            let r = self.a.other.lock().await.clone().unwrap();
            register(&r, "a/b", card("1", "new", "text/plain")).await.unwrap();
            self.a.stuck.store(true, Ordering::SeqCst);
        }
        self.inner.liveness(since).await
    }
}

#[tokio::test]
async fn a_confirmation_of_a_later_card_does_not_confirm_an_earlier_one() {
    let hands = Arc::new(Hands::default());
    hands.advance(Duration::from_secs(1_000_000));
    let clock = Clock::Manual(Arc::clone(&hands));
    let m = Memory::new(ID, clock.clone());
    let writer = node(&m, &Valve::open(), clock.clone());
    ready(&writer.registry).await;
    register(&writer.registry, "a/b", card("1", "old", "text/plain")).await.unwrap();
    let ahead = Ahead {
        inner: m.clone(),
        other: Arc::new(tokio::sync::Mutex::new(Some(writer.registry.clone()))),
        stuck: Arc::default(),
        armed: Arc::default(),
    };
    let parts = Parts { entries: Arc::new(ahead.clone()), ..Parts::over(&m, clock.clone()) };
    let mut t = Tuning::named("r");
    t.feed.poll = Duration::from_millis(5);
    t.feed.liveness = Duration::from_millis(20);
    let node = Node::start(parts, t, Metrics::new());
    let r = &node.registry;
    ready(r).await;
    hands.advance(Duration::from_secs(86_400));
    resolve(r, "a/b", within(0), WAIT).await.unwrap();
    let f = || Fence { max_origin_age: Some(Duration::from_secs(60)), ..within(5000) };
    let refused = resolve(r, "a/b", f(), WAIT).await.unwrap_err();
    assert_eq!(refused.reason(), Reason::OriginUnconfirmed);
    ahead.armed.store(true, Ordering::SeqCst);
    eventually(|| ahead.stuck.load(Ordering::SeqCst)).await;
    // The row of revision 2 is taken soon after; revision 1 must not look confirmed by it, at any moment.
    let until = tokio::time::Instant::now() + Duration::from_millis(100);
    while tokio::time::Instant::now() < until {
        assert!(resolve(r, "a/b", f(), NOW).await.is_err());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    node.stop().await;
    writer.stop().await;
}
