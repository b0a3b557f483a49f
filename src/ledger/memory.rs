//! The obviously correct ledger: vectors behind one lock. The model that the other backends are held to.
//!
//! Nothing survives the process. It is for tests, for the model of the view, and for reading what a backend
//! must do in the fewest lines.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::replica::{REPLICA_KEPT, REPLICAS_MAX, Replica, Replicas};
use super::write::LivenessRow;
use super::{
    CardKept, CommitError, Confirmed, Entries, Entry, Error, Head, HeadReport, History, Key, LIVENESS_PAGE,
    Lease, Liveness, Origins, PriorRequest, Reading, Revision, RevisionKind, Rows, Seen, SeenRevision,
    ServiceClock, Store, Txn, chain, ticked,
};
use crate::card::Card;
use crate::clock::Clock;
use crate::terms::{AgentName, Digest, Principal, RequestId, Tag, Timestamp};

/// A ledger in memory. Clones share it.
#[derive(Clone)]
pub struct Memory {
    tables: Arc<Mutex<Tables>>,
    clock: Clock,
    reachable: Arc<AtomicBool>,
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Memory")
    }
}

#[derive(Clone, Default)]
struct Tables {
    ledger_id: String,
    entries: Vec<Entry>,
    revisions: HashMap<AgentName, Vec<Stored>>,
    requests: HashMap<(Principal, RequestId), super::write::RequestRow>,
    liveness: HashMap<AgentName, LivenessRow>,
    /// The service clock, and when it was advanced; microseconds both.
    service: (i64, i64),
    replicas: HashMap<String, Reported>,
}

#[derive(Clone)]
struct Reported {
    replica: Replica,
    /// The first of the report that brought it.
    reporter: String,
    at: Timestamp,
}

#[derive(Clone)]
struct Stored {
    revision: Revision,
    card: Option<Arc<Card>>,
}

impl Memory {
    /// An empty ledger.
    pub fn new(ledger_id: &str, clock: Clock) -> Self {
        let service = (0, clock.now().wall().as_micros());
        let tables = Tables { ledger_id: ledger_id.to_owned(), service, ..Tables::default() };
        Self { tables: Arc::new(Mutex::new(tables)), clock, reachable: Arc::new(AtomicBool::new(true)) }
    }

    /// Makes the ledger fail every call, or answer again.
    pub fn set_reachable(&self, reachable: bool) {
        self.reachable.store(reachable, Ordering::Release);
    }

    /// A ledger with the same entries up to `seq` and none after: what an asynchronous standby that lost the
    /// rest is promoted with.
    pub async fn forked_at(&self, seq: u64) -> Self {
        let mut tables = self.tables.lock().await.clone();
        tables.entries.retain(|entry| entry.seq <= seq);
        for revisions in tables.revisions.values_mut() {
            revisions.retain(|stored| stored.revision.position.seq <= seq);
        }
        tables.revisions.retain(|_, revisions| !revisions.is_empty());
        let kept = &tables.revisions;
        let lives =
            |agent: &AgentName, number: u64| kept.get(agent).is_some_and(|all| all.len() as u64 >= number);
        tables.requests.retain(|_, row| lives(&row.agent, row.revision));
        Self { tables: Arc::new(Mutex::new(tables)), ..self.clone() }
    }

    /// Puts another ledger in this one's place, as a fail-over does behind an address.
    pub async fn become_like(&self, other: &Self) {
        let tables = other.tables.lock().await.clone();
        *self.tables.lock().await = tables;
    }

    async fn tables(&self) -> Result<OwnedMutexGuard<Tables>, Error> {
        if !self.reachable.load(Ordering::Acquire) {
            return Err(Error::Unavailable("the memory ledger was made unreachable".to_owned()));
        }
        Ok(Arc::clone(&self.tables).lock_owned().await)
    }
}

impl Tables {
    fn head(&self) -> Head {
        self.entries.last().map_or_else(
            || Head { seq: 0, digest: chain::origin(&self.ledger_id) },
            |entry| Head { seq: entry.seq, digest: entry.digest },
        )
    }

