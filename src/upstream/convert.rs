//! Between the wire's messages and the ledger's types, for an edge: the one place here where one becomes the other.
//!
//! What an upstream says is checked as far as it can be read at all; whether it is true, the view finds out by
//! digest. What cannot be read is `Corrupt`, what was not answered is `Unavailable`.

use std::error::Error as _;
use std::fmt::Display;
use std::time::Duration;

use bytes::Bytes;
use prost::{Message as _, Name as _};
use tonic::Status;

use crate::card::{Change, Class, Item};
use crate::ledger::{
    CardKept, Entry, Error, Expect, Head, HeadReport, Image, Lease, Liveness, Op, Outcome, Receipt, Refusal,
    Registered, Revision, RevisionKind, Snapshot, Write, WriteError, names,
};
use crate::proto::v1 as pb;
use crate::proto::v1::get_revision_request::Which;
use crate::proto::v1::replicate_request::Ask;
use crate::proto::v1::replicate_response::Answer;
use crate::terms::{AgentName, Digest, Position, Principal, Reason, SetDigest, Tag, Timestamp};

/// Marks a register as the rollback that it is: `rollback:<revision>`.
const ROLLBACK: &str = "rollback:";

pub(super) fn head_wanted(asked: u64, confirm: Option<Duration>) -> pb::ReplicateRequest {
    let millis = |within: Duration| u32::try_from(within.as_millis()).unwrap_or(u32::MAX);
    asking(Ask::Head(pb::HeadWanted { asked, confirm_within_ms: confirm.map(millis) }))
}

pub(super) fn entries_wanted(after: u64, limit: usize) -> pb::ReplicateRequest {
    asking(Ask::Entries(pb::EntriesWanted { after, limit: u32::try_from(limit).unwrap_or(u32::MAX) }))
}

pub(super) fn liveness_wanted(since: Option<Timestamp>) -> pb::ReplicateRequest {
    asking(Ask::Liveness(pb::LivenessWanted { since_micros: since.map(Timestamp::as_micros) }))
}

fn asking(ask: Ask) -> pb::ReplicateRequest {
    pb::ReplicateRequest { ask: Some(ask) }
}

/// The upstream's own report: its hops are not counted up yet.
pub(super) fn head(answer: Answer) -> Result<HeadReport, Error> {
    let Answer::Head(said) = answer else { return Err(unexpected("a head")) };
    Ok(HeadReport {
        head: Head { seq: said.seq, digest: digest(&said.digest)? },
        ledger_id: said.ledger_id,
        in_recovery: false,
        tag_at_asked: said.tag_at_asked.map(Tag),
        wall: Timestamp::from_micros(said.wall_micros),
        age: said.age_micros.map(Duration::from_micros),
        hops: said.hops,
        service: Duration::from_micros(said.service_micros),
    })
}

pub(super) fn entries(said: pb::EntriesSaid) -> Result<Vec<Entry>, Error> {
    let entry = |sent: pb::ReplicatedEntry| {
        Ok(Entry {
            seq: sent.seq,
            digest: digest(&sent.digest)?,
            body_digest: digest(&sent.body_digest)?,
            body: sent.body.into(),
            card: sent.card.as_ref().map(own).map(CardKept::Bytes),
        })
    };
    said.entries.into_iter().map(entry).collect()
}

pub(super) fn liveness(said: pb::LivenessSaid) -> Result<Vec<Liveness>, Error> {
    let row = |sent: pb::AgentLiveness| {
        Ok(Liveness {
            agent: parsed("an agent's name", &sent.agent)?,
            revision: sent.revision,
            origin_confirmed_at: Timestamp::from_micros(sent.confirmed_micros),
            registers: sent.registers_micros.into_iter().map(Timestamp::from_micros).collect(),
            lease: sent.lease_ttl_micros.map(|ttl| Lease {
                ttl: Duration::from_micros(ttl),
                confirmed: Duration::from_micros(sent.lease_confirmed_micros),
            }),
        })
    };
    said.agents.into_iter().map(row).collect()
}

/// A snapshot on its way.
pub(super) struct Arriving {
    snapshot: Snapshot,
    sum: SetDigest,
}

impl Arriving {
    pub(super) fn begin(begin: pb::SnapshotBegin) -> Result<Self, Error> {
        let head = Head { seq: begin.seq, digest: digest(&begin.digest)? };
        let snapshot = Snapshot { ledger_id: begin.ledger_id, head, tags: Vec::new(), agents: Vec::new() };
        Ok(Self { snapshot, sum: SetDigest::default() })
    }

