//! The freshness block, and where a view stands.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What every answer says about its age. `null` is unknown, or, of the members after `hops`, not about one agent. The
/// last two are there when the agent was registered with a lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Freshness {
    /// The view's position, `<seq>.<16 hex digits>`.
    pub position: String,
    /// Upper bound, in milliseconds, on how long ago the answer could have stopped being current.
    pub staleness_ms: Option<u64>,
    /// When completeness was last proven, by the wall clock of the node; for people.
    pub proven_at: Option<String>,
    /// `authority` or `unproven`.
    pub basis: String,
    pub served_by: String,
    /// Nodes between the one that answered and the authority's database.
    pub hops: u32,
    /// When the agent was last registered, unchanged registers included, or confirmed by a heartbeat.
    pub origin_confirmed_at: Option<String>,
    /// Median gap between the agent's registers.
    pub observed_redeploy_interval_ms: Option<u64>,
    /// How long a caller may go without asking again; unknown: not at all.
    pub revalidate_after_ms: Option<u64>,
    /// How long one confirmation holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub lease_ttl_ms: Option<u64>,
    /// The agent was not confirmed for so long, not counting time that the registry was down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub unconfirmed: Option<bool>,
}

/// Where a view stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Watermark {
    pub position: String,
    /// The authority's last sequence number, as of the last time it was asked.
    pub head: u64,
    pub staleness_ms: Option<u64>,
    pub basis: String,
    /// Nodes between this one and the authority's database.
    pub hops: u32,
    pub ledger_id: String,
    pub served_by: String,
    pub role: String,
}

/// That a node lives, or is ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    pub status: String,
}
