//! A load generator for watch streams, in a process of its own: what 10,000 subscribers cost one node, how fast one
//! change reaches them all, and how fast a commit at one node becomes an event at another.
//!
//! It starts nothing: `scripts/fanout` gives it two nodes over one PostgreSQL. Every time it prints is taken on this
//! process's clock. Work that the machine does for the generator is in the figures, since both share its cores.

#![expect(clippy::print_stdout, reason = "the figures are what it is for")]

use std::error::Error;
use std::time::{Duration, Instant};

use cardfence::proto::v1 as pb;
use clap::{Parser, Subcommand};
use pb::registry_client::RegistryClient;
use pb::watch_client::WatchClient;
use pb::watch_event::Event;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tonic::Streaming;
use tonic::codegen::tokio_stream::{self, StreamExt as _};
use tonic::transport::{Channel, Endpoint};

type Failure = Box<dyn Error + Send + Sync>;

/// No single step takes longer on a machine that can run this at all.
const PATIENCE: Duration = Duration::from_secs(120);
/// Streams that are opened at once.
const OPENING: usize = 64;
/// Of memory, on the machines that this is run on.
const PAGE_BYTES: usize = 4_096;
/// Agents that have a card before anything is measured.
const AGENTS: usize = 1_000;
/// Selected by all subscribers in the second part.
const COMMON: &str = "common/agent";

#[derive(Debug, Parser)]
struct Arguments {
    /// The node that is written to.
    #[arg(long)]
    writes: String,
    /// The node that is watched.
    #[arg(long)]
    watched: String,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Memory and wakes of idle subscribers, and one change to all of them.
    Subscribers {
        /// The process of the watched node, to read its memory.
        #[arg(long)]
        pid: u32,
        #[arg(long, default_value_t = 10_000)]
        subscribers: usize,
        #[arg(long, default_value_t = 100)]
        connections: usize,
    },
    /// From a register at one node to its event at the other.
    Latency {
        #[arg(long, default_value_t = 500)]
        registers: u64,
    },
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments = Arguments::parse();
    // The library wants to know whose cryptography it would use, which here it does not.
    rustls::crypto::ring::default_provider().install_default().ok();
    let nodes = Nodes::connect(&arguments).await?;
    match arguments.what {
        What::Subscribers { pid, subscribers, connections } => {
            nodes.subscribers(pid, subscribers, connections).await
        }
        What::Latency { registers } => nodes.latency(registers).await,
    }
}

struct Nodes {
    writes: RegistryClient<Channel>,
    watched: String,
    http: reqwest::Client,
    card: Value,
}

/// An event as it arrived: the revision, and when.
type Arrived = (u64, Instant);

impl Nodes {
    async fn connect(arguments: &Arguments) -> Result<Self, Failure> {
        let writes = RegistryClient::new(channel(&arguments.writes).await?);
        let http = reqwest::Client::builder().timeout(PATIENCE).no_proxy().build()?;
        let card = serde_json::from_str(include_str!("../tests/fixtures/bench_card.json"))?;
        Ok(Self { writes, watched: arguments.watched.clone(), http, card })
    }

    async fn register(&self, agent: &str, version: &str) -> Result<pb::Written, Failure> {
        let mut card = self.card.clone();
        card["version"] = version.into();
        let card = serde_json::to_vec(&card)?;
        let request =
            pb::RegisterRequest { agent: agent.to_owned(), card: card.into(), ..Default::default() };
        Ok(self.writes.clone().register(request).await?.into_inner())
    }

    /// Registers `agent(n)` for every n below `count`, some at once.
    async fn register_all(
        &self,
        count: usize,
        version: &str,
        agent: impl Fn(usize) -> String,
    ) -> Result<String, Failure> {
        let mut last = String::new();
        let mut calls = futures::stream::FuturesUnordered::new();
        for n in 0..count {
            if calls.len() == OPENING
                && let Some(done) = futures::StreamExt::next(&mut calls).await
            {
                last = later(last, done?);
            }
            let agent = agent(n);
            calls.push(async move { self.register(&agent, version).await });
        }
        while let Some(done) = futures::StreamExt::next(&mut calls).await {
            last = later(last, done?);
        }
        Ok(last)
    }

    /// One figure of the watched node's `/metrics`.
    async fn metric(&self, name: &str) -> Result<f64, Failure> {
        let text = self.http.get(format!("{}/metrics", self.watched)).send().await?.text().await?;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Ok(line.ok_or_else(|| format!("there is no {name}"))?.parse()?)
    }

    /// Waits until the watched node has applied `position`.
    async fn applied(&self, position: &str) -> Result<(), Failure> {
        let url = format!("{}/v1/watermark?at_least={position}&wait=10s", self.watched);
        self.http.get(url).send().await?.error_for_status()?;
        Ok(())
    }

