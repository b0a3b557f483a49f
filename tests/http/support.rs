//! A served node, and connections to it that show every byte.

use std::net::SocketAddr;
use std::time::Duration;

use cardfence::clock::Clock;
use cardfence::ledger::memory::Memory;
use cardfence::server::{Node, Parts, Serving, Tuning, serve};
use cardfence::telemetry::Metrics;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// No exchange of a test takes longer.
const PATIENCE: Duration = Duration::from_secs(20);

/// A node behind a socket. It stops when this is dropped.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    pub(crate) client: reqwest::Client,
    stop: CancellationToken,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Served {
    /// A node that is ready.
    pub(crate) async fn start() -> Self {
        Self::start_with(Serving::default(), |_| {}).await
    }

    /// The same, bounded and tuned otherwise.
    pub(crate) async fn start_with(serving: Serving, tune: impl FnOnce(&mut Tuning)) -> Self {
        let memory = Memory::new("ledger", Clock::System);
        let parts = Parts::over(&memory, Clock::System);
        let mut tuning = Tuning::named("tester");
        tuning.feed.poll = Duration::from_millis(10);
        tune(&mut tuning);
        let node = Node::start(parts, tuning, Metrics::new());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        tokio::spawn(async move { serve(node, listener, &serving, stopped).await });
        // The library wants to know whose cryptography it would use, which here it does not.
        rustls::crypto::ring::default_provider().install_default().ok();
        let client = reqwest::Client::builder().timeout(PATIENCE).no_proxy().build().unwrap();
        let served = Self { address, client, stop };
        // A linearizable read waits for the first proof.
        let reply =
            served.client.get(served.url("/v1/watermark?max_staleness=0&wait=10s")).send().await.unwrap();
        assert_eq!(reply.status(), 200);
        served
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) async fn put(&self, agent: &str, card: &[u8]) -> serde_json::Value {
        let request = self.client.put(self.url(&format!("/v1/agents/{agent}"))).body(card.to_vec());
        let reply = request.send().await.unwrap();
        let (status, text) = (reply.status(), reply.text().await.unwrap());
        assert!(status.is_success(), "{text}");
        serde_json::from_str(&text).unwrap()
    }

    pub(crate) async fn connect(&self) -> Connection {
        Connection { stream: TcpStream::connect(self.address).await.unwrap(), read: Vec::new() }
    }
}

/// One HTTP/1.1 connection.
pub(crate) struct Connection {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Connection {
    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// The head of the next answer; what follows it stays to be read.
    pub(crate) async fn head(&mut self) -> String {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            if let Some(end) = self.read.windows(4).position(|four| four == b"\r\n\r\n") {
                let rest = self.read.split_off(end + 4);
                let head = std::mem::replace(&mut self.read, rest);
                return String::from_utf8(head).unwrap();
            }
            let more = tokio::time::timeout_at(deadline, self.stream.read_buf(&mut self.read)).await;
            let count = more.expect("no answer in time").unwrap();
            assert!(count > 0, "the connection ended: {:?}", String::from_utf8_lossy(&self.read));
        }
    }

    /// The next `count` bytes of a body.
    pub(crate) async fn body(&mut self, count: usize) -> Vec<u8> {
        while self.read.len() < count {
            assert!(self.stream.read_buf(&mut self.read).await.unwrap() > 0, "the connection ended");
        }
        let rest = self.read.split_off(count);
        std::mem::replace(&mut self.read, rest)
    }

    /// Everything until the server closes, as far as it comes in time. A reset is an end, too.
    pub(crate) async fn rest(&mut self) -> Vec<u8> {
        let read = async {
            while let Ok(count) = self.stream.read_buf(&mut self.read).await {
                if count == 0 {
                    break;
                }
            }
        };
        drop(tokio::time::timeout(PATIENCE, read).await);
        std::mem::take(&mut self.read)
    }

    /// Says that nothing more comes.
    pub(crate) async fn finish(&mut self) {
        // The server may have closed already.
        drop(self.stream.shutdown().await);
    }
}

/// A header of an answer's head; empty when it is not there.
pub(crate) fn header<'h>(head: &'h str, name: &str) -> &'h str {
    let mut lines = head.lines().filter_map(|line| line.split_once(": "));
    lines.find(|(given, _)| given.eq_ignore_ascii_case(name)).map_or("", |(_, value)| value)
}
