//! Upstreams that lie, are too far away, or are more than one.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use cardfence::clock::Clock;
use cardfence::ledger::memory::Memory;
use cardfence::proto::v1 as pb;
use cardfence::proto::v1::replicate_response::Answer;
use cardfence::proto::v1::replication_client::ReplicationClient;
use cardfence::proto::v1::replication_server::{Replication, ReplicationServer};
use cardfence::server::{self, Tuning};
use futures::{Stream, StreamExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tonic::{Request, Response, Status, Streaming};

use crate::edges::{Inside, SOON, ready_edge};
use crate::support::cards::{Card, Shape};
use crate::support::eventually::eventually;
use crate::support::http::Http;
use crate::support::postgres::Database;
use crate::support::proxy::Proxy;
use crate::support::server::Server;

const ID: &str = "5f1b6f0e-8a0c-4a0a-9d5c-0e1f2a3b4c5d";

fn card(version: &str) -> String {
    Card::new(Shape::V10, "upstream").version(version).build()
}

/// What an upstream says instead.
type Lie = fn(&mut Answer);
type Change = Arc<dyn Fn(&mut Answer) + Send + Sync>;

/// Passes sessions on to a node, and changes what it answers.
struct Between {
    node: String,
    change: Change,
}

#[async_trait]
impl Replication for Between {
    type ReplicateStream = Pin<Box<dyn Stream<Item = Result<pb::ReplicateResponse, Status>> + Send>>;

    async fn replicate(
        &self,
        request: Request<Streaming<pb::ReplicateRequest>>,
    ) -> Result<Response<Self::ReplicateStream>, Status> {
        let asks = request.into_inner().filter_map(|ask| std::future::ready(ask.ok()));
        let mut client = ReplicationClient::connect(self.node.clone()).await.unwrap();
        let change = Arc::clone(&self.change);
        let answers = client.replicate(asks).await?.into_inner().map(move |answer| {
            answer.map(|mut answer| {
                answer.answer.as_mut().into_iter().for_each(|answer| change(answer));
                answer
            })
        });
        Ok(Response::new(Box::pin(answers)))
    }

    async fn report(
        &self,
        request: Request<pb::ReportRequest>,
    ) -> Result<Response<pb::ReportResponse>, Status> {
        ReplicationClient::connect(self.node.clone()).await.unwrap().report(request).await
    }
}

async fn between(node: SocketAddr, change: Change, tasks: &mut JoinSet<()>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("port 0 is always free");
    let address = listener.local_addr().expect("it is bound");
    let service = ReplicationServer::new(Between { node: format!("http://{node}"), change });
    tasks.spawn(async move {
        axum::serve(listener, axum::Router::new().fallback_service(service)).await.ok();
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn entry_or_snapshot_that_was_changed_on_the_way_is_not_folded() {
    let changes: [(&str, usize, Lie); 4] = [
        ("the digest", 100, |answer| {
            let Answer::Entries(entries) = answer else { return };
            entries.entries.iter_mut().for_each(|entry| entry.digest = vec![7; 32].into());
        }),
        ("the body", 100, |answer| {
            let Answer::Entries(entries) = answer else { return };
            entries.entries.iter_mut().for_each(|entry| entry.body = entry.body.replace("acme", "evil"));
        }),
        ("the card", 100, |answer| {
            let Answer::Entries(entries) = answer else { return };
            entries.entries.iter_mut().for_each(|entry| entry.card = Some(card("evil").into()));
        }),
        ("the snapshot", 1, |answer| {
            let Answer::SnapshotAgents(agents) = answer else { return };
            agents.agents.iter_mut().for_each(|agent| agent.card = Some(card("evil").into()));
        }),
    ];
    for (what, remembers, change) in changes {
        let ledger = Memory::new(ID, Clock::System);
        let mut tuning = Tuning::named("node");
        tuning.feed.log = remembers;
        let node = Inside::node(&ledger, tuning).await;
        for version in ["1", "2"] {
            node.http.put_card("acme/one", "", &card(version)).await;
        }
        let lies = Arc::new(AtomicBool::new(true));
        let lying = Arc::clone(&lies);
        let change: Change = Arc::new(move |answer| {
            if lying.load(Ordering::Acquire) {
                change(answer);
            }
        });
        let mut tasks = JoinSet::new();
        let edge = Inside::edge(between(node.address, change, &mut tasks).await).await;
        eventually(SOON, async || {
            let failures = crate::edges::metric(&edge.http, "cardfence_confirm_failures_total").await;
            if failures >= 2 { Ok(()) } else { Err(format!("{failures} failures with {what} changed")) }
        })
        .await;
        edge.http.get("/readyz").await.expect(503);
        edge.http.resolve("acme/one", "?max_staleness=any&wait=0").await.expect(503);
        lies.store(false, Ordering::Release);
        edge.http.until_ready().await;
        edge.http.resolve("acme/one", "?max_staleness=0&wait=10s").await.expect(200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn upstream_that_is_too_many_hops_away_or_unproven_proves_nothing() {
    let node = Inside::node(&Memory::new(ID, Clock::System), Tuning::named("node")).await;
    node.http.put_card("acme/one", "", &card("1")).await.expect(201);
    let changes: [fn(&mut pb::HeadSaid); 2] = [|head| head.hops = 16, |head| head.age_micros = None];
    for change in changes {
        let change: Change = Arc::new(move |answer| {
            if let Answer::Head(head) = answer {
                change(head);
            }
        });
        let mut tasks = JoinSet::new();
        let edge = Inside::edge(between(node.address, change, &mut tasks).await).await;
        eventually(SOON, async || {
            let failures = crate::edges::metric(&edge.http, "cardfence_confirm_failures_total").await;
            if failures >= 3 { Ok(()) } else { Err(format!("{failures} failures")) }
        })
        .await;
        edge.http.get("/readyz").await.expect(503);
    }
    let mut tasks = JoinSet::new();
    let far: Change = Arc::new(|answer| {
        if let Answer::Head(head) = answer {
            head.hops = 15;
            head.age_micros = head.age_micros.map(|age| age + 700_000);
        }
    });
    let edge = Inside::edge(between(node.address, far, &mut tasks).await).await;
    edge.http.until_ready().await;
    let freshness =
        edge.http.resolve("acme/one", "?max_staleness=5s&wait=0").await.expect(200).json()["freshness"]
            .clone();
    assert_eq!(freshness["hops"], 16);
    assert!(freshness["staleness_ms"].as_u64().unwrap() >= 700, "the upstream's age is added: {freshness}");
    edge.http.resolve("acme/one", "?max_staleness=500ms&wait=300ms").await.expect(503);
}

#[tokio::test(flavor = "multi_thread")]
async fn second_upstream_of_the_list_is_followed_while_the_first_is_away() {
    let node = Inside::node(&Memory::new(ID, Clock::System), Tuning::named("node")).await;
    node.http.put_card("acme/one", "", &card("1")).await.expect(201);
    let (gone, silent) = (Proxy::start(node.address).await, Proxy::start(node.address).await);
    gone.cut().await;
    silent.freeze();
    let urls = [gone.address(), silent.address(), node.address].map(|address| format!("http://{address}"));
    let parts = server::follow(&urls, Duration::from_secs(2)).unwrap();
    let edge = Inside::serve(parts, Tuning::named("edge")).await;
    edge.http.until_ready().await;
    edge.http.put_card("acme/one", "", &card("2")).await.expect(200);
    let past = edge.http.get("/v1/agents/acme/one/revisions/1").await.expect(200);
    assert_eq!(past.json()["revision"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn balancer_that_mixes_nodes_leads_to_no_wrong_answer() {
    let database = Database::empty().await;
    let nodes = [Server::serve(database.url()).await, Server::serve(database.url()).await];
    for node in &nodes {
        Http::to(&node.url()).until_ready().await;
    }
    let balancer = Proxy::start(nodes[0].address()).await;
    let edge = ready_edge(&format!("http://{}", balancer.address())).await;
    let (at_node, at_edge) = (Http::to(&nodes[0].url()), Http::to(&edge.url()));
    let until = Instant::now() + Duration::from_secs(8);
    let (mut revision, mut right) = (0, 0);
    while Instant::now() < until {
        revision += 1;
        at_node.put_card("acme/one", "", &card(&revision.to_string())).await;
        balancer.retarget(nodes[revision % 2].address()).await;
        let reply = at_edge.resolve("acme/one", "?max_staleness=0&wait=2s").await;
        match reply.status {
            200 => {
                assert_eq!(reply.json()["revision"], revision, "a linearizable read missed a write");
                right += 1;
            }
            503 => {}
            other => panic!("{other}: {}", reply.json()),
        }
    }
    assert!(right > 3, "{right} of {revision} reads were answered");
    assert_eq!(crate::edges::metric(&at_edge, "cardfence_reloads_total").await, 0, "both tell one history");
}
