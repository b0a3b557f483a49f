//! One write on its way into the ledger: what is asked, what the lock shows, what is decided, what comes back.
//!
//! Holds no decision of its own; [`Judge`] decides, [`super::writer`] carries out.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;

use super::{Entry, Lease, Revision, RevisionKind};
use crate::card::{Card, Change};
use crate::terms::{AgentName, Digest, Position, Principal, Reason, RequestId, Timestamp};

/// A write as the registry hands it over: everything that can be computed before the lock is computed.
#[derive(Debug, Clone)]
pub struct Write {
    pub agent: AgentName,
    pub principal: Principal,
    pub request_id: RequestId,
    /// What the request id names: operation, agent, bytes, expect, release and lease.
    pub names: Digest,
    pub op: Op,
    pub expect: Expect,
    pub note: Option<String>,
    /// Judged like any other, and not committed.
    pub dry_run: bool,
    /// Past this moment the writer gives up on it. Ages are not measured with this clock, waits are.
    pub deadline: Instant,
}

/// What a request id names: the same id with anything else is another request.
pub fn names(
    operation: &str,
    agent: &AgentName,
    bytes: Option<&Digest>,
    expect: Expect,
    release: Option<&str>,
    ttl: Option<Duration>,
) -> Digest {
    let bytes = bytes.map_or_else(String::new, Digest::hex);
    let expect = match expect {
        Expect::Any => "any".to_owned(),
        Expect::Absent => "absent".to_owned(),
        Expect::Revision { number, seen_at: None } => format!("revision {number}"),
        Expect::Revision { number, seen_at: Some(position) } => format!("revision {number}@{position}"),
        Expect::Digest(digest) => digest.tagged(),
    };
    let release = release.map_or_else(String::new, |release| format!("release {release}"));
    let mut named = vec![operation, agent.as_str(), &bytes, &expect, &release];
    // Only where there is one, so that ids of before there were leases name what they named.
    let lease = ttl.map(|ttl| format!("ttl {}", ttl.as_millis()));
    named.extend(lease.as_deref());
    Digest::of(named.join("\0").as_bytes())
}

/// What is to be done.
#[derive(Debug, Clone)]
pub enum Op {
    Register {
        card: Arc<Card>,
        against: Option<Against>,
        release: Option<String>,
        source: Option<String>,
        /// How long one confirmation holds from now on. Each register says it anew; `None`: there is no lease.
        ttl: Option<Duration>,
    },
    Retire,
}

/// The card that a change was computed against, before the lock was taken.
#[derive(Debug, Clone)]
pub struct Against {
    pub raw_digest: Digest,
    pub change: Change,
}

/// What the caller expects to be current.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    Any,
    /// No current card: the agent was never registered, or is retired.
    Absent,
    Revision {
        number: u64,
        seen_at: Option<Position>,
    },
    /// The current card's raw or content digest.
    Digest(Digest),
}

/// What a write is compared with is looked up by this.
#[derive(Debug, Clone)]
pub struct Key {
    pub agent: AgentName,
    pub principal: Principal,
    pub request_id: RequestId,
    /// The revision whose position the caller named, so that its history can be checked.
    pub expect_seq: Option<u64>,
}

/// What the lock shows of one write's surroundings.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    pub current: Option<SeenRevision>,
    /// The first outcome under the same principal and request id.
    pub request: Option<PriorRequest>,
    /// The highest release accepted so far.
    pub release: Option<String>,
    /// The agent's registers that are still remembered, oldest first.
    pub registers: Vec<Timestamp>,
    /// When it was last confirmed, by a register or otherwise.
    pub confirmed_at: Option<Timestamp>,
    /// The chain digest at [`Key::expect_seq`].
    pub digest_at_expected: Option<Digest>,
}

/// The newest revision of an agent under the lock.
#[derive(Debug, Clone)]
pub struct SeenRevision {
    pub number: u64,
    pub position: Position,
    pub kind: RevisionKind,
    /// Digests of the revision; absent on a tombstone.
    pub raw_digest: Option<Digest>,
    pub content_digest: Option<Digest>,
    /// The raw digest of the last card: of this revision, or of the one before a tombstone.
    pub last_card: Option<Digest>,
    /// The last card itself, when it came earlier in the same batch.
    pub last_card_checked: Option<Arc<Card>>,
}

