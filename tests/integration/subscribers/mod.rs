//! Many subscribers at once, over gRPC and server-sent events: through edges that are cut off, and ones that stop
//! reading.

mod fold;
mod many;
mod slow;

use std::collections::BTreeMap;
use std::time::Duration;

use cardfence::proto::v1 as pb;
use cardfence::proto::v1::watch_client::WatchClient;
use cardfence::terms::{AgentName, Digest};
use futures::StreamExt as _;
use serde_json::Value;
use tonic::codegen::tokio_stream;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

/// How long anything may take that only has to catch up.
const PATIENCE: Duration = Duration::from_secs(60);

async fn watch(channel: &Channel, start: pb::WatchStart) -> Result<Streaming<pb::WatchEvent>, Status> {
    let start = pb::WatchRequest { request: Some(pb::watch_request::Request::Start(start)) };
    // The request stays open, as that of a client which may ask for a proof.
    let requests = tokio_stream::once(start).chain(futures::stream::pending());
    Ok(WatchClient::new(channel.clone()).watch(requests).await?.into_inner())
}

/// What a ledger says of a selection: the numbers of its entries, and the agents that are live at its end.
#[derive(Debug, PartialEq, Eq, Default)]
struct Truth {
    seqs: Vec<u64>,
    live: BTreeMap<AgentName, (u64, Digest)>,
}

impl Truth {
    fn of(entries: &[Value], selected: impl Fn(&AgentName) -> bool) -> Self {
        let mut truth = Self::default();
        for entry in entries {
            let body = &entry["body"];
            let Ok(agent) = body["subject"].as_str().unwrap_or_default().parse::<AgentName>() else {
                continue;
            };
            if !selected(&agent) {
                continue;
            }
            truth.seqs.push(entry["seq"].as_u64().unwrap());
            match body["raw_digest"].as_str() {
                Some(raw) => {
                    let revision = body["revision"].as_u64().unwrap();
                    truth.live.insert(agent, (revision, raw.parse().unwrap()));
                }
                None => drop(truth.live.remove(&agent)),
            }
        }
        truth
    }

    /// The numbers of the entries after `seq`.
    fn after(&self, seq: u64) -> &[u64] {
        &self.seqs[self.seqs.partition_point(|known| *known <= seq)..]
    }
}
