//! Logs on stderr, and traces over OTLP where they are wanted.
//!
//! W3C trace context comes in on both wires ([`adopt`]). Logs hold no card bytes and no secrets.

use std::io::IsTerminal as _;

use ::tracing::Span;
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

/// Why telemetry could not be started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the log filter `{0}` cannot be read")]
    Filter(String),
    #[error("traces cannot be sent to {endpoint}: {why}")]
    Export { endpoint: String, why: String },
    #[error("logging was started before")]
    Started,
}

/// Sends what is left when it is dropped.
#[derive(Debug, Default)]
pub struct Guard {
    provider: Option<SdkTracerProvider>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(provider) = &self.provider
            && let Err(error) = provider.shutdown()
        {
            ::tracing::debug!(%error, "the last spans were not sent");
        }
    }
}

/// Starts logging, and tracing when there is an endpoint. Once per process.
///
/// # Errors
/// When the filter or the endpoint cannot be used.
pub fn start(json: bool, filter: &str, otlp_endpoint: Option<&str>) -> Result<Guard, Error> {
    let log_filter = EnvFilter::try_new(filter).map_err(|_| Error::Filter(filter.to_owned()))?;
    let colours = std::io::stderr().is_terminal();
    let log = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(colours);
    let log = if json { log.json().boxed() } else { log.with_target(false).boxed() };
    let provider = otlp_endpoint.map(provider).transpose()?;
    let traces = provider.as_ref().map(|provider| {
        let tracer = provider.tracer("cardfence");
        // The exporter's own requests must not be traced.
        let ours = EnvFilter::new("off,cardfence=debug");
        tracing_opentelemetry::layer().with_tracer(tracer).with_filter(ours)
    });
    let subscriber = tracing_subscriber::registry().with(traces).with(log.with_filter(log_filter));
    subscriber.try_init().map_err(|_| Error::Started)?;
    Ok(Guard { provider })
}

fn provider(endpoint: &str) -> Result<SdkTracerProvider, Error> {
    let exporter = SpanExporter::builder().with_tonic().with_endpoint(endpoint).build();
    let exporter =
        exporter.map_err(|error| Error::Export { endpoint: endpoint.to_owned(), why: error.to_string() })?;
    let resource = Resource::builder().with_service_name("cardfence").build();
    Ok(SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build())
}

/// Makes `span` a child of the trace that a request's headers name, where they name one.
pub fn adopt(span: &Span, headers: &http::HeaderMap) {
    if headers.contains_key("traceparent") {
        let context = TraceContextPropagator::new().extract(&Headers(headers));
        // Fails when tracing is off, and then there is nothing to adopt.
        let _ = span.set_parent(context);
    }
}

struct Headers<'a>(&'a http::HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).and_then(|value| value.to_str().ok())
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(http::HeaderName::as_str).collect()
    }
}
