//! No lie in the bound: a checker holds every answer's stated staleness against what was acknowledged when.
//!
//! Writers register through one node and note, on this process's clock, when each acknowledgement arrived. Readers
//! of a node behind a proxy, a standby node, an edge and an edge of that edge note of each answer when it was asked
//! for, which revision it held and how old it said it may be. An answer that was asked for at `sent` and states a
//! staleness `s` claims to hold all that was acknowledged before `sent - s`. Meanwhile links are cut, frozen and
//! delayed, servers and databases are stopped, replay is paused, and the edge's balancer changes its node.
//!
//! It runs for [`RUNS_FOR`], or for as many seconds as `CARDFENCE_NO_LIE_SECONDS` says; `scripts/no-lie` does that.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::Method;

use crate::load::{Record, put};
use crate::support::cards::{Card, Shape};
use crate::support::http::Http;
use crate::support::postgres::{Cluster, Settings, url_at};
use crate::support::proxy::Proxy;
use crate::support::report;
use crate::support::server::{Launch, Server};

const RUNS_FOR: Duration = Duration::from_secs(20);
const AGENTS: usize = 8;
const FENCES: [&str; 5] = [
    "?max_staleness=any",
    "?max_staleness=0&wait=1s",
    "?max_staleness=300ms&wait=200ms",
    "?max_staleness=2s&wait=0",
    "?max_staleness=10s&wait=0",
];

/// One answer that stated a bound.
#[derive(Debug, Clone, Copy)]
struct Answer {
    agent: usize,
    /// 0: there is no such agent.
    revision: u64,
    sent: Instant,
    staleness: Duration,
}

/// When revisions were acknowledged, by agent, in order.
type Acks = Vec<Vec<(u64, Instant)>>;

/// What readers and writers note.
#[derive(Debug, Default)]
struct Notes {
    acks: Mutex<Acks>,
    answers: Mutex<Vec<Answer>>,
    /// Answers that stated no bound, and refusals, by reader and reason.
    others: Mutex<BTreeMap<String, u64>>,
}

impl Notes {
    fn count(&self, what: String) {
        *self.others.lock().unwrap().entry(what).or_default() += 1;
    }
}

/// The answers that lack what was acknowledged before the moment that they claim to be complete at. `scale` makes
/// the stated bounds smaller, to see that a lie would be found.
fn lies(acks: &Acks, answers: &[Answer], scale: f64) -> Vec<(Answer, u64)> {
    let lie = |answer: &Answer| {
        let complete_at = answer.sent.checked_sub(answer.staleness.mul_f64(scale))?;
        let known = acks[answer.agent].partition_point(|(_, at)| *at < complete_at);
        // Acknowledgements of one agent come in the order of its revisions: one writer waits for each.
        let floor = acks[answer.agent][..known].last().map_or(0, |(revision, _)| *revision);
        (answer.revision < floor).then_some((*answer, floor))
    };
    answers.iter().filter_map(lie).collect()
}

/// What is between the databases, the nodes and the edges.
struct World {
    primary: Cluster,
    standby: Cluster,
    /// To the primary: from the second node, from the standby node as its authority. To the standby: as its source.
    links: Vec<(&'static str, Proxy)>,
    /// From the edge to one of the two nodes, which changes.
    balancer: Proxy,
    first: Server,
    second: Server,
    standby_node: Server,
    edge: Server,
    leaf: Server,
}

impl World {
    async fn start() -> Self {
        let primary = Cluster::start(Settings::default()).await;
        let database = primary.create_database().await;
        let first = Server::serve(&primary.url(&database)).await;
        let standby = primary.standby("replica").await;
        standby.caught_up_with(&primary).await;
        let to_primary = Proxy::start(primary.address()).await;
        let to_authority = Proxy::start(primary.address()).await;
        let to_standby = Proxy::start(standby.address()).await;
        let second = Server::serve(&url_at(to_primary.address(), &database)).await;
        let standby_node = serve(&[
            "--store",
            &url_at(to_standby.address(), &database),
            "--authority",
            &url_at(to_authority.address(), &database),
        ])
        .await;
        let balancer = Proxy::start(first.address()).await;
        let edge = serve(&["--upstream", &format!("http://{}", balancer.address())]).await;
        let to_edge = Proxy::start(edge.address()).await;
        let leaf = serve(&["--upstream", &format!("http://{}", to_edge.address())]).await;
        for server in [&first, &second, &standby_node, &edge, &leaf] {
            Http::to(&server.url()).until_ready().await;
        }
        let links = vec![
            ("second node to primary", to_primary),
            ("standby node to its authority", to_authority),
            ("standby node to its standby", to_standby),
            ("leaf to edge", to_edge),
        ];
        Self { primary, standby, links, balancer, first, second, standby_node, edge, leaf }
    }

