//! What edges ask and are told, between the wire and the registry.
//!
//! Digests are bytes here, not texts: both ends are registries. Ages are rounded up.

use std::sync::Arc;
use std::time::Duration;

use crate::proto::v1 as pb;
use crate::proto::v1::replicate_request::Ask as Sent;
use crate::proto::v1::replicate_response::Answer;
use crate::registry::replicate::{CardKept, HeadReport, Liveness, Part};
use crate::registry::{Agent, Entry, Refusal};
use crate::terms::Timestamp;

/// Entries that one answer may hold.
const ENTRIES_MAX: u32 = 1_000;

/// What an edge asks.
#[derive(Debug, Clone, Copy)]
pub(in super::super) enum Ask {
    Head { asked: u64, confirm: Option<Duration> },
    Entries { after: u64, limit: usize },
    Liveness { since: Option<Timestamp> },
}

pub(in super::super) fn ask(request: pb::ReplicateRequest) -> Result<Ask, Refusal> {
    match request.ask {
        Some(Sent::Head(pb::HeadWanted { asked, confirm_within_ms })) => {
            let confirm = confirm_within_ms.map(|millis| Duration::from_millis(millis.into()));
            Ok(Ask::Head { asked, confirm })
        }
        Some(Sent::Entries(pb::EntriesWanted { limit: 0, .. })) => {
            Err(Refusal::invalid(format!("limit of 0 is too small: 1 to {ENTRIES_MAX}")))
        }
        Some(Sent::Entries(pb::EntriesWanted { after, limit })) => {
            Ok(Ask::Entries { after, limit: limit.min(ENTRIES_MAX) as usize })
        }
        Some(Sent::Liveness(pb::LivenessWanted { since_micros })) => {
            Ok(Ask::Liveness { since: since_micros.map(Timestamp::from_micros) })
        }
        None => {
            Err(Refusal::invalid("what is asked is not said: one of head, entries and liveness must be set"))
        }
    }
}

pub(in super::super) fn moved(seq: u64) -> pb::ReplicateResponse {
    whole(Answer::Moved(pb::Moved { seq }))
}

pub(in super::super) fn head(report: &HeadReport) -> pb::ReplicateResponse {
    whole(Answer::Head(pb::HeadSaid {
        ledger_id: report.ledger_id.clone(),
        seq: report.head.seq,
        digest: report.head.digest.as_bytes().to_vec().into(),
        tag_at_asked: report.tag_at_asked.map(|tag| tag.0),
        wall_micros: report.wall.as_micros(),
        age_micros: report.age.map(micros),
        hops: report.hops,
        service_micros: u64::try_from(report.service.as_micros()).unwrap_or(u64::MAX),
    }))
}

pub(in super::super) fn entries(entries: Vec<Entry>) -> pb::ReplicateResponse {
    let entry = |entry: Entry| pb::ReplicatedEntry {
        seq: entry.seq,
        digest: entry.digest.as_bytes().to_vec().into(),
        body_digest: entry.body_digest.as_bytes().to_vec().into(),
        body: entry.body.as_ref().to_owned(),
        card: entry.card.map(|card| match card {
            CardKept::Checked(card) => card.bytes().clone(),
            CardKept::Bytes(bytes) => bytes,
        }),
    };
    whole(Answer::Entries(pb::EntriesSaid { entries: entries.into_iter().map(entry).collect() }))
}

pub(in super::super) fn liveness(rows: &[Arc<Liveness>]) -> pb::ReplicateResponse {
    let row = |row: &Arc<Liveness>| pb::AgentLiveness {
        agent: row.agent.to_string(),
        revision: row.revision,
        confirmed_micros: row.origin_confirmed_at.as_micros(),
        registers_micros: row.registers.iter().map(|at| at.as_micros()).collect(),
        lease_ttl_micros: row.lease.map(|lease| micros(lease.ttl)),
        lease_confirmed_micros: row.lease.map_or(0, |lease| micros(lease.confirmed)),
    };
    whole(Answer::Liveness(pb::LivenessSaid { agents: rows.iter().map(row).collect() }))
}

pub(in super::super) fn part(part: Part) -> pb::ReplicateResponse {
    whole(match part {
        Part::Begin { ledger_id, head } => Answer::SnapshotBegin(pb::SnapshotBegin {
            ledger_id,
            seq: head.seq,
            digest: head.digest.as_bytes().to_vec().into(),
        }),
        Part::Tags(tags) => {
            Answer::SnapshotTags(pb::SnapshotTags { tags: tags.into_iter().map(|tag| tag.0).collect() })
        }
        Part::Agents(agents) => Answer::SnapshotAgents(pb::SnapshotAgents {
            agents: agents.iter().map(|agent| image(agent)).collect(),
        }),
        Part::End(sum) => Answer::SnapshotEnd(pb::SnapshotEnd { set_digest: sum.to_string() }),
    })
}

fn image(agent: &Agent) -> pb::AgentImage {
    pb::AgentImage {
        agent: agent.name.to_string(),
        revision: agent.revision,
        seq: agent.position.seq,
        tag: agent.position.tag.0,
        registered_micros: agent.registered_at.as_micros(),
        registered_by: agent.registered_by.as_str().to_owned(),
        card: agent.last_card().map(|card| card.bytes().clone()),
        retired: agent.card().is_none(),
    }
}

fn whole(answer: Answer) -> pb::ReplicateResponse {
    pb::ReplicateResponse { answer: Some(answer) }
}

/// Microseconds, rounded up.
fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_never_understated() {
        for (nanos, told) in [(0, 0), (1, 1), (999, 1), (1_000, 1), (1_001, 2)] {
            assert_eq!(micros(Duration::from_nanos(nanos)), told, "{nanos} ns");
        }
        assert_eq!(micros(Duration::MAX), u64::MAX);
    }

    #[test]
    fn what_cannot_be_asked_is_refused_by_name() {
        let refused = |ask| super::ask(pb::ReplicateRequest { ask }).unwrap_err().parts().detail.clone();
        assert!(refused(None).contains("head, entries and liveness"));
        let none = Some(Sent::Entries(pb::EntriesWanted { after: 7, limit: 0 }));
        assert_eq!(refused(none), "limit of 0 is too small: 1 to 1000");
        let many = Some(Sent::Entries(pb::EntriesWanted { after: 7, limit: u32::MAX }));
        let cut = super::ask(pb::ReplicateRequest { ask: many }).unwrap();
        assert!(matches!(cut, Ask::Entries { after: 7, limit: 1_000 }), "{cut:?}");
    }
}
