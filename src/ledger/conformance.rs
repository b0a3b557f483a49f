//! One suite for every ledger: what [`super`] promises, as tests that know nothing of the backend.
//!
//! A backend says how to make an empty ledger ([`Backend`]) and expands [`ledger_conformance!`] in a test
//! module; every case is then a test of its own there. Cases that need a transaction of their own, or what else
//! no wire says, are apart, since a ledger may be reached over the wire. `memory` runs the suite as well: it is
//! the model, and a case that it does not pass is wrong.
//!
//! Writes go through the real [`writer`](super::writer), judged by a plain judge of the suite's own ([`judge`]);
//! over the wire the registry judges, and must come to the same.

#![expect(clippy::unwrap_used, reason = "a suite of tests, compiled for the tests of other backends too")]

pub mod judge;
pub mod origins;
pub mod reading;
pub mod replicas;
pub mod transactions;
pub mod writing;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use self::judge::Plain;
use super::writer::{Limits, Writer};
use super::{
    Against, CardKept, Confirmed, Entries, Entry, Expect, History, Op, Origins, Outcome, Reading, Receipt,
    Replicas, RevisionKind, ServiceClock, Store, Write, WriteError, Writes,
};
use crate::card::{self, Card, Change};
use crate::telemetry::Metrics;
use crate::terms::{AgentName, Digest, Principal, Reason, RequestId};

/// How long a test waits for one write. Longer than a loaded machine needs.
const PATIENCE: Duration = Duration::from_secs(30);

/// Makes ledgers to test.
#[async_trait]
pub trait Backend: Send + Sync {
    /// An empty ledger that nobody else uses. Kept as long as the test runs.
    async fn fresh(&self) -> Ledger;
}

/// A ledger under test.
pub struct Ledger {
    pub writes: Arc<dyn Writes>,
    pub entries: Arc<dyn Entries>,
    pub history: Arc<dyn History>,
    /// Where origins are confirmed.
    pub origins: Option<Arc<dyn Origins>>,
    /// For the cases that need a transaction of their own.
    pub store: Option<Arc<dyn Store>>,
    /// For the cases that need the service clock.
    pub service: Option<Arc<dyn ServiceClock>>,
    /// For the cases that report.
    pub replicas: Option<Arc<dyn Replicas>>,
    /// Whatever must live as long as the ledger does: folders, databases, servers.
    pub keep: Vec<Box<dyn std::any::Any + Send + Sync>>,
    _stop: Option<DropGuard>,
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ledger").field("entries", &self.entries).finish_non_exhaustive()
    }
}

impl Ledger {
    /// A store of this process, with a writer in front.
    pub fn over(store: impl Store + Entries + History + Origins + ServiceClock + Replicas + Clone) -> Self {
        let kept = Arc::new(store);
        let (writes, stop) = start_writer(Arc::clone(&kept) as Arc<dyn Store>);
        Self {
            writes,
            entries: Arc::clone(&kept) as Arc<dyn Entries>,
            history: Arc::clone(&kept) as Arc<dyn History>,
            origins: Some(Arc::clone(&kept) as Arc<dyn Origins>),
            service: Some(Arc::clone(&kept) as Arc<dyn ServiceClock>),
            replicas: Some(Arc::clone(&kept) as Arc<dyn Replicas>),
            store: Some(kept),
            keep: Vec::new(),
            _stop: Some(stop),
        }
    }

    /// A ledger that is reached in another way, such as over the wire.
    pub fn remote(writes: Arc<dyn Writes>, entries: Arc<dyn Entries>, history: Arc<dyn History>) -> Self {
        let (origins, store, service, replicas) = (None, None, None, None);
        Self { writes, entries, history, origins, store, service, replicas, keep: Vec::new(), _stop: None }
    }

    /// Confirms agents, each with the content digest of the card beside it.
    pub async fn confirm(&self, items: &[(&str, &Card)]) -> Vec<Confirmed> {
        let items: Vec<_> = items.iter().map(|(name, card)| (agent(name), card.content_digest())).collect();
        let origins = self.origins.as_ref().expect("this case confirms origins");
        origins.confirm(&items).await.expect("the ledger is reached")
    }

    fn service(&self) -> &dyn ServiceClock {
        &**self.service.as_ref().expect("this case needs the service clock")
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(self.store.as_ref().expect("this case needs a store"))
    }