    /// Opens so many streams over so many connections; each is read by a task of its own, and told to `told` are live
    /// events. Returns when every one has its snapshot.
    async fn open(
        &self,
        subscribers: usize,
        connections: usize,
        told: &mpsc::UnboundedSender<Arrived>,
        start: impl Fn(usize) -> pb::WatchStart,
    ) -> Result<JoinSet<Result<(), Failure>>, Failure> {
        let mut channels = Vec::new();
        for _ in 0..connections {
            channels.push(channel(&self.watched).await?);
        }
        let mut tasks = JoinSet::new();
        let (synced, mut ready) = mpsc::unbounded_channel();
        let mut opening = 0_usize;
        for n in 0..subscribers {
            let (channel, start) = (channels[n % connections].clone(), start(n));
            let (told, synced) = (told.clone(), synced.clone());
            tasks.spawn(async move {
                let mut events = watch(channel, start).await?;
                until_synced(&mut events).await?;
                synced.send(())?;
                while let Some(event) = events.message().await? {
                    if let Some(Event::Upsert(upsert)) = event.event {
                        told.send((upsert.revision, Instant::now()))?;
                    }
                }
                Err("a stream has ended".into())
            });
            opening += 1;
            if opening >= OPENING {
                next(&mut ready).await?;
                opening -= 1;
            }
        }
        for _ in 0..opening {
            next(&mut ready).await?;
        }
        Ok(tasks)
    }

    async fn subscribers(&self, pid: u32, subscribers: usize, connections: usize) -> Result<(), Failure> {
        let last = self.register_all(AGENTS, "1", |n| format!("idle/agent-{n}")).await?;
        self.applied(&last).await?;
        self.register(COMMON, "0").await?;
        let (told, mut events) = mpsc::unbounded_channel();
        // A few first, so that what is made once is not counted.
        let few = self.open(connections, connections, &told, idle).await?;
        self.gone(few).await?;

        let before = resident_bytes(pid)?;
        let begun = Instant::now();
        let idle = self.open(subscribers, connections, &told, idle).await?;
        let opened = begun.elapsed();
        let after = resident_bytes(pid)?;
        println!(
            "{subscribers} idle subscribers over {connections} connections, opened in {} ms: the node's memory went \
             from {} to {} KiB, {} bytes each",
            opened.as_millis(),
            before / 1_024,
            after / 1_024,
            after.saturating_sub(before) / subscribers
        );
        let wakes = self.metric("cardfence_subscriber_wakes_total").await?;
        let last = self.register_all(1_000, "1", |n| format!("elsewhere/agent-{n}")).await?;
        self.applied(&last).await?;
        let woken = self.metric("cardfence_subscriber_wakes_total").await? - wakes;
        let later = resident_bytes(pid)?;
        println!(
            "1000 commits elsewhere: {woken} wakes, {} events; the node's memory is {} KiB",
            events.len(),
            later / 1_024
        );
        self.gone(idle).await?;

        let all = self.open(subscribers, connections, &told, |n| {
            let agents = vec![COMMON.to_owned()];
            if n % 2 == 0 {
                pb::WatchStart { agents, ..Default::default() }
            } else {
                pb::WatchStart { namespaces: vec!["common".to_owned()], ..Default::default() }
            }
        });
        let all = all.await?;
        let (mut each, mut lasts) = (Vec::new(), Vec::new());
        for n in 1..=20 {
            let sent = Instant::now();
            let written = self.register(COMMON, &n.to_string()).await?;
            let mut longest = Duration::ZERO;
            for _ in 0..subscribers {
                let (revision, at) = next(&mut events).await?;
                if revision != written.revision {
                    return Err(format!("revision {revision} instead of {}", written.revision).into());
                }
                each.push(at - sent);
                longest = longest.max(at - sent);
            }
            lasts.push(longest);
        }
        println!(
            "one change to all {subscribers}, card included, 20 times, from the register's sending at the other"
        );
        println!("node: {}; to the last: {}", Spread::of(each), Spread::of(lasts));
        self.gone(all).await
    }

