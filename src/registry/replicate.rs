//! Being followed by edges: what one session is told, and how many there may be.
//!
//! A session sees the view as readers do: one pointer at a time. What it says of the head, and of how far that is
//! proven, is of one such moment; entries come from the last changes that the view keeps, and where they no longer
//! reach, everything is given as a snapshot of one position. The store is never asked, so edges cost it nothing,
//! however many there are and however far behind.
//!
//! The age that is told counts from this server's *receipt* of the question, on this server's clock, and is added by
//! the edge to a moment of its own clock before it asked: no two clocks are compared.

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;

use super::{Refusal, Registry};
use crate::clock::Moment;
use crate::terms::{AgentName, Reason, SetDigest, Tag, Timestamp};
use crate::view::{Agent, Progress, Served, View};

// What a session is told in words of the layers below.
pub use crate::ledger::{CardKept, Head, HeadReport, LIVENESS_PAGE, Lease, Liveness};

/// Snapshots that are given at once: each reads all agents, and sends all cards.
const SNAPSHOTS_MAX: usize = 4;
/// The longest that a session waits for this server's own authority.
const CONFIRM_MAX: Duration = Duration::from_secs(1);
/// Bytes of bodies and cards in one part; a part has at least one entry or agent.
const PART_BYTES: usize = 1024 * 1024;
/// What an entry or an agent takes beside its body and card, at most.
const BESIDE: usize = 512;
/// Tags in one part of a snapshot.
const PART_TAGS: u64 = 128 * 1024;

/// How much this node may be followed.
#[derive(Debug, Clone)]
pub(super) struct Room {
    sessions: Arc<Semaphore>,
    sessions_max: usize,
    snapshots: Arc<Semaphore>,
}

impl Room {
    pub(super) fn for_sessions(sessions_max: usize) -> Self {
        Self {
            sessions: Arc::new(Semaphore::new(sessions_max)),
            sessions_max,
            snapshots: Arc::new(Semaphore::new(SNAPSHOTS_MAX)),
        }
    }
}

/// One session of an edge.
#[derive(Debug)]
pub struct Source {
    registry: Registry,
    published: watch::Receiver<Progress>,
    /// The position that the edge was told of last.
    told: u64,
    _permit: OwnedSemaphorePermit,
}

/// What an edge goes on with.
#[derive(Debug)]
pub enum Given {
    Entries(Vec<super::Entry>),
    Snapshot(Parts),
}

/// A snapshot, part by part.
#[derive(Debug)]
pub struct Parts {
    served: Arc<Served>,
    next: Next,
    _permit: OwnedSemaphorePermit,
}

#[derive(Debug)]
enum Next {
    Begin,
    Tags(u64),
    Agents(Option<AgentName>),
    End,
    Nothing,
}

/// One part of a snapshot.
#[derive(Debug)]
pub enum Part {
    Begin { ledger_id: String, head: Head },
    Tags(Vec<Tag>),
    Agents(Vec<Arc<Agent>>),
    End(SetDigest),
}

impl Registry {
    /// Opens a session for an edge.
    ///
    /// # Errors
    /// `overloaded` when as many follow as may; `freshness_unverifiable` when this node has nothing to be followed in.
    pub fn follow(&self) -> Result<Source, Refusal> {
        if !self.view.load().loaded {
            let detail = "this node has not loaded the ledger yet, so it cannot be followed";
            return Err(Refusal::new(Reason::FreshnessUnverifiable, detail));
        }
        let permit = Arc::clone(&self.room.sessions).try_acquire_owned().map_err(|_| {
            let detail = format!("{} edges follow this node already: no more may", self.room.sessions_max);
            Refusal::new(Reason::Overloaded, detail)
        })?;
        let mut published = self.view.published();
        published.mark_changed();
        Ok(Source { registry: self.clone(), published, told: 0, _permit: permit })
    }
}

impl Source {
    /// Waits until the view has grown beyond what the edge was told last, and says how far it is; `None` when the
    /// view's task has ended.
    pub async fn moved(&mut self) -> Option<u64> {
        loop {
            self.published.changed().await.ok()?;
            let seq = self.view().load().state.head().seq;
            // Less than before is a matter of digests, which the edge finds when it asks.
            if seq != self.told {
                self.told = seq;
                return Some(seq);
            }
        }
    }

