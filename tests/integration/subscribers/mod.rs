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

/// One entry of a ledger: what it left its agent at, `None` when it retired it.
#[derive(Debug)]
struct Fact {
    seq: u64,
    agent: AgentName,
    now: Option<(u64, Digest)>,
}

/// What a ledger says, read once for all who are held against it.
fn facts(entries: &[Value]) -> Vec<Fact> {
    let fact = |entry: &Value| {
        let body = &entry["body"];
        let agent = body["subject"].as_str()?.parse().ok()?;
        let now = body["raw_digest"].as_str();
        let now = now.map(|raw| (body["revision"].as_u64().unwrap(), raw.parse().unwrap()));
        Some(Fact { seq: entry["seq"].as_u64()?, agent, now })
    };
    entries.iter().filter_map(fact).collect()
}

/// What a ledger says of a selection: the numbers of its entries, and the agents that are live at its end.
#[derive(Debug, Default)]
struct Truth {
    seqs: Vec<u64>,
    live: BTreeMap<AgentName, (u64, Digest)>,
}

impl Truth {
    fn of(facts: &[Fact], selected: impl Fn(&AgentName) -> bool) -> Self {
        let mut truth = Self::default();
        for Fact { seq, agent, now } in facts.iter().filter(|fact| selected(&fact.agent)) {
            truth.seqs.push(*seq);
            match now {
                Some(now) => drop(truth.live.insert(agent.clone(), *now)),
                None => drop(truth.live.remove(agent)),
            }
        }
        truth
    }

    /// The numbers of the entries after `seq`.
    fn after(&self, seq: u64) -> &[u64] {
        &self.seqs[self.seqs.partition_point(|known| *known <= seq)..]
    }
}