    fn digest_at(&self, seq: u64) -> Option<Digest> {
        match seq.checked_sub(1) {
            None => Some(chain::origin(&self.ledger_id)),
            Some(index) => self.entries.get(usize::try_from(index).ok()?).map(|entry| entry.digest),
        }
    }

    fn after(&self, after: u64, limit: usize) -> impl Iterator<Item = &Entry> {
        self.entries.iter().skip(usize::try_from(after).unwrap_or(usize::MAX)).take(limit)
    }

    fn service(&self) -> Duration {
        Duration::from_micros(u64::try_from(self.service.0).unwrap_or(0))
    }

    fn confirm(&mut self, agent: &AgentName, digest: &Digest, at: Timestamp) -> Confirmed {
        let Some(current) = self.stored(agent).last() else { return Confirmed::NotFound };
        let revision = current.revision.number;
        match &current.revision.facts {
            None => return Confirmed::Retired { revision },
            Some(facts) if facts.content_digest != *digest => return Confirmed::OtherDigest { revision },
            Some(_) => {}
        }
        let confirmed = self.service();
        let Some(row) = self.liveness.get_mut(agent) else { return Confirmed::NotFound };
        row.origin_confirmed_at = at;
        row.lease = row.lease.map(|lease| Lease { confirmed, ..lease });
        Confirmed::Done { revision, at, lease: row.lease }
    }

    fn stored(&self, agent: &AgentName) -> &[Stored] {
        self.revisions.get(agent).map_or(&[], Vec::as_slice)
    }
}

#[async_trait]
impl Entries for Memory {
    async fn open(&self) -> Result<Box<dyn Reading>, Error> {
        self.tables().await?;
        Ok(Box::new(Session(self.clone())))
    }
}

struct Session(Memory);

#[async_trait]
impl Reading for Session {
    async fn head(&mut self, asked: u64) -> Result<HeadReport, Error> {
        let tables = self.0.tables().await?;
        Ok(HeadReport {
            ledger_id: tables.ledger_id.clone(),
            in_recovery: false,
            head: tables.head(),
            tag_at_asked: tables.digest_at(asked).as_ref().map(Tag::from),
            wall: self.0.clock.now().wall(),
            age: Some(Duration::ZERO),
            hops: 0,
            service: tables.service(),
        })
    }

    async fn read(&mut self, after: u64, limit: usize) -> Result<Vec<Entry>, Error> {
        // As a database would: bytes, not what the writer had checked.
        let as_bytes = |entry: &Entry| {
            let card = entry.card.as_ref().map(|card| match card {
                CardKept::Checked(card) => CardKept::Bytes(card.bytes().clone()),
                CardKept::Bytes(bytes) => CardKept::Bytes(bytes.clone()),
            });
            Entry { card, ..entry.clone() }
        };
        Ok(self.0.tables().await?.after(after, limit).map(as_bytes).collect())
    }

    async fn liveness(&mut self, since: Option<Timestamp>) -> Result<Vec<Liveness>, Error> {
        let tables = self.0.tables().await?;
        let mut rows: Vec<&LivenessRow> = tables
            .liveness
            .values()
            .filter(|row| since.is_none_or(|since| row.origin_confirmed_at >= since))
            .collect();
        rows.sort_by_key(|row| row.origin_confirmed_at);
        Ok(rows
            .into_iter()
            .take(LIVENESS_PAGE)
            .map(|row| Liveness {
                agent: row.agent.clone(),
                revision: row.revision,
                origin_confirmed_at: row.origin_confirmed_at,
                registers: row.registers.clone(),
                lease: row.lease,
            })
            .collect())
    }
}

#[async_trait]
impl History for Memory {
    async fn revision(&self, agent: &AgentName, number: u64) -> Result<Option<Revision>, Error> {
        let tables = self.tables().await?;
        Ok(tables.stored(agent).iter().find(|s| s.revision.number == number).map(|s| s.revision.clone()))
    }

