//! A refusal as a gRPC status: the code of the one table, and three typed details.
//!
//! The details are `google.rpc.ErrorInfo`, `google.rpc.RetryInfo` where the call may be sent again as it is, and
//! our own `Problem`. They travel in a trailer, and clients bound those, so they are cut to
//! [`DETAILS_MAX`]; the message stays short for the same reason. Internal text does not get here: a [`Refusal`]
//! holds none.

use std::collections::HashMap;

use bytes::Bytes;
use prost::{Message, Name};
use prost_types::Any;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Response, Status};
use tonic_types::pb as rpc;

use super::convert;
use super::fit::fit;
use crate::api::status::of;
use crate::proto::{DETAILS_MAX, ERROR_DOMAIN, MESSAGE_MAX, RETRY_PUSHBACK, v1 as pb};
use crate::registry::Refusal;
use crate::terms::{Reason, ceil_millis};

/// Where details say what type they are of.
const TYPES: &str = "type.googleapis.com/";
/// Told to clients that must not send a call again by themselves.
const NEVER: &str = "-1";

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        let code = of(refusal.reason()).grpc;
        spoken(refusal, code)
    }
}

/// The refusal under a code that gRPC itself prescribes.
pub(super) fn spoken(refusal: Refusal, code: Code) -> Status {
    let parts = refusal.into_parts();
    let (reason, retry_after) = (parts.reason, parts.retry_after);
    let mut problem = convert::problem(parts);
    let message = problem.detail.clone();

    let info = rpc::ErrorInfo {
        reason: reason.slug().to_owned(),
        domain: ERROR_DOMAIN.to_owned(),
        metadata: HashMap::new(),
    };
    let mut details = vec![any("google.rpc.ErrorInfo", &info)];
    if let Some(after) = retry_after {
        let retry_delay = prost_types::Duration::try_from(after).ok();
        details.push(any("google.rpc.RetryInfo", &rpc::RetryInfo { retry_delay }));
    }
    let name = pb::Problem::full_name();
    details.push(any(&name, &pb::Problem::default()));
    let mut status = rpc::Status { code: code as i32, message: message.clone(), details };
    // Lengths inside lengths: two of them grow by at most two bytes each, one key is not counted yet.
    let room = DETAILS_MAX.saturating_sub(status.encoded_len() + 5);
    fit(&mut problem, room);
    if let Some(last) = status.details.last_mut() {
        *last = any(&name, &problem);
    }
    let details = Bytes::from(status.encode_to_vec());

    let mut metadata = MetadataMap::new();
    if let Some(pushback) = pushback(code, retry_after) {
        metadata.insert(RETRY_PUSHBACK, pushback);
    }
    Status::with_details_and_metadata(code, message, details, metadata)
}

fn any(name: &str, message: &impl Message) -> Any {
    Any { type_url: format!("{TYPES}{name}"), value: message.encode_to_vec() }
}

/// When a client may send the call again by itself. Codes that retry policies commonly name are told outright
/// when they must not be taken for a reason to.
fn pushback(code: Code, after: Option<std::time::Duration>) -> Option<MetadataValue<tonic::metadata::Ascii>> {
    match after {
        Some(after) => MetadataValue::try_from(ceil_millis(after).to_string()).ok(),
        None => matches!(
            code,
            Code::Unavailable
                | Code::ResourceExhausted
                | Code::Aborted
                | Code::Unknown
                | Code::DeadlineExceeded
        )
        .then(|| MetadataValue::from_static(NEVER)),
    }
}

/// The answer, unless it is larger than a message may be.
pub(super) fn answer<M: Message>(message: M) -> Result<Response<M>, Status> {
    match message.encoded_len() {
        len if len > MESSAGE_MAX => Err(too_large(len)),
        _ => Ok(Response::new(message)),
    }
}