    /// The whole ledger, read in pages through one session.
    pub async fn read_all(&self) -> Vec<Entry> {
        let mut reading = self.reading().await;
        let mut all: Vec<Entry> = Vec::new();
        loop {
            let after = all.last().map_or(0, |entry| entry.seq);
            let page = reading.read(after, 100).await.expect("entries can be read");
            if page.is_empty() {
                return all;
            }
            all.extend(page);
        }
    }

    async fn reading(&self) -> Box<dyn Reading> {
        self.entries.open().await.expect("a session can be opened")
    }

    /// Submits a write; when its change has to be computed again, does that, as the registry would.
    pub async fn submit(&self, mut write: Write) -> Result<Receipt, WriteError> {
        loop {
            match self.writes.submit(write.clone()).await {
                Err(WriteError::Rebase) => self.rebase(&mut write).await,
                answer => return answer,
            }
        }
    }

    async fn rebase(&self, write: &mut Write) {
        let newest =
            self.history.revisions(&write.agent, None, u64::MAX, 2).await.expect("history can be read");
        let last = newest.iter().find(|revision| revision.kind == RevisionKind::Card);
        let number = last.expect("a change is against a card").number;
        let bytes = self.history.card(&write.agent, number).await.expect("history can be read");
        let before = checked(&bytes.expect("a card has bytes"));
        let Op::Register { card, against, .. } = &mut write.op else { panic!("a retirement has no change") };
        *against = Some(Against { raw_digest: before.raw_digest(), change: Change::between(&before, card) });
    }

    /// Registers, and expects to be accepted.
    pub async fn register(&self, agent: &str, card: &Arc<Card>) -> Receipt {
        self.submit(register(agent, card)).await.expect("the register is accepted")
    }

    /// Retires, and expects to be accepted.
    pub async fn retire(&self, agent: &str) -> Receipt {
        self.submit(retire(agent)).await.expect("the retirement is accepted")
    }
}

/// A writer before a store, judged plainly.
pub fn start_writer(store: Arc<dyn Store>) -> (Arc<dyn Writes>, DropGuard) {
    start_writer_with(store, Metrics::new())
}

fn start_writer_with(store: Arc<dyn Store>, metrics: Metrics) -> (Arc<dyn Writes>, DropGuard) {
    let stop = CancellationToken::new();
    // Nobody listens: what was committed is read from the ledger.
    let (committed, _) = mpsc::channel(1);
    let (writer, _) =
        Writer::start(store, Arc::new(Plain), committed, Limits::default(), metrics, stop.clone());
    (Arc::new(writer), stop.drop_guard())
}

/// An agent's name.
pub fn agent(name: &str) -> AgentName {
    name.parse().expect("the test names an agent")
}

/// A checked card.
pub fn checked(bytes: &[u8]) -> Arc<Card> {
    let card = Card::check(Bytes::copy_from_slice(bytes), &card::Limits::default());
    Arc::new(card.expect("the test's card is accepted"))
}

/// A small card of some version with some skills.
pub fn small_card(version: &str, skills: &[&str]) -> Arc<Card> {
    let skills: Vec<_> = skills
        .iter()
        .map(|id| serde_json::json!({"id": id, "name": id, "description": "Does it.", "tags": []}))
        .collect();
    let card = serde_json::json!({
        "name": "Worker",
        "description": "Works.",
        "url": "https://worker.example.com/a2a",
        "version": version,
        "protocolVersion": "0.3.0",
        "preferredTransport": "JSONRPC",
        "capabilities": {},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": skills,
    });
    checked(card.to_string().as_bytes())
}

/// A register of `card` under a new request id, whatever is current.
pub fn register(agent: &str, card: &Arc<Card>) -> Write {
    let op = Op::Register { card: Arc::clone(card), against: None, release: None, source: None, ttl: None };
    write(agent, op, card.raw_digest())
}

/// A retirement under a new request id.
pub fn retire(agent: &str) -> Write {
    write(agent, Op::Retire, Digest::of(b"retire"))
}

fn write(agent: &str, op: Op, names: Digest) -> Write {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let request = format!("request-{}", NEXT.fetch_add(1, Ordering::Relaxed));
    Write {
        agent: self::agent(agent),
        principal: Principal::anonymous(),
        request_id: request.parse().expect("the id is well formed"),
        names: Digest::of_both(agent.as_bytes(), names.as_bytes()),
        op,
        expect: Expect::Any,
        note: None,
        dry_run: false,
        deadline: Instant::now() + PATIENCE,
    }
}

/// Variations of a write.
impl Write {
    #[must_use]
    pub fn under(self, principal: &str, request_id: &str) -> Self {
        let request_id: RequestId = request_id.parse().expect("the id is well formed");
        Self { principal: Principal::from(principal), request_id, ..self }
    }

