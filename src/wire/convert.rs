//! Domain → JSON: the only file here that names the registry's answers and the facts of a card.
//!
//! Every conversion leaves the card out: whoever writes an answer splices its bytes in.

use super::{
    AgentEvent, AgentItem, Change, Condition, Confirmation, Diff, Envelope, Freshness, Inspection, Item,
    LedgerEntry, List, MissingReplica, OmittedReplicas, Problem, Registered, ReplicaItem, Replicated,
    RevisionItem, Violation, Warning, WatchCheckpoint, Watermark,
};
use crate::registry::{
    self, Agent, Checkpoint, Entry, Page, Parts, Past, Resolved, Revision, RevisionPage, Told, Written,
};
use crate::terms::{Digest, ceil_millis};
use crate::{card, fence, terms};

/// Bytes of items that a change shows: two large cards can differ in more than an answer may hold.
const CHANGE_MAX: usize = 1024 * 1024;
/// Bytes of an item besides its texts.
const ITEM_FIXED: usize = 100;

impl From<&terms::Freshness> for Freshness {
    fn from(freshness: &terms::Freshness) -> Self {
        let origin = freshness.origin.as_ref();
        let confirmed_at = origin.and_then(|origin| origin.confirmed_at);
        Self {
            position: freshness.position.to_string(),
            staleness_ms: freshness.staleness.map(ceil_millis),
            proven_at: freshness.proven_at.map(|at| at.to_string()),
            basis: freshness.basis.as_str().to_owned(),
            served_by: freshness.served_by.to_string(),
            hops: freshness.hops,
            origin_confirmed_at: confirmed_at.map(|at| at.to_string()),
            observed_redeploy_interval_ms: origin.and_then(|o| o.redeploy_interval).map(ceil_millis),
            revalidate_after_ms: origin.and_then(terms::Origin::revalidate_after).map(ceil_millis),
            lease_ttl_ms: origin.and_then(|origin| origin.lease).map(|lease| ceil_millis(lease.ttl)),
            unconfirmed: origin.and_then(|origin| origin.lease).map(|lease| lease.lapsed),
        }
    }
}

impl From<&registry::Watermark> for Watermark {
    fn from(watermark: &registry::Watermark) -> Self {
        Self {
            position: watermark.position.to_string(),
            head: watermark.head,
            staleness_ms: watermark.staleness.map(ceil_millis),
            basis: watermark.basis.as_str().to_owned(),
            hops: watermark.hops,
            ledger_id: watermark.ledger_id.clone(),
            served_by: watermark.served_by.to_string(),
            role: watermark.role.to_owned(),
        }
    }
}

impl Envelope {
    /// The envelope of `agent`, whose current card is `card`.
    pub fn new(agent: &Agent, card: &card::Card, freshness: &terms::Freshness) -> Self {
        Self {
            agent: agent.name.to_string(),
            revision: agent.revision,
            position: agent.position.to_string(),
            card_version: card.version().map(str::to_owned),
            generation: card.generation().as_str().to_owned(),
            content_digest: card.content_digest().tagged(),
            raw_digest: card.raw_digest().tagged(),
            skill_fingerprint: card.skill_fingerprint().hex(),
            negotiation_fingerprint: card.negotiation_fingerprint().hex(),
            registered_at: agent.registered_at.to_string(),
            registered_by: agent.registered_by.as_str().to_owned(),
            freshness: freshness.into(),
            card_omitted: false,
            card: None,
        }
    }

    /// The envelope of a revision of the past; `None` for a tombstone.
    pub fn of_past(past: &Past) -> Option<Self> {
        let revision = &past.revision;
        let facts = revision.facts.as_ref()?;
        Some(Self {
            agent: revision.agent.to_string(),
            revision: revision.number,
            position: revision.position.to_string(),
            card_version: facts.card_version.clone(),
            generation: facts.generation.as_str().to_owned(),
            content_digest: facts.content_digest.tagged(),
            raw_digest: facts.raw_digest.tagged(),
            skill_fingerprint: facts.skill_fingerprint.hex(),
            negotiation_fingerprint: facts.negotiation_fingerprint.hex(),
            registered_at: revision.registered_at.to_string(),
            registered_by: revision.registered_by.as_str().to_owned(),
            freshness: (&past.freshness).into(),
            card_omitted: false,
            card: None,
        })
    }
}

impl From<&Resolved> for Envelope {
    fn from(resolved: &Resolved) -> Self {
        Self::new(&resolved.agent, &resolved.card, &resolved.freshness)
    }
}

/// The items of a page, made one by one: all of them may be more than an answer holds.
pub fn agent_items(page: &Page) -> impl Iterator<Item = AgentItem> {
    page.agents.iter().filter_map(|agent| {
        let freshness = terms::Freshness { origin: Some(agent.origin()), ..page.freshness.clone() };
        Some(Envelope::new(agent, agent.card()?, &freshness))
    })
}

