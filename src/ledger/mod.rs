//! What is remembered: the one ordered, gap-free, hash-chained sequence of entries, and the revisions it names.
//!
//! This module is the contract; `memory`, `sqlite` and `postgres` keep it, and one suite (`conformance`)
//! holds them to it. `memory` is the obviously correct model: a visible difference from it is a bug.
//!
//! # What every backend keeps
//!
//! 1. *Dense, in commit order.* Sequence numbers start at 1 and have no gaps. A number is taken under a lock
//!    that is held until the commit, so that whoever sees entry *n* can see every entry before it. A plain
//!    database sequence does not give this: a reader at `seq > last` skips whoever took a number early and
//!    committed late, and nothing ever tells it.
//! 2. *Chained.* `digest(n) = SHA-256(digest(n-1) ‖ SHA-256(body(n)))` with `body` in canonical JSON;
//!    `digest(0)` binds the ledger's id ([`chain`]). Digests of cards are in the bodies, cards are not, so that
//!    a card's bytes can be erased without breaking the chain.
//! 3. *Byte-exact.* A card is kept and given back as the bytes that were received.
//! 4. *Judged under the lock.* What a write is compared with (the current revision, the request id, the
//!    highest release) is read inside the transaction that commits it ([`Txn::lookup`]). No card bytes are
//!    read there: a server that is blocked in sending to a frozen node obeys no time-out, and would hold the
//!    lock for as long as the node is frozen.
//! 5. *All or nothing.* A batch of writes is committed whole or not at all.
//! 6. *Nothing is kept from one connection to the next.* After a reconnect the server may be another one.
//!
//! # Who uses what
//!
//! | seam | used by | for |
//! |---|---|---|
//! | [`Entries`] → [`Reading`] | the view's feed | the head and the entries after a position, on one session of one server |
//! | [`History`] | the registry | past revisions, their bytes, the digest at a sequence number |
//! | [`Store`] → [`Txn`] | the [`writer`] | one transaction under the lock |
//! | [`Writes`] | the registry | handing a write to the writer and waiting for its receipt |
//! | [`Judge`] | the writer | deciding one write; the registry implements it |
//! | [`Origins`] | the registry | confirming that agents still serve their current cards |
//! | [`ServiceClock`] | a node with a store | counting the time that the registry is up |
//! | [`Replicas`] | the registry | where each node and edge says how far it has come, and who has; beside the ledger |

pub mod chain;
mod decide;
mod entry;
pub mod memory;
pub mod postgres;
mod replica;
pub mod sqlite;
mod stored;
mod write;
pub mod writer;

#[cfg(any(test, feature = "testing"))]
pub mod conformance;

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::card::Change;
use crate::terms::{AgentName, Digest, Position, Principal, Tag, Timestamp};

pub use entry::{Body, CardKept, Entry, InvalidBody, Kind, Registered};
pub use replica::{Omitted, REPLICA_KEPT, REPLICAS_MAX, REPORTED_MAX, Replica, Replicas};
pub use write::{
    Against, Append, Expect, Judge, Key, Op, Outcome, PriorRequest, Receipt, Refusal, Rows, Seen,
    SeenRevision, Verdict, Write, WriteError, Writes, names,
};

/// Why a ledger could not do something. Texts are for logs; they never reach a caller.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store did not answer, or not in time; trying again may help.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// What the store holds cannot be what was written.
    #[error("the store holds something unreadable: {0}")]
    Corrupt(String),
    /// The store cannot be used as it is: another schema, another process that holds it, a missing privilege.
    #[error("the store cannot be used: {0}")]
    Unusable(String),
}

/// The last entry of a ledger, or its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// 0: the ledger holds no entry.
    pub seq: u64,
    pub digest: Digest,
}

impl Head {
    pub fn position(&self) -> Position {
        Position::new(self.seq, &self.digest)
    }
}

/// What an authority says of itself, read in one statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadReport {
    pub ledger_id: String,
    /// A database in recovery is no authority.
    pub in_recovery: bool,
    pub head: Head,
    /// What the chain digest is at the sequence number that was asked about; `None` when the ledger does not reach
    /// it.
    pub tag_at_asked: Option<Tag>,
    /// The authority's wall clock, as of the moment that the report speaks for.
    pub wall: Timestamp,
    /// The moment that the report speaks for lies so long before the authority received the call. A database
    /// speaks for that very moment; an upstream for when it was last proven itself. `None`: it is not proven, and
    /// so proves nothing.
    pub age: Option<Duration>,
    /// Nodes between the one that asks and the authority's database.
    pub hops: u32,
    /// The service clock: how long the registry was up, as far as the ledger knows. Leases run on it.
    pub service: Duration,
}

/// Registers of one agent that the ledger need not hold: when it was last confirmed, and its last registers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Liveness {
    pub agent: AgentName,
    /// The revision that was current then: a confirmation of it says nothing of another.
    pub revision: u64,
    pub origin_confirmed_at: Timestamp,
    /// The last registers, oldest first, unchanged ones included; at most [`REGISTERS_KEPT`].
    pub registers: Vec<Timestamp>,
    /// Where the agent was registered with one.
    pub lease: Option<Lease>,
}