    async fn revision_at(&self, agent: &AgentName, seq: u64) -> Result<Option<Revision>, Error> {
        let tables = self.tables().await?;
        let newest = tables.stored(agent).iter().rev().find(|s| s.revision.position.seq <= seq);
        Ok(newest.map(|stored| stored.revision.clone()))
    }

    async fn revisions(
        &self,
        agent: &AgentName,
        below: Option<u64>,
        seq: u64,
        limit: usize,
    ) -> Result<Vec<Revision>, Error> {
        let tables = self.tables().await?;
        let wanted = |revision: &&Revision| {
            revision.position.seq <= seq && below.is_none_or(|below| revision.number < below)
        };
        let newest_first = tables.stored(agent).iter().rev().map(|stored| &stored.revision);
        Ok(newest_first.filter(wanted).take(limit).cloned().collect())
    }

    async fn card(&self, agent: &AgentName, number: u64) -> Result<Option<Bytes>, Error> {
        let tables = self.tables().await?;
        let stored = tables.stored(agent).iter().find(|stored| stored.revision.number == number);
        Ok(stored.and_then(|stored| stored.card.as_ref()).map(|card| card.bytes().clone()))
    }

    async fn entries(&self, from: u64, limit: usize) -> Result<Vec<Entry>, Error> {
        let tables = self.tables().await?;
        let entries = tables.after(from.saturating_sub(1), limit);
        Ok(entries.map(|entry| Entry { card: None, ..entry.clone() }).collect())
    }

    async fn digest_at(&self, seq: u64) -> Result<Option<Digest>, Error> {
        Ok(self.tables().await?.digest_at(seq))
    }
}

#[async_trait]
impl Origins for Memory {
    async fn confirm(&self, items: &[(AgentName, Digest)]) -> Result<Vec<Confirmed>, Error> {
        let mut tables = self.tables().await?;
        let at = self.clock.now().wall();
        Ok(items.iter().map(|(agent, digest)| tables.confirm(agent, digest, at)).collect())
    }
}

#[async_trait]
impl ServiceClock for Memory {
    async fn tick(&self) -> Result<Duration, Error> {
        let mut tables = self.tables().await?;
        let now = self.clock.now().wall().as_micros();
        let (elapsed, advanced_at) = tables.service;
        tables.service = (ticked(elapsed, advanced_at, now), now);
        Ok(tables.service())
    }
}

#[async_trait]
impl Replicas for Memory {
    async fn report(&self, replicas: &[Replica]) -> Result<(), Error> {
        let mut tables = self.tables().await?;
        let Some(first) = replicas.first() else { return Ok(()) };
        let now = self.clock.now().wall();
        let held = &mut tables.replicas;
        held.retain(|_, reported| now.since(reported.at) <= REPLICA_KEPT);
        for replica in replicas {
            let at = now.before(replica.silent);
            // One of the future is of a clock that was set back since.
            if held.get(&replica.replica).is_none_or(|kept| kept.at <= at || kept.at > now) {
                let reported = Reported { replica: replica.clone(), reporter: first.replica.clone(), at };
                held.insert(replica.replica.clone(), reported);
            }
        }
        if first.omitted.is_some() {
            let named = |name: &String| replicas.iter().any(|replica| replica.replica == *name);
            held.retain(|name, reported| reported.reporter != first.replica || named(name));
        }
        Ok(())
    }

    async fn replicas(&self, within: Duration) -> Result<Vec<Replica>, Error> {
        let tables = self.tables().await?;
        let now = self.clock.now().wall();
        let said = |reported: &Reported| {
            let silent = now.since(reported.at);
            (silent <= within).then(|| Replica { silent, ..reported.replica.clone() })
        };
        let mut found: Vec<Replica> = tables.replicas.values().filter_map(said).collect();
        found.sort_by_key(|replica| replica.silent);
        found.truncate(REPLICAS_MAX);
        Ok(found)
    }
}