    pub(super) fn tags(&mut self, said: pb::SnapshotTags) -> Result<(), Error> {
        self.snapshot.tags.extend(said.tags.into_iter().map(Tag));
        if self.snapshot.tags.len() as u64 > self.snapshot.head.seq.saturating_add(1) {
            return Err(Error::Corrupt("a snapshot has more digests than entries".to_owned()));
        }
        Ok(())
    }

    pub(super) fn agents(&mut self, said: pb::SnapshotAgents) -> Result<(), Error> {
        for sent in said.agents {
            let agent: AgentName = parsed("an agent's name", &sent.agent)?;
            let card = sent.card.as_ref().map(own);
            if let Some(card) = card.as_ref().filter(|_| !sent.retired) {
                self.sum = self.sum.plus(SetDigest::of(&agent, sent.revision, &Digest::of(card)));
            }
            self.snapshot.agents.push(Image {
                agent,
                revision: sent.revision,
                position: Position { seq: sent.seq, tag: Tag(sent.tag) },
                registered_at: Timestamp::from_micros(sent.registered_micros),
                registered_by: Principal::from(sent.registered_by.as_str()),
                card,
                retired: sent.retired,
            });
        }
        Ok(())
    }

    /// The whole, if it is what the upstream meant to send.
    pub(super) fn end(self, said: &pb::SnapshotEnd) -> Result<Snapshot, Error> {
        if self.sum.to_string() != said.set_digest {
            return Err(Error::Corrupt(
                "the agents of a snapshot are not those that its end names".to_owned(),
            ));
        }
        Ok(self.snapshot)
    }
}

pub(super) fn revision_wanted(agent: &AgentName, which: Which) -> pb::GetRevisionRequest {
    pb::GetRevisionRequest {
        agent: agent.to_string(),
        which: Some(which),
        max_staleness: any(),
        ..Default::default()
    }
}

pub(super) fn revisions_wanted(
    agent: &AgentName,
    below: Option<u64>,
    limit: usize,
) -> pb::ListRevisionsRequest {
    pb::ListRevisionsRequest {
        agent: agent.to_string(),
        page_size: Some(u32::try_from(limit).unwrap_or(u32::MAX)),
        below,
        max_staleness: any(),
        ..Default::default()
    }
}

pub(super) fn ledger_wanted(from: u64, limit: usize) -> pb::ReadLedgerRequest {
    pb::ReadLedgerRequest {
        from,
        limit: Some(u32::try_from(limit).unwrap_or(u32::MAX)),
        max_staleness: any(),
        ..Default::default()
    }
}

fn any() -> Option<pb::MaxStaleness> {
    Some(pb::MaxStaleness { bound: Some(pb::max_staleness::Bound::Any(pb::AnyStaleness {})) })
}

pub(super) fn ledger_page(said: pb::ReadLedgerResponse) -> Result<Vec<Entry>, Error> {
    let entry = |sent: pb::LedgerEntry| {
        Ok(Entry {
            seq: sent.seq,
            digest: parsed("a digest", &sent.digest)?,
            body_digest: parsed("a digest", &sent.body_digest)?,
            body: sent.body.into(),
            card: None,
        })
    };
    said.entries.into_iter().map(entry).collect()
}

pub(super) fn revisions(agent: &AgentName, said: pb::ListRevisionsResponse) -> Result<Vec<Revision>, Error> {
    said.items.into_iter().map(|sent| revision(agent, Some(sent))).collect()
}

pub(super) fn revision(agent: &AgentName, sent: Option<pb::Revision>) -> Result<Revision, Error> {
    let sent = sent.ok_or_else(|| unexpected("a revision"))?;
    let kind = match sent.kind() {
        pb::RevisionKind::Card => RevisionKind::Card,
        pb::RevisionKind::Tombstone => RevisionKind::Tombstone,
        pb::RevisionKind::Unspecified => return Err(unexpected("the kind of a revision")),
    };
    let change = sent.change.map(change).transpose()?;
    let facts = match kind {
        RevisionKind::Tombstone => None,
        RevisionKind::Card => Some(Registered {
            revision: sent.revision,
            raw_digest: parsed("a digest", &sent.raw_digest.unwrap_or_default())?,
            content_digest: parsed("a digest", &sent.content_digest.unwrap_or_default())?,
            skill_fingerprint: parsed("a fingerprint", &sent.skill_fingerprint.unwrap_or_default())?,
            negotiation_fingerprint: parsed(
                "a fingerprint",
                &sent.negotiation_fingerprint.unwrap_or_default(),
            )?,
            generation: parsed("a generation", &sent.generation.unwrap_or_default())?,
            card_version: sent.card_version,
            release: sent.release,
            class: change.as_ref().map(|change| change.class),
            silent: change.as_ref().map(|change| change.silent),
            source: sent.source,
        }),
    };
    Ok(Revision {
        agent: agent.clone(),
        number: sent.revision,
        position: parsed("a position", &sent.position)?,
        kind,
        registered_at: sent.registered_at.map(time).ok_or_else(|| unexpected("the time of a revision"))?,
        registered_by: Principal::from(sent.registered_by.as_str()),
        note: sent.note,
        facts,
        change,
    })
}

