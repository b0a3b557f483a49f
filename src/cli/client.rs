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
use super::{tls, words};
use crate::clock::Clock;
use crate::terms::{RequestId, Retry, random_bytes};
use crate::wire::Problem;

/// Longer than the registry lets any request take.
const ANSWERS_WITHIN: Duration = Duration::from_secs(35);
/// Of an answer that goes on: who reads it looks for itself whether it still does.
const ENDLESS: Duration = Duration::from_secs(366 * 86_400);
const CONNECTS_WITHIN: Duration = Duration::from_secs(5);

/// How often a write is sent at most.
const ATTEMPTS: u32 = 6;

/// The pauses between: the first, doubled each time, and the longest that the registry may ask for.
#[derive(Debug, Clone, Copy)]
struct Pauses {
    first: Duration,
    longest: Duration,
}

const PAUSES: Pauses = Pauses { first: Duration::from_millis(250), longest: Duration::from_secs(5) };

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// One server.
#[derive(Debug, Clone)]
pub(super) struct Client {
    http: reqwest::Client,
    /// Without a slash at its end.
    base: String,
    clock: Clock,
    pauses: Pauses,
}

/// What is sent.
#[derive(Debug, Clone)]
pub(super) struct Request {
    method: Method,
    path: String,
    headers: HeaderMap,
    body: Bytes,
    /// Time beyond what any request may take.
    patience: Duration,
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

/// An answer that goes on.
#[derive(Debug)]
pub(super) struct Endless {
    response: reqwest::Response,
    server: String,
}

impl Endless {
    /// The next bytes; `None` when it is over after all.
    pub(super) async fn chunk(&mut self) -> Result<Option<Bytes>, Failure> {
        self.response
            .chunk()
            .await
            .map_err(|error| Failure::Unreachable { server: self.server.clone(), why: root_cause(&error) })
    }
}

impl Request {
    pub(super) fn new(method: Method, path: &str, query: &Query) -> Self {
        Self {
            method,
            path: format!("{path}{query}"),
            headers: HeaderMap::new(),
            body: Bytes::new(),
            patience: Duration::ZERO,
        }
    }

    pub(super) fn get(path: &str, query: &Query) -> Self {
        Self::new(Method::GET, path, query)
    }

    #[must_use]
    pub(super) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// The registry may take so much longer.
    #[must_use]
    pub(super) fn patient(mut self, patience: Duration) -> Self {
        self.patience = patience;
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
        let https = match url.scheme() {
            "http" => false,
            "https" => true,
            _ => return Err(unusable("an address such as http://127.0.0.1:7878 is wanted")),
        };
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
            .tls_backend_preconfigured(tls::config(https)?)
            .build()
            .map_err(|error| failed(error.to_string()))?;
        let base = url.as_str().trim_end_matches('/').to_owned();
        Ok(Self { http, base, clock: Clock::System, pauses: PAUSES })
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
        self.until_done(request.keyed(id), Some(id), printer).await
    }

    /// Sends what may be done any number of times, again where that may help.
    pub(super) async fn confirm(&self, request: Request, printer: &mut Printer) -> Result<Answer, Failure> {
        self.until_done(request, None, printer).await
    }

