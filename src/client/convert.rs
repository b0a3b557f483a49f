//! Between the wire's messages and the client's types: the one place here that names both.
//!
//! What is sent says how many conditions it sets, so that a server which does not know one cannot drop it. What is
//! received is believed as far as it can be checked: a card's digest is computed from its bytes and compared, and
//! what cannot be read makes the whole answer [`Error::Unreliable`].

use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prost::{Message, Name};
use tonic::Code;
use tonic_types::pb as rpc;

use super::answer::{Ask, Condition, Error, Refusal, Resolved, Revision};
use super::cache::Selection;
use super::session::{Confirmed, Event};
use crate::card::{Card, Limits};
use crate::clock::Moment;
use crate::fence::{Fence, Outcome};
use crate::proto::v1 as pb;
use crate::terms::{
    AgentName, Basis, Digest, Freshness, LeaseHeld, MaxStaleness, Origin, Position, Reason, Timestamp,
    ceil_millis,
};

pub(super) fn resolve(ask: &Ask<'_>, at_least: Option<Position>) -> pb::ResolveRequest {
    pb::ResolveRequest {
        agent: ask.agent.to_string(),
        fence: Some(fence(ask.fence, at_least)),
        known: ask.held.map(|card| card.raw_digest().tagged()).into_iter().collect(),
        wait_ms: ask.wait.map(millis),
    }
}

pub(super) fn batch(
    agents: &[(AgentName, Fence)],
    at_least: Option<Position>,
    wait: Option<Duration>,
) -> pb::BatchResolveRequest {
    let one = |(agent, conditions): &(AgentName, Fence)| pb::BatchAgent {
        agent: agent.to_string(),
        fence: Some(fence(conditions, None)),
    };
    pb::BatchResolveRequest {
        agents: agents.iter().map(one).collect(),
        max_staleness: None,
        at_least: at_least.map(|position| position.to_string()),
        wait_ms: wait.map(millis),
    }
}

/// The fence as it is sent; `at_least` where it names no position of its own.
fn fence(fence: &Fence, at_least: Option<Position>) -> pb::Fence {
    use pb::max_staleness::Bound;
    let bound = |tolerance: MaxStaleness| pb::MaxStaleness {
        bound: Some(match tolerance {
            MaxStaleness::Within(within) => Bound::WithinMs(floor_millis(within)),
            MaxStaleness::Any => Bound::Any(pb::AnyStaleness {}),
        }),
    };
    let added = u32::from(fence.at_least.is_none() && at_least.is_some());
    let skill = |wanted: &crate::fence::SkillWanted| pb::SkillWanted {
        id: wanted.id.clone(),
        input_modes: wanted.input_modes.clone(),
        output_modes: wanted.output_modes.clone(),
    };
    pb::Fence {
        condition_count: fence.count() + added,
        max_staleness: fence.max_staleness.map(bound),
        at_least: fence.at_least.or(at_least).map(|position| position.to_string()),
        min_revision: fence.min_revision.map(|revision| revision.to_string()),
        min_version: fence.min_version.clone(),
        skills: fence.skills.iter().map(skill).collect(),
        streaming: fence.capabilities.streaming,
        push_notifications: fence.capabilities.push_notifications,
        extended_card: fence.capabilities.extended_card,
        extensions: fence.capabilities.extensions.clone(),
        pin: fence.pin.map(|digest| digest.tagged()),
        pin_skills: fence.pin_skills.map(|digest| digest.hex()),
        pin_negotiation: fence.pin_negotiation.map(|digest| digest.hex()),
        max_origin_age_ms: fence.max_origin_age.map(floor_millis),
    }
}

