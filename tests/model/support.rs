//! A node over a ledger in memory, and cards to put into it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use cardfence::clock::Clock;
use cardfence::fence::Fence;
use cardfence::ledger::memory::Memory;
use cardfence::ledger::{Entries, Error, Expect, HeadReport, Liveness, Reading};
use cardfence::registry::{Call, Refusal, Register, Registry, Resolve, Resolved, Retire, Written};
use cardfence::server::{Node, Parts, Tuning};
use cardfence::telemetry::Metrics;
use cardfence::terms::{AgentName, MaxStaleness, Timestamp};
use tokio::sync::watch;

/// A node whose ledger is `memory`, followed through `valve`.
pub(crate) fn node(memory: &Memory, valve: &Valve, clock: Clock) -> Node {
    node_with(memory, valve, clock, |_| {})
}

/// The same, tuned further.
pub(crate) fn node_with(
    memory: &Memory,
    valve: &Valve,
    clock: Clock,
    tune: impl FnOnce(&mut Tuning),
) -> Node {
    start(Parts { entries: valve.before(memory), ..Parts::over(memory, clock) }, tune)
}

/// A node over a standby, each of the two behind a valve; it writes to the primary.
pub(crate) fn standby_node(
    (standby, source): (&Memory, &Valve),
    (primary, authority): (&Memory, &Valve),
    clock: Clock,
) -> Node {
    let parts = Parts {
        entries: source.before(standby),
        authority: Some(authority.before(primary)),
        history: Arc::new(standby.clone()),
        ..Parts::over(primary, clock)
    };
    start(parts, |_| {})
}

fn start(parts: Parts, tune: impl FnOnce(&mut Tuning)) -> Node {
    let mut tuning = Tuning::named("model");
    tuning.feed.poll = Duration::from_millis(5);
    tuning.feed.exchange = Duration::from_millis(200);
    tuning.feed.backoff = Duration::from_millis(20);
    tuning.feed.liveness = Duration::from_millis(20);
    tune(&mut tuning);
    Node::start(parts, tuning, Metrics::new())
}

/// Between a view and its ledger: open, or shut so that nothing comes through and nobody is told.
#[derive(Debug, Clone)]
pub(crate) struct Valve {
    open: watch::Sender<bool>,
    /// How often the head was asked for.
    asked: Arc<AtomicUsize>,
}

impl Valve {
    pub(crate) fn open() -> Self {
        Self { open: watch::Sender::new(true), asked: Arc::default() }
    }

    pub(crate) fn set_open(&self, open: bool) {
        self.open.send_replace(open);
    }

    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::Acquire)
    }

    /// The entries of `memory`, as far as the valve lets them through.
    pub(crate) fn before(&self, memory: &Memory) -> Arc<dyn Entries> {
        Arc::new(Valved { inner: memory.clone(), valve: self.clone() })
    }

    async fn pass(&self) {
        let mut open = self.open.subscribe();
        // The sender is held by self.
        open.wait_for(|open| *open).await.unwrap();
    }
}

#[derive(Debug)]
struct Valved {
    inner: Memory,
    valve: Valve,
}

struct ValvedReading {
    inner: Box<dyn Reading>,
    valve: Valve,
}

#[async_trait::async_trait]
impl Entries for Valved {
    async fn open(&self) -> Result<Box<dyn Reading>, Error> {
        self.valve.pass().await;
        let inner = self.inner.open().await?;
        Ok(Box::new(ValvedReading { inner, valve: self.valve.clone() }))
    }
}

#[async_trait::async_trait]
impl Reading for ValvedReading {
    async fn head(&mut self, asked: u64) -> Result<HeadReport, Error> {
        self.valve.pass().await;
        self.valve.asked.fetch_add(1, Ordering::AcqRel);
        let report = self.inner.head(asked).await;
        // An answer that was given before the valve shut is held by it as well.
        tokio::task::yield_now().await;
        self.valve.pass().await;
        report
    }

    async fn read(&mut self, after: u64, limit: usize) -> Result<Vec<cardfence::ledger::Entry>, Error> {
        self.valve.pass().await;
        self.inner.read(after, limit).await
    }

    async fn liveness(&mut self, since: Option<Timestamp>) -> Result<Vec<Liveness>, Error> {
        self.valve.pass().await;
        self.inner.liveness(since).await
    }
}

pub(crate) fn agent(name: &str) -> AgentName {
    name.parse().unwrap()
}

/// A v1.0 card with one skill.
pub(crate) fn card(version: &str, skill: &str, output: &str) -> Bytes {
    format!(
        r#"{{"name":"A","description":"d","supportedInterfaces":[{{"url":"https://a.example.com/rpc","protocolBinding":"JSONRPC","protocolVersion":"1.0"}}],"version":"{version}","capabilities":{{"streaming":true}},"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],"skills":[{{"id":"{skill}","name":"S","description":"d","tags":["t"],"outputModes":["{output}"]}}]}}"#
    )
    .into()
}

pub(crate) fn call(registry: &Registry) -> Call {
    registry.call(None)
}

pub(crate) async fn register(registry: &Registry, name: &str, bytes: Bytes) -> Result<Written, Refusal> {
    registry.register(&call(registry), registering(name, bytes)).await
}

pub(crate) fn registering(name: &str, bytes: Bytes) -> Register {
    Register {
        agent: agent(name),
        bytes,
        expect: Expect::Any,
        request_id: None,
        release: None,
        note: None,
        source: None,
        ttl: None,
        dry_run: false,
    }
}

pub(crate) fn retiring(name: &str) -> Retire {
    Retire { agent: agent(name), expect: Expect::Any, request_id: None, note: None, dry_run: false }
}

pub(crate) fn resolving(name: &str, fence: Fence, wait: Duration) -> Resolve {
    Resolve { agent: agent(name), fence, known: Vec::new(), wait: Some(wait) }
}

pub(crate) async fn resolve(
    registry: &Registry,
    name: &str,
    fence: Fence,
    wait: Duration,
) -> Result<Resolved, Refusal> {
    registry.resolve(&call(registry), &resolving(name, fence, wait)).await
}

pub(crate) fn within(millis: u64) -> Fence {
    Fence { max_staleness: Some(MaxStaleness::Within(Duration::from_millis(millis))), ..Fence::default() }
}

pub(crate) fn any() -> Fence {
    Fence { max_staleness: Some(MaxStaleness::Any), ..Fence::default() }
}

/// Waits until the node has proven its view once.
pub(crate) async fn ready(registry: &Registry) {
    eventually(|| registry.is_ready()).await;
}

pub(crate) async fn eventually(so: impl Fn() -> bool) {
    let until = tokio::time::Instant::now() + Duration::from_secs(10);
    while !so() {
        assert!(tokio::time::Instant::now() < until, "it did not become so within 10 s");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

pub(crate) const WAIT: Duration = Duration::from_secs(5);
pub(crate) const NOW: Duration = Duration::ZERO;
