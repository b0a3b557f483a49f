//! The registry, asked over HTTP.
//!
//! Reads are sent once: the registry itself waits as long as the caller allows, and then says why not. Writes
//! always carry an `Idempotency-Key`, so that sending one again is safe, and they are sent again for exactly
//! what the reason table lets be: no answer, an answer of a gateway, and reasons that may be retried as they
//! are. That is bounded, and each time it is said.

use std::error::Error as _;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use serde::de::DeserializeOwned;

use super::failure::{Failure, Refused, failed};
use super::printer::Printer;
use super::query::Query;
use super::words;
use crate::clock::Clock;
use crate::terms::{RequestId, Retry, random_bytes};
use crate::wire::Problem;

/// Longer than the registry lets any request take.
const ANSWERS_WITHIN: Duration = Duration::from_secs(35);
const CONNECTS_WITHIN: Duration = Duration::from_secs(5);

/// How often a write is sent at most, and the pauses between: the first, doubled each time, and the longest
/// that the registry may ask for.
const ATTEMPTS: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// One server.
#[derive(Debug, Clone)]
pub(super) struct Client {
    http: reqwest::Client,
    /// Without a slash at its end.
    base: String,
    clock: Clock,
}

/// What is sent.
#[derive(Debug, Clone)]
pub(super) struct Request {
    method: Method,
    path: String,
    headers: HeaderMap,
    body: Bytes,
}

/// What came back, when it was no refusal.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// From before it was sent until it was here: what a caller adds to any staleness in it.
    pub(super) elapsed: Duration,
}

impl Request {
    pub(super) fn new(method: Method, path: &str, query: &Query) -> Self {
        Self { method, path: format!("{path}{query}"), headers: HeaderMap::new(), body: Bytes::new() }
    }

    pub(super) fn get(path: &str, query: &Query) -> Self {
        Self::new(Method::GET, path, query)
    }

    #[must_use]
    pub(super) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// With a card, or any other JSON.
    #[must_use]
    pub(super) fn json(mut self, body: Bytes) -> Self {
        self.body = body;
        self.header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
    }

    #[must_use]
    fn keyed(self, id: &RequestId) -> Self {
        match HeaderValue::from_str(id.as_str()) {
            Ok(value) => self.header(IDEMPOTENCY_KEY, value),
            // Request ids are visible ASCII.
            Err(_) => self,
        }
    }
}

impl Answer {
    /// The body as `T`.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_slice(&self.body)
            .map_err(|error| failed(format!("the registry's answer cannot be read: {error}")))
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

impl Client {
    /// # Errors
    /// [`Failure::Usage`] when `server` is no address of a server that can be spoken to.
    pub(super) fn new(server: &str) -> Result<Self, Failure> {
        let unusable = |why: &str| Failure::Usage(format!("--server {server}: {why}"));
        let full = if server.contains("://") { server.to_owned() } else { format!("http://{server}") };
        let url = url::Url::parse(&full).map_err(|error| unusable(&error.to_string()))?;
        match url.scheme() {
            "http" => {}
            "https" => {
                return Err(unusable("https is not supported yet: use http, or a proxy that adds TLS"));
            }
            _ => return Err(unusable("an address such as http://127.0.0.1:7878 is wanted")),
        }
        if url.query().is_some() || url.fragment().is_some() || !url.username().is_empty() {
            return Err(unusable(
                "an address such as http://127.0.0.1:7878 is wanted, and nothing behind it",
            ));
        }
        let http = reqwest::Client::builder()
            .timeout(ANSWERS_WITHIN)
            .connect_timeout(CONNECTS_WITHIN)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("cardfence/", env!("CARGO_PKG_VERSION")))
            .no_proxy()
            .build()
            .map_err(|error| failed(error.to_string()))?;
        Ok(Self { http, base: url.as_str().trim_end_matches('/').to_owned(), clock: Clock::System })
    }

    /// The server's address.
    pub(super) fn base(&self) -> &str {
        &self.base
    }