    async fn until_done(
        &self,
        request: Request,
        id: Option<&RequestId>,
        printer: &mut Printer,
    ) -> Result<Answer, Failure> {
        let under = if id.is_some() { " under the same request id" } else { "" };
        let Pauses { first: mut pause, longest } = self.pauses;
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
                if let Some(id) = id.filter(|_| in_doubt(&failure)) {
                    printer.note(format_args!(
                        "whether it was done is not known: run it again with --request-id {id} to find out"
                    ));
                }
                return Err(failure);
            }
            let next = asked.unwrap_or(Duration::ZERO).max(jittered(pause)).min(longest);
            printer.note(format_args!(
                "{failure}; sending it again in {}{under} ({attempt} of {ATTEMPTS})",
                words::duration(next)
            ));
            tokio::time::sleep(next).await;
            pause = (pause * 2).min(longest);
        }
        Err(failed("nothing was sent"))
    }

    /// Opens an answer that does not end by itself.
    pub(super) async fn open(&self, request: Request) -> Result<Endless, Failure> {
        let unreachable = |error: &reqwest::Error| Failure::Unreachable {
            server: self.base.clone(),
            why: root_cause(error),
        };
        let sent_at = self.clock.now();
        let url = format!("{}{}", self.base, request.path);
        let opening = self.http.request(request.method, url).headers(request.headers).timeout(ENDLESS);
        let opened = tokio::time::timeout(ANSWERS_WITHIN, opening.send()).await;
        let response = match opened {
            Ok(opened) => opened.map_err(|error| unreachable(&error))?,
            Err(_) => {
                let why = "it took too long".to_owned();
                return Err(Failure::Unreachable { server: self.base.clone(), why });
            }
        };
        let (status, headers) = (response.status(), response.headers().clone());
        let is_stream = headers.get(CONTENT_TYPE).is_some_and(|value| value == "text/event-stream");
        if status.is_success() && is_stream {
            return Ok(Endless { response, server: self.base.clone() });
        }
        let reading = tokio::time::timeout(ANSWERS_WITHIN, response.bytes()).await;
        let body = reading.ok().and_then(Result::ok).unwrap_or_default();
        let elapsed = self.clock.now().since(&sent_at);
        self.judged(Answer { status, headers, body, elapsed })?;
        let text = "it is no stream of events".to_owned();
        Err(Failure::Foreign { server: self.base.clone(), status: status.as_u16(), text })
    }

    async fn sent(&self, request: &Request) -> Result<Answer, Failure> {
        let url = format!("{}{}", self.base, request.path);
        let sending = self
            .http
            .request(request.method.clone(), url)
            .headers(request.headers.clone())
            .timeout(ANSWERS_WITHIN + request.patience)
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
            Ok(problem) => {
                let Answer { body: json, elapsed, .. } = answer;
                Err(Failure::Refused(Box::new(Refused { problem, json, elapsed })))
            }
            Err(_) => Err(Failure::Foreign {
                server: self.base.clone(),
                status: answer.status.as_u16(),
                text: words::excerpt(&String::from_utf8_lossy(&answer.body)),
            }),
        }
    }
}

