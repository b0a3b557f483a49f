//! What a batch of writes comes to: judged in order, each against what those before it made. Pure but for salt.
//!
//! Runs while the ledger's lock is held, on what was looked up under it. Makes the rows and the answers; that
//! they are written, and that an answer is only given then, is [`super::writer`]'s.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::write::{LivenessRow, RequestRow};
use super::{
    Append, Body, CardKept, Entry, Head, Judge, Kind, Lease, Op, Outcome, PriorRequest, REGISTERS_KEPT,
    Receipt, Registered, Revision, RevisionKind, Rows, Seen, SeenRevision, Verdict, Write, WriteError, chain,
};
use crate::terms::{AgentName, Digest, Position, Principal, RequestId, Timestamp, random_bytes};

/// What a batch comes to.
pub(super) struct Decided {
    pub(super) rows: Rows,
    pub(super) answers: Vec<Result<Receipt, WriteError>>,
}

/// What earlier writes of the batch made of an agent.
#[derive(Clone)]
struct Made {
    current: SeenRevision,
    release: Option<String>,
    registers: Vec<Timestamp>,
    confirmed_at: Option<Timestamp>,
}

/// Judges the writes of a batch in order, each against what those before it made.
pub(super) fn decide(
    judge: &dyn Judge,
    head: Head,
    now: Timestamp,
    service: Duration,
    writes: &[&Write],
    seen: Vec<Seen>,
) -> Decided {
    let (made, requests) = (HashMap::new(), HashMap::new());
    let mut batch = Batch { head, now, service, rows: Rows::default(), made, requests };
    let answers = writes.iter().zip(seen).map(|(write, seen)| batch.one(judge, write, seen)).collect();
    let mut rows = batch.rows;
    // One liveness row per agent: the last one holds what the earlier ones said.
    let mut last = HashMap::new();
    for row in rows.liveness.drain(..) {
        last.insert(row.agent.clone(), row);
    }
    rows.liveness = last.into_values().collect();
    // Rows are locked in one order, whoever writes them.
    rows.liveness.sort_by(|a, b| a.agent.cmp(&b.agent));
    Decided { rows, answers }
}

struct Batch {
    head: Head,
    now: Timestamp,
    service: Duration,
    rows: Rows,
    made: HashMap<AgentName, Made>,
    requests: HashMap<(Principal, RequestId), PriorRequest>,
}

impl Batch {
    fn one(&mut self, judge: &dyn Judge, write: &Write, mut seen: Seen) -> Result<Receipt, WriteError> {
        if let Some(made) = self.made.get(&write.agent) {
            seen.current = Some(made.current.clone());
            seen.release.clone_from(&made.release);
            seen.registers.clone_from(&made.registers);
            seen.confirmed_at = made.confirmed_at;
        }
        if let Some(prior) = self.requests.get(&(write.principal.clone(), write.request_id.clone())) {
            seen.request = Some(prior.clone());
        }
        match judge.judge(write, &seen) {
            Verdict::Append(append) => self.append(write, &seen, append),
            Verdict::Unchanged { release } => self.unchanged(write, seen, release),
            Verdict::Replay => match seen.request {
                Some(prior) => Ok(Receipt {
                    superseded: seen.current.is_some_and(|current| current.number > prior.revision),
                    outcome: prior.outcome,
                    revision: prior.revision,
                    position: Some(prior.position),
                    change: prior.change,
                    replayed: true,
                }),
                None => Err(WriteError::Internal),
            },
            Verdict::Refuse(refusal) => Err(WriteError::Refused(refusal)),
            Verdict::Rebase => Err(WriteError::Rebase),
        }
    }

    fn unchanged(
        &mut self,
        write: &Write,
        seen: Seen,
        release: Option<String>,
    ) -> Result<Receipt, WriteError> {
        let Some(current) = seen.current else { return Err(WriteError::Internal) };
        let receipt = Receipt {
            outcome: Outcome::Unchanged,
            revision: current.number,
            position: Some(current.position),
            change: None,
            superseded: false,
            replayed: false,
        };
        if !write.dry_run {
            self.remember(write, &receipt, current.position);
            self.keep(write, current, release, seen.registers, seen.confirmed_at);
        }
        Ok(receipt)
    }