    /// Sends a request that changes nothing, once.
    pub(super) async fn read(&self, request: Request) -> Result<Answer, Failure> {
        self.sent(&request).await.and_then(|answer| self.judged(answer))
    }

    /// Sends a request that changes something, again where that may help, under one id.
    pub(super) async fn write(
        &self,
        request: Request,
        id: &RequestId,
        printer: &mut Printer,
    ) -> Result<Answer, Failure> {
        let request = request.keyed(id);
        let mut pause = FIRST_PAUSE;
        for attempt in 2.. {
            let (failure, asked) = match self.sent(&request).await {
                Err(failure) => (failure, None),
                Ok(answer) => {
                    let asked = retry_after(&answer.headers);
                    match self.judged(answer) {
                        Ok(answer) => return Ok(answer),
                        Err(failure) => (failure, asked),
                    }
                }
            };
            if !may_be_sent_again(&failure) {
                return Err(failure);
            }
            if attempt > ATTEMPTS {
                if in_doubt(&failure) {
                    printer.note(format_args!(
                        "whether it was done is not known: run it again with --request-id {id} to find out"
                    ));
                }
                return Err(failure);
            }
            let next = asked.unwrap_or(Duration::ZERO).max(jittered(pause)).min(LONGEST_PAUSE);
            printer.note(format_args!(
                "{failure}; sending it again in {} under the same request id ({attempt} of {ATTEMPTS})",
                words::duration(next)
            ));
            tokio::time::sleep(next).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        Err(failed("nothing was sent"))
    }

    async fn sent(&self, request: &Request) -> Result<Answer, Failure> {
        let url = format!("{}{}", self.base, request.path);
        let sending = self
            .http
            .request(request.method.clone(), url)
            .headers(request.headers.clone())
            .body(request.body.clone());
        let sent_at = self.clock.now();
        let received = async {
            let response = sending.send().await?;
            let (status, headers) = (response.status(), response.headers().clone());
            Ok((status, headers, response.bytes().await?))
        };
        let (status, headers, body) = received.await.map_err(|error: reqwest::Error| {
            Failure::Unreachable { server: self.base.clone(), why: root_cause(&error) }
        })?;
        let elapsed = self.clock.now().since(&sent_at);
        Ok(Answer { status, headers, body, elapsed })
    }

    /// What the status and the body say.
    fn judged(&self, answer: Answer) -> Result<Answer, Failure> {
        if answer.status.is_success() || answer.status == StatusCode::NOT_MODIFIED {
            return Ok(answer);
        }
        match serde_json::from_slice::<Problem>(&answer.body) {
            Ok(problem) => Err(Failure::Refused(Box::new(Refused { problem, json: answer.body }))),
            Err(_) => Err(Failure::Foreign {
                server: self.base.clone(),
                status: answer.status.as_u16(),
                text: words::excerpt(&String::from_utf8_lossy(&answer.body)),
            }),
        }
    }
}

/// Whether the same write may be sent again under the same id.
fn may_be_sent_again(failure: &Failure) -> bool {
    match failure {
        Failure::Unreachable { .. } => true,
        Failure::Refused(refused) => refused
            .reason()
            .is_some_and(|reason| matches!(reason.retry(), Retry::Yes | Retry::Later | Retry::SameRequestId)),
        Failure::Foreign { status, .. } => matches!(status, 502..=504),
        _ => false,
    }
}

/// Whether the write may have been done although it failed.
fn in_doubt(failure: &Failure) -> bool {
    match failure {
        Failure::Unreachable { .. } | Failure::Foreign { .. } => true,
        Failure::Refused(refused) => {
            matches!(refused.problem.reason.as_str(), "outcome_unknown" | "deadline_exceeded")
        }
        _ => false,
    }
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

/// Between one half and all of `pause`, so that many who were refused together do not come back together.
fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(0.5 + f64::from(random_bytes::<1>()[0]) / 510.0)
}

/// The innermost reason: `reqwest` itself only says that sending failed.
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    if error.is_timeout() && error.source().is_none() {
        "it took too long".to_owned()
    } else {
        cause.to_string()
    }
}
