//! A node over a ledger in memory, its router, and answers that can be looked at.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::clock::Clock;
use crate::ledger::memory::Memory;
use crate::ledger::writer::{Limits, Writer};
use crate::ledger::{Entries, Entry, Error, HeadReport, History as _, Liveness, Reading};
use crate::registry::{Registry, Rules, Settings};
use crate::telemetry::Metrics;
use crate::terms::Timestamp;
use crate::view::{feed, hub};

/// A v0.3 card with two skills.
pub(super) const CARD: &[u8] = br#"{ "name": "Summarizer", "description": "Sums up", "version": "1.0.0",
  "protocolVersion": "0.3.0", "url": "https://a.example/a2a", "preferredTransport": "JSONRPC",
  "capabilities": { "streaming": true, "extensions": [ { "uri": "urn:x:one" } ] },
  "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/markdown"],
  "skills": [ { "id": "sum;up", "name": "Sum up", "description": "d", "tags": ["text"] },
              { "id": "tell", "name": "Tell", "description": "d", "tags": ["talk"], "outputModes": ["audio/wav"] } ] }
"#;

/// The members of an object, sorted.
pub(super) fn members(value: &Value) -> Vec<&str> {
    let mut names: Vec<&str> =
        value.as_object().unwrap_or_else(|| panic!("{value}")).keys().map(String::as_str).collect();
    names.sort_unstable();
    names
}

/// [`CARD`] with one text in place of another.
pub(super) fn card_with(from: &str, to: &str) -> Vec<u8> {
    let text = String::from_utf8(CARD.to_vec()).unwrap();
    assert!(text.contains(from), "{from}");
    text.replace(from, to).into_bytes()
}

pub(super) struct Server {
    pub(super) router: Router,
    pub(super) ledger: Memory,
    pub(super) draining: Arc<AtomicBool>,
    pub(super) registry: Registry,
    unreadable: Arc<AtomicBool>,
    stop: CancellationToken,
}

/// The ledger as the view reads it: the head always, entries unless they are made unreadable.
#[derive(Debug)]
struct Gated {
    ledger: Memory,
    unreadable: Arc<AtomicBool>,
}

struct GatedReading {
    inner: Box<dyn Reading>,
    unreadable: Arc<AtomicBool>,
}

#[async_trait::async_trait]
impl Entries for Gated {
    async fn open(&self) -> Result<Box<dyn Reading>, Error> {
        let inner = self.ledger.open().await?;
        Ok(Box::new(GatedReading { inner, unreadable: Arc::clone(&self.unreadable) }))
    }
}

#[async_trait::async_trait]
impl Reading for GatedReading {
    async fn head(&mut self, asked: u64) -> Result<HeadReport, Error> {
        self.inner.head(asked).await
    }

    async fn read(&mut self, after: u64, limit: usize) -> Result<Vec<Entry>, Error> {
        if self.unreadable.load(Ordering::Acquire) {
            return Err(Error::Unavailable("entries are unreadable".to_owned()));
        }
        self.inner.read(after, limit).await
    }

    async fn liveness(&mut self, since: Option<Timestamp>) -> Result<Vec<Liveness>, Error> {
        self.inner.liveness(since).await
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// One answer, read to its end.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Reply {
    pub(super) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// A header; empty when it is not there.
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The reason of a problem.
    pub(super) fn reason(&self) -> String {
        if self.header("content-type") != "application/problem+json" || self.body.is_empty() {
            return String::new();
        }
        self.json()["reason"].as_str().unwrap_or("").to_owned()
    }
}

impl Server {
    /// A node that is ready.
    pub(super) async fn start() -> Self {
        let server = Self::start_unproven(true);
        server.until("the node is ready", || server.registry.is_ready()).await;
        server
    }

