//! The gRPC wire: translation between `cardfence.v1` and the use cases.
//!
//! [`Wire`] is a tower service over requests of any body; the composition root gives it those that [`is_grpc`].
//! One file per service, each method three steps: read the request, ask the registry, write the answer. Messages
//! are converted in [`convert`] alone, refusals become statuses in [`status`] alone, and [`serve`] keeps what
//! holds for every call: the path, the deadline, the size.
//!
//! The invariant: every failure that reaches a caller carries its reason, and none carries internal text.

mod admin;
mod convert;
mod deadline;
mod fit;
mod health;
mod reflection;
mod registry;
mod replication;
mod serve;
mod status;
mod watch;

use crate::registry::{Call, Registry};

pub use serve::{Wire, is_grpc, method_name};

/// The call as it arrived: noted before its message was read.
fn call_of<T>(use_cases: &Registry, request: &tonic::Request<T>) -> Call {
    request.extensions().get::<Call>().cloned().unwrap_or_else(|| use_cases.call(None))
}