    fn readers(&self) -> [(&'static str, String); 4] {
        [
            ("node", self.second.url()),
            ("standby node", self.standby_node.url()),
            ("edge", self.edge.url()),
            ("edge of an edge", self.leaf.url()),
        ]
    }

    /// Lets one thing go wrong for a while, and says what.
    async fn fault(&self, dice: &mut Dice) -> &'static str {
        let hold = Duration::from_millis(50 + dice.below(2_500));
        let (_, link) = &self.links[dice.pick(self.links.len())];
        match dice.below(10) {
            0 => {
                link.cut().await;
                tokio::time::sleep(hold).await;
                link.heal().await;
                "a link cut"
            }
            1 => {
                link.freeze();
                tokio::time::sleep(hold).await;
                link.thaw();
                "a link frozen"
            }
            2 => {
                link.freeze_answers();
                tokio::time::sleep(hold).await;
                link.thaw();
                "a link's answers held"
            }
            3 => {
                link.delay(Duration::from_millis(1 + dice.below(300)));
                tokio::time::sleep(hold).await;
                link.delay(Duration::ZERO);
                "a link delayed"
            }
            4 => {
                self.balancer.retarget(self.second.address()).await;
                tokio::time::sleep(hold).await;
                self.balancer.retarget(self.first.address()).await;
                "the balancer changed its node"
            }
            5 => {
                self.standby.pause_replay().await;
                tokio::time::sleep(hold).await;
                self.standby.resume_replay().await;
                "replay paused"
            }
            6 => {
                self.primary.freeze();
                tokio::time::sleep(hold).await;
                self.primary.thaw();
                "the primary stopped"
            }
            7 => {
                self.standby.freeze();
                tokio::time::sleep(hold).await;
                self.standby.thaw();
                "the standby stopped"
            }
            8 => {
                self.balancer.freeze();
                tokio::time::sleep(hold).await;
                self.balancer.thaw();
                "the balancer frozen"
            }
            _ => {
                let servers = [&self.second, &self.standby_node, &self.edge, &self.leaf];
                let server = servers[dice.pick(servers.len())];
                server.freeze().await;
                tokio::time::sleep(hold).await;
                server.thaw();
                "a server stopped"
            }
        }
    }
}

async fn serve(args: &[&str]) -> Server {
    Launch::cardfence(["serve", "--listen", "127.0.0.1:0"].iter().chain(args).copied()).start().await
}

/// Numbers that one seed always gives again.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn pick(&mut self, count: usize) -> usize {
        usize::try_from(self.below(count as u64)).unwrap()
    }
}

fn name(agent: usize) -> String {
    format!("honest/agent-{agent}")
}

