//! Edges: servers that keep no ledger and follow one that does, or follow each other.
//!
//! Most of it runs on the real binary. What needs a hand inside (a ledger in memory that is exchanged, a short
//! memory of changes, an upstream that lies) runs on the same server within this program.

mod reads;
mod sessions;
mod stale;
mod upstreams;
mod writes;

use std::net::SocketAddr;
use std::time::Duration;

use cardfence::clock::Clock;
use cardfence::ledger::memory::Memory;
use cardfence::server::{self, Node, Parts, Serving, Tuning};
use cardfence::telemetry::Metrics;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::support::http::{Http, Reply};
use crate::support::server::{Launch, Server};

const SOON: Duration = Duration::from_secs(20);

/// The real binary as an edge of the server at `upstream`, ready or not.
async fn edge(upstream: &str, more: &[&str]) -> Server {
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--upstream", upstream];
    Launch::cardfence(arguments.iter().chain(more).copied()).start().await
}

/// The same, once it is ready.
async fn ready_edge(upstream: &str) -> Server {
    let edge = edge(upstream, &[]).await;
    Http::to(&edge.url()).until_ready().await;
    edge
}

/// A server within this program. It ends with the test.
struct Inside {
    address: SocketAddr,
    http: Http,
    stop: CancellationToken,
    _tasks: JoinSet<()>,
}

impl Inside {
    async fn serve(parts: Parts, tuning: Tuning) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("port 0 is always free");
        let address = listener.local_addr().expect("it is bound");
        let node = Node::start(parts, tuning, Metrics::new());
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            server::serve(node, listener, &Serving::default(), stopped)
                .await
                .expect("it ends when it is told");
        });
        Self { address, http: Http::to(&format!("http://{address}")), stop, _tasks: tasks }
    }

    /// A node over a ledger in memory, once it is ready.
    async fn node(ledger: &Memory, tuning: Tuning) -> Self {
        let node = Self::serve(Parts::over(ledger, Clock::System), tuning).await;
        node.http.until_ready().await;
        node
    }

    /// An edge of whatever listens at `upstream`, ready or not.
    async fn edge(upstream: SocketAddr) -> Self {
        let mut tuning = Tuning::named("edge");
        tuning.registry.role = "edge";
        let parts = server::follow(&[format!("http://{upstream}")], Duration::from_secs(2));
        Self::serve(parts.expect("it is a URL"), tuning).await
    }
}

/// A counter or gauge as `/metrics` shows it.
async fn metric(http: &Http, name: &str) -> u64 {
    let reply = http.get("/metrics").await.expect(200);
    let text = String::from_utf8(reply.body.to_vec()).expect("metrics are text");
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
    value.unwrap_or_else(|| panic!("there is no {name} in\n{text}"))
}

/// An answer without what says how old it is, which differs from server to server.
fn timeless(reply: Reply) -> Value {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(members) => {
                members.remove("freshness");
                if members.get("condition").is_some_and(|name| name == "max_staleness") {
                    members.remove("found");
                }
                members.values_mut().for_each(strip);
            }
            Value::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    let mut json = reply.json();
    strip(&mut json);
    json
}
