//! What callers send, as the registry takes it.
//!
//! Absent is absent and set is set: a text that is set and empty is a value that cannot be read, so that a
//! condition is never dropped because it came out empty.

use std::fmt::Display;
use std::time::Duration;

use bytes::Bytes;

use crate::fence::{Capabilities, Fence, SkillWanted};
use crate::proto::v1 as pb;
use crate::registry::{
    Batch, Expect, Filter, List, Read, Refusal, Register, ReplicatedWait, Resolve, Retire, Rollback, Start,
};
use crate::terms::{AgentName, Digest, MaxStaleness, Position, RequestId, RevisionRef};

/// Cards that a caller may say it holds.
const KNOWN_MAX: usize = 1_000;

/// Which revision of the past is wanted.
#[derive(Debug, Clone, Copy)]
pub(in super::super) enum Which {
    Number(u64),
    At(Position),
}

pub(in super::super) fn register(request: pb::RegisterRequest) -> Result<Register, Refusal> {
    Ok(Register {
        agent: agent(&request.agent)?,
        // A copy, so that the card does not keep the whole receive buffer alive for as long as it is served.
        bytes: Bytes::copy_from_slice(&request.card),
        expect: expect(request.expect)?,
        request_id: request_id(&request.request_id)?,
        release: request.release,
        note: request.note,
        source: request.source,
        ttl: millis("ttl_ms", request.ttl_ms)?,
        dry_run: request.dry_run,
    })
}

pub(in super::super) fn retire(request: pb::RetireRequest) -> Result<Retire, Refusal> {
    Ok(Retire {
        agent: agent(&request.agent)?,
        expect: expect(request.expect)?,
        request_id: request_id(&request.request_id)?,
        note: request.note,
        dry_run: request.dry_run,
    })
}

pub(in super::super) fn rollback(request: pb::RollbackRequest) -> Result<Rollback, Refusal> {
    Ok(Rollback {
        agent: agent(&request.agent)?,
        to: Refusal::unless_revision("to", request.to)?,
        expect: expect(request.expect)?,
        request_id: request_id(&request.request_id)?,
        note: request.note,
        dry_run: request.dry_run,
    })
}

pub(in super::super) fn resolve(request: pb::ResolveRequest) -> Result<Resolve, Refusal> {
    if request.known.len() > KNOWN_MAX {
        let count = request.known.len();
        return Err(Refusal::invalid(format!("known: {count} digests are too many: at most {KNOWN_MAX}")));
    }
    Ok(Resolve {
        agent: agent(&request.agent)?,
        fence: fence(request.fence)?,
        known: request.known.iter().map(|text| parsed::<Digest>("known", text)).collect::<Result<_, _>>()?,
        wait: millis("wait_ms", request.wait_ms)?,
    })
}

pub(in super::super) fn batch(request: pb::BatchResolveRequest) -> Result<Batch, Refusal> {
    let pair = |(at, item): (usize, pb::BatchAgent)| {
        let item = agent(&item.agent).and_then(|agent| Ok((agent, fence(item.fence)?)));
        item.map_err(|refusal| refusal.with(|parts| parts.detail = format!("agents[{at}]: {}", parts.detail)))
    };
    Ok(Batch {
        agents: request.agents.into_iter().enumerate().map(pair).collect::<Result<_, _>>()?,
        read: read(request.max_staleness, request.at_least.as_deref(), request.wait_ms)?,
    })
}

pub(in super::super) fn list(request: pb::ListAgentsRequest) -> Result<List, Refusal> {
    let filter = request.filter.unwrap_or_default();
    Ok(List {
        filter: Filter {
            namespace: filter.namespace,
            skill: filter.skill,
            tag: filter.tag,
            mode: filter.mode,
            capability: filter.capability,
            url: filter.url,
            text: filter.q,
        },
        page_size: request.page_size,
        page_token: page_token(request.page_token),
        read: read(request.max_staleness, request.at_least.as_deref(), request.wait_ms)?,
    })
}