    /// A node that has proven nothing yet.
    pub(super) fn start_unproven(reachable: bool) -> Self {
        let ledger = Memory::new("5f1b6f0e-8a0c-4a0a-9d5c-0e1f2a3b4c5d", Clock::System);
        ledger.set_reachable(reachable);
        let metrics = Metrics::new();
        let stop = CancellationToken::new();
        let (committed, own) = mpsc::channel(16);
        let settings = feed::Settings {
            poll: Duration::from_millis(20),
            exchange: Duration::from_millis(200),
            backoff: Duration::from_millis(20),
            ..feed::Settings::default()
        };
        let unreadable = Arc::new(AtomicBool::new(false));
        let entries = Arc::new(Gated { ledger: ledger.clone(), unreadable: Arc::clone(&unreadable) });
        let (view, feed) = feed::Feed::new(
            feed::Sources::of(entries, own, watch::channel(0).1),
            "node-1",
            Clock::System,
            settings,
            metrics.clone(),
        );
        tokio::spawn(feed.run(stop.clone()));
        tokio::spawn(hub::run(view.clone(), metrics.clone(), stop.clone()));
        let (writer, _) = Writer::start(
            Arc::new(ledger.clone()),
            Arc::new(Rules),
            committed,
            Limits::default(),
            metrics.clone(),
            stop.clone(),
        );
        let settings = Settings { write_timeout: Duration::from_secs(2), ..Settings::default() };
        let kept = Arc::new(ledger.clone());
        let writes = Arc::new(writer);
        let registry = Registry::new(view, kept.clone(), writes, kept.clone(), kept, settings, metrics);
        let draining = Arc::new(AtomicBool::new(false));
        let router = super::super::router(registry.clone(), Arc::clone(&draining));
        Self { router, ledger, draining, registry, unreadable, stop }
    }

    pub(super) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Reply {
        let mut request = Request::new(Body::from(body.to_vec()));
        *request.method_mut() = Method::from_bytes(method.as_bytes()).unwrap();
        *request.uri_mut() = path.parse().unwrap_or_else(|error| panic!("{path}: {error}"));
        for (name, value) in headers {
            let name = http::HeaderName::try_from(*name).unwrap();
            request.headers_mut().append(name, http::HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        self.answer(request).await
    }

    pub(super) async fn answer(&self, request: Request<Body>) -> Reply {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let streams = parts.headers.get("content-type").is_some_and(|value| value == "text/event-stream");
        // A stream does not end by itself.
        let body = if streams { Bytes::new() } else { body.collect().await.unwrap().to_bytes() };
        Reply { status: parts.status, headers: parts.headers, body }
    }

    pub(super) async fn get(&self, path: &str) -> Reply {
        self.send("GET", path, &[], b"").await
    }

    pub(super) async fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Reply {
        self.send("GET", path, headers, b"").await
    }

    /// Makes the store unreachable, and waits until what is held is a little old.
    pub(super) async fn lose_store(&self) {
        self.ledger.set_reachable(false);
        self.until("staleness grows", || self.registry.staleness().is_some_and(|s| s.as_millis() > 100))
            .await;
    }

    /// Puts a ledger in the store's place that has lost the last entry, and lets no entry be read from it: the
    /// view is unproven, and goes on holding what was.
    pub(super) async fn lose_history(&self) {
        let head = self.ledger.entries(1, usize::MAX).await.unwrap().len() as u64;
        let forked = self.ledger.forked_at(head - 1).await;
        self.unreadable.store(true, Ordering::Release);
        self.ledger.become_like(&forked).await;
        self.until("the view is unproven", || self.registry.staleness().is_none()).await;
    }

    async fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let patience = tokio::time::Instant::now() + Duration::from_secs(10);
        while !holds() {
            assert!(tokio::time::Instant::now() < patience, "not in time: {what}");
            tokio::task::yield_now().await;
        }
    }

    /// Registers a card and expects that it is accepted.
    pub(super) async fn put(&self, agent: &str, card: &[u8]) -> Value {
        let reply = self.send("PUT", &format!("/v1/agents/{agent}"), &[], card).await;
        assert!(reply.status.is_success(), "{}", reply.text());
        reply.json()
    }
}
