//! A subscriber that stops reading is told so at its end, goes on without loss, and costs the node no memory.

use std::net::SocketAddr;

use cardfence::proto::v1 as pb;
use cardfence::terms::Position;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Streaming};

use super::fold::Fold;
use super::{PATIENCE, Truth, facts, watch};
use crate::load::verified;
use crate::support::cards::{Card, Shape};
use crate::support::eventually::eventually;
use crate::support::http::Http;
use crate::support::report;
use crate::support::scratch::Scratch;
use crate::support::server::Server;

const NAMESPACE: &str = "slow";
/// Subscribers that stop reading, by wire.
const GRPC: usize = 60;
const EVENTS: usize = 6;
const CONNECTIONS: usize = 6;
/// Large cards, which fill what lies between the node and one who does not read; and small ones, which then pass.
const LARGE: usize = 40;
const LARGE_BYTES: usize = 240_000;
const SMALL: usize = 2_000;
const WRITERS: usize = 8;
/// What the node may take in memory while those who do not read leave more than 600 MB untaken: the cards
/// themselves in its log, as read and as both wires write them, and what is on the way to each subscriber.
const GROWS_AT_MOST: usize = 160 << 20;

fn resident_bytes(server: &Server) -> usize {
    let statm = std::fs::read_to_string(format!("/proc/{}/statm", server.pid())).unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4_096
}

/// How many streams the node has ended as too slow.
async fn ended_as_too_slow(http: &Http) -> usize {
    let text = String::from_utf8(http.get("/metrics").await.expect(200).body.to_vec()).unwrap();
    let name = r#"cardfence_streams_ended_total{reason="subscriber_too_slow"} "#;
    text.lines().find_map(|line| line.strip_prefix(name)).map_or(0, |count| count.parse().unwrap())
}

/// A stream of server-sent events over a socket that takes little at a time.
struct Sse {
    lines: Lines<BufReader<TcpStream>>,
    /// The numbers of live events, and where to go on from.
    seen: Vec<u64>,
    last: Option<Position>,
    synced: bool,
    kind: String,
    end: Option<String>,
}

impl Sse {
    async fn open(address: SocketAddr, from: Option<Position>) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(65_536).unwrap();
        let mut stream = socket.connect(address).await.unwrap();
        let from = from.map_or(String::new(), |from| format!("&from={from}"));
        // Of 1.0, so that the body comes as it is and not in chunks.
        let request = format!("GET /v1/watch?namespace={NAMESPACE}{from} HTTP/1.0\r\nHost: x\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut lines = BufReader::new(stream).lines();
        let head = lines.next_line().await.unwrap().unwrap();
        assert!(head.contains("200"), "{head}");
        Self { lines, seen: Vec::new(), last: None, synced: false, kind: String::new(), end: None }
    }

    /// Takes one line; false at the end of the stream.
    async fn line(&mut self) -> bool {
        let line = tokio::time::timeout(PATIENCE, self.lines.next_line()).await.expect("nothing comes");
        let Ok(Some(line)) = line else { return false };
        if let Some(kind) = line.strip_prefix("event: ") {
            kind.clone_into(&mut self.kind);
            self.synced |= kind == "synced";
        } else if let Some(id) = line.strip_prefix("id: ") {
            let id: Position = id.parse().unwrap();
            assert!(self.last.is_none_or(|last| id.seq >= last.seq), "{id} came after {:?}", self.last);
            self.last = Some(id);
        } else if let Some(data) = line.strip_prefix("data: ") {
            match self.kind.as_str() {
                "upsert" if self.synced => self.seen.push(self.last.unwrap().seq),
                "end" => self.end = Some(data.to_owned()),
                _ => {}
            }
        }
        true
    }
}

async fn register(http: &Http, agent: &str, card: &Card) {
    let status = http.put_card(&format!("{NAMESPACE}/{agent}"), "", &card.build()).await.status;
    assert!(matches!(status, 200 | 201), "{status}");
}