    #[must_use]
    pub fn expecting(self, expect: Expect) -> Self {
        Self { expect, ..self }
    }

    /// With the change computed against `before`.
    #[must_use]
    pub fn against(mut self, before: &Card) -> Self {
        if let Op::Register { card, against, .. } = &mut self.op {
            *against =
                Some(Against { raw_digest: before.raw_digest(), change: Change::between(before, card) });
        }
        self
    }

    #[must_use]
    pub fn with_lease(mut self, lease: Duration) -> Self {
        if let Op::Register { ttl, .. } = &mut self.op {
            *ttl = Some(lease);
        }
        self
    }

    #[must_use]
    pub fn of_release(mut self, number: &str) -> Self {
        if let Op::Register { release, .. } = &mut self.op {
            *release = Some(number.to_owned());
        }
        self
    }
}

/// The reason of a refusal.
pub fn reason(answer: Result<Receipt, WriteError>) -> Reason {
    match answer {
        Err(WriteError::Refused(refusal)) => refusal.reason,
        other => panic!("a refusal was expected, not {other:?}"),
    }
}

/// Outcome and revision of what was accepted.
pub fn outcome(answer: &Receipt) -> (Outcome, u64) {
    (answer.outcome, answer.revision)
}

fn bytes_of(entry: &Entry) -> Option<Bytes> {
    entry.card.as_ref().map(|card| match card {
        CardKept::Bytes(bytes) => bytes.clone(),
        CardKept::Checked(card) => card.bytes().clone(),
    })
}

/// Expands to a test for each case, in a module of tests. The argument is a [`Backend`]; with `remote:` before
/// it, the cases are left out that no wire can put: those that need a store or its reports, a second principal, a note that the
/// registry refuses, or the liveness table beyond the moment at which each live agent was confirmed.
#[macro_export]
macro_rules! ledger_conformance {
    (remote: $backend:expr) => {
        $crate::ledger_conformance!(@cases $backend;
            writing::the_sequence_is_dense_and_chained_under_concurrent_writes
            writing::cards_are_kept_byte_for_byte
            writing::bodies_keep_any_text
            writing::a_request_id_returns_its_first_outcome
            writing::a_request_id_names_its_bytes
            writing::an_unchanged_register_moves_liveness_only
            writing::the_highest_release_counts_unchanged_registers
            writing::what_is_expected_is_checked
            writing::a_tombstone_is_a_revision_without_a_card
            writing::a_dry_run_writes_nothing
            writing::similar_names_are_different_agents
            reading::an_empty_ledger_has_an_origin
            reading::the_head_is_the_last_entry
            reading::history_tells_what_was_current
            reading::revisions_are_paged_newest_first
            reading::entries_are_paged_in_order
            reading::large_cards_are_read_whole
            reading::unknown_things_are_absent
            origins::the_current_card_is_confirmed
            origins::another_card_confirms_nothing
            origins::a_thousand_are_confirmed_at_once
            origins::a_confirmation_races_with_registers
        );
    };
    ($backend:expr) => {
        $crate::ledger_conformance!(remote: $backend);
        $crate::ledger_conformance!(@cases $backend;
            writing::bodies_keep_a_nul
            writing::a_request_id_is_its_principals_own
            writing::liveness_is_read_since_a_moment
            writing::so_many_registers_are_kept
            replicas::a_replica_is_kept_as_it_reported
            replicas::a_later_report_takes_the_place_of_an_earlier_one
            replicas::a_replica_that_is_omitted_now_is_forgotten
            replicas::a_replica_that_was_silent_for_a_week_is_forgotten
            transactions::a_batch_is_judged_in_order
            transactions::a_bad_write_fails_alone
            transactions::a_dropped_transaction_leaves_nothing
            transactions::an_abandoned_wait_holds_nothing
            transactions::what_the_lock_shows_is_what_was_committed
            transactions::forgotten_requests_may_be_used_again
            transactions::two_writers_stay_dense
            origins::heartbeats_are_no_registers
            origins::each_register_states_its_lease
            origins::a_confirmation_renews_the_lease
            origins::a_register_on_its_way_is_waited_for
            origins::the_service_clock_counts_ticks
            origins::confirmations_and_registers_do_not_lock_each_other_out
        );
    };
    (@cases $backend:expr; $($module:ident::$case:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let ledger = $crate::ledger::conformance::Backend::fresh(&$backend).await;
                $crate::ledger::conformance::$module::$case(&ledger).await;
            }
        )*
    };
}
