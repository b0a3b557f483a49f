//! A TCP proxy that fails on command: between a node and PostgreSQL, or between an edge and its upstream.
//!
//! It runs on a thread and a runtime of its own, so that it passes bytes also while a test blocks. A cut is
//! loud (connections are reset, new ones refused), a freeze is silent (connections stay open, nothing
//! passes): the two ways in which networks fail. [`Proxy::freeze_answers`] lets requests through and holds
//! the answers, which is how a commit succeeds and nobody hears of it.
//!
//! Orders return when they are in force: after [`Proxy::cut`] no connection is left.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::ports;

/// How long an order may take to be in force.
const IN_FORCE_WITHIN: Duration = Duration::from_secs(10);

/// What is read at once, and how many such pieces are under way in a direction when a delay is set.
const PIECE_BYTES: usize = 16 * 1024;
const PIECES: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Passage {
    Open,
    AnswersFrozen,
    Frozen,
    /// The proxy's own end.
    Closed,
}

#[derive(Debug, Clone, Copy)]
struct Orders {
    target: SocketAddr,
    listening: bool,
    passage: Passage,
    delay: Duration,
    /// Connections of an earlier era are reset.
    era: u64,
}

/// What is the case, for the orders that wait.
#[derive(Debug, Clone, Copy, Default)]
struct Status {
    listening: bool,
    /// Connections by era: those of the current one, and those that are to go.
    era: u64,
    current: usize,
    leaving: usize,
}

/// A proxy in front of one address. Dropping it resets its connections and frees its port.
#[derive(Debug)]
pub(crate) struct Proxy {
    address: SocketAddr,
    orders: watch::Sender<Orders>,
    status: watch::Receiver<Status>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Proxy {
    /// A proxy on a port of its own, open, in front of `target`.
    pub(crate) async fn start(target: SocketAddr) -> Self {
        let orders =
            Orders { target, listening: true, passage: Passage::Open, delay: Duration::ZERO, era: 0 };
        let (orders, ordered) = watch::channel(orders);
        let (status, seen) = watch::channel(Status::default());
        let address: SocketAddr = (Ipv4Addr::LOCALHOST, ports::free()).into();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime can be built");
        let thread = thread::Builder::new()
            .name(format!("proxy {address}"))
            .spawn(move || runtime.block_on(run(address, ordered, status)))
            .expect("a thread can be started");
        let proxy = Self { address, orders, status: seen, thread: Some(thread) };
        proxy.wait("listens", |status| status.listening).await;
        proxy
    }

    /// Where clients connect to.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many connections are open.
    pub(crate) fn connections(&self) -> usize {
        let status = self.status.borrow();
        status.current + status.leaving
    }

    /// Resets all connections and refuses new ones.
    pub(crate) async fn cut(&self) {
        self.order(|orders| {
            orders.listening = false;
            orders.era += 1;
        });
        self.wait("is cut", |status| !status.listening && status.current + status.leaving == 0).await;
    }

    /// Ends whatever disturbance is on: listens again, passes again, without delay. The target stays.
    pub(crate) async fn heal(&self) {
        self.order(|orders| {
            orders.listening = true;
            orders.passage = Passage::Open;
            orders.delay = Duration::ZERO;
        });
        self.wait("listens", |status| status.listening).await;
    }

    /// Keeps connections open, accepts new ones, and passes nothing in either direction.
    pub(crate) fn freeze(&self) {
        self.order(|orders| orders.passage = Passage::Frozen);
    }

    /// Passes what clients send and holds what they would receive.
    pub(crate) fn freeze_answers(&self) {
        self.order(|orders| orders.passage = Passage::AnswersFrozen);
    }

    /// Passes on what was held, and everything after it.
    pub(crate) fn thaw(&self) {
        self.order(|orders| orders.passage = Passage::Open);
    }

    /// Delays every byte by `delay` in each direction, so that a round trip takes twice as long. The
    /// bandwidth stays.
    pub(crate) fn delay(&self, delay: Duration) {
        self.order(|orders| orders.delay = delay);
    }

    /// Points to another address and resets the connections to the former.
    pub(crate) async fn retarget(&self, target: SocketAddr) {
        self.order(|orders| {
            orders.target = target;
            orders.era += 1;
        });
        let era = self.orders.borrow().era;
        self.wait("let go of the former target", |status| status.era >= era && status.leaving == 0).await;
    }

    fn order(&self, change: impl FnOnce(&mut Orders)) {
        self.orders.send_modify(change);
    }

    async fn wait(&self, what: &str, holds: impl FnMut(&Status) -> bool) {
        let mut status = self.status.clone();
        let held = tokio::time::timeout(IN_FORCE_WITHIN, status.wait_for(holds)).await;
        assert!(
            matches!(held, Ok(Ok(_))),
            "the proxy at {} never {what}: {:?}",
            self.address,
            *self.status.borrow()
        );
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.order(|orders| {
            orders.passage = Passage::Closed;
            orders.era += 1;
        });
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            super::report(&format!("the proxy at {} has panicked", self.address));
        }
    }
}

