//! What every answer says about its age.

use std::sync::Arc;
use std::time::Duration;

use super::{Position, Timestamp};

/// How a bound on staleness is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// Complete against the primary database that was asked. A deposed primary that still answers is not excluded.
    Authority,
    /// Complete against another node, which says how old its own proof is.
    Upstream,
    /// Nothing was proven in this generation of the view: staleness is unknown.
    Unproven,
}

impl Basis {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Authority => "authority",
            Self::Upstream => "upstream",
            Self::Unproven => "unproven",
        }
    }
}

/// The freshness of a view at the moment of an answer.
#[derive(Debug, Clone)]
pub struct Freshness {
    /// The view's position.
    pub position: Position,
    /// Upper bound on how long ago the answer could have stopped being current. `None`: unknown.
    pub staleness: Option<Duration>,
    /// When completeness was last proven, by this node's wall clock; for people.
    pub proven_at: Option<Timestamp>,
    pub basis: Basis,
    /// The node that answered.
    pub served_by: Arc<str>,
    /// Nodes between this one and the authority's database.
    pub hops: u32,
    /// What is known of one agent's origin; absent on answers that are not about one agent.
    pub origin: Option<Origin>,
}

/// What is known of the agent behind a card. It lives outside the ledger and may lag; it can only refuse too much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    pub registered_at: Timestamp,
    /// The last register, unchanged ones included, or heartbeat, by the store's clock.
    pub confirmed_at: Option<Timestamp>,
    /// Median gap between registers, unchanged ones included. `None`: fewer than three registers are known.
    pub redeploy_interval: Option<Duration>,
    /// Where the agent was registered with one, and is not retired.
    pub lease: Option<LeaseHeld>,
}

/// How an agent's lease stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseHeld {
    /// How long one confirmation holds.
    pub ttl: Duration,
    /// It was not confirmed for so long, while the registry was up. It is reported, and nothing is refused for it.
    pub lapsed: bool,
}

impl Origin {
    /// Twice the redeploy interval: how long a caller may go without re-validating. `None`: always re-validate.
    pub fn revalidate_after(&self) -> Option<Duration> {
        self.redeploy_interval.map(|interval| interval.saturating_mul(2))
    }
}

/// The staleness that a caller accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaxStaleness {
    /// At most this; zero is linearizable.
    Within(Duration),
    /// Any staleness, unknown included. It must be said outright.
    Any,
}