/// What a resolve found, received `now`, asked for at `sent`.
pub(super) fn resolved(
    answer: pb::Resolved,
    held: Option<&Arc<Card>>,
    (sent, now): (&Moment, &Moment),
) -> Result<Resolved, Error> {
    let raw_digest: Digest = parsed("raw_digest", &answer.raw_digest)?;
    let card = match (answer.card, answer.not_modified) {
        (Some(bytes), _) => received(&bytes, raw_digest)?,
        (None, true) => match held {
            Some(card) if card.raw_digest() == raw_digest => Arc::clone(card),
            _ => return Err(unreliable("it says not modified of a card that was not named")),
        },
        (None, false) => return Err(unreliable("it holds no card")),
    };
    let registered_at = answer.registered_at.map(timestamp);
    let registered_at = registered_at.ok_or_else(|| unreliable("it does not say when it was registered"))?;
    let sent_freshness = answer.freshness.ok_or_else(|| unreliable("it does not say how fresh it is"))?;
    let origin = origin(&sent_freshness, registered_at)?;
    let (mut freshness, staleness) = freshness(&sent_freshness)?;
    let proven = staleness.map(|staleness| sent.before(staleness));
    freshness.staleness = proven.map(|proven| now.since(&proven));
    freshness.origin = Some(origin);
    let revision = Revision {
        agent: parsed("agent", &answer.agent)?,
        number: answer.revision,
        position: parsed("position", &answer.position)?,
        card,
        registered_at,
        registered_by: answer.registered_by.into(),
        immutable_versions: None,
    };
    Ok(Resolved::new(Arc::new(revision), freshness, proven))
}

pub(super) fn watch_start(selection: &Selection, from: Option<Position>) -> pb::WatchRequest {
    let mut start =
        pb::WatchStart { from: from.map(|position| position.to_string()), ..pb::WatchStart::default() };
    match selection {
        Selection::All => start.all = true,
        Selection::Of { agents, namespaces } => {
            start.agents = agents.iter().map(AgentName::to_string).collect();
            start.namespaces.clone_from(namespaces);
        }
    }
    pb::WatchRequest { request: Some(pb::watch_request::Request::Start(start)) }
}

pub(super) fn watch_confirm(nonce: String) -> pb::WatchRequest {
    pb::WatchRequest { request: Some(pb::watch_request::Request::Confirm(pb::WatchConfirm { nonce })) }
}

/// An event of a watch stream. `None`: one that this client does not know; should it have changed what is held, the
/// next set digest tells.
pub(super) fn watch_event(sent: pb::WatchEvent) -> Result<Option<Event>, Error> {
    use pb::watch_event::Event as Sent;
    let Some(event) = sent.event else { return Ok(None) };
    Ok(Some(match event {
        Sent::Reset(reset) => Event::Reset {
            position: parsed("reset.position", &reset.position)?,
            diverged: reset.reason == Reason::HistoryDiverged.slug(),
        },
        Sent::Upsert(event) | Sent::Moved(event) => agent_event(event)?,
        Sent::Retired(event) => Event::Retired {
            agent: parsed("agent", &event.agent)?,
            revision: event.revision,
            position: parsed("position", &event.position)?,
        },
        Sent::Synced(synced) => Event::Synced { position: parsed("synced.position", &synced.position)? },
        Sent::Checkpoint(checkpoint) => {
            let staleness = duration("checkpoint.staleness_ms", checkpoint.staleness_ms)?;
            Event::Checkpoint {
                position: parsed("checkpoint.position", &checkpoint.position)?,
                set_digest: checkpoint.set_digest,
                answer: checkpoint.nonce.map(|nonce| Confirmed { nonce, staleness }),
            }
        }
        Sent::End(end) => Event::End(Reason::ALL.iter().copied().find(|reason| reason.slug() == end.reason)),
    }))
}

