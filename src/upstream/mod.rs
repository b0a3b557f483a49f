//! How an edge follows: an upstream (a node, or another edge) as a client sees it, behind the ledger's own traits.
//!
//! An edge keeps no ledger. Its view is fed, and its use cases are served, by the same code as a node's; only what
//! lies behind the seams of [`crate::ledger`] is another machine:
//!
//! | seam | over the wire |
//! |---|---|
//! | [`Entries`] → `Reading` ([`session`]) | one `Replicate` stream: heads, entries or a snapshot, liveness, nudges |
//! | `History` ([`history`]) | `GetRevision`, `ListRevisions`, `ReadLedger`, `Watermark` |
//! | `Writes` ([`writes`]) | `Register`, `Retire`, `Rollback` under the caller's own request id |
//!
//! # Why staleness adds up
//!
//! A head that an upstream reports comes with its *age*: how long before its receipt of the question the upstream was
//! last proven itself, by the upstream's clock. The edge subtracts that from the moment *before* it asked, by its own
//! clock. So each hop adds its own round trip and its own pause between polls, no two clocks are compared, and what
//! an edge calls fresh was in the database at that time. A reader who wants it linearizable makes the edge ask for
//! *now*: the upstream confirms with its own upstream first, one round trip a hop.
//!
//! # One session is of one server
//!
//! Everything of a session goes over one HTTP/2 stream, which no balancer can spread over two servers: a head of one
//! and entries of another could prove what the edge does not hold. What a new session says is told apart by digest.
//! History and writes need no such care: histories are checked against the view's digests by the use cases, and a
//! write is answered once the edge's own view has applied its position.
//!
//! # What is not believed
//!
//! Entries are verified against the chain and cards against their digests as they are folded. A snapshot cannot be,
//! since it holds no bodies: it is believed as a head is, once its own set digest and its tags agree with it. An
//! upstream that is as many as [`HOPS_MAX`] hops from a database proves nothing: most likely edges follow each other
//! in a ring, in which a proof would only ever get older.

mod convert;
mod history;
mod origins;
mod replicas;
mod session;
mod writes;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status};

use crate::ledger::{Entries, Error, Reading};
use session::Session;

/// Hops from a database at which an upstream is not believed to be proven any more.
pub const HOPS_MAX: u32 = 16;

/// A connection that answers no ping for so long is dead, and how often it is pinged.
const PING: Duration = Duration::from_secs(5);
/// What may be under way to this edge, in a stream and in a connection: a snapshot should not wait for each part.
const STREAM_WINDOW: u32 = 2 * 1024 * 1024;
const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;

/// The servers that an edge may follow, in the order in which they are tried. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Upstream(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    servers: Vec<Server>,
    /// The longest that a server may take for one answer.
    patience: Duration,
    /// Which server is tried first for the next session: the first, unless it took a session and never answered.
    first: AtomicUsize,
    /// Which server has answered last, and is asked first for what is no session's.
    current: AtomicUsize,
    nudges: watch::Sender<u64>,
}

#[derive(Debug)]
struct Server {
    url: String,
    endpoint: Endpoint,
    /// For everything that is not a session; connects when it is used.
    channel: Channel,
}

impl Upstream {
    /// Servers at `urls` (`http://host:port`), of which each gets `patience` for an answer. Connects to none yet.
    /// To be called within a runtime.
    ///
    /// # Errors
    /// [`Error::Unusable`] when a URL is none, or there is none.
    pub fn new<T: AsRef<str>>(urls: &[T], patience: Duration) -> Result<Self, Error> {
        let servers: Vec<Server> =
            urls.iter().map(|url| Server::at(url.as_ref(), patience)).collect::<Result<_, _>>()?;
        if servers.is_empty() {
            return Err(Error::Unusable("no upstream is named".to_owned()));
        }
        Ok(Self(Arc::new(Shared {
            servers,
            patience,
            first: AtomicUsize::new(0),
            current: AtomicUsize::new(0),
            nudges: watch::channel(0).0,
        })))
    }

    /// Changes when an upstream says that there is more to read, and when a session has ended.
    pub fn nudges(&self) -> watch::Receiver<u64> {
        self.0.nudges.subscribe()
    }

    /// Asks the servers in turn until one answers or refuses; one that does neither in its time is passed over.
    async fn ask<M, T, F>(&self, message: M, call: impl Fn(Channel, Request<M>) -> F) -> Result<T, Status>
    where
        M: Clone,
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let shared = &*self.0;
        let mut last = Status::unavailable("no upstream was asked");
        for server in shared.in_turn(shared.current.load(Ordering::Relaxed)) {
            let mut request = Request::new(message.clone());
            request.set_timeout(shared.patience);
            match timeout(shared.patience, call(server.channel.clone(), request)).await {
                Ok(Ok(answer)) => return Ok(answer.into_inner()),
                Ok(Err(status)) if convert::problem(&status).is_some() => return Err(status),
                Ok(Err(status)) => last = status,
                Err(_) => last = Status::deadline_exceeded(format!("{} did not answer in time", server.url)),
            }
            tracing::debug!(url = %server.url, status = %last, "an upstream was passed over");
        }
        Err(last)
    }
}

impl Shared {
    /// All servers, from that one on.
    fn in_turn(&self, first: usize) -> impl Iterator<Item = &Server> {
        self.servers.iter().cycle().skip(first % self.servers.len()).take(self.servers.len())
    }
}

impl Server {
    fn at(url: &str, patience: Duration) -> Result<Self, Error> {
        let unusable = |error: tonic::transport::Error| Error::Unusable(format!("{url}: {error}"));
        let endpoint = Endpoint::from_shared(url.to_owned())
            .map_err(unusable)?
            .connect_timeout(patience)
            .tcp_nodelay(true)
            .tcp_keepalive(Some(PING))
            .http2_keep_alive_interval(PING)
            .keep_alive_timeout(PING)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW);
        Ok(Self { url: url.to_owned(), channel: endpoint.connect_lazy(), endpoint })
    }
}

#[async_trait]
impl Entries for Upstream {
    /// A session over a connection of its own, so that a balancer may choose anew, and nothing of a connection that
    /// failed is met again.
    async fn open(&self) -> Result<Box<dyn Reading>, Error> {
        let shared = &self.0;
        let count = shared.servers.len();
        // All must be tried within what one exchange may take.
        let share = shared.patience / u32::try_from(count).unwrap_or(u32::MAX);
        let first = shared.first.load(Ordering::Relaxed);
        let mut last = Error::Unavailable("no upstream was tried".to_owned());
        for at in (0..count).map(|step| (first + step) % count) {
            let url = &shared.servers[at].url;
            last = match timeout(share, Session::open(Arc::clone(shared), at)).await {
                Ok(Ok(session)) => {
                    // Until it has answered: one that takes sessions and does not is not tried for ever.
                    shared.first.store((at + 1) % count, Ordering::Relaxed);
                    tracing::info!(%url, "following an upstream");
                    return Ok(Box::new(session));
                }
                Ok(Err(error)) => error,
                Err(_) => Error::Unavailable(format!("no session within {} ms", share.as_millis())),
            };
            tracing::debug!(%url, error = %last, "an upstream gave no session");
        }
        Err(last)
    }
}