/// A promise to confirm an agent again and again. One that lapsed is reported, and nothing is deleted for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// How long one confirmation holds.
    pub ttl: Duration,
    /// The service clock at the last confirmation.
    pub confirmed: Duration,
}

impl Lease {
    /// Whether the last confirmation holds no more, as the service clock stands. It runs only while the registry is
    /// up, so that an outage of the registry is not told as one of its agents.
    pub fn has_lapsed(&self, service: Duration) -> bool {
        service.saturating_sub(self.confirmed) > self.ttl
    }
}

/// The leases that an agent may be registered with.
pub const LEASE_MIN: Duration = Duration::from_secs(1);
pub const LEASE_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// How many agents are confirmed at once.
pub const CONFIRMED_AT_ONCE: usize = 1_000;

/// What a confirmation came to. It is the ledger's own word: what is refused here was refused by what was current
/// when it was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Confirmed {
    Done {
        revision: u64,
        at: Timestamp,
        lease: Option<Lease>,
    },
    NotFound,
    Retired {
        revision: u64,
    },
    /// Another card is current.
    OtherDigest {
        revision: u64,
    },
}

/// Confirms that agents still serve the cards that are current. No entry is made, no revision, and the ledger's lock
/// is not taken.
#[async_trait]
pub trait Origins: Send + Sync + std::fmt::Debug {
    /// Confirms each agent whose current card has the content digest beside it, all at one moment, and says of each
    /// what came of it, in the order of `items`; at most [`CONFIRMED_AT_ONCE`]. A register that is on its way is
    /// waited for: what is confirmed is what is current then.
    ///
    /// # Errors
    /// When the ledger was not reached: some may have been confirmed. Asking again does no harm.
    async fn confirm(&self, items: &[(AgentName, Digest)]) -> Result<Vec<Confirmed>, Error>;
}

/// The time between two ticks of one node.
pub const TICK: Duration = Duration::from_secs(1);

/// The most that one tick adds: what passed since the last tick of any node is an outage beyond that.
const TICK_MOST: Duration = Duration::from_secs(2);

/// The clock that leases run on: it counts the time that the registry was up.
#[async_trait]
pub trait ServiceClock: Send + Sync + std::fmt::Debug {
    /// Adds the time since the last tick of any node, by the store's own clock and up to a bound, and says how the
    /// clock stands now. Several nodes may tick: each adds only what no other has.
    async fn tick(&self) -> Result<Duration, Error>;
}

/// What a tick makes of the service clock, in microseconds. When the store's own clock was set back, the next tick
/// counts from there.
fn ticked(elapsed: i64, advanced_at: i64, now: i64) -> i64 {
    let most = i64::try_from(TICK_MOST.as_micros()).unwrap_or(i64::MAX);
    elapsed.saturating_add(now.saturating_sub(advanced_at).clamp(0, most))
}

/// How many rows of the liveness table are read at once.
pub const LIVENESS_PAGE: usize = 5_000;

/// How many registers are kept to tell an agent's redeploy interval from.
pub const REGISTERS_KEPT: usize = 17;

/// How many request ids are forgotten in one transaction.
pub const FORGOTTEN_AT_ONCE: u64 = 5_000;

/// Opens sessions that read the ledger in order.
#[async_trait]
pub trait Entries: Send + Sync + std::fmt::Debug {
    /// Opens one session of one server. Everything read through it is of that server.
    async fn open(&self) -> Result<Box<dyn Reading>, Error>;
}

/// One session of one server. A failed call ends it: it is dropped and another is opened.
///
/// Callers bound every call with a deadline and drop the session when it passes; a backend sends no cancel.
#[async_trait]
pub trait Reading: Send {
    /// The head, what the digest is at `asked`, and the wall clock, in one statement and so of one moment.
    async fn head(&mut self, asked: u64) -> Result<HeadReport, Error>;

    /// As [`head`](Self::head), but of a moment after the call was made, if that can be had. What a database says
    /// always is; an upstream asks its own authority first.
    async fn head_now(&mut self, asked: u64) -> Result<HeadReport, Error> {
        self.head(asked).await
    }

    /// At most `limit` entries after `after`, in order, with the bytes of their cards where those still exist.
    async fn read(&mut self, after: u64, limit: usize) -> Result<Vec<Entry>, Error>;

    /// As [`read`](Self::read); from a ledger that does not have the entries after `after` at hand, everything as
    /// it is now.
    async fn page(&mut self, after: u64, limit: usize) -> Result<Page, Error> {
        self.read(after, limit).await.map(Page::Entries)
    }

    /// What changed in the liveness table at or after `since` (`None`: ever), oldest first, at most
    /// [`LIVENESS_PAGE`] rows. May repeat what was given before.
    async fn liveness(&mut self, since: Option<Timestamp>) -> Result<Vec<Liveness>, Error>;
}

