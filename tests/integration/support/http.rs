//! A small HTTP client for tests: what came back, whole, with nothing interpreted.
//!
//! Every request has a deadline, so a server that hangs is a failure and not a stuck test.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use serde_json::Value;

use super::eventually::eventually;

/// Longer than the product lets any request take.
const ANSWERS_WITHIN: Duration = Duration::from_secs(35);

/// A client of one server.
#[derive(Debug, Clone)]
pub(crate) struct Http {
    base: String,
    client: reqwest::Client,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Http {
    /// A client of the server at `base`, such as `http://127.0.0.1:7878`.
    pub(crate) fn to(base: &str) -> Self {
        // The library wants to know whose cryptography it would use, which here it does not.
        rustls::crypto::ring::default_provider().install_default().ok();
        let client = reqwest::Client::builder().timeout(ANSWERS_WITHIN).no_proxy().build();
        Self { base: base.to_owned(), client: client.expect("a client without TLS can be built") }
    }

    /// Registers `card` as `agent` (`namespace/name`); `query` is empty or begins with `?`.
    pub(crate) async fn put_card(&self, agent: &str, query: &str, card: &str) -> Reply {
        let headers = [("content-type", "application/json")];
        self.send(Method::PUT, &format!("/v1/agents/{agent}{query}"), &headers, card.to_owned()).await
    }

    /// Resolves `agent` to its envelope; `query` is the fence, empty or beginning with `?`.
    pub(crate) async fn resolve(&self, agent: &str, query: &str) -> Reply {
        self.get(&format!("/v1/agents/{agent}{query}")).await
    }

    /// The card's own bytes, as an A2A client asks for them.
    pub(crate) async fn raw_card(&self, agent: &str, query: &str) -> Reply {
        self.get(&format!("/agents/{agent}/.well-known/agent-card.json{query}")).await
    }

    /// Retires `agent`.
    pub(crate) async fn retire(&self, agent: &str) -> Reply {
        self.send(Method::DELETE, &format!("/v1/agents/{agent}"), &[], "").await
    }

    /// Waits until the server is ready, which it is soon after it listens: when its view was proven once.
    pub(crate) async fn until_ready(&self) {
        eventually(Duration::from_secs(30), async || {
            let reply = self.get("/readyz").await;
            if reply.status == 200 { Ok(()) } else { Err(String::from_utf8_lossy(&reply.body).into_owned()) }
        })
        .await;
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.send(Method::GET, path, &[], "").await
    }

    /// One figure of `/metrics`, without labels.
    pub(crate) async fn metric(&self, name: &str) -> f64 {
        let text = String::from_utf8(self.get("/metrics").await.expect(200).body.to_vec()).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|figure| figure.parse().ok()).unwrap_or_else(|| panic!("no {name} in:\n{text}"))
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Reply {
        self.send(Method::POST, path, &[("content-type", "application/json")], body.to_string()).await
    }

    /// Sends anything.
    ///
    /// # Panics
    /// When no answer comes.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Reply {
        match self.try_send(method.clone(), path, headers, body).await {
            Ok(reply) => reply,
            Err(failure) => panic!("{method} {}{path}: {failure}", self.base),
        }
    }

    /// As [`Http::send`], when no answer is one of the outcomes to expect. The error says all its causes.
    pub(crate) async fn try_send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Result<Reply, String> {
        let mut request = self.client.request(method, format!("{}{path}", self.base)).body(body.into());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = request.send().await.map_err(|error| causes(&error))?;
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        let body = answer.bytes().await.map_err(|error| causes(&error))?;
        Ok(Reply { status, headers, body })
    }
}

impl Reply {
    /// Demands a status and gives the reply back.
    ///
    /// # Panics
    /// At another status, with the body.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", String::from_utf8_lossy(&self.body));
        self
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// When it is not.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        match serde_json::from_slice(&self.body) {
            Ok(value) => value,
            Err(error) => panic!("not JSON ({error}): {}", String::from_utf8_lossy(&self.body)),
        }
    }

    /// One header, if present and readable.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// An error with everything behind it: `reqwest` prints only its outermost layer.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}