/// A page token; the empty one asks for the first page.
pub(in super::super) fn page_token(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

/// Where a page of revisions begins.
pub(in super::super) fn start(token: Option<&str>, below: Option<u64>) -> Result<Start<'_>, Refusal> {
    match (token, below) {
        (Some(_), Some(_)) => {
            Err(Refusal::invalid("below goes with no page_token, which says where to go on"))
        }
        (None, Some(number)) => Refusal::unless_revision("below", number).map(Start::Below),
        (token, None) => Ok(Start::by_token(token)),
    }
}

pub(in super::super) fn which(which: Option<pb::get_revision_request::Which>) -> Result<Which, Refusal> {
    use pb::get_revision_request::Which as Sent;
    match which {
        Some(Sent::Revision(number)) => Refusal::unless_revision("revision", number).map(Which::Number),
        Some(Sent::At(position)) => Ok(Which::At(parsed("at", &position)?)),
        None => Err(Refusal::invalid("which revision is not said: one of revision and at must be set")),
    }
}

/// What every read that is not a resolve demands of the view.
pub(in super::super) fn read(
    max_staleness: Option<pb::MaxStaleness>,
    at_least: Option<&str>,
    wait_ms: Option<i64>,
) -> Result<Read, Refusal> {
    Ok(Read {
        max_staleness: staleness(max_staleness)?,
        at_least: at_least.map(|text| parsed("at_least", text)).transpose()?,
        wait: millis("wait_ms", wait_ms)?,
    })
}

pub(in super::super) fn agent(text: &str) -> Result<AgentName, Refusal> {
    parsed("agent", text)
}

fn fence(fence: Option<pb::Fence>) -> Result<Fence, Refusal> {
    let Some(sent) = fence else { return Ok(Fence::default()) };
    let said = sent.condition_count;
    let fence = Fence {
        max_staleness: staleness(sent.max_staleness)?,
        at_least: optional("at_least", sent.at_least)?,
        min_revision: optional::<RevisionRef>("min_revision", sent.min_revision)?,
        min_version: sent.min_version,
        skills: sent.skills.into_iter().map(skill).collect(),
        capabilities: Capabilities {
            streaming: sent.streaming,
            push_notifications: sent.push_notifications,
            extended_card: sent.extended_card,
            extensions: sent.extensions,
        },
        pin: optional("pin", sent.pin)?,
        pin_skills: optional("pin_skills", sent.pin_skills)?,
        pin_negotiation: optional("pin_negotiation", sent.pin_negotiation)?,
        max_origin_age: millis("max_origin_age_ms", sent.max_origin_age_ms)?,
    };
    match fence.count() {
        count if count != said => Err(Refusal::invalid(format!(
            "condition_count is {said}, and this server counts {count}: it must be the number of conditions set, \
             and where it is, the fence holds a condition that this server does not know"
        ))),
        _ => fence.checked().map_err(|error| Refusal::invalid(error.to_string())),
    }
}

fn skill(sent: pb::SkillWanted) -> SkillWanted {
    SkillWanted { id: sent.id, input_modes: sent.input_modes, output_modes: sent.output_modes }
}

fn staleness(sent: Option<pb::MaxStaleness>) -> Result<Option<MaxStaleness>, Refusal> {
    use pb::max_staleness::Bound;
    let Some(sent) = sent else { return Ok(None) };
    match sent.bound {
        Some(Bound::WithinMs(within)) => {
            Ok(millis("max_staleness.within_ms", Some(within))?.map(MaxStaleness::Within))
        }
        Some(Bound::Any(pb::AnyStaleness {})) => Ok(Some(MaxStaleness::Any)),
        None => Err(Refusal::invalid("max_staleness is set and says nothing: within_ms or any must be set")),
    }
}

fn expect(sent: Option<pb::Expect>) -> Result<Expect, Refusal> {
    use pb::expect::Current;
    let Some(sent) = sent else { return Ok(Expect::Any) };
    match sent.current {
        Some(Current::Absent(pb::ExpectAbsent {})) => Ok(Expect::Absent),
        Some(Current::Revision(text)) => {
            let RevisionRef { number, seen_at } = parsed("expect.revision", &text)?;
            Ok(Expect::Revision { number, seen_at })
        }
        Some(Current::Digest(text)) => Ok(Expect::Digest(parsed("expect.digest", &text)?)),
        None => {
            Err(Refusal::invalid("expect is set and says nothing: absent, revision or digest must be set"))
        }
    }
}