impl From<&Revision> for RevisionItem {
    fn from(revision: &Revision) -> Self {
        let facts = revision.facts.as_ref();
        Self {
            agent: None,
            revision: revision.number,
            position: revision.position.to_string(),
            kind: revision.kind.as_str().to_owned(),
            registered_at: revision.registered_at.to_string(),
            registered_by: revision.registered_by.as_str().to_owned(),
            card_version: facts.and_then(|facts| facts.card_version.clone()),
            generation: facts.map(|facts| facts.generation.as_str().to_owned()),
            content_digest: facts.map(|facts| facts.content_digest.tagged()),
            raw_digest: facts.map(|facts| facts.raw_digest.tagged()),
            skill_fingerprint: facts.map(|facts| facts.skill_fingerprint.hex()),
            negotiation_fingerprint: facts.map(|facts| facts.negotiation_fingerprint.hex()),
            change: revision.change.as_ref().map(Change::from),
            release: facts.and_then(|facts| facts.release.clone()),
            note: revision.note.clone(),
            source: facts.and_then(|facts| facts.source.clone()),
            freshness: None,
            card: None,
        }
    }
}

impl From<&Past> for RevisionItem {
    fn from(past: &Past) -> Self {
        Self {
            agent: Some(past.revision.agent.to_string()),
            freshness: Some((&past.freshness).into()),
            ..Self::from(&past.revision)
        }
    }
}

/// As [`agent_items`].
pub fn revision_items(page: &RevisionPage) -> impl Iterator<Item = RevisionItem> {
    page.revisions.iter().map(RevisionItem::from)
}

impl From<&registry::Diff> for Diff {
    fn from(diff: &registry::Diff) -> Self {
        Self {
            agent: diff.agent.to_string(),
            from: diff.from,
            to: diff.to,
            change: (&diff.change).into(),
            unified: diff.unified.clone(),
            unified_cut: diff.unified_cut,
            freshness: (&diff.freshness).into(),
        }
    }
}

/// Without its body, which is spliced in.
impl From<&Entry> for LedgerEntry {
    fn from(entry: &Entry) -> Self {
        Self { seq: entry.seq, digest: entry.digest.hex(), body_digest: entry.body_digest.hex(), body: None }
    }
}

impl From<&Written> for Registered {
    fn from(written: &Written) -> Self {
        let card = written.card.as_deref();
        Self {
            agent: written.agent.to_string(),
            outcome: written.outcome.as_str().to_owned(),
            revision: written.revision,
            position: written.position.map(|position| position.to_string()),
            content_digest: card.map(|card| card.content_digest().tagged()),
            raw_digest: card.map(|card| card.raw_digest().tagged()),
            skill_fingerprint: card.map(|card| card.skill_fingerprint().hex()),
            negotiation_fingerprint: card.map(|card| card.negotiation_fingerprint().hex()),
            card_version: card.and_then(|card| card.version().map(str::to_owned)),
            generation: card.map(|card| card.generation().as_str().to_owned()),
            change: written.change.as_ref().map(Change::from),
            warnings: card.map_or_else(Vec::new, |card| card.warnings().iter().map(Warning::from).collect()),
            superseded: written.superseded,
            dry_run: written.dry_run,
            replicas: written.replicas.as_ref().map(Replicated::from),
        }
    }
}

/// Bytes of a text between the quotes of JSON.
fn json_len(text: &str) -> usize {
    let written = |byte| match byte {
        b'"' | b'\\' => 2,
        // Some have a short form.
        0..0x20 => 6,
        _ => 1,
    };
    text.bytes().map(written).sum()
}

impl From<&Told> for AgentEvent {
    fn from(told: &Told) -> Self {
        let (agent, card) = (&told.agent, told.agent.card());
        let (class, silent) = told.change().unzip();
        Self {
            agent: agent.name.to_string(),
            revision: agent.revision,
            position: agent.position.to_string(),
            registered_at: agent.registered_at.to_string(),
            registered_by: agent.registered_by.as_str().to_owned(),
            class: class.map(|class| class.as_str().to_owned()),
            silent: silent == Some(true),
            card_version: card.and_then(|card| card.version().map(str::to_owned)),
            generation: card.map(|card| card.generation().as_str().to_owned()),
            content_digest: card.map(|card| card.content_digest().tagged()),
            raw_digest: card.map(|card| card.raw_digest().tagged()),
            skill_fingerprint: card.map(|card| card.skill_fingerprint().hex()),
            negotiation_fingerprint: card.map(|card| card.negotiation_fingerprint().hex()),
            card: None,
        }
    }
}

impl From<&Checkpoint> for WatchCheckpoint {
    fn from(checkpoint: &Checkpoint) -> Self {
        Self {
            position: checkpoint.position.to_string(),
            set_digest: checkpoint.set_digest.to_string(),
            nonce: checkpoint.nonce.as_deref().map(str::to_owned),
            staleness_ms: checkpoint.staleness.map(ceil_millis),
        }
    }
}

