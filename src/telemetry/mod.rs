//! What operators see: metrics, logs and traces.

pub mod metrics;
pub mod tracing;

pub use metrics::Metrics;
