//! One node without its wires: a ledger, the view that follows it, what writes to it, and the use cases over them.
//!
//! An edge is such a node, too: its ledger lies with an upstream, and so does what writes.
//!
//! Owns the background tasks: each has a name, and its end is an event that [`Node::failed`] reports. The
//! server, the demo and the tests assemble the same node.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::ledger::{Entries, History, Origins, Replicas, ServiceClock, Store, TICK, Writes, writer};
use crate::registry::{Registry, Rules, Settings};
use crate::telemetry::Metrics;
use crate::view::{feed, hub};

/// What a node is made of.
#[derive(Debug)]
pub struct Parts {
    pub entries: Arc<dyn Entries>,
    /// What the view is proven by, where that is not what the entries come from.
    pub authority: Option<Arc<dyn Entries>>,
    pub history: Arc<dyn History>,
    pub writes: Writing,
    pub origins: Arc<dyn Origins>,
    /// Ticked by this node; `None` where others do.
    pub service: Option<Arc<dyn ServiceClock>>,
    /// Where this node reports how far it has come.
    pub replicas: Arc<dyn Replicas>,
    /// Changes when the ledger may have grown; its sender may be gone.
    pub nudges: watch::Receiver<u64>,
    /// Tasks of the store, by name; they end with `stop`.
    pub tasks: Vec<(&'static str, JoinHandle<()>)>,
    pub stop: CancellationToken,
    pub clock: Clock,
}

/// Where writes are committed.
#[derive(Debug, Clone)]
pub enum Writing {
    /// In a store, by a writer of this node's own.
    Here(Arc<dyn Store>),
    /// Somewhere else, which takes them as they are.
    Elsewhere(Arc<dyn Writes>),
}

impl Parts {
    /// A node over one ledger that has no tasks of its own and nudges nobody.
    pub fn over<L>(ledger: &L, clock: Clock) -> Self
    where
        L: Entries + History + Store + Origins + ServiceClock + Replicas + Clone + 'static,
    {
        Self {
            entries: Arc::new(ledger.clone()),
            authority: None,
            history: Arc::new(ledger.clone()),
            writes: Writing::Here(Arc::new(ledger.clone())),
            origins: Arc::new(ledger.clone()),
            service: Some(Arc::new(ledger.clone())),
            replicas: Arc::new(ledger.clone()),
            nudges: watch::channel(0).1,
            tasks: Vec::new(),
            stop: CancellationToken::new(),
            clock,
        }
    }
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

/// The longest that one tick of the service clock may take.
const TICKS_WITHIN: Duration = Duration::from_secs(5);

/// Ticks the service clock until `stop`. One that fails is counted, and the next one makes up for it as far as a
/// tick may: beyond that the registry counts as having been down.
async fn tick(service: Arc<dyn ServiceClock>, stop: CancellationToken, metrics: Metrics) {
    let mut due = tokio::time::interval(TICK);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = due.tick() => {}
        }
        let ticked = tokio::select! {
            () = stop.cancelled() => return,
            ticked = tokio::time::timeout(TICKS_WITHIN, service.tick()) => ticked,
        };
        match ticked {
            Ok(Ok(elapsed)) => tracing::trace!(?elapsed, "the service clock was ticked"),
            Ok(Err(error)) => {
                metrics.service_tick_failures.inc();
                tracing::debug!(%error, "the service clock was not ticked");
            }
            Err(_) => {
                metrics.service_tick_failures.inc();
                tracing::debug!(within = ?TICKS_WITHIN, "the service clock was not ticked in time");
            }
        }
    }
}

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
        let stop = parts.stop;
        let mut tasks = JoinSet::new();
        for (name, task) in parts.tasks {
            tasks.spawn(async move {
                if let Err(error) = task.await {
                    tracing::error!(%error, name, "a task of the store has failed");
                }
                name
            });
        }
        let (committed, own) = mpsc::channel(COMMITS_WAITING);
        let (view, feed) = feed::Feed::new(
            feed::Sources {
                entries: parts.entries,
                authority: parts.authority,
                committed: own,
                nudges: parts.nudges,
            },
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
        let hearing = hub::run(view.clone(), metrics.clone(), stop.child_token());
        tasks.spawn(async move {
            hearing.await;
            "hub"
        });
        let writes = match parts.writes {
            Writing::Elsewhere(writes) => writes,
            Writing::Here(store) => {
                let (rules, stop) = (Arc::new(Rules), stop.child_token());
                let (writes, writing) =
                    writer::Writer::start(store, rules, committed, tuning.writer, metrics.clone(), stop);
                tasks.spawn(async move {
                    if let Err(error) = writing.await {
                        tracing::error!(%error, "the writer has failed");
                    }
                    "writer"
                });
                Arc::new(writes)
            }
        };
        if let Some(service) = parts.service {
            let ticking = tick(service, stop.child_token(), metrics.clone());
            tasks.spawn(async move {
                ticking.await;
                "service"
            });
        }
        let registry = Registry::new(
            view,
            parts.history,
            writes,
            parts.origins,
            parts.replicas,
            tuning.registry,
            metrics,
        );
        let (reports, reporting) = (registry.reports(), stop.child_token());
        tasks.spawn(async move {
            reports.run(reporting).await;
            "reports"
        });
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
        self.registry.streams_ended().await;
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}