/// Listens while that is ordered, until the proxy is dropped.
async fn run(address: SocketAddr, mut orders: watch::Receiver<Orders>, status: watch::Sender<Status>) {
    let mut listener = None;
    loop {
        let now = *orders.borrow_and_update();
        if now.passage == Passage::Closed {
            return;
        }
        if now.listening && listener.is_none() {
            let bound = TcpListener::bind(address).await;
            listener = Some(bound.unwrap_or_else(|error| panic!("cannot listen on {address}: {error}")));
        } else if !now.listening {
            listener = None;
        }
        status.send_modify(|status| {
            status.listening = listener.is_some();
            if status.era < now.era {
                status.era = now.era;
                status.leaving += std::mem::take(&mut status.current);
            }
        });
        tokio::select! {
            changed = orders.changed() => if changed.is_err() { return },
            accepted = accept(listener.as_ref()) => {
                let Ok((client, _)) = accepted else { continue };
                // Counted before an order can ask for the number.
                status.send_modify(|status| status.current += 1);
                let (orders, status) = (orders.clone(), status.clone());
                // Owned by the thread's runtime, which ends with the proxy.
                tokio::spawn(async move {
                    serve(client, orders, now.era).await;
                    status.send_modify(|status| {
                        let of_now = status.era == now.era;
                        let number = if of_now { &mut status.current } else { &mut status.leaving };
                        *number -= 1;
                    });
                });
            }
        }
    }
}

async fn accept(listener: Option<&TcpListener>) -> std::io::Result<(TcpStream, SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => std::future::pending().await,
    }
}

/// Carries one connection, until both sides have said all or its era is over.
async fn serve(mut client: TcpStream, mut orders: watch::Receiver<Orders>, era: u64) {
    let mut ending = orders.clone();
    let over = async move { ending.wait_for(|orders| orders.era != era).await.map(drop) };
    tokio::pin!(over);
    let server = tokio::select! {
        server = reach(&mut orders) => server,
        _ = &mut over => None,
    };
    let Some(mut server) = server else {
        client.set_zero_linger().ok();
        return;
    };
    client.set_nodelay(true).ok();
    server.set_nodelay(true).ok();
    let cut = {
        let ((from_client, to_client), (from_server, to_server)) = (client.split(), server.split());
        let requests = carry(from_client, to_server, orders.clone(), Direction::Request);
        let answers = carry(from_server, to_client, orders, Direction::Answer);
        tokio::select! {
            _ = async { tokio::join!(requests, answers) } => false,
            _ = &mut over => true,
        }
    };
    if cut {
        // Closing then resets, as a failing network does; an orderly end has been passed on as such.
        client.set_zero_linger().ok();
        server.set_zero_linger().ok();
    }
}

/// Connects to the target; a frozen network does not establish the far half of a connection either.
async fn reach(orders: &mut watch::Receiver<Orders>) -> Option<TcpStream> {
    let target = open(orders, Direction::Request).await?.target;
    TcpStream::connect(target).await.ok()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Request,
    Answer,
}

/// Waits until bytes may pass in this direction. `None`: the proxy is gone.
async fn open(orders: &mut watch::Receiver<Orders>, direction: Direction) -> Option<Orders> {
    let passes = |orders: &Orders| match orders.passage {
        Passage::Open => true,
        Passage::AnswersFrozen => direction == Direction::Request,
        Passage::Frozen | Passage::Closed => false,
    };
    orders.wait_for(passes).await.ok().map(|orders| *orders)
}

/// Passes bytes one way. Reading and writing are apart, so that a delay moves bytes in time and does not
/// thin them out.
async fn carry(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    mut orders: watch::Receiver<Orders>,
    direction: Direction,
) {
    let (pieces, mut queue) = mpsc::channel::<(Instant, Vec<u8>)>(PIECES);
    let mut gate = orders.clone();
    let read = async move {
        // Not reading is what makes a frozen peer's window fill up.
        while let Some(now) = open(&mut gate, direction).await {
            let mut piece = vec![0; PIECE_BYTES];
            let read = tokio::select! {
                read = from.read(&mut piece) => read,
                // The far side has gone, so nobody wants to know.
                () = pieces.closed() => return,
            };
            let Ok(length @ 1..) = read else { return };
            piece.truncate(length);
            if pieces.send((Instant::now() + now.delay, piece)).await.is_err() {
                return;
            }
        }
    };
    let write = async move {
        while let Some((due, piece)) = queue.recv().await {
            tokio::time::sleep_until(due).await;
            // A freeze also holds what was read before it.
            if open(&mut orders, direction).await.is_none() || to.write_all(&piece).await.is_err() {
                return;
            }
        }
        // The end of a stream waits for its passage too.
        if open(&mut orders, direction).await.is_some() {
            to.shutdown().await.ok();
        }
    };
    tokio::join!(read, write);
}
