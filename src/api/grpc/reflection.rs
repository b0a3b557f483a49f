//! `grpc.reflection`: the contract as compiled into this binary, comments included; v1 and v1alpha.

use std::convert::Infallible;

use tonic::Status;
use tonic::body::Body;
use tower::util::BoxCloneSyncService;
use tower::{Service as _, ServiceExt as _};

use crate::proto::{DESCRIPTORS, MESSAGE_MAX};
use crate::registry::Refusal;

/// The services, boxed: their types cannot be named.
type Boxed = BoxCloneSyncService<http::Request<Body>, http::Response<Body>, Infallible>;

/// Both versions.
pub(super) struct Reflection {
    v1: Option<Boxed>,
    v1alpha: Option<Boxed>,
}

impl std::fmt::Debug for Reflection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reflection")
    }
}

impl Reflection {
    /// Reads the descriptors. That they can be read is proven by a test; should they not be, a node serves on
    /// without reflection.
    pub(super) fn new() -> Self {
        let builder = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(DESCRIPTORS)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        let unreadable = |error: &_| tracing::error!(%error, "the descriptors cannot be read: no reflection");
        let v1 = builder().build_v1().inspect_err(unreadable).ok();
        let v1alpha = builder().build_v1alpha().inspect_err(unreadable).ok();
        Self {
            v1: v1.map(|v1| BoxCloneSyncService::new(v1.max_decoding_message_size(MESSAGE_MAX))),
            v1alpha: v1alpha.map(|old| BoxCloneSyncService::new(old.max_decoding_message_size(MESSAGE_MAX))),
        }
    }

    pub(super) async fn answer(&self, service: &str, request: http::Request<Body>) -> http::Response<Body> {
        let boxed = if service.contains(".v1alpha.") { &self.v1alpha } else { &self.v1 };
        match boxed.clone() {
            Some(mut service) => match service.ready().await {
                Ok(service) => super::serve::infallible(service.call(request).await),
                Err(never) => match never {},
            },
            None => Status::from(Refusal::internal()).into_http(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_there() {
        let reflection = Reflection::new();
        assert!(reflection.v1.is_some() && reflection.v1alpha.is_some());
    }
}
