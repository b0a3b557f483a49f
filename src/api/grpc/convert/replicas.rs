//! Replicas: reports as they come, lists as they are given, and who has applied a write.

use super::answer::{freshness, millis, timestamp};
use super::request::{self, parsed};
use crate::proto::v1 as pb;
use crate::registry::{ListedReplica, Missing, Omitted, Refusal, Replica, ReplicaList, Replicated};

pub(in super::super) fn report(request: pb::ReportRequest) -> Result<Vec<Replica>, Refusal> {
    request.replicas.into_iter().map(reported).collect()
}

fn reported(sent: pb::Replica) -> Result<Replica, Refusal> {
    let omitted = |omitted: pb::OmittedReplicas| -> Result<Omitted, Refusal> {
        Ok(Omitted { count: omitted.count, at_least: parsed("omitted.at_least", &omitted.at_least)? })
    };
    Ok(Replica {
        replica: sent.replica,
        role: sent.role,
        position: parsed("position", &sent.position)?,
        staleness: request::millis("staleness_ms", sent.staleness_ms)?,
        hops: sent.hops,
        version: sent.version,
        via: sent.via,
        silent: request::millis("silent_ms", Some(sent.silent_ms))?.unwrap_or_default(),
        omitted: sent.omitted.map(omitted).transpose()?,
    })
}

pub(in super::super) fn list(list: ReplicaList) -> pb::ListReplicasResponse {
    let one = |ListedReplica { replica, behind }: ListedReplica| pb::Replica {
        replica: replica.replica,
        role: replica.role,
        position: replica.position.to_string(),
        staleness_ms: replica.staleness.map(millis),
        hops: replica.hops,
        version: replica.version,
        via: replica.via,
        silent_ms: millis(replica.silent),
        omitted: replica.omitted.map(|omitted| pb::OmittedReplicas {
            count: omitted.count,
            at_least: omitted.at_least.to_string(),
        }),
        behind,
    };
    pb::ListReplicasResponse {
        replicas: list.items.into_iter().map(one).collect(),
        complete: list.complete,
        freshness: Some(freshness(&list.freshness)),
    }
}

pub(super) fn replicated(replicated: Replicated) -> pb::Replicated {
    let missing = |missing: Missing| pb::MissingReplica {
        replica: missing.replica,
        position: missing.position.to_string(),
        silent_since: Some(timestamp(missing.silent_since)),
        silent_ms: millis(missing.silent),
    };
    pb::Replicated {
        complete: replicated.complete,
        applied: replicated.applied,
        missing: replicated.missing.into_iter().map(missing).collect(),
        missing_omitted: replicated.missing_omitted,
    }
}