    /// Ends streams, and waits until the node has let them go.
    async fn gone(&self, mut tasks: JoinSet<Result<(), Failure>>) -> Result<(), Failure> {
        while let Some(ended) = tasks.try_join_next() {
            ended??;
        }
        tasks.shutdown().await;
        let deadline = Instant::now() + PATIENCE;
        while self.metric("cardfence_subscribers").await? > 0.0 {
            if Instant::now() > deadline {
                return Err("the node keeps streams that have ended".into());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    async fn latency(&self, registers: u64) -> Result<(), Failure> {
        let agent = "latency/agent";
        self.register(agent, "0").await?;
        let start = pb::WatchStart { agents: vec![agent.to_owned()], ..Default::default() };
        let mut events = watch(channel(&self.watched).await?, start).await?;
        until_synced(&mut events).await?;
        let (mut from_sent, mut from_acked) = (Vec::new(), Vec::new());
        let mut dice = 0x9E37_79B9_7F4A_7C15_u64;
        let (told, mut arrived) = mpsc::unbounded_channel();
        let reader = tokio::spawn(async move {
            while let Ok(Some(event)) = events.message().await {
                let at = Instant::now();
                if let Some(Event::Upsert(upsert)) = event.event
                    && told.send((upsert.revision, at)).is_err()
                {
                    break;
                }
            }
        });
        for n in 1..=registers {
            // No phase of a poll is hit more often than another, and no nudge is shared.
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            tokio::time::sleep(Duration::from_millis(60 + dice % 100)).await;
            let sent = Instant::now();
            let written = self.register(agent, &format!("{n}.{dice}")).await?;
            let acked = Instant::now();
            loop {
                let (revision, at) = next(&mut arrived).await?;
                if revision == written.revision {
                    from_sent.push(at - sent);
                    from_acked.push(at.saturating_duration_since(acked));
                    break;
                }
            }
        }
        reader.abort();
        println!(
            "commit to event at the other node, {registers} registers: from its acknowledgement {},",
            Spread::of(from_acked)
        );
        println!("from its sending {}", Spread::of(from_sent));
        Ok(())
    }
}

/// One agent each; some with a class, some without cards, some a whole namespace that is quiet.
fn idle(n: usize) -> pb::WatchStart {
    let agents = vec![format!("idle/agent-{}", n % AGENTS)];
    match n % 10 {
        7 => pb::WatchStart { agents, class: pb::ChangeClass::Breaking.into(), ..Default::default() },
        8 => pb::WatchStart { agents, cards: Some(false), ..Default::default() },
        9 => pb::WatchStart { namespaces: vec!["quiet".to_owned()], ..Default::default() },
        _ => pb::WatchStart { agents, ..Default::default() },
    }
}

async fn channel(url: &str) -> Result<Channel, Failure> {
    Ok(Endpoint::from_shared(url.to_owned())?.connect_timeout(PATIENCE).connect().await?)
}

/// A stream. Its request stays open, as that of a client which may ask for a proof, and closes when this is dropped:
/// while it were open, the server would not be told that nobody reads any more.
struct Watching {
    events: Streaming<pb::WatchEvent>,
    _says: mpsc::Sender<pb::WatchRequest>,
}

impl Watching {
    async fn message(&mut self) -> Result<Option<pb::WatchEvent>, tonic::Status> {
        self.events.message().await
    }
}

async fn watch(channel: Channel, start: pb::WatchStart) -> Result<Watching, Failure> {
    let start = pb::WatchRequest { request: Some(pb::watch_request::Request::Start(start)) };
    let (says, mut said) = mpsc::channel(1);
    let said = futures::stream::poll_fn(move |context| said.poll_recv(context));
    let events = WatchClient::new(channel).watch(tokio_stream::once(start).chain(said)).await?.into_inner();
    Ok(Watching { events, _says: says })
}

async fn until_synced(events: &mut Watching) -> Result<(), Failure> {
    while let Some(event) = tokio::time::timeout(PATIENCE, events.message()).await?? {
        if let Some(Event::Synced(_)) = event.event {
            return Ok(());
        }
    }
    Err("a stream ended before it had told its snapshot".into())
}

async fn next<T>(queue: &mut mpsc::UnboundedReceiver<T>) -> Result<T, Failure> {
    let next = tokio::time::timeout(PATIENCE, queue.recv()).await;
    next.map_err(|_| "nothing came in time")?.ok_or_else(|| "every stream has ended".into())
}

/// The later of two positions.
fn later(one: String, written: pb::Written) -> String {
    let seq = |position: &str| position.split('.').next().and_then(|seq| seq.parse::<u64>().ok());
    match written.position {
        Some(other) if seq(&other) > seq(&one) => other,
        _ => one,
    }
}

/// What a process holds in memory.
fn resident_bytes(pid: u32) -> Result<usize, Failure> {
    let statm = std::fs::read_to_string(format!("/proc/{pid}/statm"))?;
    let pages: usize = statm.split(' ').nth(1).ok_or("there is no second figure")?.parse()?;
    Ok(pages * PAGE_BYTES)
}

/// Half, nearly all, and the longest of some times.
struct Spread(Vec<Duration>);

impl Spread {
    fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self(times)
    }

    /// The time that so many percent do not exceed, in milliseconds.
    fn within(&self, percent: usize) -> f64 {
        let rank = (self.0.len() * percent).div_ceil(100).max(1) - 1;
        self.0.get(rank).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (half, most, longest) = (self.within(50), self.within(99), self.within(100));
        write!(f, "p50 {half:.1} ms, p99 {most:.1} ms, longest {longest:.1} ms")
    }
}