/// Whether the same write may be sent again under the same id.
pub(super) fn may_be_sent_again(failure: &Failure) -> bool {
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
pub(super) fn jittered(pause: Duration) -> Duration {
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

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::super::printer::tests::kept;
    use super::*;

    /// A server that answers each connection with the next text, and closes it; an empty text is no answer.
    /// Gives its address, and the heads of the requests that came.
    async fn scripted(answers: Vec<String>) -> (String, Arc<Mutex<Vec<String>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let heads = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&heads);
        tokio::spawn(async move {
            for answer in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = Vec::new();
                while !request.windows(4).any(|end| end == b"\r\n\r\n") {
                    let mut part = [0; 4096];
                    let length = stream.read(&mut part).await.unwrap();
                    request.extend_from_slice(&part[..length]);
                }
                seen.lock().unwrap().push(String::from_utf8_lossy(&request).to_lowercase());
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        (address, heads)
    }

    fn answer(status: &str, body: &str) -> String {
        let length = body.len();
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
    }

    fn problem(status: u16, reason: &str) -> String {
        let body = format!(
            r#"{{"type":"urn:cardfence:problem:{reason}","title":"t","status":{status},"detail":"d","reason":"{reason}"}}"#
        );
        answer(&format!("{status} X"), &body)
    }

    fn client(address: &str) -> Client {
        let pauses = Pauses { first: Duration::from_millis(1), longest: Duration::from_millis(2) };
        Client { pauses, ..Client::new(address).unwrap() }
    }

    fn put() -> Request {
        Request::new(Method::PUT, "/v1/agents/acme/a", &Query::default()).json(Bytes::from_static(b"{}"))
    }

    fn id() -> RequestId {
        "deploy-7".parse().unwrap()
    }

    #[tokio::test]
    async fn writes_are_sent_again_under_one_id_for_what_may_be_retried() {
        let (address, heads) = scripted(vec![
            String::new(),
            problem(503, "draining"),
            problem(504, "outcome_unknown"),
            answer("502 Bad Gateway", "<html>"),
            answer("200 OK", "{}"),
        ])
        .await;
        let (mut printer, out, err) = kept(false);
        let answer = client(&address).write(put(), &id(), &mut printer).await.unwrap();
        assert_eq!(answer.body, "{}");
        let heads = heads.lock().unwrap();
        assert_eq!(heads.len(), 5);
        assert!(heads.iter().all(|head| head.contains("idempotency-key: deploy-7\r\n")), "{heads:#?}");
        assert_eq!(err.text().lines().count(), 4, "each is said:\n{}", err.text());
        assert!(err.text().contains("refused: draining; sending it again in"), "{}", err.text());
        assert_eq!(out.text(), "");
    }

    #[tokio::test]
    async fn what_may_not_be_retried_is_not() {
        for (status, reason) in [
            (400, "invalid_card"),
            (412, "revision_conflict"),
            (409, "release_superseded"),
            (500, "internal"),
            (409, "read_only"),
            (503, "a_reason_of_tomorrow"),
        ] {
            let (address, heads) = scripted(vec![problem(status, reason)]).await;
            let (mut printer, _, err) = kept(false);
            let failure = client(&address).write(put(), &id(), &mut printer).await.unwrap_err();
            assert!(matches!(&failure, Failure::Refused(refused) if refused.problem.reason == reason));
            assert_eq!((heads.lock().unwrap().len(), err.text().as_str()), (1, ""), "{reason}");
        }
    }

    #[tokio::test]
    async fn retries_end_and_name_the_id_when_the_outcome_is_in_doubt() {
        let (address, heads) = scripted(vec![problem(504, "outcome_unknown"); 9]).await;
        let (mut printer, _, err) = kept(false);
        let failure = client(&address).write(put(), &id(), &mut printer).await.unwrap_err();
        assert_eq!(failure.exit().code(), 5);
        assert_eq!(heads.lock().unwrap().len(), 6);
        assert!(err.text().contains("run it again with --request-id deploy-7"), "{}", err.text());

        let (address, _) = scripted(vec![problem(503, "overloaded"); 9]).await;
        let (mut printer, _, err) = kept(false);
        client(&address).write(put(), &id(), &mut printer).await.unwrap_err();
        assert!(!err.text().contains("--request-id"), "a refusal is no doubt: {}", err.text());
    }

    #[tokio::test]
    async fn reads_are_sent_once() {
        let (address, heads) = scripted(vec![problem(503, "too_stale"); 2]).await;
        let failure = client(&address).read(Request::get("/v1/agents", &Query::default())).await.unwrap_err();
        assert_eq!((failure.exit().code(), heads.lock().unwrap().len()), (5, 1));
        let (address, _) = scripted(vec![answer("404 Not Found", "nginx")]).await;
        let failure = client(&address).read(Request::get("/v1/agents", &Query::default())).await.unwrap_err();
        assert_eq!(failure.exit().code(), 1, "a stranger's 404 says nothing of agents");
        assert!(
            failure.to_string().contains("404, which is not an answer of a registry: nginx"),
            "{failure}"
        );
    }

    #[test]
    fn addresses_are_checked() {
        for good in [
            "http://127.0.0.1:7878",
            "http://registry:80/",
            "127.0.0.1:7878",
            "http://proxy/cards/",
            "https://x",
        ] {
            assert!(Client::new(good).is_ok(), "{good}");
        }
        assert_eq!(Client::new("http://proxy/cards/").unwrap().base(), "http://proxy/cards");
        for bad in ["ftp://x", "http://", "http://x?y", "http://x#y", "http://u:p@x", ""] {
            assert_eq!(Client::new(bad).unwrap_err().exit().code(), 64, "{bad}");
        }
    }
}
