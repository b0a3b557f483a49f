//! Replicas: reported to an upstream, and listed by one.

use std::time::Duration;

use super::parsed;
use crate::ledger::{Error, Omitted, Replica};
use crate::proto::v1 as pb;
use crate::terms::ceil_millis;

pub(in super::super) fn report(replicas: &[Replica]) -> pb::ReportRequest {
    pb::ReportRequest { replicas: replicas.iter().map(sent).collect() }
}

fn sent(replica: &Replica) -> pb::Replica {
    pb::Replica {
        replica: replica.replica.clone(),
        role: replica.role.clone(),
        position: replica.position.to_string(),
        staleness_ms: replica.staleness.map(millis),
        hops: replica.hops,
        version: replica.version.clone(),
        via: replica.via.clone(),
        silent_ms: millis(replica.silent),
        omitted: replica.omitted.map(|omitted| pb::OmittedReplicas {
            count: omitted.count,
            at_least: omitted.at_least.to_string(),
        }),
        behind: None,
    }
}

pub(in super::super) fn replicas_wanted(within: Duration) -> pb::ListReplicasRequest {
    let any = pb::max_staleness::Bound::Any(pb::AnyStaleness {});
    pb::ListReplicasRequest {
        within_ms: Some(millis(within)),
        max_staleness: Some(pb::MaxStaleness { bound: Some(any) }),
        at_least: None,
        wait_ms: None,
    }
}

pub(in super::super) fn replicas(answer: pb::ListReplicasResponse) -> Result<Vec<Replica>, Error> {
    answer.replicas.into_iter().map(listed).collect()
}

fn listed(sent: pb::Replica) -> Result<Replica, Error> {
    let omitted = |omitted: pb::OmittedReplicas| -> Result<Omitted, Error> {
        Ok(Omitted { count: omitted.count, at_least: parsed("a position", &omitted.at_least)? })
    };
    Ok(Replica {
        replica: sent.replica,
        role: sent.role,
        position: parsed("a position", &sent.position)?,
        staleness: sent.staleness_ms.map(duration),
        hops: sent.hops,
        version: sent.version,
        via: sent.via,
        silent: duration(sent.silent_ms),
        omitted: sent.omitted.map(omitted).transpose()?,
    })
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(ceil_millis(duration)).unwrap_or(i64::MAX)
}

fn duration(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}
