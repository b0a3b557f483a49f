//! The composition root: settings in, a running server out. The only module that may know everything.

mod body;
mod layers;
mod listen;
mod node;
mod store;
mod wires;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tower::ServiceBuilder;

use crate::config::{Config, StoreUrl};
use crate::telemetry::Metrics;

pub use node::{Node, Parts, Tuning, Writing};
pub use store::{Opening, follow, open};

/// Why a server could not be started, or ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot listen on {address}: {error}")]
    Listen { address: SocketAddr, error: std::io::Error },
    #[error(transparent)]
    Store(#[from] crate::ledger::Error),
    /// A task that must not end has ended; the log says why.
    #[error("the task `{0}` has ended by itself")]
    Task(&'static str),
}

/// What the node's tasks get to end in, once nobody waits for an answer any more.
const LAST_WRITES: Duration = Duration::from_secs(2);

/// How long an edge may take to receive all that its upstream holds, as long as it goes on coming.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(600);

/// Bounds of serving.
#[derive(Debug, Clone)]
pub struct Serving {
    pub request_timeout: Duration,
    /// What requests in flight get to finish in when the server stops.
    pub drain_timeout: Duration,
    pub max_requests: usize,
    pub max_connections: usize,
}

impl Default for Serving {
    fn default() -> Self {
        Self {
            request_timeout: Duration::from_secs(30),
            drain_timeout: Duration::from_secs(10),
            max_requests: 4_096,
            max_connections: 16_384,
        }
    }
}

/// Runs a server as `config` says until `stop`, then drains it. `ready` is told the address that it listens on.
///
/// # Errors
/// When the address or the store cannot be used, or a task ends that must not.
pub async fn run(
    config: Config,
    ready: impl FnOnce(SocketAddr) + Send,
    stop: impl Future<Output = ()> + Send,
) -> Result<(), Error> {
    let failed = |error| Error::Listen { address: config.listen, error };
    // The address first: a store that was opened has tasks, which somebody must end.
    let listener = TcpListener::bind(config.listen).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let parts = store::open(Opening::of(&config)).await?;
    let node = Node::start(parts, tuning(&config, address), Metrics::new());
    let serving = Serving {
        request_timeout: config.request_timeout,
        drain_timeout: config.drain_timeout,
        max_requests: config.max_requests,
        max_connections: config.max_connections,
    };
    tracing::info!(store = %config.store, %address, "serving");
    ready(address);
    serve(node, listener, &serving, stop).await
}

fn tuning(config: &Config, address: SocketAddr) -> Tuning {
    let name = config.node.clone().unwrap_or_else(|| {
        let system = rustix::system::uname();
        format!("{}:{}", system.nodename().to_string_lossy(), address.port())
    });
    let mut tuning = Tuning::named(&name);
    tuning.feed.poll = config.poll;
    tuning.feed.exchange = config.exchange_timeout;
    tuning.feed.reading = config.exchange_timeout * 5;
    if config.authority.is_some() {
        tuning.registry.role = "standby";
    }
    if let StoreUrl::Upstream(_) = config.store {
        tuning.registry.role = "edge";
        tuning.feed.reading = SNAPSHOT_TIMEOUT;
    }
    tuning.registry.default_max_staleness = config.default_max_staleness;
    tuning.registry.default_wait = config.default_wait;
    tuning.registry.write_timeout = config.write_timeout;
    tuning.registry.max_edges = config.max_edges;
    tuning.registry.watch.subscribers = config.max_subscribers;
    tuning.registry.watch.checkpoint = config.checkpoint;
    tuning.registry.watch.max_age = config.max_stream_age;
    tuning.registry.card = config.card;
    tuning
}

/// Serves a node on `listener` until `stop`, then drains it and ends its tasks.
///
/// # Errors
/// When a task of the node ends by itself: the server then drains, too, since it could answer less and less.
pub async fn serve(
    mut node: Node,
    listener: TcpListener,
    serving: &Serving,
    stop: impl Future<Output = ()> + Send,
) -> Result<(), Error> {
    let draining = Arc::new(AtomicBool::new(false));
    let drain = CancellationToken::new();
    let service = ServiceBuilder::new()
        .layer(layers::Observe(node.registry.metrics().clone()))
        .layer(layers::Admit(Arc::new(Semaphore::new(serving.max_requests))))
        .layer(layers::Bound(serving.request_timeout))
        .service(wires::Wires::new(&node.registry, &draining, drain.clone()));
    let registry = node.registry.clone();
    let mut failed = None;
    let stopped = async {
        tokio::select! {
            () = stop => {}
            task = node.failed() => failed = Some(task),
        }
        // Not ready first, so that balancers look elsewhere before connections are refused.
        draining.store(true, Ordering::Release);
        drain.cancel();
        // Streams go first of all: who is told has the time that follows to go elsewhere.
        registry.end_streams();
        registry.drain();
        tracing::info!("draining");
    };
    listen::listen(listener, service, serving.max_connections, serving.drain_timeout, stopped).await;
    // Writes that still wait for a store that does not answer are given up with the process.
    if tokio::time::timeout(LAST_WRITES, node.stop()).await.is_err() {
        tracing::warn!("the store did not answer the last writes in time");
    }
    tracing::info!("stopped");
    failed.map_or(Ok(()), |task| Err(Error::Task(task)))
}
