//! The gRPC wire as generated from `proto/`, and the words that both ends of it share.
//!
//! Holds no conversion: each side has its own `convert.rs`. Generated types never leave `api::grpc`, `upstream`
//! and `client`.

/// Types, servers and clients of package `cardfence.v1`.
#[expect(clippy::allow_attributes, reason = "generated code is as its generator writes it")]
pub mod v1 {
    tonic::include_proto!("cardfence.v1");
}

/// The compiled `.proto` with its comments and imports: what reflection serves.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/cardfence.bin"));

/// The largest message in either direction, in bytes.
pub const MESSAGE_MAX: usize = 3 * 1024 * 1024;

/// The largest `google.rpc.Status` of a failure, in bytes before base64: some clients accept no more than 8 KiB of
/// headers and trailers.
pub const DETAILS_MAX: usize = 4 * 1024;

/// The domain of `google.rpc.ErrorInfo`.
pub const ERROR_DOMAIN: &str = "cardfence";

/// The trailer that tells a gRPC client when, or that it must not, send a call again.
pub const RETRY_PUSHBACK: &str = "grpc-retry-pushback-ms";
