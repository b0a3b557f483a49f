//! What nodes and edges say of themselves: how far each has come. A table beside the ledger, which proves
//! nothing: a replica that lags or falls silent shows here, and nothing is refused for it.
//!
//! No two clocks are compared. Whoever passes a statement on adds how long it had it, by its own clock, and the
//! store says how long ago that was, by its own ([`Replica::silent`]).

use std::time::Duration;

use async_trait::async_trait;

use super::Error;
use crate::terms::Position;

/// Replicas that one report names at most, the reporter included.
pub const REPORTED_MAX: usize = 256;

/// Replicas that are read at once.
pub const REPLICAS_MAX: usize = 4_000;

/// How long a replica that fell silent is remembered.
pub const REPLICA_KEPT: Duration = Duration::from_secs(7 * 86_400);

/// Rows of silent replicas that one report removes at most.
pub(super) const FORGOTTEN_BY_A_REPORT: i64 = 100;

/// One node or edge, as it said of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replica {
    /// What it calls itself in its answers. One that is started again keeps its name, and so its row.
    pub replica: String,
    /// `node`, `standby` or `edge`.
    pub role: String,
    /// What its view had applied.
    pub position: Position,
    /// How stale its view was. `None`: not known.
    pub staleness: Option<Duration>,
    /// Nodes between it and the authority's database.
    pub hops: u32,
    /// Of the program.
    pub version: String,
    /// The node that it hangs off; `None` for one that reads a database itself.
    pub via: Option<String>,
    /// How long ago it said so: in a report when that is made, in an answer when that is given.
    pub silent: Duration,
    /// Replicas below it that its last report did not name for want of room.
    pub omitted: Option<Omitted>,
}

/// Replicas that a report did not name: those that had come furthest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Omitted {
    pub count: u64,
    /// None of them had applied less.
    pub at_least: Position,
}

/// Where reports go, and who has reported.
#[async_trait]
pub trait Replicas: Send + Sync + std::fmt::Debug {
    /// Keeps what a replica says of itself, first, and of those below it; each is named once, and takes the
    /// place of what was kept under its name, unless that is newer. When the first omits some, those that it
    /// named before and does not now are forgotten: they are among the omitted.
    async fn report(&self, replicas: &[Replica]) -> Result<(), Error>;

    /// Those whose last statement is no older than `within`, the latest first, at most [`REPLICAS_MAX`].
    async fn replicas(&self, within: Duration) -> Result<Vec<Replica>, Error>;
}
