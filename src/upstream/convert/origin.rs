//! Confirmations of origins, asked for and answered.

use std::time::Duration;

use super::past::time;
use super::unexpected;
use crate::ledger::{Confirmed, Error, Lease};
use crate::proto::v1 as pb;
use crate::terms::{AgentName, Digest, Reason};

pub(in super::super) fn origins_told(items: &[(AgentName, Digest)]) -> pb::ConfirmOriginRequest {
    let items = items
        .iter()
        .map(|(agent, digest)| pb::OriginItem { agent: agent.to_string(), content_digest: digest.tagged() });
    pb::ConfirmOriginRequest { items: items.collect() }
}

/// What came of each item, in their order.
pub(in super::super) fn confirmed(
    answer: pb::ConfirmOriginResponse,
    items: &[(AgentName, Digest)],
) -> Result<Vec<Confirmed>, Error> {
    if answer.items.len() != items.len() {
        return Err(unexpected("the number of confirmations"));
    }
    let told = answer.items.into_iter().zip(items).map(|(told, (agent, _))| {
        if told.agent != agent.as_str() {
            return Err(unexpected("the order of confirmations"));
        }
        match told.outcome {
            Some(pb::origin_outcome::Outcome::Confirmed(done)) => done_as(&done),
            Some(pb::origin_outcome::Outcome::Problem(problem)) => refused_as(&problem),
            None => Err(unexpected("the outcome of a confirmation")),
        }
    });
    told.collect()
}

fn done_as(done: &pb::OriginConfirmed) -> Result<Confirmed, Error> {
    let count = |number: i64| u64::try_from(number).map_err(|_| unexpected("the lease of a confirmation"));
    let lease = match (done.lease_ttl_ms, done.lease_confirmed_us) {
        (Some(ttl), Some(confirmed)) => Some(Lease {
            ttl: Duration::from_millis(count(ttl)?),
            confirmed: Duration::from_micros(count(confirmed)?),
        }),
        _ => None,
    };
    let at = done.origin_confirmed_at.map(time).ok_or_else(|| unexpected("the time of a confirmation"))?;
    Ok(Confirmed::Done { revision: done.revision, at, lease })
}

fn refused_as(problem: &pb::Problem) -> Result<Confirmed, Error> {
    let revision = problem.revision.unwrap_or_default();
    let is = |reason: Reason| problem.reason == reason.slug();
    if is(Reason::AgentNotFound) {
        Ok(Confirmed::NotFound)
    } else if is(Reason::AgentRetired) {
        Ok(Confirmed::Retired { revision })
    } else if is(Reason::PinMismatch) {
        Ok(Confirmed::OtherDigest { revision })
    } else {
        Err(Error::Unavailable(format!("the upstream could not confirm: {}", problem.reason)))
    }
}
