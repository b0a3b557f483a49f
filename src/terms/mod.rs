//! What things are called: the words of the registry as types, without behaviour of its own.
//!
//! Everyone may use this module; it uses nothing else of ours. No IO and no clock: a [`Timestamp`] is a value.

mod agent;
mod digest;
mod freshness;
mod position;
mod reason;
mod request;
mod set_digest;
mod time;

pub use agent::{AgentName, InvalidName, check_part};
pub use digest::{Digest, InvalidDigest};
pub use freshness::{Basis, Freshness, LeaseHeld, MaxStaleness, Origin};
pub use position::{InvalidPosition, InvalidRevision, Position, RevisionRef, Tag};
pub use reason::{Reason, Retry};
pub use request::{InvalidRequestId, Principal, RequestId, random_bytes};
pub use set_digest::SetDigest;
pub use time::{
    InvalidDuration, InvalidTimestamp, Timestamp, ceil_millis, ceil_secs, display_duration, parse_duration,
};
