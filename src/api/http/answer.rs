//! Answers that are no refusals.

use axum::body::Body;
use axum::response::Response;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use serde::Serialize;

use crate::registry::Refusal;

pub(super) const JSON: &str = "application/json";

/// `body` with its type.
pub(super) fn of(status: StatusCode, content_type: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// `value` as JSON.
///
/// # Errors
/// `internal` when it cannot be written, which no shape of `wire` can bring about.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Result<Response, Refusal> {
    written(status, serde_json::to_vec(value))
}

/// JSON that was written already.
///
/// # Errors
/// As [`json`].
pub(super) fn written(status: StatusCode, text: serde_json::Result<Vec<u8>>) -> Result<Response, Refusal> {
    match text {
        Ok(text) => Ok(of(status, JSON, text)),
        Err(error) => {
            tracing::error!(%error, "an answer could not be written");
            Err(Refusal::internal())
        }
    }
}

/// The caller holds what is current.
pub(super) fn not_modified() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    response
}
