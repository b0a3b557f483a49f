//! What a subscriber says and is told, as messages.
//!
//! An event about an agent is encoded here once and handed to every subscriber as the same bytes.

use bytes::Bytes;
use prost::Message;

use super::answer::{millis, timestamp};
use super::request::{agent, parsed};
use crate::card::Class;
use crate::proto::{MESSAGE_MAX, v1 as pb};
use crate::registry::watch::Kind;
use crate::registry::{Checkpoint, Event, Refusal, Told, Watch};

/// The number of this wire among those that write events.
const WIRE: usize = 0;

pub(in super::super) fn watch(start: pb::WatchStart) -> Result<Watch, Refusal> {
    let class = match pb::ChangeClass::try_from(start.class) {
        Ok(pb::ChangeClass::Unspecified) => None,
        Ok(pb::ChangeClass::Additive) => Some(Class::Additive),
        Ok(pb::ChangeClass::Breaking) => Some(Class::Breaking),
        Ok(pb::ChangeClass::Cosmetic) => Some(Class::Cosmetic),
        Err(_) => {
            let detail =
                format!("class: {} is none of those that are known: additive or breaking", start.class);
            return Err(Refusal::invalid(detail));
        }
    };
    Ok(Watch {
        agents: start.agents.iter().map(|name| agent(name)).collect::<Result<_, _>>()?,
        namespaces: start.namespaces,
        all: start.all,
        class,
        without_cards: start.cards == Some(false),
        from: start.from.as_deref().map(|from| parsed("from", from)).transpose()?,
    })
}

/// The event, encoded.
pub(in super::super) fn event(event: &Event) -> Bytes {
    use pb::watch_event::Event as E;
    let (event, id) = match event {
        Event::Agent(told) => return told.form(WIRE, || encoded(told)),
        Event::Reset { position, because } => {
            let reason = because.as_str().to_owned();
            (E::Reset(pb::WatchReset { position: position.to_string(), reason }), String::new())
        }
        Event::Synced { position } => {
            let position = position.to_string();
            (E::Synced(pb::WatchSynced { position: position.clone() }), position)
        }
        Event::Checkpoint(checkpoint) => (E::Checkpoint(spoken(checkpoint)), checkpoint.position.to_string()),
        Event::End { reason } => (E::End(pb::WatchEnd { reason: reason.slug().to_owned() }), String::new()),
    };
    pb::WatchEvent { event: Some(event), id }.encode_to_vec().into()
}

fn spoken(checkpoint: &Checkpoint) -> pb::WatchCheckpoint {
    pb::WatchCheckpoint {
        position: checkpoint.position.to_string(),
        set_digest: checkpoint.set_digest.to_string(),
        nonce: checkpoint.nonce.as_deref().map(str::to_owned),
        staleness_ms: checkpoint.staleness.map(millis),
    }
}

fn encoded(told: &Told) -> Bytes {
    let id = told.id().map(|id| id.to_string()).unwrap_or_default();
    let mut about = about(told);
    // Larger than a message may be, if servers are set to take such cards.
    if about.encoded_len() + id.len() + 64 > MESSAGE_MAX {
        about.card = None;
        about.card_omitted = true;
    }
    let event = match told.kind {
        Kind::Upsert => pb::watch_event::Event::Upsert(about),
        Kind::Moved => pb::watch_event::Event::Moved(about),
        Kind::Retired => pb::watch_event::Event::Retired(about),
    };
    pb::WatchEvent { event: Some(event), id }.encode_to_vec().into()
}

fn about(told: &Told) -> pb::AgentEvent {
    let agent = &told.agent;
    let card = agent.card();
    let (class, silent) = told.change().unzip();
    pb::AgentEvent {
        agent: agent.name.to_string(),
        revision: agent.revision,
        position: agent.position.to_string(),
        registered_at: Some(timestamp(agent.registered_at)),
        registered_by: agent.registered_by.as_str().to_owned(),
        class: class.map_or(pb::ChangeClass::Unspecified, super::answer::class).into(),
        silent: silent == Some(true),
        card_version: card.and_then(|card| card.version().map(str::to_owned)),
        generation: card.map(|card| card.generation().to_string()),
        content_digest: card.map(|card| card.content_digest().tagged()),
        raw_digest: card.map(|card| card.raw_digest().tagged()),
        skill_fingerprint: card.map(|card| card.skill_fingerprint().hex()),
        negotiation_fingerprint: card.map(|card| card.negotiation_fingerprint().hex()),
        card_omitted: false,
        card: card.filter(|_| told.with_card).map(|card| card.bytes().clone()),
    }
}
