//! What may be done: the use cases that both wires share.
//!
//! Takes and gives domain types; knows no wire and no store. Reads go to the view and, for the past, to
//! [`History`]; writes go to [`Writes`], heartbeats to [`Origins`]. Every answer carries a freshness block, every failure a [`Refusal`].

mod allowance;
mod consult;
mod diff;
mod fleet;
mod history;
mod judge;
mod list;
mod origins;
mod refusal;
mod replicas;
pub mod replicate;
mod reports;
mod resolve;
pub mod watch;
mod write;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::card::Limits;
use crate::clock::Moment;
use crate::ledger::{History, Origins, Replicas, Writes};
use crate::telemetry::Metrics;
use crate::terms::{MaxStaleness, Position, Principal};
use crate::view::View;

// What use cases take and give of the layers below: the wires see those only through here.
pub use crate::ledger::{Entry, Expect, Lease, Omitted, Outcome, Replica, Revision, RevisionKind};
pub use crate::view::Agent;
use fleet::Fleet;

pub use allowance::Allowance;
pub use diff::Diff;
pub use history::{Past, RevisionPage, Start, Watermark};
pub use judge::Rules;
pub use list::{Filter, List, Page};
pub use origins::{ConfirmItem, Confirmation, ConfirmedItem};
pub use refusal::{Parts, Refusal};
pub use replicas::{ListedReplica, Missing, ReplicaList, Replicated, ReplicatedWait};
pub use reports::Reports;
pub use resolve::{Batch, BatchItem, Resolve, Resolved};
pub use watch::{Because, Checkpoint, Event, Subscription, Told, Watch};
pub use write::{Register, Retire, Rollback, Written};

/// One call as it arrived.
#[derive(Debug, Clone)]
pub struct Call {
    /// When the request arrived: a proof since then makes an answer linearizable.
    pub arrival: Moment,
    /// The same moment by the clock that waits are measured with.
    pub started: Instant,
    /// The caller's own time-out, where it told one.
    pub timeout: Option<Duration>,
    pub principal: Principal,
    /// What it may take beyond the time that every call gets.
    pub allowance: Allowance,
}

impl Call {
    /// Until when an answer is to be ready, so that it arrives before the caller gives up: at nine tenths of the
    /// caller's own time-out.
    fn answer_by(&self) -> Option<Instant> {
        self.started.checked_add(self.timeout?.mul_f64(0.9))
    }
}

/// What a read that is not a resolve demands of the view.
#[derive(Debug, Clone, Default)]
pub struct Read {
    /// `None`: the server's default.
    pub max_staleness: Option<MaxStaleness>,
    pub at_least: Option<Position>,
    /// `None`: the server's default; at most 10 s.
    pub wait: Option<Duration>,
}

/// Defaults and bounds of the use cases.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Staleness accepted when a fence says nothing of it.
    pub default_max_staleness: Duration,
    /// The wait when a request says nothing of it.
    pub default_wait: Duration,
    /// The longest that a write may take.
    pub write_timeout: Duration,
    pub card: Limits,
    /// Edges that may follow this server at once.
    pub max_edges: usize,
    /// What this server is: `node`, `standby` or `edge`.
    pub role: &'static str,
    pub watch: watch::Settings,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            default_max_staleness: Duration::from_secs(5),
            default_wait: Duration::from_secs(1),
            write_timeout: Duration::from_secs(10),
            card: Limits::default(),
            max_edges: 256,
            role: "node",
            watch: watch::Settings::default(),
        }
    }
}

/// The use cases of one node. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Registry {
    view: View,
    history: Arc<dyn History>,
    writes: Arc<dyn Writes>,
    origins: Arc<dyn Origins>,
    fleet: Arc<Fleet>,
    draining: CancellationToken,
    settings: Arc<Settings>,
    streams: Arc<watch::Streams>,
    room: replicate::Room,
    metrics: Metrics,
}

impl Registry {
    pub fn new(
        view: View,
        history: Arc<dyn History>,
        writes: Arc<dyn Writes>,
        origins: Arc<dyn Origins>,
        replicas: Arc<dyn Replicas>,
        settings: Settings,
        metrics: Metrics,
    ) -> Self {
        let streams = Arc::new(watch::Streams::new(&settings.watch));
        let room = replicate::Room::for_sessions(settings.max_edges);
        let fleet = Arc::new(Fleet::new(replicas));
        let draining = CancellationToken::new();
        let settings = Arc::new(settings);
        Self { view, history, writes, origins, fleet, draining, settings, streams, room, metrics }
    }

    /// A call that arrives now.
    pub fn call(&self, timeout: Option<Duration>) -> Call {
        Call {
            arrival: self.view.clock().now(),
            started: Instant::now(),
            timeout,
            principal: Principal::anonymous(),
            allowance: Allowance::default(),
        }
    }

    /// The task that reports how far this node has come.
    pub fn reports(&self) -> Reports {
        Reports(self.clone())
    }

    /// Ends the waits for replicas: what is done is answered as it stands, before the node is gone.
    pub fn drain(&self) {
        self.draining.cancel();
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Whether the view was ever proven. Stays true when the store is lost later: staleness says that.
    pub fn is_ready(&self) -> bool {
        self.view.load().ready
    }

    /// Staleness of the view now; `None`: unknown.
    pub fn staleness(&self) -> Option<Duration> {
        self.view.load().staleness(&self.view.clock().now())
    }

    fn tolerance(&self, read: &Read) -> MaxStaleness {
        read.max_staleness.unwrap_or(MaxStaleness::Within(self.settings.default_max_staleness))
    }
}
