//! Replicas: taking their reports, listing them, and waiting until all have applied a write.
//!
//! Whom a write waits for is fixed when it is committed: those that reported in the minute before. Whether one
//! has applied it is told by the position that it reports, which must be of the history that this node's view
//! holds: a number alone is no proof. The wait never makes an error of a write that is done; it says who is
//! missing, and since when that one is silent.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::fleet::COUNTED;
use super::history::{Until, bounded};
use super::{Call, Read, Refusal, Registry, Written};
use crate::ledger::{REPLICA_KEPT, REPLICAS_MAX, REPORTED_MAX, Replica};
use crate::terms::{Freshness, Position, Reason, Timestamp, display_duration};
use crate::view::{Place, Served};

/// How long a write may be waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplicatedWait(Duration);

impl ReplicatedWait {
    /// The longest that may be asked for.
    pub const MAX: Duration = Duration::from_secs(60);

    /// # Errors
    /// `invalid_argument` when it is longer than allowed.
    pub fn new(wait: Duration) -> Result<Self, Refusal> {
        if wait > Self::MAX {
            let (wait, max) = (display_duration(wait), display_duration(Self::MAX));
            return Err(Refusal::invalid(format!("wait_replicated of {wait} is too long: at most {max}")));
        }
        Ok(Self(wait))
    }
}

/// Who has applied a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replicated {
    /// All have that counted when it was committed.
    pub complete: bool,
    pub applied: u64,
    /// Those that have not, the furthest behind first. Empty although not complete: who counts is not known.
    pub missing: Vec<Missing>,
    /// How many more are missing than are named.
    pub missing_omitted: u64,
}

/// A replica that has not applied a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    pub replica: String,
    /// What it had applied when it spoke last.
    pub position: Position,
    /// By this node's wall clock; for people.
    pub silent_since: Timestamp,
    pub silent: Duration,
}

/// A replica in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedReplica {
    pub replica: Replica,
    /// Entries between it and the head that this node knows. `None`: its position is of another history.
    pub behind: Option<u64>,
}

/// Those that have reported, by name.
#[derive(Debug, Clone)]
pub struct ReplicaList {
    pub items: Vec<ListedReplica>,
    /// Every replica is named.
    pub complete: bool,
    pub freshness: Freshness,
}

/// How far back a list goes that does not say so.
const LISTED: Duration = Duration::from_secs(3_600);
/// Between two looks at who has applied a write.
const LOOK: Duration = Duration::from_millis(50);
/// The first look is never cut shorter by the wait.
const FIRST_LOOK: Duration = Duration::from_millis(500);
/// Replicas that an answer names as missing.
const MISSING_NAMED: usize = 256;
/// Characters of names, and of what else a report says in words.
const NAME_MAX: usize = 128;
const WORD_MAX: usize = 64;

impl Registry {
    /// Takes a report: of a replica that hangs directly below this node, first, and of those below it.
    ///
    /// # Errors
    /// `invalid_argument`; `overloaded` when there are too many below this node.
    pub fn report(&self, report: Vec<Replica>) -> Result<(), Refusal> {
        check(&report)?;
        let own = self.view.load().node.clone();
        self.fleet
            .take(&own, report, &self.view.clock().now())
            .map_err(|_| Refusal::new(Reason::Overloaded, "too many replicas hang below this node"))
    }

    /// Those that reported within so long; `None`: within an hour.
    ///
    /// # Errors
    /// `invalid_argument`, `store_unavailable`, and what any read may be refused with.
    #[tracing::instrument(level = "debug", skip_all)]
    pub async fn replicas(
        &self,
        call: &Call,
        within: Option<Duration>,
        read: &Read,
    ) -> Result<ReplicaList, Refusal> {
        let within = within.unwrap_or(LISTED);
        if within > REPLICA_KEPT {
            let (within, kept) = (display_duration(within), display_duration(REPLICA_KEPT));
            return Err(Refusal::invalid(format!("within of {within} is too long: at most {kept}")));
        }
        self.watermark_within(call, read).await?;
        let until = Until::of(call, read, &self.settings)?;
        let mut found = bounded(until, self.fleet.replicas.replicas(within)).await?;
        found.sort_by(|a, b| a.replica.cmp(&b.replica));
        let complete = found.len() < REPLICAS_MAX && found.iter().all(|replica| replica.omitted.is_none());
        let served = self.view.load();
        let head = self.view.authority_head().max(served.state.position().seq);
        let listed = |replica: Replica| ListedReplica {
            behind: match served.place(&replica.position) {
                Place::Differs => None,
                Place::Applied | Place::Beyond => Some(head.saturating_sub(replica.position.seq)),
            },
            replica,
        };
        let items = found.into_iter().map(listed).collect();
        Ok(ReplicaList { items, complete, freshness: served.freshness(&self.view.clock().now()) })
    }

