//! Answers that are no refusals.

use axum::body::Body;
use axum::response::Response;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::registry::Refusal;
use crate::terms::Reason;

/// Items that were written already.
pub(super) type Texts = Vec<Box<RawValue>>;

/// Bytes of an answer that is made of parts, as on the other wire; a single card may be larger.
pub(super) const ANSWER_MAX: usize = 3 * 1024 * 1024;
/// Bytes kept free in it for what is not its items.
const RESERVED: usize = 8 * 1024;

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

/// The items of a page as JSON, or how many of them an answer holds: the page is then asked for again, that long.
///
/// # Errors
/// As [`json`]; `payload_too_large` when not even one fits.
pub(super) fn items(items: impl Iterator<Item = impl Serialize>) -> Result<Result<Texts, u32>, Refusal> {
    let mut room = ANSWER_MAX - RESERVED;
    let mut taken: Texts = Vec::with_capacity(items.size_hint().0);
    for item in items {
        let item = to_raw_value(&item).map_err(|error| unwritten(&error))?;
        let Some(left) = room.checked_sub(item.get().len() + 1) else {
            return match u32::try_from(taken.len()) {
                Ok(0) | Err(_) => Err(too_large()),
                Ok(fits) => Ok(Err(fits)),
            };
        };
        room = left;
        taken.push(item);
    }
    Ok(Ok(taken))
}

pub(super) fn too_large() -> Refusal {
    let detail = format!("the answer is too large: at most {ANSWER_MAX} bytes");
    Refusal::new(Reason::PayloadTooLarge, detail)
}

fn unwritten(error: &serde_json::Error) -> Refusal {
    tracing::error!(%error, "an answer could not be written");
    Refusal::internal()
}

/// JSON that was written already.
///
/// # Errors
/// As [`json`].
pub(super) fn written(status: StatusCode, text: serde_json::Result<Vec<u8>>) -> Result<Response, Refusal> {
    match text {
        Ok(text) => Ok(of(status, JSON, text)),
        Err(error) => Err(unwritten(&error)),
    }
}

/// The caller holds what is current.
pub(super) fn not_modified() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    response
}
