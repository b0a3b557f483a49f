//! Replicas: what each said of itself, and who has applied a write.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::write::is_zero;

/// A node or an edge, as it said of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReplicaItem {
    /// What it calls itself in its answers.
    pub replica: String,
    /// `node`, `standby` or `edge`.
    pub role: String,
    /// What its view had applied.
    pub position: String,
    /// Entries between it and the head that the answering node knows; `null`: its position is of another history.
    pub behind: Option<u64>,
    /// How stale its view was then; `null` is unknown.
    pub staleness_ms: Option<u64>,
    /// Nodes between it and the authority's database.
    pub hops: u32,
    /// Of the program.
    pub version: String,
    /// The node that it hangs off; `null` for one that reads a database itself.
    pub via: Option<String>,
    /// How long ago it said so.
    pub silent_ms: u64,
    /// Replicas below it that its last report did not name for want of room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub omitted: Option<OmittedReplicas>,
}

/// Replicas that are not named: those that had come furthest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OmittedReplicas {
    pub count: u64,
    /// A position that all of them had reached.
    pub at_least: String,
}

/// Who of the replicas has applied a write: of those that reported in the minute before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Replicated {
    /// All have.
    pub complete: bool,
    /// How many have, the answering node included.
    pub applied: u64,
    /// Those that have not, the furthest behind first. Empty although not complete: which replicas there are could
    /// not be read.
    pub missing: Vec<MissingReplica>,
    /// How many more are missing.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub missing_omitted: u64,
}

/// A replica that has not applied a write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MissingReplica {
    pub replica: String,
    /// What it had applied when it reported last.
    pub position: String,
    /// When that was, by the wall clock of the node that answers; for people.
    pub silent_since: String,
    pub silent_ms: u64,
}