    fn append(&mut self, write: &Write, seen: &Seen, append: Append) -> Result<Receipt, WriteError> {
        let number = seen.current.as_ref().map_or(0, |current| current.number) + 1;
        let mut receipt = Receipt {
            outcome: append.outcome,
            revision: number,
            position: None,
            change: append.change.clone(),
            superseded: false,
            replayed: false,
        };
        if write.dry_run {
            return Ok(receipt);
        }
        let seq = self.head.seq + 1;
        let (kind, facts, card) = match &write.op {
            Op::Register { card, release, source, .. } => {
                let facts = Registered {
                    revision: number,
                    raw_digest: card.raw_digest(),
                    content_digest: card.content_digest(),
                    skill_fingerprint: card.skill_fingerprint(),
                    negotiation_fingerprint: card.negotiation_fingerprint(),
                    generation: card.generation(),
                    card_version: card.version().map(str::to_owned),
                    release: release.clone(),
                    class: append.change.as_ref().map(|change| change.class),
                    silent: append.change.as_ref().map(|change| change.silent),
                    source: source.clone(),
                };
                (Kind::CardRegistered(facts.clone()), Some(facts), Some(Arc::clone(card)))
            }
            Op::Retire => (Kind::CardRetired { revision: number }, None, None),
        };
        let body = Body {
            seq,
            kind,
            subject: write.agent.as_str().to_owned(),
            principal: write.principal.clone(),
            at: self.now,
            request_id: write.request_id.clone(),
            note: write.note.clone(),
            salt: hex::encode(random_bytes::<16>()),
        };
        let body = body.to_canonical().map_err(|_| WriteError::Internal)?;
        let body_digest = Digest::of(body.as_bytes());
        let digest = chain::link(&self.head.digest, &body_digest);
        let entry =
            Entry { seq, digest, body_digest, body: body.into(), card: card.clone().map(CardKept::Checked) };
        self.head = Head { seq, digest };
        let position = entry.position();
        receipt.position = Some(position);

        let last_card = card.as_ref().map(|card| card.raw_digest());
        let current = SeenRevision {
            number,
            position,
            kind: if card.is_some() { RevisionKind::Card } else { RevisionKind::Tombstone },
            raw_digest: last_card,
            content_digest: card.as_ref().map(|card| card.content_digest()),
            last_card: last_card.or_else(|| seen.current.as_ref().and_then(|current| current.last_card)),
            last_card_checked: card
                .clone()
                .or_else(|| seen.current.as_ref().and_then(|current| current.last_card_checked.clone())),
        };
        let revision = Revision {
            agent: write.agent.clone(),
            number,
            position,
            kind: current.kind,
            registered_at: self.now,
            registered_by: write.principal.clone(),
            note: write.note.clone(),
            facts,
            change: append.change,
        };
        self.rows.entries.push(entry);
        self.rows.revisions.push((revision, card));
        self.remember(write, &receipt, position);
        self.keep(write, current, append.release, seen.registers.clone(), seen.confirmed_at);
        Ok(receipt)
    }

    fn remember(&mut self, write: &Write, receipt: &Receipt, position: Position) {
        let prior = PriorRequest {
            names: write.names,
            outcome: receipt.outcome,
            revision: receipt.revision,
            position,
            change: receipt.change.clone(),
        };
        self.requests.insert((write.principal.clone(), write.request_id.clone()), prior);
        self.rows.requests.push(RequestRow {
            principal: write.principal.clone(),
            request_id: write.request_id.clone(),
            names: write.names,
            outcome: receipt.outcome,
            agent: write.agent.clone(),
            revision: receipt.revision,
            at: self.now,
        });
    }

    fn keep(
        &mut self,
        write: &Write,
        current: SeenRevision,
        release: Option<String>,
        registers: Vec<Timestamp>,
        confirmed_at: Option<Timestamp>,
    ) {
        // A retirement confirms nothing, and ends the lease.
        let (registers, confirmed_at, ttl) = match &write.op {
            Op::Register { ttl, .. } => (with_register(registers, self.now), Some(self.now), *ttl),
            Op::Retire => (registers, confirmed_at, None),
        };
        if let Some(confirmed) = confirmed_at {
            self.rows.liveness.push(LivenessRow {
                agent: write.agent.clone(),
                revision: current.number,
                origin_confirmed_at: confirmed,
                registers: registers.clone(),
                release: release.clone(),
                lease: ttl.map(|ttl| Lease { ttl, confirmed: self.service }),
            });
        }
        self.made.insert(write.agent.clone(), Made { current, release, registers, confirmed_at });
    }
}

fn with_register(mut registers: Vec<Timestamp>, now: Timestamp) -> Vec<Timestamp> {
    registers.push(now);
    if registers.len() > REGISTERS_KEPT {
        registers.remove(0);
    }
    registers
}
