//! What a watch stream tells, as JSON: the `data` of its events, whose kinds are the names of `event`.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// `upsert`, `moved`, `retired`: that an agent came to a revision.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct AgentEvent {
    pub agent: String,
    pub revision: u64,
    /// The entry that made the revision.
    pub position: String,
    pub registered_at: String,
    pub registered_by: String,
    /// Of the change against the card before; `null` in a snapshot, for a first card, and for a retirement.
    pub class: Option<String>,
    /// Not cosmetic, although the card's own `version` stayed the same.
    pub silent: bool,
    /// The card's own `version`.
    pub card_version: Option<String>,
    /// Absent on `retired`, like all that follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_digest: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_digest: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skill_fingerprint: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub negotiation_fingerprint: Option<String>,
    /// On `upsert`, unless no cards were asked for. An event is one line, so line breaks between the members of a
    /// card come as spaces: who needs every byte asks for the card alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub card: Option<Box<RawValue>>,
}

/// `reset`: a snapshot follows, tombstones included, up to `synced`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WatchReset {
    pub position: String,
    /// `start`, or `history_diverged`: what the subscriber held is of another history.
    pub reason: String,
}

/// `synced`: the subscriber has everything up to the position.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WatchSynced {
    pub position: String,
    /// Names the stream to `GET /v1/watermark?stream=&nonce=` of this node.
    pub stream: String,
}

/// `checkpoint`: the subscriber has everything up to the position, of its selection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WatchCheckpoint {
    pub position: String,
    /// Over the selected agents that are live at the position: the sum modulo 2^256 of
    /// SHA-256(`<namespace>/<name>` NUL `<revision>` NUL `<raw digest>`).
    pub set_digest: String,
    /// Of the confirmation that this answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nonce: Option<String>,
    /// On an answer to a confirmation, where something is proven: everything that was acknowledged so long before
    /// its receipt was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staleness_ms: Option<u64>,
}

/// `end`: the last event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WatchEnd {
    pub reason: String,
}