    /// How far the view is, and how far that is proven. With `confirm`, the view is first proven as of `received`,
    /// if that can be had in that time.
    pub async fn head(&mut self, received: Moment, asked: u64, confirm: Option<Duration>) -> HeadReport {
        let confirmed = match confirm {
            Some(within) => {
                let deadline = Instant::now() + within.min(CONFIRM_MAX);
                self.view().confirm(&received, deadline).await.ok()
            }
            None => None,
        };
        let served = confirmed.unwrap_or_else(|| Arc::clone(&self.view().load()));
        let head = served.state.head();
        self.told = head.seq;
        HeadReport {
            ledger_id: served.state.ledger_id().to_owned(),
            in_recovery: false,
            head,
            tag_at_asked: served.state.tag_at(asked),
            wall: served.proof.map_or(received.wall(), |proof| proof.authority_wall),
            age: served.proof.map(|proof| received.since(&proof.at)),
            hops: served.proof.map_or(0, |proof| proof.hops),
            service: served.proof.map_or(Duration::ZERO, |proof| proof.service),
        }
    }

    /// The entries after `after`, at most `limit` and about a MiB; or a snapshot, where the view does not keep them
    /// any more.
    ///
    /// # Errors
    /// `overloaded` when as many snapshots are being given as may.
    pub fn after(&self, after: u64, limit: usize) -> Result<Given, Refusal> {
        let served = self.view().load();
        if let Some(changes) = served.state.log().since(after) {
            let mut bytes = 0;
            let fits = |size: usize| {
                bytes += size + BESIDE;
                bytes <= PART_BYTES
            };
            let entries = fitting(changes.take(limit), |change| change.size(), fits);
            return Ok(Given::Entries(entries.map(|change| change.entry()).collect()));
        }
        let permit = Arc::clone(&self.registry.room.snapshots).try_acquire_owned().map_err(|_| {
            let detail = format!("{SNAPSHOTS_MAX} snapshots are being given already: no more may at once");
            Refusal::new(Reason::Overloaded, detail)
        })?;
        self.registry.metrics.snapshots_given.inc();
        Ok(Given::Snapshot(Parts { served: Arc::clone(&served), next: Next::Begin, _permit: permit }))
    }

    /// What was confirmed of agents' origins at or after `since`, the oldest first, at most a page.
    pub fn liveness(&self, since: Option<Timestamp>) -> Vec<Arc<Liveness>> {
        self.view().load().state.liveness(since).take(LIVENESS_PAGE).cloned().collect()
    }

    /// The moment now, by the clock that ages are told with.
    pub fn now(&self) -> Moment {
        self.view().clock().now()
    }

    fn view(&self) -> &View {
        &self.registry.view
    }
}

impl Parts {
    fn tags(&self, from: u64) -> Vec<Tag> {
        let state = &self.served.state;
        (from..from.saturating_add(PART_TAGS)).map_while(|seq| state.tag_at(seq)).collect()
    }

    fn agents(&self, after: Option<&AgentName>) -> Vec<Arc<Agent>> {
        let mut bytes = 0;
        let fits = |size: usize| {
            bytes += size + BESIDE;
            bytes <= PART_BYTES
        };
        let card = |agent: &&Arc<Agent>| agent.last_card().map_or(0, |card| card.bytes().len());
        let agents = self.served.state.agents_from(after.map_or(Bound::Unbounded, Bound::Excluded));
        fitting(agents, card, fits).cloned().collect()
    }
}

impl Iterator for Parts {
    type Item = Part;

    fn next(&mut self) -> Option<Part> {
        match std::mem::replace(&mut self.next, Next::Nothing) {
            Next::Begin => {
                self.next = Next::Tags(0);
                let state = &self.served.state;
                Some(Part::Begin { ledger_id: state.ledger_id().to_owned(), head: state.head() })
            }
            Next::Tags(from) => {
                let tags = self.tags(from);
                let reached = from + tags.len() as u64;
                self.next = if reached > self.served.state.head().seq {
                    Next::Agents(None)
                } else {
                    Next::Tags(reached)
                };
                Some(Part::Tags(tags))
            }
            Next::Agents(after) => {
                let agents = self.agents(after.as_ref());
                self.next = match agents.last() {
                    Some(last) => Next::Agents(Some(last.name.clone())),
                    None => Next::End,
                };
                if agents.is_empty() { self.next() } else { Some(Part::Agents(agents)) }
            }
            Next::End => Some(Part::End(self.served.state.sum())),
            Next::Nothing => None,
        }
    }
}

/// As many items as fit, and at least one where there is one.
fn fitting<T>(
    items: impl Iterator<Item = T>,
    size: impl Fn(&T) -> usize,
    mut fits: impl FnMut(usize) -> bool,
) -> impl Iterator<Item = T> {
    items.enumerate().take_while(move |(at, item)| fits(size(item)) || *at == 0).map(|(_, item)| item)
}