    /// Waits until every replica that counts has applied a write, where that was asked for and something is
    /// written; then, or when the time is over or this node shuts down, the answer says who has.
    pub async fn wait_replicated(
        &self,
        call: &Call,
        mut written: Written,
        wait: Option<ReplicatedWait>,
    ) -> Written {
        let (Some(wait), Some(position), false) = (wait, written.position, written.dry_run) else {
            return written;
        };
        let began = Instant::now();
        // The answer must arrive before the caller's own deadline does.
        let answered_by = call.timeout.map(|timeout| call.started + timeout.mul_f64(0.9));
        let bound = |wait: Duration| answered_by.map_or(began + wait, |by| by.min(began + wait));
        let (until, mut look_until) = (bound(wait.0), bound(wait.0.max(FIRST_LOOK)));
        call.allowance.take(look_until.saturating_duration_since(began));
        let mut waiting = Waiting::new(position);
        let mut since = began;
        let mut warned = false;
        loop {
            match timeout_at(look_until, self.fleet.look(since)).await {
                Ok(Ok(found)) => waiting.see(&found),
                Ok(Err(error)) if !warned => {
                    warned = true;
                    tracing::warn!(%error, "who has applied a write could not be read");
                }
                Ok(Err(_)) | Err(_) => {}
            }
            let served = std::sync::Arc::clone(&self.view.load());
            let (replicated, ahead) = waiting.judge(&served, self.view.clock().now().wall());
            let now = Instant::now();
            if replicated.complete || now >= until || self.draining.is_cancelled() {
                written.replicas = Some(replicated);
                return written;
            }
            look_until = until;
            let next = until.min(now + LOOK);
            match ahead {
                // Whether it is of this history shows once this view is there.
                Some(ahead) if self.view.wait_for(&ahead, next).await.is_ok() => {}
                _ => tokio::time::sleep_until(next).await,
            }
            since = if waiting.members.is_some() { Instant::now() - LOOK } else { began };
        }
    }
}

/// Who is waited for, and what they said last.
#[derive(Debug)]
struct Waiting {
    position: Position,
    /// `None`: not known yet.
    members: Option<BTreeMap<String, Member>>,
    /// More replicas than can be looked at.
    too_many: bool,
}

#[derive(Debug)]
struct Member {
    replica: Replica,
    /// It was in the last look. One that is not, although it was, is among the omitted of another.
    seen: bool,
}

impl Waiting {
    const fn new(position: Position) -> Self {
        Self { position, members: None, too_many: false }
    }

    fn see(&mut self, found: &[Replica]) {
        self.too_many |= found.len() >= REPLICAS_MAX;
        let Some(members) = &mut self.members else {
            let counts = found.iter().filter(|replica| replica.silent <= COUNTED);
            let member = |replica: &Replica| Member { replica: replica.clone(), seen: true };
            self.members = Some(counts.map(|r| (r.replica.clone(), member(r))).collect());
            return;
        };
        for member in members.values_mut() {
            member.seen = false;
        }
        for replica in found {
            if let Some(member) = members.get_mut(&replica.replica) {
                *member = Member { replica: replica.clone(), seen: true };
            }
        }
    }

    /// Who has applied the write, by a view; and the furthest position that decides it and is ahead of that view.
    fn judge(&self, served: &Served, wall: Timestamp) -> (Replicated, Option<Position>) {
        let own = served.place(&self.position) == Place::Applied;
        let reached = |position: &Position| {
            own && position.seq >= self.position.seq && served.place(position) == Place::Applied
        };
        let mut replicated =
            Replicated { complete: own, applied: u64::from(own), missing: Vec::new(), missing_omitted: 0 };
        let missing = |replica: String, position: Position, silent: Duration| Missing {
            replica,
            position,
            silent_since: wall.before(silent),
            silent,
        };
        if !own {
            let own = missing(served.node.to_string(), served.state.position(), Duration::ZERO);
            replicated.missing.push(own);
        }
        let Some(members) = &self.members else {
            replicated.complete = false;
            return (replicated, None);
        };
        replicated.complete &= !self.too_many;
        let omitted: Vec<_> = members.values().filter_map(|member| member.replica.omitted).collect();
        let all_omitted_reached = omitted.iter().all(|omitted| reached(&omitted.at_least));
        replicated.complete &= all_omitted_reached;
        replicated.applied += omitted.iter().filter(|o| reached(&o.at_least)).map(|o| o.count).sum::<u64>();
        let others = members.values().filter(|member| *member.replica.replica != *served.node);
        for Member { replica, seen } in others.clone() {
            if reached(&replica.position) {
                replicated.applied += u64::from(*seen);
            } else if *seen || omitted.is_empty() || !all_omitted_reached {
                replicated.missing.push(missing(replica.replica.clone(), replica.position, replica.silent));
            }
        }
        replicated.complete &= replicated.missing.is_empty();
        replicated.missing.sort_by(|a, b| (a.position.seq, &a.replica).cmp(&(b.position.seq, &b.replica)));
        let named = replicated.missing.len().min(MISSING_NAMED);
        replicated.missing_omitted = (replicated.missing.len() - named) as u64;
        replicated.missing.truncate(named);
        let said = others.map(|member| member.replica.position);
        let said = said.chain(omitted.iter().map(|omitted| omitted.at_least));
        let ahead = said.filter(|position| served.place(position) == Place::Beyond);
        (replicated, ahead.max_by_key(|position| position.seq))
    }
}

fn check(report: &[Replica]) -> Result<(), Refusal> {
    if report.is_empty() || report.len() > REPORTED_MAX {
        let count = report.len();
        return Err(Refusal::invalid(format!(
            "a report of {count} replicas: 1 to {REPORTED_MAX} are allowed"
        )));
    }
    let word = |what: &str, text: &str, max: usize| {
        if (1..=max).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic()) {
            return Ok(());
        }
        let shown: String = text.chars().take(40).collect();
        let shown = shown.escape_debug();
        Err(Refusal::invalid(format!("{what}: `{shown}`: 1 to {max} visible ASCII characters are allowed")))
    };
    let mut names = HashSet::new();
    for replica in report {
        word("replica", &replica.replica, NAME_MAX)?;
        word("role", &replica.role, WORD_MAX)?;
        word("version", &replica.version, WORD_MAX)?;
        if let Some(via) = &replica.via {
            word("via", via, NAME_MAX)?;
        }
        if !names.insert(replica.replica.as_str()) {
            return Err(Refusal::invalid(format!("replica: `{}` is reported twice", replica.replica)));
        }
    }
    Ok(())
}
