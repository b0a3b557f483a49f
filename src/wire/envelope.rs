//! A resolved agent, and lists of things.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::Freshness;

/// An agent that was resolved. In lists without its card.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Envelope {
    pub agent: String,
    pub revision: u64,
    /// The entry that made the revision.
    pub position: String,
    /// The card's own `version`.
    pub card_version: Option<String>,
    /// The A2A generation that the card is written in.
    pub generation: String,
    pub content_digest: String,
    pub raw_digest: String,
    pub skill_fingerprint: String,
    pub negotiation_fingerprint: String,
    pub registered_at: String,
    pub registered_by: String,
    pub freshness: Freshness,
    /// The card was left out, because the answer would be too large with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub card_omitted: bool,
    /// The card as it was registered. White space around the document is not part of a JSON value: who needs
    /// every byte asks for the card alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub card: Option<Box<RawValue>>,
}

/// An agent in a list: the envelope without its card.
pub type AgentItem = Envelope;

/// One page.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct List<T> {
    pub items: Vec<T>,
    /// Goes on after the last item.
    pub next_page_token: Option<String>,
    /// There is no further page, and the filter was evaluated on all that the caller may read.
    pub complete: bool,
    pub freshness: Freshness,
}
