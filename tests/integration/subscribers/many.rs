//! No lost change: a thousand subscribers of an edge and of an edge of that edge, while links are cut.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use cardfence::proto::v1 as pb;
use cardfence::terms::Position;
use tokio::sync::watch::Receiver;
use tokio::task::JoinSet;
use tonic::transport::{Channel, Endpoint};

use super::fold::Fold;
use super::{PATIENCE, facts, watch};
use crate::load::verified;
use crate::support::cards::{Card, Shape};
use crate::support::eventually::eventually;
use crate::support::http::Http;
use crate::support::postgres::Database;
use crate::support::proxy::Proxy;
use crate::support::report;
use crate::support::server::{Launch, Server};

const SUBSCRIBERS: usize = 1_000;
const CONNECTIONS: usize = 40;
const WRITERS: usize = 8;
const AGENTS: usize = 160;
const NAMESPACES: usize = 8;
const CUTS: usize = 8;
/// Between two cuts.
const WRITES: usize = 80;

/// Before a lost stream is opened again, and when that fails again and again.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MOST: Duration = Duration::from_millis(800);

fn agent(n: usize) -> String {
    format!("many-{}/agent-{n}", n % NAMESPACES)
}

/// What subscriber `n` selects: a few take everything or a namespace, most an agent or a few.
fn selects(n: usize) -> pb::WatchStart {
    let mut start = pb::WatchStart::default();
    match n % 100 {
        0 => start.all = true,
        1..=4 => start.namespaces = vec![format!("many-{}", n / 100 % NAMESPACES)],
        5 => {
            start.namespaces = vec![format!("many-{}", n / 100 % NAMESPACES)];
            // One that lies in the namespace too, and one that there never is.
            start.agents = vec![agent(n / 100 % NAMESPACES), "many-0/none".to_owned()];
        }
        _ => start.agents = (0..=n % 3).map(|k| agent((n * 7 + k * 31) % AGENTS)).collect(),
    }
    match n % 5 {
        2 => start.class = pb::ChangeClass::Breaking.into(),
        3 => start.class = pb::ChangeClass::Additive.into(),
        _ => {}
    }
    start.cards = (n % 2 == 1).then_some(false);
    start
}

