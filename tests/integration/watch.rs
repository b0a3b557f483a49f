//! Watching through the real binary: two nodes on one PostgreSQL behind an address that breaks and changes its mind.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cardfence::terms::{AgentName, Digest, Position, SetDigest};
use serde_json::Value;

use crate::load::{Record, verified, write};
use crate::support::http::Http;
use crate::support::postgres::Database;
use crate::support::proxy::Proxy;
use crate::support::report;
use crate::support::scratch::Scratch;
use crate::support::server::{Launch, Output, Server};

/// How often the subscriber loses its connection, and finds the other node when it comes back.
const CUTS: usize = 8;

/// What a subscriber folds from the lines that `watch --json` prints; fails where a line cannot follow.
#[derive(Default)]
struct Copy {
    held: BTreeMap<AgentName, (u64, Digest)>,
    staged: Option<BTreeMap<AgentName, (u64, Digest)>>,
    last: u64,
    events: usize,
    resets: usize,
    checkpoints: usize,
}

impl Copy {
    fn take(&mut self, line: &Value) {
        let (kind, data) = (line["event"].as_str().unwrap(), &line["data"]);
        let id = line["id"].as_str().map(|id| id.parse::<Position>().unwrap().seq);
        match kind {
            "reset" => {
                self.resets += 1;
                self.staged = Some(BTreeMap::new());
            }
            "upsert" | "retired" => {
                assert_eq!(id.is_none(), self.staged.is_some(), "{line}");
                if let Some(id) = id {
                    assert!(id > self.last, "{id} came after {}", self.last);
                    self.last = id;
                    self.events += 1;
                }
                let held = self.staged.as_mut().unwrap_or(&mut self.held);
                let name: AgentName = data["agent"].as_str().unwrap().parse().unwrap();
                match data["raw_digest"].as_str() {
                    Some(raw) => {
                        let revision = data["revision"].as_u64().unwrap();
                        held.insert(name, (revision, raw.parse().unwrap()));
                    }
                    None => drop(held.remove(&name)),
                }
            }
            "synced" | "checkpoint" => {
                if let Some(held) = self.staged.take() {
                    self.held = held;
                }
                assert!(id >= Some(self.last), "{line}");
                self.last = id.unwrap();
                if let Some(digest) = data["set_digest"].as_str() {
                    self.checkpoints += 1;
                    assert_eq!(digest, self.sum().to_string());
                }
            }
            other => assert_eq!(other, "end", "{line}"),
        }
    }

    fn sum(&self) -> SetDigest {
        let all = self.held.iter().map(|(name, (revision, raw))| SetDigest::of(name, *revision, raw));
        all.fold(SetDigest::default(), SetDigest::plus)
    }
}

/// `watch --json` until a file names the position that it must have told.
async fn subscriber(url: String, arguments: &str, stop: String) -> Output {
    let script = format!(
        r#""$CARDFENCE" watch --json {arguments} >told 2>notes & watch=$!
        until [ -e "$STOP" ] && grep -qF "$(cat "$STOP")" told; do
            kill -0 $watch || {{ cat told notes; exit 9; }}; sleep 0.02
        done
        kill -INT $watch; wait $watch; code=$?; cat told; cat notes >&2; exit $code"#
    );
    let launch = Launch::program("sh", ["-c", &script]).env("CARDFENCE", env!("CARGO_BIN_EXE_cardfence"));
    launch.env("CARDFENCE_SERVER", &url).env("STOP", &stop).output().await
}

#[tokio::test(flavor = "multi_thread")]
async fn subscriber_that_is_cut_and_sent_to_another_node_misses_nothing() {
    let database = Database::empty().await;
    let checkpoints = ["--checkpoint", "100ms"];
    let serve = async || {
        let arguments = ["serve", "--listen", "127.0.0.1:0", "--store", database.url()];
        Launch::cardfence(arguments.into_iter().chain(checkpoints)).start().await
    };
    let nodes = [serve().await, serve().await];
    let urls: Vec<String> = nodes.iter().map(Server::url).collect();
    Http::to(&urls[0]).until_ready().await;
    Http::to(&urls[1]).until_ready().await;
    let proxy = Proxy::start(nodes[0].address()).await;
    let folder = Scratch::new("watch");
    let stop = folder.path().join("stop");
    let told = tokio::spawn(subscriber(
        format!("http://{}", proxy.address()),
        "--namespace cut",
        stop.to_str().unwrap().to_owned(),
    ));
    let record = Arc::new(Record::default());
    let writers: Vec<_> = (0..8)
        .map(|n| {
            let (url, namespace) = (urls[n % 2].clone(), if n % 4 == 3 { "other" } else { "cut" });
            let agent = format!("{namespace}/agent-{n}");
            tokio::spawn(write(Arc::clone(&record), agent, format!("w{n}"), move || url.clone()))
        })
        .collect();
    for n in 0..CUTS {
        let written = record.count();
        crate::support::eventually::eventually(Duration::from_secs(30), async || {
            let more = record.count() - written;
            if more > 30 && proxy.connections() > 0 { Ok(()) } else { Err(format!("{more} writes")) }
        })
        .await;
        proxy.cut().await;
        proxy.retarget(nodes[(n + 1) % 2].address()).await;
        proxy.heal().await;
    }
    record.stop.store(true, Ordering::Release);
    for writer in writers {
        writer.await.unwrap();
    }
    let card = crate::support::cards::Card::new(crate::support::cards::Shape::V10, "last").build();
    let last = Http::to(&urls[0]).put_card("cut/last", "", &card).await.expect(201).json();
    let ready = folder.path().join("ready");
    std::fs::write(&ready, format!("\"id\":\"{}\"", last["position"].as_str().unwrap())).unwrap();
    std::fs::rename(&ready, &stop).unwrap();

    let output = told.await.unwrap();
    assert_eq!(output.code, Some(0), "{}{}", output.stdout, output.stderr);
    let mut copy = Copy::default();
    for line in output.stdout.lines() {
        copy.take(&serde_json::from_str(line).unwrap());
    }
    let mut live = BTreeMap::new();
    for entry in verified(&Http::to(&urls[1])).await {
        let body = &entry["body"];
        let agent: AgentName = body["subject"].as_str().unwrap().parse().unwrap();
        if agent.namespace() == "cut" {
            let raw = body["raw_digest"].as_str().unwrap().parse().unwrap();
            live.insert(agent, (body["revision"].as_u64().unwrap(), raw));
        }
    }
    assert_eq!(copy.held, live);
    assert_eq!(copy.resets, 1, "a cut is resumed and not started over:\n{}", output.stderr);
    assert!(copy.checkpoints > 3, "{} checkpoints", copy.checkpoints);
    let cuts = output.stderr.matches("going on from").count();
    assert!(cuts >= CUTS, "{}", output.stderr);
    report(&format!(
        "a subscriber cut {cuts} times between two nodes: {} live events of {} writes, each once and in order, {} \
         checkpoints agreed",
        copy.events,
        record.count(),
        copy.checkpoints
    ));
}
