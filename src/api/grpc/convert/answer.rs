//! What the registry answers, as callers get it.
//!
//! Cards are handed on by reference count. Times are rounded up, so that no age is understated. Pages stop where
//! a message would pass its bound, and say how far they came.

use std::time::Duration;

use prost::Message;

use crate::card::{Card, Change, Class};
use crate::proto::{MESSAGE_MAX, v1 as pb};
use crate::registry::{
    Agent, Diff, Entry, Outcome, Page, Past, Resolved, Revision, RevisionKind, RevisionPage, Watermark,
    Written,
};
use crate::terms::{AgentName, Basis, Freshness, Timestamp, ceil_millis};

/// Bytes of items that a change shows: two large cards can differ in more than a message may hold.
const CHANGE_MAX: usize = 1024 * 1024;
/// Bytes kept free in a page for what is not its items.
pub(super) const RESERVED: usize = 8 * 1024;

pub(in super::super) fn written(written: Written) -> pb::Written {
    let card = written.card.as_deref();
    let mut answer = pb::Written {
        agent: written.agent.to_string(),
        outcome: outcome(written.outcome).into(),
        revision: written.revision,
        position: written.position.map(|position| position.to_string()),
        content_digest: card.map(|card| card.content_digest().tagged()),
        raw_digest: card.map(|card| card.raw_digest().tagged()),
        skill_fingerprint: card.map(|card| card.skill_fingerprint().hex()),
        negotiation_fingerprint: card.map(|card| card.negotiation_fingerprint().hex()),
        card_version: card.and_then(Card::version).map(str::to_owned),
        generation: card.map(|card| card.generation().to_string()),
        change: written.change.map(change),
        warnings: card.map_or_else(Vec::new, warnings),
        superseded: written.superseded,
        dry_run: written.dry_run,
        warnings_omitted: 0,
        replicas: written.replicas.map(super::replicas::replicated),
    };
    // What is done is never told as a failure because there is much to say of it.
    while answer.encoded_len() > MESSAGE_MAX && !answer.warnings.is_empty() {
        let all = answer.warnings.len();
        answer.warnings.truncate(all / 2);
        answer.warnings_omitted += u32::try_from(all - answer.warnings.len()).unwrap_or(u32::MAX);
    }
    answer
}

pub(in super::super) fn resolved(resolved: &Resolved) -> pb::Resolved {
    pb::Resolved {
        freshness: Some(freshness(&resolved.freshness)),
        card: (!resolved.not_modified).then(|| resolved.card.bytes().clone()),
        not_modified: resolved.not_modified,
        ..envelope(&resolved.agent, &resolved.card)
    }
}

/// What is known of an agent's current card, without the card and its freshness.
fn envelope(agent: &Agent, card: &Card) -> pb::Resolved {
    pb::Resolved {
        agent: agent.name.to_string(),
        revision: agent.revision,
        position: agent.position.to_string(),
        card_version: card.version().map(str::to_owned),
        generation: card.generation().to_string(),
        content_digest: card.content_digest().tagged(),
        raw_digest: card.raw_digest().tagged(),
        skill_fingerprint: card.skill_fingerprint().hex(),
        negotiation_fingerprint: card.negotiation_fingerprint().hex(),
        registered_at: Some(timestamp(agent.registered_at)),
        registered_by: agent.registered_by.as_str().to_owned(),
        freshness: None,
        card: None,
        not_modified: false,
        card_omitted: false,
    }
}

/// The page, or how many of its items a message can hold.
pub(in super::super) fn agents_page(page: Page) -> Result<pb::ListAgentsResponse, usize> {
    let live = page.agents.iter().filter_map(|agent| {
        let of_agent = Freshness { origin: Some(agent.origin()), ..page.freshness.clone() };
        Some(pb::Resolved { freshness: Some(freshness(&of_agent)), ..envelope(agent, agent.card()?) })
    });
    Ok(pb::ListAgentsResponse {
        items: whole(live)?,
        next_page_token: page.next_page_token.unwrap_or_default(),
        complete: page.complete,
        freshness: Some(freshness(&page.freshness)),
    })
}

/// The page, or how many of its items a message can hold.
pub(in super::super) fn revisions_page(
    agent: &AgentName,
    page: RevisionPage,
) -> Result<pb::ListRevisionsResponse, usize> {
    Ok(pb::ListRevisionsResponse {
        agent: agent.to_string(),
        items: whole(page.revisions.into_iter().map(revision))?,
        next_page_token: page.next_page_token.unwrap_or_default(),
        complete: page.complete,
        freshness: Some(freshness(&page.freshness)),
    })
}