fn agent_event(event: pb::AgentEvent) -> Result<Event, Error> {
    let (agent, position) = (parsed("agent", &event.agent)?, parsed("position", &event.position)?);
    let raw_digest = parsed("raw_digest", event.raw_digest.as_deref().unwrap_or_default())?;
    let Some(bytes) = event.card else {
        return Ok(Event::Moved { agent, revision: event.revision, position, raw_digest });
    };
    let registered_at = event.registered_at.map(timestamp);
    Ok(Event::Upsert(Arc::new(Revision {
        agent,
        number: event.revision,
        position,
        card: received(&bytes, raw_digest)?,
        registered_at: registered_at.ok_or_else(|| unreliable("it does not say when it was registered"))?,
        registered_by: event.registered_by.into(),
        immutable_versions: None,
    })))
}

/// The card in these bytes, if they are those of `digest`. A copy, so that it does not keep a receive buffer alive.
pub(super) fn received(bytes: &[u8], digest: Digest) -> Result<Arc<Card>, Error> {
    let card = Card::check(Bytes::copy_from_slice(bytes), &Limits::KEPT)
        .map_err(|refused| unreliable(&format!("its card has {} violations", refused.violations.len())))?;
    match card.raw_digest() {
        found if found == digest => Ok(Arc::new(card)),
        found => Err(unreliable(&format!("its card has the digest {found}, not {digest}"))),
    }
}

/// The position of the view that answered.
pub(super) fn answered_at(freshness: Option<&pb::Freshness>) -> Result<Position, Error> {
    parsed("freshness.position", freshness.map(|freshness| freshness.position.as_str()).unwrap_or_default())
}

/// A failed call as a typed error. What carries no problem of ours is told by its code.
pub(super) fn failed(status: &tonic::Status) -> Error {
    let name = pb::Problem::full_name();
    let details = rpc::Status::decode(status.details()).map(|status| status.details).unwrap_or_default();
    let problem = details.iter().find(|any| any.type_url.rsplit('/').next() == Some(name.as_str()));
    if let Some(problem) = problem.and_then(|any| pb::Problem::decode(&*any.value).ok()) {
        return refused(problem);
    }
    match status.code() {
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown => {
            Error::Unreachable(format!("{}: {}", status.code(), status.message()))
        }
        code => unreliable(&format!("{code}: {}", status.message())),
    }
}

/// A problem as a typed error.
pub(super) fn refused(problem: pb::Problem) -> Error {
    let Some(reason) = Reason::ALL.iter().copied().find(|reason| reason.slug() == problem.reason) else {
        return unreliable(&format!("`{}` is no reason known here: {}", problem.reason, problem.detail));
    };
    let condition = |told: pb::Condition| Condition {
        outcome: match told.outcome() {
            pb::ConditionOutcome::Passed => Outcome::Passed,
            pb::ConditionOutcome::Failed => Outcome::Failed,
            pb::ConditionOutcome::Unverifiable | pb::ConditionOutcome::Unspecified => Outcome::Unverifiable,
        },
        name: told.condition,
        wanted: told.wanted,
        found: told.found,
    };
    // A refusal without its card or its freshness is still the refusal.
    let card = problem.card.and_then(|bytes| Card::check(Bytes::copy_from_slice(&bytes), &Limits::KEPT).ok());
    Refusal {
        reason,
        detail: problem.detail,
        conditions: problem.conditions.into_iter().map(condition).collect(),
        freshness: problem.freshness.and_then(|told| freshness(&told).ok()).map(|(freshness, _)| freshness),
        card: card.map(Arc::new),
        revision: problem.revision,
        retry_after: problem
            .retry_after_ms
            .and_then(|millis| u64::try_from(millis).ok())
            .map(Duration::from_millis),
    }
    .into()
}

/// The freshness block without the origin, and its staleness as it was sent.
fn freshness(told: &pb::Freshness) -> Result<(Freshness, Option<Duration>), Error> {
    let staleness = duration("freshness.staleness_ms", told.staleness_ms)?;
    let freshness = Freshness {
        position: parsed("freshness.position", &told.position)?,
        staleness,
        proven_at: told.proven_at.map(timestamp),
        basis: match told.basis() {
            pb::Basis::Authority => Basis::Authority,
            pb::Basis::Upstream => Basis::Upstream,
            pb::Basis::Unproven | pb::Basis::Unspecified => Basis::Unproven,
        },
        served_by: told.served_by.as_str().into(),
        hops: told.hops,
        origin: None,
    };
    Ok((freshness, staleness))
}