/// What a reader goes on with.
#[derive(Debug)]
pub enum Page {
    Entries(Vec<Entry>),
    /// It starts over from here.
    Snapshot(Box<Snapshot>),
}

/// All agents at one position, instead of the entries that led there.
#[derive(Debug)]
pub struct Snapshot {
    pub ledger_id: String,
    pub head: Head,
    /// Of every sequence number from 0 to the head.
    pub tags: Vec<Tag>,
    /// Every agent, retired ones included, each once.
    pub agents: Vec<Image>,
}

/// One agent in a [`Snapshot`].
#[derive(Debug)]
pub struct Image {
    pub agent: AgentName,
    pub revision: u64,
    /// The entry that made the revision.
    pub position: Position,
    pub registered_at: Timestamp,
    pub registered_by: Principal,
    /// The current card; of a retired agent the last one, where it is still known.
    pub card: Option<Bytes>,
    pub retired: bool,
}

/// What a revision is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RevisionKind {
    Card,
    /// The agent was retired.
    Tombstone,
}

impl RevisionKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Card => "card",
            Self::Tombstone => "tombstone",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "card" => Some(Self::Card),
            "tombstone" => Some(Self::Tombstone),
            _ => None,
        }
    }
}

/// One accepted state of an agent's card, as history tells it; the bytes are asked for separately.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revision {
    pub agent: AgentName,
    /// 1, 2, 3 … per agent.
    pub number: u64,
    /// The entry that made it.
    pub position: Position,
    pub kind: RevisionKind,
    pub registered_at: Timestamp,
    pub registered_by: Principal,
    pub note: Option<String>,
    /// Absent on a tombstone.
    pub facts: Option<Registered>,
    /// What changed against the card before; absent on the first.
    pub change: Option<Change>,
}

/// Reads the past. Every call is bounded by the backend's statement time-out.
#[async_trait]
pub trait History: Send + Sync + std::fmt::Debug {
    /// Revision `number` of `agent`.
    async fn revision(&self, agent: &AgentName, number: u64) -> Result<Option<Revision>, Error>;

    /// The newest revision of `agent` at or before `seq`: what was current there.
    async fn revision_at(&self, agent: &AgentName, seq: u64) -> Result<Option<Revision>, Error>;

    /// Revisions of `agent` with a number below `below` (`None`: from the newest) made at or before `seq`,
    /// newest first, at most `limit`.
    async fn revisions(
        &self,
        agent: &AgentName,
        below: Option<u64>,
        seq: u64,
        limit: usize,
    ) -> Result<Vec<Revision>, Error>;

    /// The card of revision `number`, byte for byte; `None` for a tombstone or an unknown number.
    async fn card(&self, agent: &AgentName, number: u64) -> Result<Option<Bytes>, Error>;

    /// At most `limit` entries from `from` on, without cards.
    async fn entries(&self, from: u64, limit: usize) -> Result<Vec<Entry>, Error>;

    /// The chain digest at `seq`, which may be 0.
    async fn digest_at(&self, seq: u64) -> Result<Option<Digest>, Error>;
}

/// What the [`writer`] commits through.
#[async_trait]
pub trait Store: Send + Sync + std::fmt::Debug + 'static {
    /// Opens a transaction, takes the ledger's lock, and reads the head in the statement after (a lock and a
    /// read in one statement would see the row of before the wait).
    async fn begin(&self) -> Result<Box<dyn Txn>, Error>;
}

/// One transaction that holds the ledger's lock. Dropping it rolls back.
#[async_trait]
pub trait Txn: Send {
    fn ledger_id(&self) -> &str;

    fn head(&self) -> Head;

    /// The store's wall clock, read under the lock.
    fn now(&self) -> Timestamp;

    /// The service clock, read under the lock.
    fn service(&self) -> Duration;

    /// What each write is compared with, in the order of `keys`. One exchange; no card bytes.
    async fn lookup(&mut self, keys: &[Key]) -> Result<Vec<Seen>, Error>;

    /// Writes the rows of a batch. One exchange.
    async fn append(&mut self, rows: &Rows) -> Result<(), Error>;

    /// Forgets request ids of before `before`, the oldest first, and says how many. A store may stop at
    /// [`FORGOTTEN_AT_ONCE`], since the lock is held meanwhile.
    async fn forget_requests(&mut self, before: Timestamp) -> Result<u64, Error>;

    /// Commits.
    ///
    /// # Errors
    /// When the answer was lost the batch may or may not be there: the writer finds out by submitting it again,
    /// since the request ids of a batch are committed with it.
    async fn commit(self: Box<Self>) -> Result<(), CommitError>;
}

/// Why a commit was not confirmed.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// The store said no: nothing was written.
    #[error("the commit was refused: {0}")]
    Refused(Error),
    /// The answer was lost.
    #[error("the answer to the commit was lost: {0}")]
    Unknown(Error),
}
