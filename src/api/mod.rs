//! How it is spoken: the two wires. Translation only.
//!
//! `grpc` and `http` take [`crate::registry`]'s use cases and know nothing of each other; [`status`] is the
//! one table that maps reasons for both.

pub mod grpc;
pub mod http;
pub mod status;
