//! What a writer expects to be current, said in the query, in a header, or in both.

use http::HeaderMap;

use super::conditional::Expected;
use super::parameter as p;
use super::problem::invalid;
use super::query::{Params, shown};
use crate::registry::{Call, Expect, Read, Refusal, Registry};
use crate::terms::{AgentName, Digest, MaxStaleness, Reason, RequestId, RevisionRef};

/// The expectation of a write to `agent`. A revision and a tag may both be given when they mean the same.
///
/// # Errors
/// `invalid_argument`, `revision_conflict` for a weak tag, and what reading a revision may be refused with.
pub(super) async fn expectation(
    registry: &Registry,
    call: &Call,
    agent: &AgentName,
    params: &Params,
    headers: &HeaderMap,
    may_create: bool,
) -> Result<Expect, Refusal> {
    let revision: Option<RevisionRef> = match params.text(p::EXPECT_REVISION) {
        None => None,
        Some(text) => {
            Some(text.parse().map_err(|error| invalid(format!("{}: {error}", p::EXPECT_REVISION)))?)
        }
    };
    match (Expected::of(headers, may_create)?, revision) {
        (Expected::Nothing, None) => Ok(Expect::Any),
        (Expected::Absent, None) => Ok(Expect::Absent),
        (Expected::Digest(digest), None) => Ok(Expect::Digest(digest)),
        (Expected::Nothing, Some(revision)) => Ok(of_revision(revision)),
        (Expected::Absent, Some(_)) => Err(Refusal::invalid(format!(
            "If-None-Match: * and {} contradict each other",
            p::EXPECT_REVISION
        ))),
        (Expected::Digest(digest), Some(revision)) => {
            agree(registry, call, agent, revision, &digest).await?;
            Ok(of_revision(revision))
        }
    }
}

fn of_revision(revision: RevisionRef) -> Expect {
    Expect::Revision { number: revision.number, seen_at: revision.seen_at }
}

/// Refuses a revision that has another digest than the one expected. What a revision is does not change,
/// so it can be read before the write is judged.
async fn agree(
    registry: &Registry,
    call: &Call,
    agent: &AgentName,
    revision: RevisionRef,
    digest: &Digest,
) -> Result<(), Refusal> {
    let read = Read { max_staleness: Some(MaxStaleness::Any), ..Read::default() };
    let past = match registry.revision(call, agent, revision.number, &read).await {
        Ok(past) => past,
        // Then it is not current either, which the judge says.
        Err(refusal) if matches!(refusal.reason(), Reason::AgentNotFound | Reason::RevisionNotFound) => {
            return Ok(());
        }
        Err(refusal) => return Err(refusal),
    };
    let facts = past.revision.facts.as_ref();
    if facts.is_some_and(|facts| facts.raw_digest == *digest || facts.content_digest == *digest) {
        return Ok(());
    }
    Err(Refusal::invalid(format!(
        "If-Match and {} do not agree: revision {} has another digest than {}",
        p::EXPECT_REVISION,
        revision.number,
        digest.tagged()
    )))
}

/// The request id that the caller gave.
///
/// # Errors
/// `invalid_argument` unless it is 1 to 128 visible ASCII characters, given once.
pub(super) fn request_id(headers: &HeaderMap) -> Result<Option<RequestId>, Refusal> {
    let mut given = headers.get_all("idempotency-key").iter();
    let (Some(key), rest) = (given.next(), given.next()) else { return Ok(None) };
    if rest.is_some() {
        return Err(Refusal::invalid("Idempotency-Key is given more than once"));
    }
    let text = key.to_str().map_err(|_| {
        let text = String::from_utf8_lossy(key.as_bytes());
        Refusal::invalid(format!("Idempotency-Key: `{}` is not visible ASCII", shown(&text)))
    })?;
    text.parse().map(Some).map_err(|error| invalid(format!("Idempotency-Key: {error}")))
}