fn request_id(text: &str) -> Result<Option<RequestId>, Refusal> {
    if text.is_empty() { Ok(None) } else { parsed("request_id", text).map(Some) }
}

fn optional<T: std::str::FromStr<Err: Display>>(
    field: &str,
    text: Option<String>,
) -> Result<Option<T>, Refusal> {
    text.map(|text| parsed(field, &text)).transpose()
}

pub(super) fn parsed<T: std::str::FromStr<Err: Display>>(field: &str, text: &str) -> Result<T, Refusal> {
    text.parse().map_err(|error| Refusal::invalid(format!("{field}: {error}")))
}

/// How long a write is to be waited for, once it is done.
pub(in super::super) fn replicated_wait(millis: Option<i64>) -> Result<Option<ReplicatedWait>, Refusal> {
    self::millis("wait_replicated_ms", millis)?.map(ReplicatedWait::new).transpose()
}

pub(in super::super) fn millis(field: &str, sent: Option<i64>) -> Result<Option<Duration>, Refusal> {
    let Some(sent) = sent else { return Ok(None) };
    let millis = u64::try_from(sent)
        .map_err(|_| Refusal::invalid(format!("{field} of {sent} is negative: 0 or more milliseconds")))?;
    Ok(Some(Duration::from_millis(millis)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terms::Reason;

    fn refused<T: std::fmt::Debug>(outcome: Result<T, Refusal>) -> String {
        let refusal = outcome.unwrap_err();
        assert_eq!(refusal.reason(), Reason::InvalidArgument);
        refusal.parts().detail.clone()
    }

    /// A fence with every condition set once.
    fn whole() -> pb::Fence {
        let digest = Digest::of(b"x");
        pb::Fence {
            condition_count: 13,
            max_staleness: Some(within(250)),
            at_least: Some("7.00000000000000aa".to_owned()),
            min_revision: Some("3@7.00000000000000aa".to_owned()),
            min_version: Some("1.2".to_owned()),
            skills: vec![pb::SkillWanted {
                id: "s".to_owned(),
                input_modes: vec!["text/plain".to_owned()],
                output_modes: vec!["image/png".to_owned()],
            }],
            streaming: true,
            push_notifications: true,
            extended_card: true,
            extensions: vec!["https://x.example".to_owned()],
            pin: Some(digest.tagged()),
            pin_skills: Some(digest.hex()),
            pin_negotiation: Some(digest.hex()),
            max_origin_age_ms: Some(60_000),
        }
    }

    fn within(millis: i64) -> pb::MaxStaleness {
        pb::MaxStaleness { bound: Some(pb::max_staleness::Bound::WithinMs(millis)) }
    }

    #[test]
    fn every_condition_arrives() {
        let digest = Digest::of(b"x");
        let position: Position = "7.00000000000000aa".parse().unwrap();
        let expected = Fence {
            max_staleness: Some(MaxStaleness::Within(Duration::from_millis(250))),
            at_least: Some(position),
            min_revision: Some(RevisionRef { number: 3, seen_at: Some(position) }),
            min_version: Some("1.2".to_owned()),
            skills: vec![SkillWanted {
                id: "s".to_owned(),
                input_modes: vec!["text/plain".to_owned()],
                output_modes: vec!["image/png".to_owned()],
            }],
            capabilities: Capabilities {
                streaming: true,
                push_notifications: true,
                extended_card: true,
                extensions: vec!["https://x.example".to_owned()],
            },
            pin: Some(digest),
            pin_skills: Some(digest),
            pin_negotiation: Some(digest),
            max_origin_age: Some(Duration::from_secs(60)),
        };
        assert_eq!(fence(Some(whole())).unwrap(), expected);
    }

    #[test]
    fn a_fence_of_another_count_is_refused() {
        for count in [0, 12, 14] {
            let sent = pb::Fence { condition_count: count, ..whole() };
            assert!(refused(fence(Some(sent))).starts_with(&format!("condition_count is {count}, and")));
        }
        assert_eq!(fence(Some(pb::Fence::default())).unwrap(), Fence::default());
        assert_eq!(fence(None).unwrap(), Fence::default());
        // What a newer client set and this server cannot see.
        let sent = pb::Fence { condition_count: 1, ..pb::Fence::default() };
        assert!(refused(fence(Some(sent))).contains("this server counts 0"));
    }

    #[test]
    fn what_is_set_and_says_nothing_is_refused() {
        assert!(refused(staleness(Some(pb::MaxStaleness { bound: None }))).contains("within_ms or any"));
        assert!(refused(expect(Some(pb::Expect { current: None }))).contains("absent, revision or digest"));
        assert!(refused(which(None)).contains("revision and at"));
        let zero = Some(pb::get_revision_request::Which::Revision(0));
        assert_eq!(refused(which(zero)), "revision: revisions are numbered from 1");
        let zero = pb::RollbackRequest { agent: "a/b".to_owned(), to: 0, ..Default::default() };
        assert_eq!(refused(rollback(zero)), "to: revisions are numbered from 1");
        let empty = [
            pb::Fence { min_version: Some(String::new()), ..whole() },
            pb::Fence { extensions: vec![String::new()], ..whole() },
            pb::Fence { skills: vec![pb::SkillWanted::default()], ..whole() },
        ];
        for (sent, member) in empty.into_iter().zip(["min_version", "extensions", "skills"]) {
            assert_eq!(refused(fence(Some(sent))), format!("{member}: must not be empty"));
        }
        for field in ["at_least", "min_revision", "pin", "pin_skills", "pin_negotiation"] {
            let mut sent = whole();
            let empty = Some(String::new());
            match field {
                "at_least" => sent.at_least = empty,
                "min_revision" => sent.min_revision = empty,
                "pin" => sent.pin = empty,
                "pin_skills" => sent.pin_skills = empty,
                _ => sent.pin_negotiation = empty,
            }
            assert!(refused(fence(Some(sent))).starts_with(&format!("{field}: ``")));
        }
    }

    #[test]
    fn negative_durations_are_refused_by_name() {
        assert_eq!(refused(read(None, None, Some(-5))), "wait_ms of -5 is negative: 0 or more milliseconds");
        assert!(refused(read(Some(within(-1)), None, None)).starts_with("max_staleness.within_ms of -1"));
        let sent =
            pb::Fence { max_origin_age_ms: Some(i64::MIN), condition_count: 1, ..pb::Fence::default() };
        assert!(refused(fence(Some(sent))).starts_with("max_origin_age_ms of -9223372036854775808"));
    }

    #[test]
    fn bad_names_and_digests_are_refused_with_what_is_allowed() {
        assert!(refused(agent("Acme/x")).starts_with("agent: `Acme/x` is not a name"));
        let known = pb::ResolveRequest {
            agent: "a/b".to_owned(),
            known: vec!["sha256:xyz".to_owned()],
            ..pb::ResolveRequest::default()
        };
        assert!(refused(resolve(known)).contains("64 lower-case hex digits"));
        let item = pb::BatchAgent { agent: "nope".to_owned(), fence: None };
        let sent = pb::BatchResolveRequest { agents: vec![item], ..pb::BatchResolveRequest::default() };
        assert!(refused(batch(sent)).starts_with("agents[0]: agent: `nope`"));
        assert!(refused(request_id("a b")).starts_with("request_id: "));
    }

    #[test]
    fn too_many_conditions_are_refused() {
        let skill = pb::SkillWanted { id: "s".to_owned(), ..pb::SkillWanted::default() };
        let sent = pb::Fence { condition_count: 1_001, skills: vec![skill; 1_001], ..pb::Fence::default() };
        assert!(refused(fence(Some(sent))).contains("at most 1000"));
    }
}
