//! How a command ends: the exit codes, which are API, and which reason leads to which.

use std::process::ExitCode;

use crate::terms::{Reason, Retry};

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It did what it was asked.
    Done,
    /// It did not, and none of the others says why better.
    Failed,
    /// A condition of the fence did not pass: trying again is of no use before the card changes.
    FenceRefused,
    /// There is no such agent or revision, or it is retired.
    NotFound,
    /// Nothing could be reached, or proven in time: trying again may help.
    Unavailable,
    /// The command makes no sense as it was given.
    Usage,
}

impl Exit {
    pub const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::FenceRefused => 3,
            Self::NotFound => 4,
            Self::Unavailable => 5,
            Self::Usage => 64,
        }
    }

    /// How a command ends that was refused for `reason`.
    pub(super) const fn of(reason: Reason) -> Self {
        match reason {
            Reason::InvalidArgument => Self::Usage,
            Reason::AgentNotFound
            | Reason::RevisionNotFound
            | Reason::AgentRetired
            | Reason::CardRedacted => Self::NotFound,
            Reason::RevisionBelowFloor
            | Reason::VersionBelowFloor
            | Reason::VersionIncomparable
            | Reason::SkillMissing
            | Reason::ModeMissing
            | Reason::CapabilityMissing
            | Reason::PinMismatch
            | Reason::OriginUnconfirmed
            | Reason::HistoryDiverged
            | Reason::PositionInFuture => Self::FenceRefused,
            // What the reason table lets a caller send again as it is.
            reason => match reason.retry() {
                Retry::Yes | Retry::Later | Retry::SameRequestId => Self::Unavailable,
                _ => Self::Failed,
            },
        }
    }

    /// How a command ends whose refusal names no reason that this version knows.
    pub(super) const fn of_status(status: u16) -> Self {
        match status {
            404 | 410 => Self::NotFound,
            412 => Self::FenceRefused,
            429 | 502 | 503 | 504 => Self::Unavailable,
            _ => Self::Failed,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_follow_the_reason_table() {
        let cases: &[(u8, &[&str])] = &[
            (64, &["invalid_argument"]),
            (4, &["agent_not_found", "revision_not_found", "agent_retired", "card_redacted"]),
            (
                5,
                &[
                    "too_stale",
                    "freshness_unverifiable",
                    "position_not_reached",
                    "position_unverifiable",
                    "rate_limited",
                    "subscriber_too_slow",
                    "overloaded",
                    "outcome_unknown",
                    "store_unavailable",
                    "draining",
                    "max_age",
                    "deadline_exceeded",
                ],
            ),
            (
                3,
                &[
                    "revision_below_floor",
                    "version_below_floor",
                    "version_incomparable",
                    "skill_missing",
                    "mode_missing",
                    "capability_missing",
                    "pin_mismatch",
                    "origin_unconfirmed",
                    "history_diverged",
                    "position_in_future",
                ],
            ),
        ];
        for &reason in Reason::ALL {
            let listed = cases.iter().find(|(_, slugs)| slugs.contains(&reason.slug()));
            let expected = listed.map_or(1, |(code, _)| *code);
            assert_eq!(Exit::of(reason).code(), expected, "{reason}");
        }
    }

    #[test]
    fn a_status_without_a_known_reason_still_tells_retry_from_failure() {
        for (status, code) in [(404, 4), (410, 4), (412, 3), (429, 5), (503, 5), (504, 5), (400, 1), (500, 1)]
        {
            assert_eq!(Exit::of_status(status).code(), code, "{status}");
        }
    }
}