/// The refusal of an answer that cannot be made smaller.
pub(super) fn too_large(len: usize) -> Status {
    let detail = format!("the answer of {len} bytes is too large: at most {MESSAGE_MAX}");
    Refusal::new(Reason::PayloadTooLarge, detail).into()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::card::{Card, Limits};
    use crate::fence::{Condition, Outcome};
    use crate::terms::{Basis, Freshness, Retry};

    fn decoded(status: &Status) -> (rpc::Status, pb::Problem) {
        assert!(status.details().len() <= DETAILS_MAX, "{} bytes", status.details().len());
        let whole = rpc::Status::decode(status.details()).unwrap();
        let detail = whole.details.iter().find(|any| any.type_url == pb::Problem::type_url_here()).unwrap();
        let problem = pb::Problem::decode(&*detail.value).unwrap();
        (whole, problem)
    }

    impl pb::Problem {
        fn type_url_here() -> String {
            format!("{TYPES}{}", Self::full_name())
        }
    }

    fn card(padding: usize) -> Arc<Card> {
        let text = format!(
            r#"{{"name":"A","url":"https://a.example/rpc","description":"{}","version":"1","skills":[]}}"#,
            "x".repeat(padding)
        );
        Arc::new(Card::check(text.into(), &Limits::default()).unwrap())
    }

    fn mismatch() -> Refusal {
        let condition = Condition {
            condition: "pin",
            outcome: Outcome::Failed,
            wanted: "sha256:a".to_owned(),
            found: "sha256:b".to_owned(),
        };
        Refusal::new(Reason::PinMismatch, "pin: a was wanted, b was found")
            .about(&"acme/x".parse().unwrap())
            .with(|parts| parts.conditions = vec![condition])
    }

    #[test]
    fn every_reason_has_its_code_info_and_pushback() {
        for &reason in Reason::ALL {
            let status = Status::from(Refusal::new(reason, "why"));
            assert_eq!(status.code(), of(reason).grpc);
            let (whole, problem) = decoded(&status);
            assert_eq!((problem.reason.as_str(), problem.detail.as_str()), (reason.slug(), "why"));
            let info = rpc::ErrorInfo::decode(&*whole.details[0].value).unwrap();
            assert_eq!((info.reason.as_str(), info.domain.as_str()), (reason.slug(), "cardfence"));
            let retried = whole.details.iter().any(|any| any.type_url.ends_with("google.rpc.RetryInfo"));
            assert_eq!(retried, matches!(reason.retry(), Retry::Yes | Retry::Later), "{reason}");
            let pushback = status.metadata().get(RETRY_PUSHBACK).map(|value| value.to_str().unwrap());
            match reason.retry() {
                Retry::Yes | Retry::Later => assert_eq!(pushback, Some("1000"), "{reason}"),
                _ => assert!(matches!(pushback, None | Some(NEVER)), "{reason}"),
            }
        }
    }

    #[test]
    fn a_small_card_comes_along() {
        let refusal = mismatch().with(|parts| parts.card = Some(card(100)));
        let (_, problem) = decoded(&refusal.into());
        assert_eq!(problem.card.as_deref(), Some(&**card(100).bytes()));
        assert!(!problem.card_omitted);
    }

    #[test]
    fn details_of_a_large_card_are_within_four_kib_and_say_that_it_is_missing() {
        for padding in (2_000..6_000).step_by(7).chain([100 * 1024]) {
            let refusal = mismatch().with(|parts| parts.card = Some(card(padding)));
            let (_, problem) = decoded(&refusal.into());
            assert_eq!(problem.card.is_none(), problem.card_omitted);
            assert_eq!(problem.conditions.len(), 1);
            assert!(problem.card_omitted || padding < 4_000);
        }
    }

    #[test]
    fn details_stay_within_four_kib_whatever_the_name_of_the_node() {
        for (len, left) in [(10, 10), (200, 200), (4_000, 256), (100_000, 256)] {
            let refusal = mismatch().with(|parts| {
                parts.freshness = Some(Freshness {
                    position: "7.00000000000000aa".parse().unwrap(),
                    staleness: None,
                    proven_at: None,
                    basis: Basis::Unproven,
                    served_by: "n".repeat(len).into(),
                    hops: 0,
                    origin: None,
                });
                parts.card = Some(card(10_000));
            });
            let (_, problem) = decoded(&refusal.into());
            let served_by = problem.freshness.unwrap().served_by;
            assert_eq!(served_by.len(), left);
            assert_eq!(served_by.ends_with('…'), left < len);
            assert_eq!((problem.conditions.len(), problem.conditions_omitted), (1, 0));
        }
    }

    #[test]
    fn headers_stay_within_eight_kib() {
        let refusal = mismatch().with(|parts| {
            parts.detail = "ü\n".repeat(100_000);
            parts.conditions = vec![parts.conditions[0].clone(); 1_000];
            parts.card = Some(card(3_000));
        });
        let response = Status::from(refusal).into_http::<()>();
        let len: usize = response.headers().iter().map(|(k, v)| k.as_str().len() + v.len() + 32).sum();
        assert!(len <= 8 * 1024, "{len}");
    }
}