/// Registers one agent's card again and again, and notes when each was acknowledged.
async fn write(notes: Arc<Notes>, record: Arc<Record>, url: String, agent: usize) {
    let http = Http::to(&url);
    let mut n = 0_u64;
    while !record.stop.load(Ordering::Acquire) {
        n += 1;
        let card = Card::new(Shape::V10, "honest").version(&n.to_string()).build();
        let request_id = format!("honest-{agent}-{n}");
        loop {
            let reply = put(&http, &name(agent), &card, &request_id).await;
            let at = Instant::now();
            if let Ok(reply) = reply
                && matches!(reply.status, 200 | 201)
            {
                let revision = reply.json()["revision"].as_u64().unwrap();
                notes.acks.lock().unwrap()[agent].push((revision, at));
                break;
            }
            record.retries.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
}

/// Asks one server again and again, and notes what it said.
async fn read(notes: Arc<Notes>, reader: &'static str, url: String, until: Instant, seed: u64) {
    let http = Http::to(&url);
    let mut dice = Dice(seed);
    while Instant::now() < until {
        let agent = dice.pick(AGENTS);
        let path = format!("/v1/agents/{}{}", name(agent), FENCES[dice.pick(FENCES.len())]);
        let sent = Instant::now();
        let Ok(reply) = http.try_send(Method::GET, &path, &[], "").await else {
            notes.count(format!("{reader}: no answer"));
            continue;
        };
        let json = reply.json();
        let revision = match reply.status {
            200 => json["revision"].as_u64().unwrap(),
            404 if json["reason"] == "agent_not_found" => 0,
            _ => {
                notes.count(format!("{reader}: {}", json["reason"].as_str().unwrap_or("?")));
                continue;
            }
        };
        match json["freshness"]["staleness_ms"].as_u64() {
            Some(staleness) => {
                let staleness = Duration::from_millis(staleness);
                notes.answers.lock().unwrap().push(Answer { agent, revision, sent, staleness });
                notes.count(format!("{reader}: answered with a bound"));
            }
            None => notes.count(format!("{reader}: answered without a bound")),
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_answer_is_older_than_it_says() {
    let seconds = std::env::var("CARDFENCE_NO_LIE_SECONDS").ok().map(|text| text.parse().unwrap());
    let runs_for = seconds.map_or(RUNS_FOR, Duration::from_secs);
    let world = World::start().await;
    let notes = Arc::new(Notes { acks: Mutex::new(vec![Vec::new(); AGENTS]), ..Notes::default() });
    let record = Arc::new(Record::default());
    let writers: Vec<_> = (0..AGENTS)
        .map(|agent| tokio::spawn(write(Arc::clone(&notes), Arc::clone(&record), world.first.url(), agent)))
        .collect();
    let until = Instant::now() + runs_for;
    let readers: Vec<_> = world
        .readers()
        .into_iter()
        .zip(1..)
        .map(|((reader, url), seed)| tokio::spawn(read(Arc::clone(&notes), reader, url, until, seed)))
        .collect();
    let mut faults: BTreeMap<&str, u64> = BTreeMap::new();
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    while Instant::now() < until {
        *faults.entry(world.fault(&mut dice).await).or_default() += 1;
        tokio::time::sleep(Duration::from_millis(dice.below(400))).await;
    }
    for reader in readers {
        reader.await.unwrap();
    }
    record.stop.store(true, Ordering::Release);
    for writer in writers {
        tokio::time::timeout(Duration::from_secs(60), writer).await.expect("a writer ends").unwrap();
    }

    let (acks, answers) = (notes.acks.lock().unwrap(), notes.answers.lock().unwrap());
    let found = lies(&acks, &answers, 1.0);
    assert!(found.is_empty(), "{} lies, such as {:?}", found.len(), found.first());
    // The same checker, shown bounds that are half of what was stated, and no age at all.
    let (halved, denied) = (lies(&acks, &answers, 0.5).len(), lies(&acks, &answers, 0.0).len());
    assert!(denied > 0, "a lie would not have been found");
    let writes: usize = acks.iter().map(Vec::len).sum();
    report(&format!(
        "{} s: {writes} acknowledged writes, {} answers with a bound, no lie; with all bounds halved {halved} lies \
         would have been found, with all bounds 0 {denied}\nfaults: {faults:#?}\nanswers: {:#?}",
        runs_for.as_secs(),
        answers.len(),
        notes.others.lock().unwrap()
    ));
}
