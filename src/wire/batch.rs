//! Resolving many agents in one request.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::object::{Object, Shape, given, many, one};
use super::{Envelope, Fence, Freshness, Problem};

/// Many agents, each under its own fence, at one position. Unknown members are refused: a misspelt fence must
/// not pass.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BatchRequest {
    /// At most 1,000.
    #[serde(deserialize_with = "many")]
    pub agents: Vec<BatchWanted>,
    /// For all of them: a duration, or `any`.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub max_staleness: Option<String>,
    /// A position that the view must have applied.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub at_least: Option<String>,
    /// A duration of at most 10s.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub wait: Option<String>,
}

/// One agent of a batch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BatchWanted {
    pub agent: String,
    #[serde(default, deserialize_with = "one")]
    pub fence: Fence,
}

impl Shape for BatchRequest {
    const EXPECTED: &'static str = "an object with `agents`";
}

impl Shape for BatchWanted {
    const EXPECTED: &'static str = "an object with `agent` and `fence`";
}

impl BatchRequest {
    /// Reads the body of a request.
    ///
    /// # Errors
    /// What is wrong with it, and in which member.
    pub fn read(body: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(body).map(|Object(request)| request)
    }
}

/// The answer to a batch.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct BatchAnswer {
    /// In the order they were asked for.
    pub items: Vec<BatchItem>,
    pub freshness: Freshness,
}

/// What one agent of a batch came to: either it was resolved, or there is a problem.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct BatchItem {
    pub agent: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved: Option<Envelope>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}
