//! One node without its wires: a ledger, the view that follows it, the writer, and the use cases over them.
//!
//! Owns the background tasks: each has a name, and its end is an event that [`Node::failed`] reports. The
//! server, the demo and the tests assemble the same node.

use std::sync::Arc;

use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::ledger::{Entries, History, Store, writer};
use crate::registry::{Registry, Rules, Settings};
use crate::telemetry::Metrics;
use crate::view::feed;

/// What a node is made of.
#[derive(Debug, Clone)]
pub struct Parts {
    pub entries: Arc<dyn Entries>,
    pub history: Arc<dyn History>,
    pub store: Arc<dyn Store>,
    /// Rung when the ledger may have grown; it need never be.
    pub nudge: Arc<Notify>,
    pub clock: Clock,
}

/// How a node behaves.
#[derive(Debug, Clone)]
pub struct Tuning {
    /// What the node calls itself in its answers.
    pub name: String,
    pub feed: feed::Settings,
    pub writer: writer::Limits,
    pub registry: Settings,
}

impl Tuning {
    /// The defaults, under a name.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            feed: feed::Settings::default(),
            writer: writer::Limits::default(),
            registry: Settings::default(),
        }
    }
}

/// Commits of this node that may wait for its view; beyond them the view reads the ledger instead.
const COMMITS_WAITING: usize = 64;

/// A running node.
#[derive(Debug)]
pub struct Node {
    pub registry: Registry,
    stop: CancellationToken,
    tasks: JoinSet<&'static str>,
}

impl Node {
    /// Starts the tasks. The view is not proven yet when this returns.
    pub fn start(parts: Parts, tuning: Tuning, metrics: Metrics) -> Self {
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let (committed, own) = mpsc::channel(COMMITS_WAITING);
        let (view, feed) = feed::Feed::new(
            parts.entries,
            own,
            parts.nudge,
            &tuning.name,
            parts.clock,
            tuning.feed,
            metrics.clone(),
        );
        let following = stop.child_token();
        tasks.spawn(async move {
            feed.run(following).await;
            "feed"
        });
        let (writes, writing) = writer::Writer::start(
            parts.store,
            Arc::new(Rules),
            committed,
            tuning.writer,
            metrics.clone(),
            stop.child_token(),
        );
        tasks.spawn(async move {
            if let Err(error) = writing.await {
                tracing::error!(%error, "the writer has failed");
            }
            "writer"
        });
        let registry = Registry::new(view, parts.history, Arc::new(writes), tuning.registry, metrics);
        Self { registry, stop, tasks }
    }

    /// Ends when one of the tasks has ended by itself, with its name: the node is of no use then.
    pub async fn failed(&mut self) -> &'static str {
        match self.tasks.join_next().await {
            Some(Ok(name)) => name,
            Some(Err(error)) => {
                tracing::error!(%error, "a task has failed");
                "unknown"
            }
            None => "all",
        }
    }

    /// Ends the tasks: writes that wait are done first.
    pub async fn stop(mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}
