//! A refusal as RFC 9457 problem details.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::write::is_zero;
use super::{Change, Freshness};

/// Why something was refused. The members after `reason` are there as far as they apply.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// `urn:cardfence:problem:<reason>`.
    #[serde(rename = "type")]
    pub kind: String,
    pub title: String,
    pub status: u16,
    /// What was wrong and what is allowed, for people.
    pub detail: String,
    /// The reason's slug, for programs.
    pub reason: String,
    /// Every condition of the fence.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// How many conditions were left out for want of room.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub conditions_omitted: u64,
    /// Everything that is wrong with a card.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub violations: Vec<Violation>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub freshness: Option<Freshness>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// The change that a refused write would have made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<Change>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// The card was left out, because the answer would be too large with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub card_omitted: bool,
    /// The card that did not pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub card: Option<Box<RawValue>>,
}

/// How one condition of a fence came out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Condition {
    pub condition: String,
    /// `passed`, `failed` or `unverifiable`.
    pub outcome: String,
    pub wanted: String,
    /// Ends in an ellipsis where it was cut for want of room.
    pub found: String,
}

/// What is wrong with a card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Violation {
    /// JSON Pointer into the card.
    pub pointer: String,
    pub code: String,
    pub message: String,
}
