//! The guard against a registry of a few lines: one agent, a card that tests exchange, and a clock that they move.

mod incidents;
mod memo;
mod quarantine;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use serde_json::json;

use super::*;
use crate::card::Limits;
use crate::client::Refusal;
use crate::clock::Hands;
use crate::fence::Facts;
use crate::terms::{Basis, Freshness, Origin, Position, Timestamp};

const MINUTE: Duration = Duration::from_secs(60);

fn agent() -> AgentName {
    "acme/summarizer".parse().unwrap()
}

/// A v1.0 card with one skill.
fn card(skill: &str, output: &str, push: bool) -> Arc<Card> {
    let document = json!({
        "name": "Summarizer",
        "description": "d",
        "version": "1.0",
        "supportedInterfaces": [{"url": "https://a.example/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        "capabilities": {"streaming": true, "pushNotifications": push},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": skill, "name": "S", "description": "d", "tags": ["t"], "outputModes": [output]}],
    });
    Arc::new(Card::check(document.to_string().into(), &Limits::default()).unwrap())
}

fn summarize() -> Arc<Card> {
    card("summarize-v2", "text/markdown", true)
}

fn intent() -> Intent {
    Intent {
        output_modes: vec!["text/markdown".to_owned()],
        expected_duration: Some(40 * MINUTE),
        ..Intent::skill("summarize-v2")
    }
}

/// What the registry of a test serves.
#[derive(Debug, Clone)]
struct Served {
    /// `None`: retired.
    card: Option<Arc<Card>>,
    revision: u64,
    confirmed_at: u32,
    redeploy_interval: Option<Duration>,
    immutable_versions: Option<bool>,
    reachable: bool,
}

/// A registry, and whoever takes its reports.
#[derive(Debug)]
struct Registry {
    served: Mutex<Served>,
    asked: AtomicUsize,
    reports: Mutex<Vec<Report>>,
    clock: Clock,
    hands: Arc<Hands>,
}

type Guarded = Guard<Arc<Registry>, Arc<Registry>>;

impl Registry {
    fn serving(card: Arc<Card>) -> Arc<Self> {
        let hands = Arc::new(Hands::default());
        let served = Served {
            card: Some(card),
            revision: 1,
            confirmed_at: 1,
            redeploy_interval: Some(60 * MINUTE),
            immutable_versions: None,
            reachable: true,
        };
        Arc::new(Self {
            served: Mutex::new(served),
            asked: AtomicUsize::new(0),
            reports: Mutex::default(),
            clock: Clock::Manual(Arc::clone(&hands)),
            hands,
        })
    }

    fn guard(self: &Arc<Self>, strictness: Strictness) -> Guarded {
        let settings = Settings { strictness, clock: self.clock.clone(), ..Settings::default() };
        Guard::with(Arc::clone(self), Arc::clone(self), settings)
    }

    fn now(&self, change: impl FnOnce(&mut Served)) {
        change(&mut self.served.lock().unwrap());
    }

    /// A deploy that registers.
    fn register(&self, card: Arc<Card>) {
        self.now(|served| {
            served.card = Some(card);
            served.revision += 1;
            served.confirmed_at = self.seconds() + 1;
        });
        self.hands.advance(Duration::from_secs(2));
    }

    fn seconds(&self) -> u32 {
        u32::try_from(self.hands.boot().as_secs()).unwrap()
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Discovery for Registry {
    async fn discover(&self, ask: Ask<'_>) -> Result<Resolved, answer::Error> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let sent = self.clock.now();
        // What everybody who asks at a time shares is only shared while it waits.
        tokio::task::yield_now().await;
        let served = self.served.lock().unwrap().clone();
        if !served.reachable {
            return Err(answer::Error::Unreachable("it is off".to_owned()));
        }
        let Some(card) = served.card else {
            return Err(Refusal::new(Reason::AgentRetired, "it is retired").into());
        };
        let seconds = |n: u32| Timestamp::from_micros(i64::from(n) * 1_000_000);
        let origin = Origin {
            registered_at: seconds(0),
            confirmed_at: Some(seconds(served.confirmed_at)),
            redeploy_interval: served.redeploy_interval,
            lease: None,
        };
        let facts = Facts { revision: served.revision, card: &card, origin, authority_wall: None };
        if let Some(reason) = ask.fence.content(&facts) {
            // As for a large card: the refusal has no room for it.
            return Err(
                Refusal { revision: Some(served.revision), ..Refusal::new(reason, "not passed") }.into()
            );
        }
        let position: Position = "7.00000000000000aa".parse().unwrap();
        let revision = Revision {
            agent: ask.agent.clone(),
            number: served.revision,
            position,
            card,
            registered_at: seconds(0),
            registered_by: "anonymous".into(),
            immutable_versions: served.immutable_versions,
        };
        let freshness = Freshness {
            position,
            staleness: Some(Duration::ZERO),
            proven_at: Some(seconds(self.seconds())),
            basis: Basis::Authority,
            served_by: "test".into(),
            hops: 0,
            origin: Some(origin),
        };
        Ok(Resolved::new(Arc::new(revision), freshness, Some(sent)))
    }
}

#[async_trait]
impl Reports for Registry {
    async fn report(&self, report: &Report) -> Result<Reported, answer::Error> {
        self.reports.lock().unwrap().push(report.clone());
        Ok(Reported::Taken)
    }
}

/// A v1.0 task in this state, with what its message says.
fn task(state: &str, says: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "result": {"task": {
        "id": "t1",
        "status": {"state": state, "message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": says}]}},
    }}})
}

/// A completed v1.0 task that delivers one part.
fn completed(part: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "result": {"task": {
        "id": "t1",
        "status": {"state": "TASK_STATE_COMPLETED"},
        "artifacts": [{"artifactId": "a", "parts": [part]}],
    }}})
}

fn unknown_skill() -> Value {
    task("TASK_STATE_FAILED", "unknown skill")
}
