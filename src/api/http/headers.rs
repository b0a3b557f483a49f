//! Headers of answers: where the view stands, which card it is, and who may keep it.

use std::time::Duration;

use http::header::{AGE, CACHE_CONTROL, ETAG, VARY};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::registry::Refusal;
use crate::terms::{Digest, Freshness, Position, ceil_millis, ceil_secs};

pub(super) const POSITION: HeaderName = HeaderName::from_static("cardfence-position");
pub(super) const REVISION: HeaderName = HeaderName::from_static("cardfence-revision");
pub(super) const STALENESS_MS: HeaderName = HeaderName::from_static("cardfence-staleness-ms");
pub(super) const SKILL_FINGERPRINT: HeaderName = HeaderName::from_static("cardfence-skill-fingerprint");
pub(super) const NONCE: HeaderName = HeaderName::from_static("cardfence-nonce");

/// Characters of a nonce.
const NONCE_MAX: usize = 128;

/// Sets a header to a text of ASCII; the texts that come here are made of digits, digests and our own words.
pub(super) fn set(headers: &mut HeaderMap, name: HeaderName, text: &str) {
    if let Ok(value) = HeaderValue::try_from(text) {
        headers.insert(name, value);
    }
}

/// Where the view stands.
pub(super) fn freshness(headers: &mut HeaderMap, freshness: &Freshness) {
    standing(headers, &freshness.position, freshness.staleness);
}

pub(super) fn standing(headers: &mut HeaderMap, position: &Position, staleness: Option<Duration>) {
    set(headers, POSITION, &position.to_string());
    match staleness {
        Some(staleness) => set(headers, STALENESS_MS, &ceil_millis(staleness).to_string()),
        None => set(headers, STALENESS_MS, "unknown"),
    }
}

/// Which revision it is.
pub(super) fn revision(headers: &mut HeaderMap, number: u64, skill_fingerprint: Option<&Digest>) {
    set(headers, REVISION, &number.to_string());
    if let Some(fingerprint) = skill_fingerprint {
        set(headers, SKILL_FINGERPRINT, &fingerprint.hex());
    }
}

/// The tag of a card itself.
pub(super) fn strong_tag(headers: &mut HeaderMap, raw_digest: &Digest) {
    set(headers, ETAG, &format!("\"{}\"", raw_digest.tagged()));
}

/// The tag of an envelope.
pub(super) fn weak_tag(headers: &mut HeaderMap, raw_digest: &Digest) {
    set(headers, ETAG, &format!("W/\"{}\"", raw_digest.tagged()));
}

/// Lets a cache keep the answer and ask each time. `Age` says how old it was when it was given, and takes the
/// place of the staleness, which a cache would repeat unchanged.
pub(super) fn cacheable(headers: &mut HeaderMap, staleness: Duration) {
    headers.remove(STALENESS_MS);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    set(headers, AGE, &ceil_secs(staleness).to_string());
}

/// The caller's nonce: an answer that does not give it back was not made for this request.
///
/// # Errors
/// `invalid_argument` unless it is 1 to 128 visible ASCII characters, given once.
pub(super) fn nonce(headers: &HeaderMap) -> Result<Option<HeaderValue>, Refusal> {
    let mut given = headers.get_all(NONCE).iter();
    let (Some(nonce), rest) = (given.next(), given.next()) else { return Ok(None) };
    let visible = nonce.as_bytes().iter().all(u8::is_ascii_graphic);
    if rest.is_some() || nonce.is_empty() || nonce.len() > NONCE_MAX || !visible {
        let detail =
            format!("Cardfence-Nonce: one value of 1 to {NONCE_MAX} visible ASCII characters is allowed");
        return Err(Refusal::invalid(detail));
    }
    Ok(Some(nonce.clone()))
}

/// What every answer has. Nothing may be kept unless the answer says so.
pub(super) fn finish(headers: &mut HeaderMap, nonce: Option<HeaderValue>) {
    headers.insert(VARY, HeaderValue::from_static("Authorization, Accept-Encoding"));
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    if let Some(nonce) = nonce {
        headers.insert(NONCE, nonce);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terms::{Basis, Tag};

    #[test]
    fn staleness_is_rounded_up_or_unknown() {
        let mut headers = HeaderMap::new();
        let mut told = Freshness {
            position: Position { seq: 7, tag: Tag(0xaa) },
            staleness: Some(Duration::from_nanos(1)),
            proven_at: None,
            basis: Basis::Authority,
            served_by: "n".into(),
            hops: 0,
            origin: None,
        };
        freshness(&mut headers, &told);
        assert_eq!(headers[POSITION], "7.00000000000000aa");
        assert_eq!(headers[STALENESS_MS], "1");
        told.staleness = None;
        freshness(&mut headers, &told);
        assert_eq!(headers[STALENESS_MS], "unknown");
    }

    #[test]
    fn what_may_be_kept_has_an_age_and_no_staleness() {
        let mut headers = HeaderMap::new();
        let position = Position { seq: 7, tag: Tag(0) };
        standing(&mut headers, &position, Some(Duration::from_millis(1)));
        cacheable(&mut headers, Duration::from_millis(1_001));
        finish(&mut headers, None);
        assert_eq!(headers[AGE], "2");
        assert_eq!(headers[CACHE_CONTROL], "no-cache");
        assert!(!headers.contains_key(STALENESS_MS));
        let mut headers = HeaderMap::new();
        finish(&mut headers, None);
        assert_eq!(headers[CACHE_CONTROL], "no-store");
    }

    #[test]
    fn a_nonce_is_visible_ascii_or_refused() {
        let of = |values: &[&[u8]]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(NONCE, HeaderValue::from_bytes(value).unwrap());
            }
            nonce(&headers)
        };
        assert_eq!(of(&[]).unwrap(), None);
        assert_eq!(of(&[b"n-1"]).unwrap().unwrap(), "n-1");
        assert!(of(&[&[b'x'; 128]]).is_ok());
        for bad in [&[b"".as_slice()][..], &[b"a b"], &[b"\xff"], &[&[b'x'; 129]], &[b"a", b"a"]] {
            assert_eq!(of(bad).unwrap_err().reason().slug(), "invalid_argument", "{bad:?}");
        }
    }
}
