//! The past as an upstream tells it. What a later version says of a change is told by the general word for its class.

use super::{parsed, unexpected};
use crate::card::{Change, Class, Item};
use crate::ledger::{Entry, Error, Registered, Revision, RevisionKind};
use crate::proto::v1 as pb;
use crate::proto::v1::get_revision_request::Which;
use crate::terms::{AgentName, Principal, Timestamp};

pub(in super::super) fn revision_wanted(agent: &AgentName, which: Which) -> pb::GetRevisionRequest {
    pb::GetRevisionRequest {
        agent: agent.to_string(),
        which: Some(which),
        max_staleness: any(),
        ..Default::default()
    }
}

pub(in super::super) fn revisions_wanted(
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

pub(in super::super) fn ledger_wanted(from: u64, limit: usize) -> pb::ReadLedgerRequest {
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

pub(in super::super) fn ledger_page(said: pb::ReadLedgerResponse) -> Result<Vec<Entry>, Error> {
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

pub(in super::super) fn revisions(
    agent: &AgentName,
    said: pb::ListRevisionsResponse,
) -> Result<Vec<Revision>, Error> {
    said.items.into_iter().map(|sent| revision(agent, Some(sent))).collect()
}

pub(in super::super) fn revision(agent: &AgentName, sent: Option<pb::Revision>) -> Result<Revision, Error> {
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

pub(super) fn change(sent: pb::Change) -> Result<Change, Error> {
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

pub(super) fn time(sent: prost_types::Timestamp) -> Timestamp {
    Timestamp::from_micros(
        sent.seconds.saturating_mul(1_000_000).saturating_add(i64::from(sent.nanos) / 1_000),
    )
}