impl From<&registry::Confirmation> for Confirmation {
    fn from(confirmation: &registry::Confirmation) -> Self {
        Self {
            agent: confirmation.agent.to_string(),
            revision: confirmation.revision,
            position: confirmation.position.map(|position| position.to_string()),
            origin_confirmed_at: confirmation.origin_confirmed_at.to_string(),
            lease_ttl_ms: confirmation.lease.map(|lease| ceil_millis(lease.ttl)),
            freshness: (&confirmation.freshness).into(),
        }
    }
}

impl From<&registry::Replicated> for Replicated {
    fn from(replicated: &registry::Replicated) -> Self {
        let missing = |missing: &registry::Missing| MissingReplica {
            replica: missing.replica.clone(),
            position: missing.position.to_string(),
            silent_since: missing.silent_since.to_string(),
            silent_ms: ceil_millis(missing.silent),
        };
        Self {
            complete: replicated.complete,
            applied: replicated.applied,
            missing: replicated.missing.iter().map(missing).collect(),
            missing_omitted: replicated.missing_omitted,
        }
    }
}

/// All that is told at once: there are no further pages.
pub fn replica_list(list: &registry::ReplicaList) -> List<ReplicaItem> {
    let item = |listed: &registry::ListedReplica| {
        let replica = &listed.replica;
        ReplicaItem {
            replica: replica.replica.clone(),
            role: replica.role.clone(),
            position: replica.position.to_string(),
            behind: listed.behind,
            staleness_ms: replica.staleness.map(ceil_millis),
            hops: replica.hops,
            version: replica.version.clone(),
            via: replica.via.clone(),
            silent_ms: ceil_millis(replica.silent),
            omitted: replica.omitted.map(|omitted| OmittedReplicas {
                count: omitted.count,
                at_least: omitted.at_least.to_string(),
            }),
        }
    };
    List {
        items: list.items.iter().map(item).collect(),
        next_page_token: None,
        complete: list.complete,
        freshness: (&list.freshness).into(),
    }
}

impl From<&card::Change> for Change {
    fn from(change: &card::Change) -> Self {
        let item = |item: &card::Item| Item {
            kind: item.kind.as_str().to_owned(),
            class: item.class.as_str().to_owned(),
            pointer: item.pointer.clone(),
            subject: item.subject.clone(),
        };
        let mut room = CHANGE_MAX;
        let fits = |item: &&card::Item| {
            let left = room.checked_sub(json_len(&item.pointer) + json_len(&item.subject) + ITEM_FIXED);
            room = left.unwrap_or(0);
            left.is_some()
        };
        let items: Vec<Item> = change.items.iter().take_while(fits).map(item).collect();
        Self {
            class: change.class.as_str().to_owned(),
            silent: change.silent,
            items_omitted: (change.items.len() - items.len()) as u64,
            items,
        }
    }
}

impl From<&card::Warning> for Warning {
    fn from(warning: &card::Warning) -> Self {
        Self {
            code: warning.code.as_str().to_owned(),
            pointer: warning.pointer.clone(),
            message: warning.message.clone(),
        }
    }
}

impl From<&card::Violation> for Violation {
    fn from(violation: &card::Violation) -> Self {
        Self {
            pointer: violation.pointer.clone(),
            code: violation.code.as_str().to_owned(),
            message: violation.message.clone(),
        }
    }
}

impl From<&fence::Condition> for Condition {
    fn from(condition: &fence::Condition) -> Self {
        Self {
            condition: condition.condition.to_owned(),
            outcome: condition.outcome.as_str().to_owned(),
            wanted: condition.wanted.clone(),
            found: condition.found.clone(),
        }
    }
}

impl Problem {
    /// The problem of a refusal, spoken with `status`.
    pub fn new(parts: &Parts, status: u16) -> Self {
        let slug = parts.reason.slug();
        Self {
            kind: format!("urn:cardfence:problem:{slug}"),
            title: slug.replace('_', " "),
            status,
            detail: parts.detail.clone(),
            reason: slug.to_owned(),
            conditions: parts.conditions.iter().map(Condition::from).collect(),
            conditions_omitted: 0,
            violations: parts.violations.iter().map(Violation::from).collect(),
            freshness: parts.freshness.as_ref().map(Freshness::from),
            agent: parts.agent.as_ref().map(ToString::to_string),
            revision: parts.revision,
            change: parts.change.as_ref().map(Change::from),
            retry_after_ms: parts.retry_after.map(ceil_millis),
            card_omitted: false,
            card: None,
        }
    }
}

impl From<&card::Inspection> for Inspection {
    fn from(inspection: &card::Inspection) -> Self {
        Self {
            generation: inspection.generation.map(|generation| generation.as_str().to_owned()),
            spoken_versions: inspection.spoken_versions.clone(),
            content_digest: inspection.content_digest.as_ref().map(Digest::tagged),
            raw_digest: inspection.raw_digest.tagged(),
            skill_fingerprint: inspection.skill_fingerprint.as_ref().map(Digest::hex),
            negotiation_fingerprint: inspection.negotiation_fingerprint.as_ref().map(Digest::hex),
            warnings: inspection.warnings.iter().map(Warning::from).collect(),
            violations: inspection.violations.iter().map(Violation::from).collect(),
        }
    }
}