/// As many entries as a message can hold, and where to read on.
pub(in super::super) fn ledger_page(entries: Vec<Entry>, fresh: &Freshness) -> pb::ReadLedgerResponse {
    let entries = entries.into_iter().map(|entry| pb::LedgerEntry {
        seq: entry.seq,
        digest: entry.digest.hex(),
        body_digest: entry.body_digest.hex(),
        body: entry.body.as_ref().to_owned(),
    });
    let (entries, _) = fitting(entries, MESSAGE_MAX - RESERVED);
    let last = entries.last().map(|entry| entry.seq);
    pb::ReadLedgerResponse {
        next_from: last.filter(|last| *last < fresh.position.seq).map(|last| last + 1),
        entries,
        freshness: Some(freshness(fresh)),
    }
}

pub(in super::super) fn past(past: Past) -> pb::GetRevisionResponse {
    pb::GetRevisionResponse {
        agent: past.revision.agent.to_string(),
        revision: Some(revision(past.revision)),
        card: past.card,
        freshness: Some(freshness(&past.freshness)),
    }
}

pub(in super::super) fn diff(diff: Diff) -> pb::Diff {
    pb::Diff {
        agent: diff.agent.to_string(),
        from: diff.from,
        to: diff.to,
        change: Some(change(diff.change)),
        unified: diff.unified,
        unified_cut: diff.unified_cut,
        freshness: Some(freshness(&diff.freshness)),
    }
}

pub(in super::super) fn watermark(watermark: Watermark) -> pb::WatermarkResponse {
    pb::WatermarkResponse {
        position: watermark.position.to_string(),
        head: watermark.head,
        staleness_ms: watermark.staleness.map(millis),
        basis: basis(watermark.basis).into(),
        ledger_id: watermark.ledger_id,
        served_by: watermark.served_by.as_ref().to_owned(),
        role: watermark.role.to_owned(),
        hops: watermark.hops,
    }
}

pub(super) fn freshness(freshness: &Freshness) -> pb::Freshness {
    let origin = freshness.origin.as_ref();
    pb::Freshness {
        position: freshness.position.to_string(),
        staleness_ms: freshness.staleness.map(millis),
        proven_at: freshness.proven_at.map(timestamp),
        basis: basis(freshness.basis).into(),
        served_by: freshness.served_by.as_ref().to_owned(),
        hops: freshness.hops,
        origin_confirmed_at: origin.and_then(|origin| origin.confirmed_at).map(timestamp),
        observed_redeploy_interval_ms: origin.and_then(|origin| origin.redeploy_interval).map(millis),
        revalidate_after_ms: origin.and_then(|origin| origin.revalidate_after()).map(millis),
        lease_ttl_ms: origin.and_then(|origin| origin.lease).map(|lease| millis(lease.ttl)),
        unconfirmed: origin.and_then(|origin| origin.lease).map(|lease| lease.lapsed),
    }
}

/// The change with the first of its items, as many as there is room for.
pub(super) fn change(change: Change) -> pb::Change {
    let all = change.items.len();
    let items = change.items.into_iter().map(|item| pb::ChangeItem {
        kind: item.kind.to_string(),
        class: class(item.class).into(),
        pointer: item.pointer,
        subject: item.subject,
    });
    let (items, _) = fitting(items, CHANGE_MAX);
    pb::Change {
        class: class(change.class).into(),
        silent: change.silent,
        items_omitted: u32::try_from(all - items.len()).unwrap_or(u32::MAX),
        items,
    }
}

pub(super) fn millis(duration: Duration) -> i64 {
    i64::try_from(ceil_millis(duration)).unwrap_or(i64::MAX)
}

fn revision(revision: Revision) -> pb::Revision {
    let kind = match revision.kind {
        RevisionKind::Card => pb::RevisionKind::Card,
        RevisionKind::Tombstone => pb::RevisionKind::Tombstone,
    };
    let mut answer = pb::Revision {
        revision: revision.number,
        position: revision.position.to_string(),
        kind: kind.into(),
        registered_at: Some(timestamp(revision.registered_at)),
        registered_by: revision.registered_by.as_str().to_owned(),
        change: revision.change.map(change),
        note: revision.note,
        ..pb::Revision::default()
    };
    if let Some(facts) = revision.facts {
        answer.card_version = facts.card_version;
        answer.generation = Some(facts.generation.to_string());
        answer.content_digest = Some(facts.content_digest.tagged());
        answer.raw_digest = Some(facts.raw_digest.tagged());
        answer.skill_fingerprint = Some(facts.skill_fingerprint.hex());
        answer.negotiation_fingerprint = Some(facts.negotiation_fingerprint.hex());
        answer.release = facts.release;
        answer.source = facts.source;
    }
    answer
}