#[async_trait]
impl Store for Memory {
    async fn begin(&self) -> Result<Box<dyn Txn>, Error> {
        let tables = self.tables().await?;
        let staged = tables.clone();
        Ok(Box::new(Transaction {
            ledger_id: tables.ledger_id.clone(),
            tables,
            staged,
            now: self.clock.now().wall(),
        }))
    }
}

/// Holds the lock; works on a copy that takes the place of the tables at the commit.
struct Transaction {
    ledger_id: String,
    tables: OwnedMutexGuard<Tables>,
    staged: Tables,
    now: Timestamp,
}

impl Transaction {
    fn seen(&self, key: &Key) -> Seen {
        let stored = self.staged.stored(&key.agent);
        let current = stored.last().map(|stored_last| SeenRevision {
            number: stored_last.revision.number,
            position: stored_last.revision.position,
            kind: stored_last.revision.kind,
            raw_digest: stored_last.revision.facts.as_ref().map(|facts| facts.raw_digest),
            content_digest: stored_last.revision.facts.as_ref().map(|facts| facts.content_digest),
            last_card: stored
                .iter()
                .rev()
                .find(|stored| stored.revision.kind == RevisionKind::Card)
                .and_then(|stored| stored.revision.facts.as_ref())
                .map(|facts| facts.raw_digest),
            last_card_checked: None,
        });
        let request = self.staged.requests.get(&(key.principal.clone(), key.request_id.clone()));
        let liveness = self.staged.liveness.get(&key.agent);
        Seen {
            current,
            request: request.and_then(|row| {
                let of = self.staged.stored(&row.agent).iter().find(|s| s.revision.number == row.revision)?;
                Some(PriorRequest {
                    names: row.names,
                    outcome: row.outcome,
                    revision: row.revision,
                    position: of.revision.position,
                    change: of.revision.change.clone().filter(|_| row.outcome != super::Outcome::Unchanged),
                })
            }),
            release: liveness.and_then(|row| row.release.clone()),
            registers: liveness.map(|row| row.registers.clone()).unwrap_or_default(),
            confirmed_at: liveness.map(|row| row.origin_confirmed_at),
            digest_at_expected: key.expect_seq.and_then(|seq| self.staged.digest_at(seq)),
        }
    }
}

#[async_trait]
impl Txn for Transaction {
    fn ledger_id(&self) -> &str {
        &self.ledger_id
    }

    fn head(&self) -> Head {
        self.staged.head()
    }

    fn now(&self) -> Timestamp {
        self.now
    }

    fn service(&self) -> Duration {
        self.staged.service()
    }

    async fn lookup(&mut self, keys: &[Key]) -> Result<Vec<Seen>, Error> {
        Ok(keys.iter().map(|key| self.seen(key)).collect())
    }

    async fn append(&mut self, rows: &Rows) -> Result<(), Error> {
        for entry in &rows.entries {
            self.staged.entries.push(entry.clone());
        }
        for (revision, card) in &rows.revisions {
            let stored = Stored { revision: revision.clone(), card: card.clone() };
            self.staged.revisions.entry(revision.agent.clone()).or_default().push(stored);
        }
        for row in &rows.requests {
            self.staged.requests.insert((row.principal.clone(), row.request_id.clone()), row.clone());
        }
        for row in &rows.liveness {
            self.staged.liveness.insert(row.agent.clone(), row.clone());
        }
        Ok(())
    }

    async fn forget_requests(&mut self, before: Timestamp) -> Result<u64, Error> {
        let held = self.staged.requests.len();
        self.staged.requests.retain(|_, row| row.at >= before);
        Ok((held - self.staged.requests.len()) as u64)
    }

    async fn commit(mut self: Box<Self>) -> Result<(), CommitError> {
        *self.tables = self.staged;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::conformance::{Backend, Ledger};

    struct InMemory;

    #[async_trait]
    impl Backend for InMemory {
        async fn fresh(&self) -> Ledger {
            Ledger::over(Memory::new("5f1b6f0e-8a0c-4a0a-9d5c-0e1f2a3b4c5d", Clock::System))
        }
    }

    crate::ledger_conformance!(InMemory);
}
