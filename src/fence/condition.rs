//! How one condition came out, and the two conditions that are judged on the view instead of the card.

use crate::terms::{MaxStaleness, Reason};

use super::{Placed, Standing};

/// How a condition came out. Only `Passed` passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Passed,
    Failed,
    Unverifiable,
}

impl Outcome {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Unverifiable => "unverifiable",
        }
    }

    pub(super) fn passed_if(passed: bool) -> Self {
        if passed { Self::Passed } else { Self::Failed }
    }
}

/// One condition of a fence, with what was wanted and what was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// The condition's name on the wire.
    pub condition: &'static str,
    pub outcome: Outcome,
    pub wanted: String,
    pub found: String,
}

/// Why the position refuses.
pub(super) fn position(placed: Placed) -> Option<Reason> {
    match placed {
        Placed::Reached => None,
        Placed::Diverged => Some(Reason::HistoryDiverged),
        Placed::InFuture => Some(Reason::PositionInFuture),
        Placed::NotReached => Some(Reason::PositionNotReached),
        Placed::Unverifiable => Some(Reason::FreshnessUnverifiable),
    }
}

/// Why the freshness refuses. A bound that is known and too large failed; one that is unknown, or that the
/// authority was asked to renew in vain, is unverifiable.
pub(super) fn freshness(tolerance: MaxStaleness, standing: &Standing) -> Option<Reason> {
    let MaxStaleness::Within(bound) = tolerance else { return None };
    if standing.proven_since_arrival {
        return None;
    }
    match standing.staleness {
        Some(staleness) if staleness <= bound => None,
        Some(_) if !standing.asked_in_vain => Some(Reason::TooStale),
        _ => Some(Reason::FreshnessUnverifiable),
    }
}
