//! What `card inspect --json` prints.

use serde::{Deserialize, Serialize};

use super::{Violation, Warning};

/// All that can be said of a document, refused or not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inspection {
    pub generation: Option<String>,
    pub spoken_versions: Vec<String>,
    pub content_digest: Option<String>,
    pub raw_digest: String,
    pub skill_fingerprint: Option<String>,
    pub negotiation_fingerprint: Option<String>,
    pub warnings: Vec<Warning>,
    /// Empty when the document is a usable card.
    pub violations: Vec<Violation>,
}
