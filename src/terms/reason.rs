//! Why something was refused: the closed list of reasons, each with its slug and retry class.
//!
//! How a reason is spoken on a wire (gRPC code, HTTP status) is `api::status`.

use std::fmt;

/// Whether, and after what, the same request may be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// Not with these words.
    No,
    /// After the agent's card changed.
    AfterChange,
    /// As it is, after a pause.
    Yes,
    /// After reading the current revision again.
    AfterReread,
    /// After dropping positions and page tokens and reading again.
    AfterResync,
    /// As it is, later: something is overloaded.
    Later,
    /// At another node.
    Elsewhere,
    /// With the same request id, so that it is done once.
    SameRequestId,
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $slug:literal, $retry:ident;)*) => {
        /// A typed reason. The slug is API.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Reason { $($(#[$doc])* $name,)* }

        impl Reason {
            /// All reasons, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            pub const fn slug(self) -> &'static str {
                match self { $(Self::$name => $slug,)* }
            }

            pub const fn retry(self) -> Retry {
                match self { $(Self::$name => Retry::$retry,)* }
            }
        }
    };
}

reasons! {
    InvalidArgument = "invalid_argument", No;
    InvalidCard = "invalid_card", No;
    Unauthenticated = "unauthenticated", No;
    Forbidden = "forbidden", No;
    AgentNotFound = "agent_not_found", AfterChange;
    RevisionNotFound = "revision_not_found", AfterChange;
    AgentRetired = "agent_retired", AfterChange;
    CardRedacted = "card_redacted", AfterChange;
    TooStale = "too_stale", Yes;
    FreshnessUnverifiable = "freshness_unverifiable", Yes;
    PositionNotReached = "position_not_reached", Yes;
    PositionUnverifiable = "position_unverifiable", Yes;
    RevisionBelowFloor = "revision_below_floor", AfterChange;
    VersionBelowFloor = "version_below_floor", AfterChange;
    VersionIncomparable = "version_incomparable", AfterChange;
    SkillMissing = "skill_missing", AfterChange;
    ModeMissing = "mode_missing", AfterChange;
    CapabilityMissing = "capability_missing", AfterChange;
    PinMismatch = "pin_mismatch", AfterChange;
    OriginUnconfirmed = "origin_unconfirmed", AfterChange;
    RevisionConflict = "revision_conflict", AfterReread;
    ReleaseSuperseded = "release_superseded", AfterChange;
    HistoryDiverged = "history_diverged", AfterResync;
    PositionInFuture = "position_in_future", AfterResync;
    PageTokenExpired = "page_token_expired", AfterResync;
    NoSuchRoute = "no_such_route", No;
    MethodNotAllowed = "method_not_allowed", No;
    /// The stream is not one of this node's.
    StreamNotHere = "stream_not_here", AfterResync;
    PayloadTooLarge = "payload_too_large", No;
    UnsupportedMediaType = "unsupported_media_type", No;
    RateLimited = "rate_limited", Later;
    /// A subscriber did not keep up with what it asked for.
    SubscriberTooSlow = "subscriber_too_slow", Later;
    Overloaded = "overloaded", Later;
    ReadOnly = "read_only", Elsewhere;
    /// The write may or may not have been done, and could not be found out within the wait.
    OutcomeUnknown = "outcome_unknown", SameRequestId;
    StoreUnavailable = "store_unavailable", Yes;
    Draining = "draining", Yes;
    /// A stream was open for as long as one may be.
    MaxAge = "max_age", Yes;
    DeadlineExceeded = "deadline_exceeded", Yes;
    Internal = "internal", No;
    /// The ledger holds an entry of a kind that this version does not know.
    UnsupportedEntry = "unsupported_entry", No;
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.slug())
    }
}
