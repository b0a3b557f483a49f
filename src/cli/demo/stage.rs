//! What the demo plays on: two real nodes over one ledger in a temporary folder, each on a port of its own.

use std::net::SocketAddr;
use std::time::Duration;

use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::super::client::{Client, Request};
use super::super::failure::{Failure, chained, failed};
use super::super::query::Query;
use super::valve::Valve;
use crate::config::{self, Config};
use crate::server::{self, Node, Parts, Serving, Tuning};
use crate::telemetry::Metrics;

/// How long a node may take to be ready.
const READY_WITHIN: Duration = Duration::from_secs(10);
const ASK_EVERY: Duration = Duration::from_millis(10);

/// Both nodes, running.
pub(super) struct Stage {
    /// The node that is deployed to.
    pub(super) primary: Client,
    /// A node that follows the same ledger, behind the valve.
    pub(super) replica: Client,
    pub(super) valve: Valve,
    stop: CancellationToken,
    serving: JoinSet<Result<(), server::Error>>,
    folder: TempDir,
}

impl Stage {
    /// Starts both. `listen` is where the primary listens.
    pub(super) async fn set(listen: &str) -> Result<Self, Failure> {
        let folder = tempfile::Builder::new().prefix("cardfence-demo-").tempdir();
        let folder = folder.map_err(|error| failed(format!("cannot make a temporary folder: {error}")))?;
        let config = config(listen, &folder)?;
        let parts = server::open(server::Opening::of(&config)).await.map_err(|e| failed(chained(&e)))?;
        let valve = Valve::open();
        let replica = Parts {
            entries: valve.before(parts.entries.clone()),
            authority: None,
            history: parts.history.clone(),
            writes: parts.writes.clone(),
            origins: parts.origins.clone(),
            service: None,
            replicas: parts.replicas.clone(),
            nudges: parts.nudges.clone(),
            tasks: Vec::new(),
            stop: CancellationToken::new(),
            clock: parts.clock.clone(),
        };
        let stop = CancellationToken::new();
        let mut serving = JoinSet::new();
        let primary = start("primary", parts, config.listen, &stop, &mut serving).await?;
        let replica =
            start("replica", replica, SocketAddr::new(config.listen.ip(), 0), &stop, &mut serving).await?;
        let stage = Self { primary, replica, valve, stop, serving, folder };
        for node in [&stage.primary, &stage.replica] {
            ready(node).await?;
        }
        Ok(stage)
    }

    /// Ends when a node has ended by itself.
    pub(super) async fn failed(&mut self) -> Failure {
        match self.serving.join_next().await {
            Some(Ok(Err(error))) => failed(chained(&error)),
            Some(Err(error)) => failed(chained(&error)),
            Some(Ok(Ok(()))) | None => failed("a node has ended by itself"),
        }
    }

    /// Drains both nodes and removes the folder.
    pub(super) async fn strike(mut self) -> Result<(), Failure> {
        // A replica behind a shut valve could not finish what it waits for.
        self.valve.set_open(true);
        self.stop.cancel();
        while let Some(ended) = self.serving.join_next().await {
            ended.map_err(|error| failed(chained(&error)))?.map_err(|error| failed(chained(&error)))?;
        }
        let path = self.folder.path().to_owned();
        self.folder.close().map_err(|error| failed(format!("cannot remove {}: {error}", path.display())))
    }
}

/// Settings as for `serve`, so that the same rule decides where it may listen.
fn config(listen: &str, folder: &TempDir) -> Result<Config, Failure> {
    let store = format!("sqlite:{}", folder.path().join("cardfence.db").display());
    let args =
        config::Args { listen: Some(listen.to_owned()), store: Some(store), ..config::Args::default() };
    args.check().map_err(|error| Failure::Usage(error.to_string()))
}

async fn start(
    name: &str,
    parts: Parts,
    listen: SocketAddr,
    stop: &CancellationToken,
    serving: &mut JoinSet<Result<(), server::Error>>,
) -> Result<Client, Failure> {
    let cannot = |error: std::io::Error| failed(format!("cannot listen on {listen}: {error}"));
    let listener = TcpListener::bind(listen).await.map_err(cannot)?;
    let address = listener.local_addr().map_err(cannot)?;
    let mut tuning = Tuning::named(name);
    // A play of seconds; a replica that is let go again shall be seen to come back.
    tuning.feed.poll = Duration::from_millis(50);
    tuning.feed.exchange = Duration::from_millis(500);
    tuning.feed.backoff = Duration::from_millis(100);
    let node = Node::start(parts, tuning, Metrics::new());
    let stopped = stop.clone().cancelled_owned();
    serving.spawn(async move { server::serve(node, listener, &Serving::default(), stopped).await });
    Client::new(&format!("http://{address}"))
}

async fn ready(node: &Client) -> Result<(), Failure> {
    let asking = async {
        while node.read(Request::get("/readyz", &Query::default())).await.is_err() {
            tokio::time::sleep(ASK_EVERY).await;
        }
    };
    let late = |_| failed(format!("{} is not ready after {} s", node.base(), READY_WITHIN.as_secs()));
    tokio::time::timeout(READY_WITHIN, asking).await.map_err(late)
}
