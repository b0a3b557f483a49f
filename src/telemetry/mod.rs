//! What operators see: metrics, logs and traces.

pub mod metrics;

pub use metrics::Metrics;