fn change(sent: pb::Change) -> Result<Change, Error> {
    let item = |item: pb::ChangeItem| {
        let class = class(item.class())?;
        // What a later version found is told by the general word for its class.
        let general = if class == Class::Cosmetic { "content_changed" } else { "negotiation_changed" };
        let kind = item.kind.parse().or_else(|_| parsed("a kind of change", general))?;
        Ok(Item { kind, class, pointer: item.pointer, subject: item.subject })
    };
    Ok(Change {
        class: class(sent.class())?,
        silent: sent.silent,
        items: sent.items.into_iter().map(item).collect::<Result<_, Error>>()?,
    })
}

fn class(sent: pb::ChangeClass) -> Result<Class, Error> {
    match sent {
        pb::ChangeClass::Cosmetic => Ok(Class::Cosmetic),
        pb::ChangeClass::Additive => Ok(Class::Additive),
        pb::ChangeClass::Breaking => Ok(Class::Breaking),
        pb::ChangeClass::Unspecified => Err(unexpected("the class of a change")),
    }
}

/// A write as the wire has it.
#[derive(Debug, Clone)]
pub(super) enum Call {
    Register(pb::RegisterRequest),
    Retire(pb::RetireRequest),
    Rollback(pb::RollbackRequest),
}

pub(super) fn call(write: &Write) -> Call {
    let agent = write.agent.to_string();
    let (expect, request_id) = (expect(write.expect), write.request_id.to_string());
    let (note, dry_run) = (write.note.clone(), write.dry_run);
    match &write.op {
        Op::Retire => Call::Retire(pb::RetireRequest { agent, expect, request_id, note, dry_run }),
        Op::Register { card, release, source, .. } => match rolled_back_to(write) {
            Some(to) => Call::Rollback(pb::RollbackRequest { agent, to, expect, request_id, note, dry_run }),
            None => Call::Register(pb::RegisterRequest {
                agent,
                card: card.bytes().clone(),
                expect,
                request_id,
                release: release.clone(),
                note,
                source: source.clone(),
                dry_run,
            }),
        },
    }
}

/// The revision that a register rolls back to. A request id names the operation too, so that tells it from a register
/// whose caller only says so: under its id it must be the same operation at every server.
fn rolled_back_to(write: &Write) -> Option<u64> {
    let Op::Register { card, release: None, source: Some(source), .. } = &write.op else { return None };
    let to = source.strip_prefix(ROLLBACK)?.parse().ok()?;
    let as_rollback = names("rollback", &write.agent, Some(&card.raw_digest()), write.expect, None);
    (as_rollback == write.names).then_some(to)
}

fn expect(expect: Expect) -> Option<pb::Expect> {
    use pb::expect::Current;
    let current = match expect {
        Expect::Any => return None,
        Expect::Absent => Current::Absent(pb::ExpectAbsent {}),
        Expect::Revision { number, seen_at: None } => Current::Revision(number.to_string()),
        Expect::Revision { number, seen_at: Some(at) } => Current::Revision(format!("{number}@{at}")),
        Expect::Digest(digest) => Current::Digest(digest.tagged()),
    };
    Some(pb::Expect { current: Some(current) })
}

/// The receipt of a write that was done; one that cannot be read leaves the outcome unknown.
pub(super) fn receipt(written: pb::Written) -> Result<Receipt, WriteError> {
    let read = || {
        Ok(Receipt {
            outcome: match written.outcome() {
                pb::Outcome::Created => Outcome::Created,
                pb::Outcome::Updated => Outcome::Updated,
                pb::Outcome::Unchanged => Outcome::Unchanged,
                pb::Outcome::Retired => Outcome::Retired,
                pb::Outcome::Unspecified => return Err(unexpected("the outcome of a write")),
            },
            revision: written.revision,
            position: written.position.as_deref().map(|text| parsed("a position", text)).transpose()?,
            change: written.change.clone().map(change).transpose()?,
            superseded: written.superseded,
            // The wire does not tell a repetition that is still current from the first.
            replayed: written.superseded,
        })
    };
    read().map_err(|error: Error| {
        tracing::error!(%error, "the upstream's answer to a write cannot be read");
        WriteError::OutcomeUnknown
    })
}

