//! Bodies of requests: their type, and their bytes up to a limit.

use axum::body::Body;
use bytes::Bytes;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

use super::query::shown;
use crate::registry::Refusal;
use crate::terms::Reason;

/// Refuses a body that is not JSON by its own account: `application/json`, `application/*+json` or no type.
///
/// # Errors
/// `unsupported_media_type`.
pub(super) fn check_type(headers: &HeaderMap) -> Result<(), Refusal> {
    let refuse = |detail: String| Err(Refusal::new(Reason::UnsupportedMediaType, detail));
    for coding in headers.get_all(CONTENT_ENCODING) {
        if !coding.as_bytes().eq_ignore_ascii_case(b"identity") {
            return refuse("Content-Encoding: a body is taken as it is, without a coding".to_owned());
        }
    }
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    let (Some(given), rest) = (types.next(), types.next()) else { return Ok(()) };
    let text = given.to_str().unwrap_or("");
    let media = text.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    let subtype = media.strip_prefix("application/").unwrap_or("");
    let is_json = subtype == "json" || subtype.strip_suffix("+json").is_some_and(|name| !name.is_empty());
    if rest.is_some() || !is_json {
        let detail = format!(
            "Content-Type `{}` is not taken: `application/json`, `application/*+json` or none is",
            shown(text)
        );
        return refuse(detail);
    }
    Ok(())
}

/// Reads a body of at most `limit` bytes; what lies beyond is not read.
///
/// # Errors
/// `payload_too_large`; `invalid_argument` when the body ends early.
pub(super) async fn read(headers: &HeaderMap, body: Body, limit: usize) -> Result<Bytes, Refusal> {
    let too_large = || {
        let detail = format!("the body is too large: at most {limit} bytes are allowed");
        Refusal::new(Reason::PayloadTooLarge, detail)
    };
    let told = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if told.is_some_and(|length| usize::try_from(length).map_or(true, |length| length > limit)) {
        return Err(too_large());
    }
    match Limited::new(body, limit).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large()),
        Err(_) => Err(Refusal::invalid("the body could not be read to its end")),
    }
}