/// Changes its agents one after another, as fast as it is answered: every third change is breaking, and now and then
/// one is retired.
async fn write(url: String, writer: usize, count: Arc<AtomicUsize>, stop: Arc<AtomicBool>) {
    let http = Http::to(&url);
    for round in 0_usize.. {
        for n in (writer..AGENTS).step_by(WRITERS) {
            if stop.load(Ordering::Acquire) {
                return;
            }
            if round > 0 && (round + n) % 11 == 0 {
                http.retire(&agent(n)).await.expect(200);
            } else {
                let card = Card::new(Shape::V10, "many").version(&format!("{round}.0"));
                let card = card.url(&format!("https://{}.example.com", round / 3)).build();
                let status = http.put_card(&agent(n), "", &card).await.status;
                assert!(matches!(status, 200 | 201), "{status}");
            }
            count.fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// Watches until a checkpoint at the end of the ledger, once that is known. Gives the streams that it took, too.
async fn subscribe(channel: Channel, mut fold: Fold, mut end: Receiver<Option<u64>>) -> (Fold, usize) {
    let (mut streams, mut pause) = (0, PAUSE);
    loop {
        if let Ok(mut events) = watch(&channel, fold.start()).await {
            streams += 1;
            pause = PAUSE;
            while let Ok(Some(event)) = events.message().await {
                fold.take(event);
                if end.borrow_and_update().is_some_and(|end| fold.proven >= end) {
                    return (fold, streams);
                }
            }
        }
        // The link is down, or its server is behind what was told already by the other one.
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MOST);
    }
}

async fn edge(upstream: &Proxy) -> Server {
    let upstream = format!("http://{}", upstream.address());
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--checkpoint", "2s", "--upstream", &upstream];
    let edge = Launch::cardfence(arguments).start().await;
    Http::to(&edge.url()).until_ready().await;
    edge
}

#[tokio::test(flavor = "multi_thread")]
async fn thousand_subscribers_behind_edges_that_are_cut_lose_no_change() {
    let database = Database::empty().await;
    let node = Server::serve(database.url()).await;
    let to_node = Proxy::start(node.address()).await;
    let near = edge(&to_node).await;
    let to_near = Proxy::start(near.address()).await;
    let far = edge(&to_near).await;
    let doors = [Proxy::start(near.address()).await, Proxy::start(far.address()).await];
    let (count, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        writers.spawn(write(node.url(), writer, Arc::clone(&count), Arc::clone(&stop)));
    }
    let written = async |more: usize| {
        let goal = count.load(Ordering::Acquire) + more;
        eventually(PATIENCE, async || {
            let count = count.load(Ordering::Acquire);
            if count >= goal { Ok(()) } else { Err(format!("{count} of {goal} writes")) }
        })
        .await;
    };

    let (tell_end, end) = tokio::sync::watch::channel(None);
    let channels: Vec<Channel> = (0..CONNECTIONS)
        .map(|n| {
            let door = format!("http://{}", doors[n % doors.len()].address());
            Endpoint::from_shared(door).unwrap().connect_lazy()
        })
        .collect();
    let mut subscribers = JoinSet::new();
    for n in 0..SUBSCRIBERS {
        let channel = channels[n % CONNECTIONS].clone();
        subscribers.spawn(subscribe(channel, Fold::new(selects(n)), end.clone()));
    }
    for edge in [&near, &far] {
        eventually(PATIENCE, async || {
            let open = Http::to(&edge.url()).metric("cardfence_subscribers").await;
            if open >= 500.0 { Ok(()) } else { Err(format!("{open} streams")) }
        })
        .await;
    }
    let began = Instant::now();
    let before = count.load(Ordering::Acquire);
    for n in 0..CUTS {
        let link = [&to_node, &doors[0], &to_near, &doors[1]][n % 4];
        link.cut().await;
        written(WRITES / 2).await;
        if n % 4 == 3 {
            // From here on the subscribers of one server find the other, wherever that is.
            let servers = if n % 8 == 3 { [&far, &near] } else { [&near, &far] };
            for (door, server) in doors.iter().zip(servers) {
                door.retarget(server.address()).await;
            }
        }
        link.heal().await;
        written(WRITES / 2).await;
    }
    stop.store(true, Ordering::Release);
    while let Some(writer) = writers.join_next().await {
        writer.unwrap();
    }
    let (writes, took) = (count.load(Ordering::Acquire) - before, began.elapsed());

    let facts = facts(&verified(&Http::to(&node.url())).await);
    let watermark =
        Http::to(&node.url()).get("/v1/watermark?max_staleness=0&wait=10s").await.expect(200).json();
    let head: Position = watermark["position"].as_str().unwrap().parse().unwrap();
    tell_end.send(Some(head.seq)).unwrap();
    let all = tokio::time::timeout(PATIENCE, subscribers.join_all()).await.expect("all come to the end");
    let (mut events, mut checkpoints, mut streams) = (0, 0, 0);
    for (fold, took) in &all {
        fold.equals(&facts);
        assert!(
            fold.ended.as_deref().is_none_or(|reason| reason == "subscriber_too_slow"),
            "{:?}",
            fold.ended
        );
        events += fold.events();
        checkpoints += fold.checkpoints;
        streams += took;
    }
    assert!(streams > 2 * SUBSCRIBERS, "only {streams} streams: the cuts cut nothing");
    report(&format!(
        "{SUBSCRIBERS} subscribers over {CONNECTIONS} connections to an edge and an edge of it, {CUTS} cuts: {writes} \
         writes in {} ms, {streams} streams, {events} live events, each once and in order, {checkpoints} checkpoints \
         agreed, {} ms from the last write until all were proven",
        took.as_millis(),
        (began.elapsed().saturating_sub(took)).as_millis()
    ));
}