fn origin(told: &pb::Freshness, registered_at: Timestamp) -> Result<Origin, Error> {
    Ok(Origin {
        registered_at,
        confirmed_at: told.origin_confirmed_at.map(timestamp),
        redeploy_interval: duration("observed_redeploy_interval_ms", told.observed_redeploy_interval_ms)?,
        lease: duration("lease_ttl_ms", told.lease_ttl_ms)?
            .map(|ttl| LeaseHeld { ttl, lapsed: told.unconfirmed.unwrap_or_default() }),
    })
}

/// A text of the answer as the type it stands for.
pub(super) fn parsed<T: FromStr<Err: Display>>(field: &str, text: &str) -> Result<T, Error> {
    text.parse().map_err(|error| unreliable(&format!("{field}: {error}")))
}

pub(super) fn duration(field: &str, millis: Option<i64>) -> Result<Option<Duration>, Error> {
    let Some(millis) = millis else { return Ok(None) };
    match u64::try_from(millis) {
        Ok(millis) => Ok(Some(Duration::from_millis(millis))),
        Err(_) => Err(unreliable(&format!("{field} of {millis} is negative"))),
    }
}

pub(super) fn unreliable(why: &str) -> Error {
    // What another machine sent is quoted, and must not be able to fill a log.
    Error::Unreliable(why.chars().take(300).collect())
}

pub(super) fn timestamp(time: prost_types::Timestamp) -> Timestamp {
    let micros = time.seconds.saturating_mul(1_000_000);
    Timestamp::from_micros(micros.saturating_add(i64::from(time.nanos) / 1_000))
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(ceil_millis(duration)).unwrap_or(i64::MAX)
}

