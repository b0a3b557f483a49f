//! Heartbeats: that an agent still serves its card.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::object::{Object, Shape, many};
use super::{Freshness, Problem};

/// A heartbeat of the agent that the path names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Confirm {
    /// The content digest of the card that the agent serves.
    pub content_digest: String,
}

/// Heartbeats of many agents.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ConfirmBatch {
    /// At most 1,000.
    #[serde(deserialize_with = "many")]
    pub items: Vec<ConfirmWanted>,
}

/// One of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ConfirmWanted {
    pub agent: String,
    /// The content digest of the card that the agent serves.
    pub content_digest: String,
}

impl Shape for Confirm {
    const EXPECTED: &'static str = "an object with `content_digest`";
}

impl Shape for ConfirmBatch {
    const EXPECTED: &'static str = "an object with `items`";
}

impl Shape for ConfirmWanted {
    const EXPECTED: &'static str = "an object with `agent` and `content_digest`";
}

impl Confirm {
    /// Reads the body of a request.
    ///
    /// # Errors
    /// What is wrong with it, and in which member.
    pub fn read(body: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(body).map(|Object(request)| request)
    }
}

impl ConfirmBatch {
    /// Reads the body of a request.
    ///
    /// # Errors
    /// What is wrong with it, and in which member.
    pub fn read(body: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(body).map(|Object(request)| request)
    }
}

/// An origin that was confirmed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Confirmation {
    pub agent: String,
    /// The revision that is current.
    pub revision: u64,
    /// The entry that made it; `null` when this node has not applied it yet.
    pub position: Option<String>,
    pub origin_confirmed_at: String,
    /// How long this confirmation holds; not there without a lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub lease_ttl_ms: Option<u64>,
    pub freshness: Freshness,
}

/// The answer to many heartbeats.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ConfirmAnswer {
    /// In the order they were sent in.
    pub items: Vec<ConfirmAnswered>,
    pub freshness: Freshness,
}

/// What one of them came to: either it was confirmed, or there is a problem.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ConfirmAnswered {
    pub agent: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmed: Option<Confirmation>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_heartbeat_is_named() {
        for (body, named) in [
            ("[]", "expected an object with `content_digest`"),
            ("{}", "missing field `content_digest`"),
            (r#"{"content_digest":null}"#, "content_digest: invalid type: null"),
            (r#"{"content_digest":"x","digest":"x"}"#, "unknown field `digest`"),
        ] {
            let error = Confirm::read(body.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(named), "{body}: {error}");
        }
        for (body, named) in [
            ("[]", "expected an object with `items`"),
            (r#"{"items":[["a","b"]]}"#, "expected an object with `agent` and `content_digest`"),
            (r#"{"items":[{"agent":"a/b"}]}"#, "missing field `content_digest`"),
            (r#"{"items":null}"#, "items: invalid type: null"),
        ] {
            let error = ConfirmBatch::read(body.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(named), "{body}: {error}");
        }
    }
}