fn warnings(card: &Card) -> Vec<pb::Warning> {
    let warning = |warning: &crate::card::Warning| pb::Warning {
        code: warning.code.to_string(),
        pointer: warning.pointer.clone(),
        message: warning.message.clone(),
    };
    card.warnings().iter().map(warning).collect()
}

fn whole<M: Message>(items: impl Iterator<Item = M>) -> Result<Vec<M>, usize> {
    let (items, all) = fitting(items, MESSAGE_MAX - RESERVED);
    if all { Ok(items) } else { Err(items.len()) }
}

/// The first items, as many as there is room for, and whether that is all of them.
fn fitting<M: Message>(items: impl Iterator<Item = M>, mut room: usize) -> (Vec<M>, bool) {
    let mut taken = Vec::new();
    for item in items {
        let Some(left) = room.checked_sub(nested_len(&item)) else { return (taken, false) };
        room = left;
        taken.push(item);
    }
    (taken, true)
}

/// Bytes of a message inside another, with its key and length.
pub(super) fn nested_len(message: &impl Message) -> usize {
    let len = message.encoded_len();
    1 + prost::length_delimiter_len(len) + len
}

pub(super) fn timestamp(time: Timestamp) -> prost_types::Timestamp {
    let micros = time.as_micros();
    let nanos = i32::try_from(micros.rem_euclid(1_000_000)).unwrap_or(0) * 1_000;
    prost_types::Timestamp { seconds: micros.div_euclid(1_000_000), nanos }
}

fn basis(basis: Basis) -> pb::Basis {
    match basis {
        Basis::Upstream => pb::Basis::Upstream,
        Basis::Authority => pb::Basis::Authority,
        Basis::Unproven => pb::Basis::Unproven,
    }
}

fn outcome(outcome: Outcome) -> pb::Outcome {
    match outcome {
        Outcome::Created => pb::Outcome::Created,
        Outcome::Updated => pb::Outcome::Updated,
        Outcome::Unchanged => pb::Outcome::Unchanged,
        Outcome::Retired => pb::Outcome::Retired,
    }
}

pub(super) fn class(class: Class) -> pb::ChangeClass {
    match class {
        Class::Cosmetic => pb::ChangeClass::Cosmetic,
        Class::Additive => pb::ChangeClass::Additive,
        Class::Breaking => pb::ChangeClass::Breaking,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_the_epoch_and_after_have_positive_nanos() {
        let stamp = |seconds, nanos| prost_types::Timestamp { seconds, nanos };
        assert_eq!(timestamp(Timestamp::from_micros(1_500_001)), stamp(1, 500_001_000));
        assert_eq!(timestamp(Timestamp::from_micros(-1)), stamp(-1, 999_999_000));
    }

    #[test]
    fn staleness_rounds_up_and_unknown_stays_absent() {
        assert_eq!(millis(Duration::from_nanos(1)), 1);
        assert_eq!(millis(Duration::MAX), i64::MAX);
        let unknown = Freshness {
            position: "0.00000000000000aa".parse().unwrap(),
            staleness: None,
            proven_at: None,
            basis: Basis::Unproven,
            served_by: "n".into(),
            hops: 0,
            origin: None,
        };
        let sent = freshness(&unknown);
        assert_eq!((sent.staleness_ms, sent.proven_at, sent.revalidate_after_ms), (None, None, None));
        assert_eq!(sent.basis(), pb::Basis::Unproven);
    }

    #[test]
    fn a_change_shows_what_there_is_room_for_and_counts_the_rest() {
        let item = crate::card::Item {
            kind: crate::card::ItemKind::SkillRemoved,
            class: Class::Breaking,
            pointer: "/skills/0".to_owned(),
            subject: "s".repeat(1_000),
        };
        let whole = Change { class: Class::Breaking, silent: true, items: vec![item; 5_000] };
        let shown = crate::wire::Change::from(&whole);
        assert!(shown.items.len() > 400 && shown.items_omitted == 5_000 - shown.items.len() as u64);
        let sent = change(whole);
        assert!(sent.encoded_len() <= CHANGE_MAX + 64 && sent.items.len() > 900);
        assert_eq!(sent.items.len() + sent.items_omitted as usize, 5_000);
    }

    #[test]
    fn a_page_ends_where_a_message_would_pass_its_bound() {
        let entry = |seq| pb::LedgerEntry { seq, body: "x".repeat(1024 * 1024), ..Default::default() };
        let room = MESSAGE_MAX - RESERVED;
        let (taken, all) = fitting((1..=5).map(entry), room);
        assert_eq!((taken.len(), all), (2, false));
        assert!(taken.iter().map(nested_len).sum::<usize>() + RESERVED <= MESSAGE_MAX);
        assert!(fitting((1..=2).map(entry), room).1);
    }
}
