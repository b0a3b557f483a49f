//! The past: revisions, differences, and the entries of the ledger.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::{Change, Freshness};

/// One revision of an agent. `agent`, `freshness` and `card` are there when it was asked for alone.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RevisionItem {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    pub revision: u64,
    /// The entry that made it.
    pub position: String,
    /// `card`, `tombstone` or `redacted`.
    pub kind: String,
    pub registered_at: String,
    pub registered_by: String,
    pub card_version: Option<String>,
    pub generation: Option<String>,
    pub content_digest: Option<String>,
    pub raw_digest: Option<String>,
    pub skill_fingerprint: Option<String>,
    pub negotiation_fingerprint: Option<String>,
    /// Against the card before; `null` on the first.
    pub change: Option<Change>,
    pub release: Option<String>,
    pub note: Option<String>,
    /// Where the card came from, such as `rollback:3`.
    pub source: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub freshness: Option<Freshness>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub card: Option<Box<RawValue>>,
}

/// The difference between two revisions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Diff {
    pub agent: String,
    pub from: u64,
    pub to: u64,
    pub change: Change,
    /// A unified diff of the two cards, indented and with sorted members; for people.
    pub unified: String,
    /// The unified diff was too long, and ends early.
    #[serde(default)]
    pub unified_cut: bool,
    pub freshness: Freshness,
}

/// One line of the ledger. Without `body` to a reader who may not see it; the chain verifies all the same.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LedgerEntry {
    pub seq: u64,
    /// The chain digest at `seq`.
    pub digest: String,
    pub body_digest: String,
    /// Canonical JSON: the digest is over this text as it stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub body: Option<Box<RawValue>>,
}