/// Reads until the stream is over, and gives the code of its status.
async fn read_on(fold: &mut Fold, events: &mut Streaming<pb::WatchEvent>) -> Option<Code> {
    loop {
        match tokio::time::timeout(PATIENCE, events.message()).await.expect("nothing comes") {
            Ok(Some(event)) => fold.take(event),
            Ok(None) => return None,
            Err(status) => return Some(status.code()),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_subscriber_is_told_goes_on_without_loss_and_costs_no_memory() {
    let scratch = Scratch::new("slow");
    let node = Server::serve(&format!("sqlite:{}", scratch.path().join("ledger.db").display())).await;
    let http = Http::to(&node.url());
    http.until_ready().await;
    register(&http, "first", &Card::new(Shape::V10, "slow")).await;

    let mut channels: Vec<Channel> = Vec::new();
    for _ in 0..CONNECTIONS {
        // So small a window for each stream that one holds up only itself.
        let endpoint = Endpoint::from_shared(node.url()).unwrap().initial_stream_window_size(65_535);
        channels.push(endpoint.initial_connection_window_size(8 << 20).connect().await.unwrap());
    }
    let mut grpc = Vec::new();
    for n in 0..GRPC {
        let namespaces = vec![NAMESPACE.to_owned()];
        let mut fold = Fold::new(pb::WatchStart { namespaces, ..Default::default() });
        let mut events = watch(&channels[n % CONNECTIONS], fold.start()).await.unwrap();
        while fold.checkpoints == 0 {
            fold.take(events.message().await.unwrap().unwrap());
        }
        grpc.push((fold, events));
    }
    let mut sse = Vec::new();
    for _ in 0..EVENTS {
        let mut stream = Sse::open(node.address(), None).await;
        while !stream.synced {
            assert!(stream.line().await);
        }
        sse.push(stream);
    }

    let before = resident_bytes(&node);
    let mut most = before;
    for n in 0..LARGE {
        let card = Card::new(Shape::V10, "slow").version(&n.to_string()).description_bytes(LARGE_BYTES);
        register(&http, "large", &card).await;
        most = most.max(resident_bytes(&node));
    }
    let large = most;
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let http = http.clone();
        writers.spawn(async move {
            for n in 0..SMALL / WRITERS {
                let card = Card::new(Shape::V10, "slow").version(&n.to_string());
                register(&http, &format!("small-{writer}"), &card).await;
            }
        });
    }
    while let Some(writer) = writers.join_next().await {
        writer.unwrap();
        most = most.max(resident_bytes(&node));
    }
    eventually(PATIENCE, async || match ended_as_too_slow(&http).await {
        count if count == GRPC + EVENTS => Ok(()),
        count => Err(format!("{count} streams were ended")),
    })
    .await;
    most = most.max(resident_bytes(&node));
    let grown = most - before;
    report(&format!(
        "{GRPC} gRPC and {EVENTS} SSE subscribers that do not read: the node's memory was {} KiB, at most {} KiB after \
         {LARGE} large cards and {} KiB after {SMALL} more changes",
        before >> 10,
        large >> 10,
        most >> 10
    ));
    assert!(grown < GROWS_AT_MOST, "the node's memory grew by {grown} bytes");

    let facts = facts(&verified(&http).await);
    let head = facts.last().unwrap().seq;
    for (n, (mut fold, mut events)) in grpc.into_iter().enumerate() {
        let code = read_on(&mut fold, &mut events).await;
        assert_eq!(fold.ended.as_deref(), Some("subscriber_too_slow"), "{code:?}");
        assert_eq!(code, Some(Code::ResourceExhausted));
        assert!(fold.events() < LARGE, "it read all of it: {}", fold.events());
        let mut events = watch(&channels[n % CONNECTIONS], fold.start()).await.unwrap();
        while fold.proven < head {
            let event = tokio::time::timeout(PATIENCE, events.message()).await.expect("nothing comes");
            fold.take(event.unwrap().expect("the stream goes on"));
        }
        fold.equals(&facts);
    }
    let truth = Truth::of(&facts, |agent| agent.namespace() == NAMESPACE);
    for mut stream in sse {
        while stream.line().await {}
        assert_eq!(stream.end.as_deref(), Some(r#"{"reason":"subscriber_too_slow"}"#));
        assert!(stream.seen.len() < LARGE, "it read all of it: {}", stream.seen.len());
        let mut rest = Sse::open(node.address(), stream.last).await;
        // Nothing is a snapshot here.
        rest.synced = true;
        while rest.last.is_none_or(|last| last.seq < head) || rest.kind != "checkpoint" {
            assert!(rest.line().await);
        }
        let seen: Vec<u64> = stream.seen.into_iter().chain(rest.seen).collect();
        assert_eq!(seen, truth.after(1), "every change once, and in order");
    }
}
