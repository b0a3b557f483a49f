//! Sessions of edges: by position where that is enough, by snapshot where it is not, and bounded.

use std::time::Duration;

use cardfence::clock::Clock;
use cardfence::ledger::memory::Memory;
use cardfence::server::{self, Tuning};

use crate::edges::{Inside, SOON, metric, timeless};
use crate::support::cards::{Card, Shape};
use crate::support::eventually::eventually;
use crate::support::http::Http;
use crate::support::proxy::Proxy;

const ID: &str = "5f1b6f0e-8a0c-4a0a-9d5c-0e1f2a3b4c5d";

/// So large that a few of them do not fit into one message.
fn card(version: &str) -> String {
    Card::new(Shape::V10, "session").version(version).description_bytes(150_000).build()
}

/// A node that remembers so many changes, on a ledger of its own.
async fn node(remembers: usize) -> (Memory, Inside) {
    let ledger = Memory::new(ID, Clock::System);
    let mut tuning = Tuning::named("node");
    tuning.feed.log = remembers;
    let node = Inside::node(&ledger, tuning).await;
    (ledger, node)
}

async fn reaches(http: &Http, agent: &str, revision: u64) {
    eventually(SOON, async || {
        let reply = http.resolve(agent, "?max_staleness=0&wait=1s").await;
        let found = reply.json();
        if found["revision"] == revision { Ok(()) } else { Err(found.to_string()) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ledger_longer_than_memory_is_begun_from_a_snapshot_with_its_tombstones() {
    let (_ledger, node) = node(4).await;
    let mut first = None;
    for number in 0..20 {
        let agent = format!("acme/agent-{number}");
        let written = node.http.put_card(&agent, "", &card("1")).await.expect(201).json();
        first.get_or_insert(written["position"].as_str().unwrap().to_owned());
    }
    node.http.retire("acme/agent-3").await.expect(200);
    node.http.put_card("acme/agent-5", "", &card("2")).await.expect(200);
    let near = Inside::edge(node.address).await;
    near.http.until_ready().await;
    // What it began from is given on by an edge that has folded no entry itself.
    let far = Inside::edge(near.address).await;
    far.http.until_ready().await;
    for edge in [&near, &far] {
        assert_eq!(metric(&edge.http, "cardfence_snapshots_taken_total").await, 1);
        let list = "/v1/agents?page_size=100&max_staleness=0&wait=10s";
        assert_eq!(timeless(edge.http.get(list).await.expect(200)), timeless(node.http.get(list).await));
        edge.http.resolve("acme/agent-3", "?max_staleness=0&wait=10s").await.expect(410);
        // Positions from before the snapshot are known by their digests.
        let old = format!("?at_least={}&wait=10s", first.as_deref().unwrap());
        edge.http.resolve("acme/agent-5", &old).await.expect(200);
        let confirmed = edge.http.resolve("acme/agent-7", "").await.expect(200).json();
        assert!(confirmed["freshness"]["origin_confirmed_at"].is_string(), "{confirmed}");
    }
    assert_eq!(metric(&node.http, "cardfence_snapshots_given_total").await, 1);
    // A later register goes on counting, and is compared with the last card.
    let again = far.http.put_card("acme/agent-3", "", &card("2")).await.expect(201).json();
    assert_eq!((&again["revision"], &again["change"]["class"]), (&3.into(), &"cosmetic".into()));
    assert_eq!(
        metric(&far.http, "cardfence_snapshots_taken_total").await,
        1,
        "entries go on from the snapshot"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn edge_that_was_cut_goes_on_by_position_and_by_snapshot_only_when_it_must() {
    let (_ledger, node) = node(8).await;
    node.http.put_card("acme/one", "", &card("1")).await.expect(201);
    let proxy = Proxy::start(node.address).await;
    let edge = Inside::edge(proxy.address()).await;
    edge.http.until_ready().await;
    let sessions = metric(&edge.http, "cardfence_sessions_total").await;
    for (missed, snapshots) in [(5, 0), (12, 1)] {
        proxy.cut().await;
        let mut last = 0;
        for version in 0..missed {
            let written = node.http.put_card("acme/one", "", &card(&format!("{missed}.{version}"))).await;
            last = written.expect(200).json()["revision"].as_u64().unwrap();
        }
        proxy.heal().await;
        reaches(&edge.http, "acme/one", last).await;
        assert_eq!(metric(&edge.http, "cardfence_snapshots_taken_total").await, snapshots, "{missed} missed");
        assert_eq!(metric(&edge.http, "cardfence_reloads_total").await, 0, "nothing was contradicted");
    }
    assert!(metric(&edge.http, "cardfence_sessions_total").await >= sessions + 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn edge_is_woken_by_its_upstream_and_does_not_wait_for_its_poll() {
    let (_ledger, node) = node(100).await;
    let mut tuning = Tuning::named("edge");
    tuning.feed.poll = Duration::from_secs(600);
    let parts = server::follow(&[format!("http://{}", node.address)], Duration::from_secs(2)).unwrap();
    let edge = Inside::serve(parts, tuning).await;
    edge.http.until_ready().await;
    for revision in 1..=5 {
        node.http.put_card("acme/one", "", &card(&revision.to_string())).await;
        // No demand of this reader's wakes it: with no wait it asks for nothing.
        eventually(Duration::from_secs(5), async || {
            let found = edge.http.resolve("acme/one", "?max_staleness=any&wait=0").await.json();
            if found["revision"] == revision { Ok(()) } else { Err(found.to_string()) }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_known_of_origins_reaches_edges_of_edges() {
    let (_ledger, node) = node(100).await;
    let near = Inside::edge(node.address).await;
    near.http.until_ready().await;
    let far = Inside::edge(near.address).await;
    far.http.until_ready().await;
    for outcome in ["created", "unchanged", "unchanged", "unchanged"] {
        let written = far.http.put_card("acme/one", "", &card("1")).await.json();
        assert_eq!(written["outcome"], outcome);
    }
    let known = async |http: &Http| {
        let freshness = http.resolve("acme/one", "").await.expect(200).json()["freshness"].clone();
        [freshness["origin_confirmed_at"].clone(), freshness["observed_redeploy_interval_ms"].clone()]
    };
    let at_node = known(&node.http).await;
    assert!(at_node[1].is_u64(), "{at_node:?}");
    eventually(SOON, async || {
        let at_far = known(&far.http).await;
        if at_far == at_node { Ok(()) } else { Err(format!("{at_far:?} instead of {at_node:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn edges_follow_an_upstream_into_another_history_and_refuse_what_was_lost() {
    let (ledger, node) = node(100).await;
    node.http.put_card("acme/kept", "", &card("1")).await.expect(201);
    let fork = ledger.forked_at(1).await;
    let lost = node.http.put_card("acme/lost", "", &card("1")).await.expect(201).json();
    let also = node.http.put_card("acme/kept", "", &card("2")).await.expect(200).json();
    let near = Inside::edge(node.address).await;
    let far = Inside::edge(near.address).await;
    for edge in [&near, &far] {
        edge.http.until_ready().await;
        reaches(&edge.http, "acme/kept", 2).await;
    }
    // Behind the node's address the lost entries' numbers are given to others.
    let other = Inside::node(&fork, Tuning::named("other")).await;
    for version in ["3", "4", "5"] {
        other.http.put_card("acme/kept", "", &card(version)).await.expect(200);
    }
    ledger.become_like(&fork).await;
    for edge in [&far, &near] {
        reaches(&edge.http, "acme/kept", 4).await;
        for gone in [&lost, &also] {
            let query = format!("?at_least={}&wait=10s", gone["position"].as_str().unwrap());
            let refused = edge.http.resolve("acme/kept", &query).await.expect(409).json();
            assert_eq!(refused["reason"], "history_diverged");
        }
        edge.http.resolve("acme/lost", "?wait=10s").await.expect(404);
        assert_eq!(metric(&edge.http, "cardfence_reloads_total").await, 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn as_many_edges_follow_as_may_and_a_draining_node_lets_them_go() {
    let ledger = Memory::new(ID, Clock::System);
    let mut tuning = Tuning::named("node");
    tuning.registry.max_edges = 1;
    let node = Inside::node(&ledger, tuning).await;
    let first = Inside::edge(node.address).await;
    first.http.until_ready().await;
    let second = Inside::edge(node.address).await;
    eventually(SOON, async || match metric(&second.http, "cardfence_confirm_failures_total").await {
        0 => Err("it was not refused yet".to_owned()),
        _ => Ok(()),
    })
    .await;
    second.http.get("/readyz").await.expect(503);
    first.stop.cancel();
    second.http.until_ready().await;
    assert_eq!(metric(&node.http, "cardfence_edges").await, 1);
    // Streams do not keep a server from ending.
    let began = std::time::Instant::now();
    node.stop.cancel();
    eventually(SOON, async || match tokio::net::TcpStream::connect(node.address).await {
        Ok(_) => Err("it still listens".to_owned()),
        Err(_) => Ok(()),
    })
    .await;
    assert!(began.elapsed() < Duration::from_secs(9), "{:?}", began.elapsed());
}
