//! Heartbeats: what is asked, and what each came to.

use super::answer::{freshness, millis, timestamp};
use super::problem::problem;
use super::request::{agent, parsed};
use crate::proto::v1 as pb;
use crate::registry::{ConfirmItem, Confirmation, ConfirmedItem, Refusal};
use crate::terms::Freshness;

pub(in super::super) fn items(request: pb::ConfirmOriginRequest) -> Result<Vec<ConfirmItem>, Refusal> {
    let item = |(at, item): (usize, pb::OriginItem)| {
        let read = agent(&item.agent).and_then(|agent| {
            Ok(ConfirmItem { agent, content_digest: parsed("content_digest", &item.content_digest)? })
        });
        read.map_err(|refusal| refusal.with(|parts| parts.detail = format!("items[{at}]: {}", parts.detail)))
    };
    request.items.into_iter().enumerate().map(item).collect()
}

/// Names, texts of bounded length and numbers: a thousand of them are well below the bound of a message.
pub(in super::super) fn confirmed(items: Vec<ConfirmedItem>, fresh: &Freshness) -> pb::ConfirmOriginResponse {
    use pb::origin_outcome::Outcome;
    let item = |item: ConfirmedItem| pb::OriginOutcome {
        agent: item.agent.to_string(),
        outcome: Some(match item.outcome {
            Ok(confirmation) => Outcome::Confirmed(confirmation_of(&confirmation)),
            Err(refusal) => Outcome::Problem(problem(refusal.into_parts())),
        }),
    };
    pb::ConfirmOriginResponse {
        items: items.into_iter().map(item).collect(),
        freshness: Some(freshness(fresh)),
    }
}

fn confirmation_of(confirmation: &Confirmation) -> pb::OriginConfirmed {
    let lease = confirmation.lease;
    let micros =
        |lease: crate::registry::Lease| i64::try_from(lease.confirmed.as_micros()).unwrap_or(i64::MAX);
    pb::OriginConfirmed {
        revision: confirmation.revision,
        position: confirmation.position.map(|position| position.to_string()),
        origin_confirmed_at: Some(timestamp(confirmation.origin_confirmed_at)),
        lease_ttl_ms: lease.map(|lease| millis(lease.ttl)),
        lease_confirmed_us: lease.map(micros),
        freshness: Some(freshness(&confirmation.freshness)),
    }
}