/// What a failed attempt to write came to.
#[derive(Debug)]
pub(super) enum Said {
    /// It is final, and this attempt has written nothing.
    Refused(WriteError),
    /// This attempt has written nothing, and another may do better.
    Nothing,
    /// It may have been written.
    Lost,
}

pub(super) fn said(status: &Status) -> Said {
    let Some(problem) = problem(status) else {
        return if was_sent(status) { Said::Lost } else { Said::Nothing };
    };
    let Some(reason) = Reason::ALL.iter().find(|reason| reason.slug() == problem.reason) else {
        tracing::error!(reason = problem.reason, "the upstream refused a write for a reason unknown here");
        return Said::Refused(WriteError::Internal);
    };
    match *reason {
        Reason::StoreUnavailable | Reason::Draining => Said::Nothing,
        Reason::OutcomeUnknown | Reason::DeadlineExceeded => Said::Lost,
        Reason::Overloaded => Said::Refused(WriteError::Overloaded),
        Reason::Internal => Said::Refused(WriteError::Internal),
        reason => Said::Refused(WriteError::Refused(Refusal {
            reason,
            detail: problem.detail,
            current: problem.revision,
            change: problem.change.and_then(|sent| change(sent).ok()),
        })),
    }
}

/// Whether a call that failed without a word of the upstream may have reached it.
fn was_sent(status: &Status) -> bool {
    let mut cause = status.source();
    while let Some(error) = cause {
        if error.is::<tonic::ConnectError>() {
            return false;
        }
        cause = error.source();
    }
    true
}

/// What the upstream says of a failed call, where it is the upstream that speaks.
pub(super) fn problem(status: &Status) -> Option<pb::Problem> {
    let whole = tonic_types::pb::Status::decode(status.details()).ok()?;
    let name = pb::Problem::full_name();
    let detail = whole.details.iter().find(|detail| detail.type_url.rsplit('/').next() == Some(&name))?;
    pb::Problem::decode(&*detail.value).ok()
}

/// What there is, or that there is none.
pub(super) fn known<T>(answer: Result<T, Status>) -> Result<Option<T>, Error> {
    let absent = [Reason::AgentNotFound, Reason::RevisionNotFound].map(Reason::slug);
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(status) if problem(&status).is_some_and(|said| absent.contains(&said.reason.as_str())) => {
            Ok(None)
        }
        Err(status) => Err(failed(&status)),
    }
}

/// The tombstone that was current, where that is why a call was refused.
pub(super) fn retired_as(status: &Status) -> Option<u64> {
    problem(status).filter(|said| said.reason == Reason::AgentRetired.slug())?.revision
}

pub(super) fn failed(status: &Status) -> Error {
    Error::Unavailable(match problem(status) {
        Some(said) => format!("the upstream refuses: {}: {}", said.reason, said.detail),
        None => format!("the upstream fails: {:?}: {}", status.code(), status.message()),
    })
}

pub(super) fn unreached(url: &str, error: &tonic::transport::Error) -> Error {
    let cause = error.source().map_or_else(|| error.to_string(), ToString::to_string);
    Error::Unavailable(format!("{url} is not reached: {cause}"))
}

/// The upstream said something else than `wanted`.
pub(super) fn unexpected(wanted: &str) -> Error {
    Error::Corrupt(format!("the upstream did not say {wanted}"))
}

/// A copy, so that a card does not keep the whole message alive for as long as it is served.
fn own(card: &Bytes) -> Bytes {
    Bytes::copy_from_slice(card)
}

fn digest(bytes: &[u8]) -> Result<Digest, Error> {
    Digest::try_from(bytes).map_err(|error| Error::Corrupt(error.to_string()))
}

fn parsed<T: std::str::FromStr<Err: Display>>(what: &str, text: &str) -> Result<T, Error> {
    text.parse().map_err(|error| Error::Corrupt(format!("{what} cannot be read: {error}")))
}

fn time(sent: prost_types::Timestamp) -> Timestamp {
    Timestamp::from_micros(
        sent.seconds.saturating_mul(1_000_000).saturating_add(i64::from(sent.nanos) / 1_000),
    )
}
