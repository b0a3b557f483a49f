//! The one table: how a reason is spoken on each wire.
//!
//! Both wires read it, so that a reason cannot be a 404 on one and retryable on the other. The README shows
//! the same table.

use http::StatusCode;
use tonic::Code;

use crate::terms::Reason;

/// A reason as gRPC and as HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spoken {
    pub grpc: Code,
    pub http: StatusCode,
}

const fn spoken(grpc: Code, http: StatusCode) -> Spoken {
    Spoken { grpc, http }
}

/// How `reason` is spoken.
pub const fn of(reason: Reason) -> Spoken {
    match reason {
        Reason::InvalidArgument | Reason::InvalidCard => {
            spoken(Code::InvalidArgument, StatusCode::BAD_REQUEST)
        }
        Reason::Unauthenticated => spoken(Code::Unauthenticated, StatusCode::UNAUTHORIZED),
        Reason::Forbidden => spoken(Code::PermissionDenied, StatusCode::FORBIDDEN),
        Reason::AgentNotFound | Reason::RevisionNotFound => spoken(Code::NotFound, StatusCode::NOT_FOUND),
        Reason::AgentRetired | Reason::CardRedacted => spoken(Code::NotFound, StatusCode::GONE),
        Reason::TooStale
        | Reason::FreshnessUnverifiable
        | Reason::PositionNotReached
        | Reason::PositionUnverifiable
        | Reason::StoreUnavailable
        | Reason::Draining
        | Reason::MaxAge => spoken(Code::Unavailable, StatusCode::SERVICE_UNAVAILABLE),
        Reason::RevisionBelowFloor
        | Reason::VersionBelowFloor
        | Reason::VersionIncomparable
        | Reason::SkillMissing
        | Reason::ModeMissing
        | Reason::CapabilityMissing
        | Reason::PinMismatch
        | Reason::OriginUnconfirmed => spoken(Code::FailedPrecondition, StatusCode::PRECONDITION_FAILED),
        Reason::RevisionConflict => spoken(Code::Aborted, StatusCode::PRECONDITION_FAILED),
        Reason::ReleaseSuperseded | Reason::ReadOnly | Reason::StreamNotHere => {
            spoken(Code::FailedPrecondition, StatusCode::CONFLICT)
        }
        Reason::HistoryDiverged | Reason::PositionInFuture | Reason::PageTokenExpired => {
            spoken(Code::OutOfRange, StatusCode::CONFLICT)
        }
        Reason::NoSuchRoute => spoken(Code::Unimplemented, StatusCode::NOT_FOUND),
        Reason::MethodNotAllowed => spoken(Code::Unimplemented, StatusCode::METHOD_NOT_ALLOWED),
        Reason::PayloadTooLarge => spoken(Code::ResourceExhausted, StatusCode::PAYLOAD_TOO_LARGE),
        Reason::UnsupportedMediaType => spoken(Code::InvalidArgument, StatusCode::UNSUPPORTED_MEDIA_TYPE),
        Reason::RateLimited | Reason::SubscriberTooSlow => {
            spoken(Code::ResourceExhausted, StatusCode::TOO_MANY_REQUESTS)
        }
        Reason::Overloaded => spoken(Code::ResourceExhausted, StatusCode::SERVICE_UNAVAILABLE),
        Reason::OutcomeUnknown => spoken(Code::Unknown, StatusCode::GATEWAY_TIMEOUT),
        Reason::DeadlineExceeded => spoken(Code::DeadlineExceeded, StatusCode::GATEWAY_TIMEOUT),
        Reason::Internal | Reason::UnsupportedEntry => {
            spoken(Code::Internal, StatusCode::INTERNAL_SERVER_ERROR)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terms::Retry;

    #[test]
    fn what_may_be_retried_as_it_is_says_so_on_both_wires() {
        for &reason in Reason::ALL {
            let Spoken { grpc, http } = of(reason);
            let retryable =
                matches!(grpc, Code::Unavailable | Code::ResourceExhausted | Code::DeadlineExceeded);
            match reason.retry() {
                Retry::Yes | Retry::Later => {
                    assert!(retryable, "{reason}: {grpc:?}");
                    assert!(matches!(http.as_u16(), 429 | 503 | 504), "{reason}: {http}");
                }
                _ => assert!(!matches!(http.as_u16(), 429 | 503), "{reason}: {http}"),
            }
        }
    }

    #[test]
    fn slugs_are_unique() {
        let mut slugs: Vec<_> = Reason::ALL.iter().map(|reason| reason.slug()).collect();
        slugs.sort_unstable();
        slugs.dedup();
        assert_eq!(slugs.len(), Reason::ALL.len());
    }
}
