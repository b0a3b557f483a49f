//! What a register, a retirement or a rollback led to, and how a change is told.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Replicated;

/// The answer to a write. Digests are those of the card that was sent; a retirement has none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Registered {
    pub agent: String,
    /// `created`, `updated`, `unchanged` or `retired`.
    pub outcome: String,
    pub revision: u64,
    /// The entry that made the revision; `null` when a dry run would make one.
    pub position: Option<String>,
    pub content_digest: Option<String>,
    pub raw_digest: Option<String>,
    pub skill_fingerprint: Option<String>,
    pub negotiation_fingerprint: Option<String>,
    pub card_version: Option<String>,
    pub generation: Option<String>,
    /// Against the card before; `null` on the first.
    pub change: Option<Change>,
    pub warnings: Vec<Warning>,
    /// A later revision is current: this is the answer to a repeated request.
    pub superseded: bool,
    /// Nothing was written.
    pub dry_run: bool,
    /// Where it was waited for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<Replicated>,
}

/// All that changed between two revisions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Change {
    /// `breaking`, `additive` or `cosmetic`: the gravest of the items.
    pub class: String,
    /// Not cosmetic, although the card's own version stayed the same.
    pub silent: bool,
    pub items: Vec<Item>,
    /// How many items were left out for want of room.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub items_omitted: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
pub(super) fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// One thing that changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Item {
    pub kind: String,
    pub class: String,
    /// Where it lies: in the old card for what is gone, else in the new one.
    pub pointer: String,
    /// What it is about, such as a skill's id.
    pub subject: String,
}

/// What is odd about an accepted card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Warning {
    pub code: String,
    /// JSON Pointer into the card.
    pub pointer: String,
    pub message: String,
}
