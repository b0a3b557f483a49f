//! Between the wire's messages and the ledger's types, for an edge: the one place here where one becomes the other.
//!
//! What an upstream says is checked as far as it can be read at all; whether it is true, the view finds out by
//! digest. What cannot be read is `Corrupt`, what was not answered is `Unavailable`.

mod origin;
mod past;
mod replica;
mod stream;
mod write;

use std::error::Error as _;
use std::fmt::Display;

use prost::{Message as _, Name as _};
use tonic::Status;

use crate::ledger::Error;
use crate::proto::v1 as pb;
use crate::terms::{Digest, Reason};

pub(super) use origin::{confirmed, origins_told};
pub(super) use past::{ledger_page, ledger_wanted, revision, revision_wanted, revisions, revisions_wanted};
pub(super) use replica::{replicas, replicas_wanted, report};
pub(super) use stream::{Arriving, entries, entries_wanted, head, head_wanted, liveness, liveness_wanted};
pub(super) use write::{Call, Said, call, receipt, said};

/// What the upstream says of a failed call, where it is the upstream that speaks.
pub(super) fn problem(status: &Status) -> Option<pb::Problem> {
    let whole = tonic_types::pb::Status::decode(status.details()).ok()?;
    let name = pb::Problem::full_name();
    let detail = whole.details.iter().find(|detail| detail.type_url.rsplit('/').next() == Some(&name))?;
    pb::Problem::decode(&*detail.value).ok()
}

/// What there is, or that there is none.
pub(super) fn known<T>(answer: Result<T, Status>) -> Result<Option<T>, Error> {
    let absent = [Reason::AgentNotFound, Reason::RevisionNotFound].map(Reason::slug);
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(status) if problem(&status).is_some_and(|said| absent.contains(&said.reason.as_str())) => {
            Ok(None)
        }
        Err(status) => Err(failed(&status)),
    }
}

/// The tombstone that was current, where that is why a call was refused.
pub(super) fn retired_as(status: &Status) -> Option<u64> {
    problem(status).filter(|said| said.reason == Reason::AgentRetired.slug())?.revision
}

pub(super) fn failed(status: &Status) -> Error {
    Error::Unavailable(match problem(status) {
        Some(said) => format!("the upstream refuses: {}: {}", said.reason, said.detail),
        None => format!("the upstream fails: {:?}: {}", status.code(), status.message()),
    })
}

pub(super) fn unreached(url: &str, error: &tonic::transport::Error) -> Error {
    let cause = error.source().map_or_else(|| error.to_string(), ToString::to_string);
    Error::Unavailable(format!("{url} is not reached: {cause}"))
}

/// The upstream said something else than `wanted`.
pub(super) fn unexpected(wanted: &str) -> Error {
    Error::Corrupt(format!("the upstream did not say {wanted}"))
}

fn digest(bytes: &[u8]) -> Result<Digest, Error> {
    Digest::try_from(bytes).map_err(|error| Error::Corrupt(error.to_string()))
}

fn parsed<T: std::str::FromStr<Err: Display>>(what: &str, text: &str) -> Result<T, Error> {
    text.parse().map_err(|error| Error::Corrupt(format!("{what} cannot be read: {error}")))
}
