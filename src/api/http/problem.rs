//! Refusals as `application/problem+json` (RFC 9457). The status comes from the one table.

use std::fmt;

use axum::body::Body;
use axum::response::Response;
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};

use super::headers;
use crate::api::status;
use crate::registry::Refusal;
use crate::terms::{Reason, ceil_secs};
use crate::wire::{self, splice};

/// Bytes of a detail that was cut.
const DETAIL_MAX: usize = 512;
/// Bytes that say how many conditions were left out.
const OMITTED: usize = 48;
const PASSED: &str = crate::fence::Outcome::Passed.as_str();

/// The answer that tells a refusal.
pub(super) fn answer(refusal: &Refusal) -> Response {
    let status = status::of(refusal.reason()).http;
    let mut response = Response::new(Body::from(body(refusal, true)));
    *response.status_mut() = status;
    let all = response.headers_mut();
    all.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    all.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let parts = refusal.parts();
    if let Some(freshness) = &parts.freshness {
        headers::freshness(all, freshness);
    }
    if let Some(revision) = parts.revision {
        headers::revision(all, revision, parts.card.as_ref().map(|card| card.skill_fingerprint()).as_ref());
    }
    if let Some(after) = parts.retry_after {
        headers::set(all, RETRY_AFTER, &ceil_secs(after).to_string());
    }
    if refusal.reason() == Reason::Unauthenticated {
        all.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"cardfence\""));
    }
    response
}

/// The problem as JSON, with the card that did not pass unless it is left out.
pub(super) fn body(refusal: &Refusal, with_card: bool) -> Vec<u8> {
    let parts = refusal.parts();
    let mut problem = of(refusal);
    let card = parts.card.as_ref().filter(|_| with_card);
    problem.card_omitted = card.is_none() && parts.card.is_some();
    let text = splice(&problem, "card", card.map(|card| card.bytes().as_ref()));
    // It is made of texts and numbers, so it can be written; an empty object is the least that is JSON.
    text.unwrap_or_else(|_| b"{}".to_vec())
}

fn of(refusal: &Refusal) -> wire::Problem {
    wire::Problem::new(refusal.parts(), status::of(refusal.reason()).http.as_u16())
}

/// The problem without its card, in at most about `room` bytes of JSON: what was found goes first, then the
/// conditions themselves, those that passed before the others.
pub(super) fn fitted(refusal: &Refusal, room: usize) -> wire::Problem {
    let mut problem = of(refusal);
    let len = |value: &dyn Fn() -> serde_json::Result<Vec<u8>>| value().map_or(usize::MAX, |text| text.len());
    if len(&|| serde_json::to_vec(&problem)) <= room {
        return problem;
    }
    if problem.detail.len() > DETAIL_MAX {
        let kept = problem.detail.char_indices().map(|(at, _)| at).take_while(|at| *at <= DETAIL_MAX);
        problem.detail.truncate(kept.last().unwrap_or(0));
        problem.detail.push('…');
    }
    for condition in &mut problem.conditions {
        "…".clone_into(&mut condition.found);
    }
    let mut conditions = std::mem::take(&mut problem.conditions);
    let mut left = room.saturating_sub(len(&|| serde_json::to_vec(&problem)) + OMITTED);
    conditions.sort_by_key(|condition| condition.outcome == PASSED);
    let fits = |condition: &&wire::Condition| {
        let rest = left.checked_sub(len(&|| serde_json::to_vec(condition)).saturating_add(1));
        left = rest.unwrap_or(left);
        rest.is_some()
    };
    let kept = conditions.iter().take_while(fits).count();
    problem.conditions_omitted = (conditions.len() - kept) as u64;
    conditions.truncate(kept);
    problem.conditions = conditions;
    problem
}

/// A value that could not be read, as a refusal.
pub(super) fn invalid(error: impl fmt::Display) -> Refusal {
    Refusal::invalid(error.to_string())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_reason_is_spoken_as_the_table_says() {
        for &reason in Reason::ALL {
            let response = answer(&Refusal::new(reason, "why"));
            let status = status::of(reason).http;
            assert_eq!(response.status(), status);
            let headers = response.headers();
            assert_eq!(headers[CONTENT_TYPE], "application/problem+json");
            assert_eq!(headers[CACHE_CONTROL], "no-store");
            assert_eq!(
                headers.contains_key(RETRY_AFTER),
                // A write of unknown outcome may be sent again by those alone who gave it a request id.
                matches!(status.as_u16(), 429 | 503 | 504) && reason != Reason::OutcomeUnknown,
                "{reason}"
            );
            assert_eq!(headers.contains_key(WWW_AUTHENTICATE), status == 401, "{reason}");
            let problem: wire::Problem =
                serde_json::from_slice(&body(&Refusal::new(reason, "why"), true)).unwrap();
            assert_eq!(problem.kind, format!("urn:cardfence:problem:{}", reason.slug()));
            assert_eq!((problem.status, problem.detail.as_str()), (status.as_u16(), "why"));
            assert_eq!(problem.reason, reason.slug());
        }
    }

    #[test]
    fn retry_after_is_rounded_up_to_seconds() {
        let refusal = Refusal::new(Reason::Overloaded, "busy").retry_after(Duration::from_millis(1_200));
        assert_eq!(answer(&refusal).headers()[RETRY_AFTER], "2");
        let problem: wire::Problem = serde_json::from_slice(&body(&refusal, true)).unwrap();
        assert_eq!(problem.retry_after_ms, Some(1_200));
    }
}