/// What a request id led to.
#[derive(Debug, Clone)]
pub struct PriorRequest {
    pub names: Digest,
    pub outcome: Outcome,
    pub revision: u64,
    /// The entry that made the revision.
    pub position: Position,
    /// As it was told the first time.
    pub change: Option<Change>,
}

/// How an accepted write ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Created,
    Updated,
    Unchanged,
    Retired,
}

impl Outcome {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Unchanged => "unchanged",
            Self::Retired => "retired",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [Self::Created, Self::Updated, Self::Unchanged, Self::Retired]
            .into_iter()
            .find(|o| o.as_str() == text)
    }
}

/// What was decided about one write.
#[derive(Debug)]
pub enum Verdict {
    /// A new revision.
    Append(Append),
    /// Nothing to write but that the origin was confirmed. `release`: the highest from now on.
    Unchanged {
        release: Option<String>,
    },
    /// Done before under the same request id.
    Replay,
    Refuse(Refusal),
    /// The change was computed against another card than the current one: to be computed anew.
    Rebase,
}

/// A new revision.
#[derive(Debug)]
pub struct Append {
    pub outcome: Outcome,
    pub change: Option<Change>,
    /// The highest release from now on.
    pub release: Option<String>,
}

/// A write that was refused, by content and not by accident.
#[derive(Debug, Clone)]
pub struct Refusal {
    pub reason: Reason,
    pub detail: String,
    /// The revision that was current under the lock.
    pub current: Option<u64>,
    pub change: Option<Change>,
}

/// Decides one write from what the lock shows. Pure, and quick: the lock is held meanwhile.
pub trait Judge: Send + Sync + 'static {
    fn judge(&self, write: &Write, seen: &Seen) -> Verdict;
}

/// The rows of one batch, in ledger order.
#[derive(Debug, Default)]
pub struct Rows {
    pub entries: Vec<Entry>,
    /// One for each entry that made a revision, with its card.
    pub revisions: Vec<(Revision, Option<Arc<Card>>)>,
    pub requests: Vec<RequestRow>,
    pub liveness: Vec<LivenessRow>,
}

impl Rows {
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.requests.is_empty() && self.liveness.is_empty()
    }
}

/// A request id and the outcome it led to.
#[derive(Debug, Clone)]
pub struct RequestRow {
    pub principal: Principal,
    pub request_id: RequestId,
    pub names: Digest,
    pub outcome: Outcome,
    pub agent: AgentName,
    pub revision: u64,
    pub at: Timestamp,
}

/// What is known of an agent outside the ledger, after a write. Replaces the row.
#[derive(Debug, Clone)]
pub struct LivenessRow {
    pub agent: AgentName,
    /// The revision that is current.
    pub revision: u64,
    pub origin_confirmed_at: Timestamp,
    pub registers: Vec<Timestamp>,
    pub release: Option<String>,
    pub lease: Option<Lease>,
}

/// What a write led to.
#[derive(Debug, Clone)]
pub struct Receipt {
    pub outcome: Outcome,
    pub revision: u64,
    /// The entry that made the revision; `None` when a dry run would make one.
    pub position: Option<Position>,
    pub change: Option<Change>,
    /// A later revision is current.
    pub superseded: bool,
    /// It was done before, under the same request id.
    pub replayed: bool,
}

/// Why there is no receipt.
#[derive(Debug, Clone)]
pub enum WriteError {
    Refused(Refusal),
    /// Compute the change again, against the card that is current now, and submit again.
    Rebase,
    /// Nothing was written: the store did not answer in time.
    Unavailable,
    /// It may or may not have been written.
    OutcomeUnknown,
    /// The queue is full.
    Overloaded,
    /// The node is shutting down.
    Draining,
    /// Nothing was written, and trying again will not help.
    Internal,
}

/// Takes writes and answers when they are committed.
#[async_trait]
pub trait Writes: Send + Sync + std::fmt::Debug {
    async fn submit(&self, write: Write) -> Result<Receipt, WriteError>;
}