/// Rounded down: a bound that a caller sets must not be widened on the way.
fn floor_millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fence::SkillWanted;

    const CARD: &[u8] = br#"{"name":"A","url":"https://a.example","version":"1","skills":[{"id":"s"}]}"#;

    fn answer() -> pb::Resolved {
        let raw = Digest::of(CARD).tagged();
        pb::Resolved {
            agent: "acme/a".to_owned(),
            revision: 2,
            position: "7.00000000000000aa".to_owned(),
            raw_digest: raw,
            registered_at: Some(prost_types::Timestamp { seconds: 5, nanos: 1_000 }),
            registered_by: "anonymous".to_owned(),
            freshness: Some(pb::Freshness {
                position: "9.00000000000000ab".to_owned(),
                staleness_ms: Some(40),
                basis: pb::Basis::Authority.into(),
                observed_redeploy_interval_ms: Some(60_000),
                ..pb::Freshness::default()
            }),
            card: Some(CARD.into()),
            ..pb::Resolved::default()
        }
    }

    fn moments() -> (Moment, Moment) {
        let hands = Arc::new(crate::clock::Hands::default());
        let clock = crate::clock::Clock::Manual(Arc::clone(&hands));
        let sent = clock.now();
        hands.advance(Duration::from_millis(15));
        (sent, clock.now())
    }

    #[test]
    fn a_caller_adds_its_own_round_trip() {
        let (sent, now) = moments();
        let found = resolved(answer(), None, (&sent, &now)).unwrap();
        assert_eq!(found.staleness(&now).unwrap().as_millis(), 55);
        assert_eq!(found.freshness.staleness, found.staleness(&now));
        assert_eq!(found.freshness.origin.unwrap().revalidate_after(), Some(Duration::from_secs(120)));
    }

    #[test]
    fn unknown_age_stays_unknown() {
        let (sent, now) = moments();
        let mut sent_answer = answer();
        sent_answer.freshness.as_mut().unwrap().staleness_ms = None;
        let found = resolved(sent_answer, None, (&sent, &now)).unwrap();
        assert_eq!((found.staleness(&now), found.freshness.staleness), (None, None));
    }

    #[test]
    fn a_card_with_another_digest_is_not_believed() {
        let (sent, now) = moments();
        let when = (&sent, &now);
        let other = pb::Resolved { raw_digest: Digest::of(b"x").tagged(), ..answer() };
        let error = resolved(other, None, when).unwrap_err();
        assert!(matches!(error, Error::Unreliable(why) if why.contains("has the digest")));
        let missing = pb::Resolved { card: None, ..answer() };
        assert!(resolved(missing, None, when).is_err());
        let held = Arc::new(Card::check(CARD.into(), &Limits::default()).unwrap());
        let same = pb::Resolved { card: None, not_modified: true, ..answer() };
        assert!(resolved(same.clone(), None, when).is_err(), "of a card that was not named");
        let found = resolved(same, Some(&held), when).unwrap();
        assert!(Arc::ptr_eq(found.card(), &held));
    }

    #[test]
    fn the_number_of_conditions_counts_the_position_that_is_added() {
        let position: Position = "7.00000000000000aa".parse().unwrap();
        let asked = Fence {
            max_staleness: Some(MaxStaleness::Within(Duration::from_micros(1_900))),
            skills: vec![SkillWanted { id: "s".to_owned(), ..SkillWanted::default() }],
            ..Fence::default()
        };
        assert_eq!(fence(&asked, None).condition_count, 2);
        let sent = fence(&asked, Some(position));
        assert_eq!((sent.condition_count, sent.at_least), (3, Some(position.to_string())));
        let within = sent.max_staleness.unwrap().bound.unwrap();
        assert_eq!(within, pb::max_staleness::Bound::WithinMs(1), "not widened");
        let own: Position = "3.00000000000000aa".parse().unwrap();
        let sent = fence(&Fence { at_least: Some(own), ..asked }, Some(position));
        assert_eq!((sent.condition_count, sent.at_least), (3, Some(own.to_string())));
    }

    #[test]
    fn a_refusal_comes_with_its_conditions_and_its_card() {
        let problem = pb::Problem {
            reason: "skill_missing".to_owned(),
            detail: "skills: s was wanted".to_owned(),
            conditions: vec![pb::Condition {
                condition: "skills".to_owned(),
                outcome: pb::ConditionOutcome::Failed.into(),
                ..pb::Condition::default()
            }],
            card: Some(CARD.into()),
            revision: Some(3),
            ..pb::Problem::default()
        };
        let any = prost_types::Any {
            type_url: format!("type.googleapis.com/{}", pb::Problem::full_name()),
            value: problem.encode_to_vec(),
        };
        let whole = rpc::Status { code: 9, message: "m".to_owned(), details: vec![any] };
        let status = tonic::Status::with_details(Code::FailedPrecondition, "m", whole.encode_to_vec().into());
        let Error::Refused(refusal) = failed(&status) else { panic!("a refusal") };
        assert_eq!((refusal.reason, refusal.revision), (Reason::SkillMissing, Some(3)));
        assert_eq!(refusal.conditions[0].outcome, Outcome::Failed);
        assert_eq!(refusal.card.unwrap().raw_digest(), Digest::of(CARD));
    }

    #[test]
    fn failures_that_are_not_ours_are_told_by_their_code() {
        assert!(matches!(failed(&tonic::Status::unavailable("x")), Error::Unreachable(_)));
        assert!(matches!(failed(&tonic::Status::unimplemented("x")), Error::Unreliable(_)));
        let unknown = pb::Problem { reason: "from_the_future".to_owned(), ..pb::Problem::default() };
        assert!(matches!(refused(unknown), Error::Unreliable(why) if why.contains("from_the_future")));
    }
}
