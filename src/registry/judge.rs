//! The rules of a write, judged under the ledger's lock. Pure.
//!
//! The order is the contract: request id, equal bytes, expect, release, policies. (Policies come with
//! namespaces; none exist yet.)

use crate::card::{Card, Change, version};
use crate::ledger::{
    Append, Expect, Judge, Op, Outcome, Refusal, RevisionKind, Seen, SeenRevision, Verdict, Write,
};
use crate::terms::{Reason, Tag};

/// The registry's judge.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rules;

impl Judge for Rules {
    fn judge(&self, write: &Write, seen: &Seen) -> Verdict {
        if let Some(prior) = &seen.request {
            if prior.names == write.names {
                return Verdict::Replay;
            }
            let detail = format!("request id `{}` already names another request", write.request_id);
            return refuse(Reason::InvalidArgument, detail, seen, None);
        }
        match &write.op {
            Op::Register { card, against, release, .. } => {
                register(write, seen, card, against.as_ref(), release.as_deref())
            }
            Op::Retire => retire(write, seen),
        }
    }
}

fn register(
    write: &Write,
    seen: &Seen,
    card: &Card,
    against: Option<&crate::ledger::Against>,
    release: Option<&str>,
) -> Verdict {
    if is_current(seen, |current| current.raw_digest == Some(card.raw_digest())) {
        return Verdict::Unchanged { release: highest(seen.release.as_deref(), release) };
    }
    if let Some(detail) = unexpected(write, seen) {
        return refuse(Reason::RevisionConflict, detail, seen, None);
    }
    let change = match seen.current.as_ref() {
        None => None,
        Some(current) => match (&current.last_card_checked, current.last_card, against) {
            (Some(last), _, _) => Some(Change::between(last, card)),
            (None, None, _) => None,
            (None, Some(last), Some(against)) if against.raw_digest == last => Some(against.change.clone()),
            (None, Some(_), _) => return Verdict::Rebase,
        },
    };
    if let (Some(release), Some(held)) = (release, seen.release.as_deref())
        && version::compare(release, held) == Some(std::cmp::Ordering::Less)
    {
        let detail = format!("release {release} is below {held}, the highest that was accepted");
        return refuse(Reason::ReleaseSuperseded, detail, seen, change);
    }
    let created = !is_current(seen, |_| true);
    Verdict::Append(Append {
        outcome: if created { Outcome::Created } else { Outcome::Updated },
        change,
        release: highest(seen.release.as_deref(), release),
    })
}

fn retire(write: &Write, seen: &Seen) -> Verdict {
    match &seen.current {
        None => refuse(Reason::AgentNotFound, format!("there is no agent {}", write.agent), seen, None),
        Some(current) if current.kind == RevisionKind::Tombstone => {
            Verdict::Unchanged { release: seen.release.clone() }
        }
        Some(_) => match unexpected(write, seen) {
            Some(detail) => refuse(Reason::RevisionConflict, detail, seen, None),
            None => Verdict::Append(Append {
                outcome: Outcome::Retired,
                change: Some(Change::retirement()),
                release: seen.release.clone(),
            }),
        },
    }
}

/// Whether there is a current card and it is so.
fn is_current(seen: &Seen, so: impl Fn(&SeenRevision) -> bool) -> bool {
    seen.current.as_ref().is_some_and(|current| current.kind == RevisionKind::Card && so(current))
}

/// What is current instead of what was expected.
fn unexpected(write: &Write, seen: &Seen) -> Option<String> {
    let current = seen.current.as_ref();
    let found = match current {
        None => "there is none".to_owned(),
        Some(current) if current.kind == RevisionKind::Tombstone => {
            format!("revision {} is a tombstone", current.number)
        }
        Some(current) => {
            let digest =
                current.raw_digest.map_or_else(String::new, |digest| format!(", {}", digest.tagged()));
            format!("revision {} is current{digest}", current.number)
        }
    };
    let met = match write.expect {
        Expect::Any => true,
        Expect::Absent => !is_current(seen, |_| true),
        Expect::Revision { number, seen_at } => {
            let same_history = seen_at.is_none_or(|position| {
                seen.digest_at_expected.is_some_and(|digest| Tag::from(&digest) == position.tag)
            });
            current.is_some_and(|current| current.number == number) && same_history
        }
        Expect::Digest(digest) => is_current(seen, |current| {
            current.raw_digest == Some(digest) || current.content_digest == Some(digest)
        }),
    };
    let wanted = match write.expect {
        Expect::Any => return None,
        Expect::Absent => "no current card".to_owned(),
        Expect::Revision { number, seen_at: None } => format!("revision {number}"),
        Expect::Revision { number, seen_at: Some(position) } => format!("revision {number}@{position}"),
        Expect::Digest(digest) => format!("a card with digest {}", digest.tagged()),
    };
    (!met).then(|| format!("{wanted} was expected, {found}"))
}

fn highest(held: Option<&str>, given: Option<&str>) -> Option<String> {
    match (held, given) {
        (Some(held), Some(given)) => {
            let lower = version::compare(given, held) == Some(std::cmp::Ordering::Less);
            Some(if lower { held } else { given }.to_owned())
        }
        (held, given) => given.or(held).map(str::to_owned),
    }
}

fn refuse(reason: Reason, detail: String, seen: &Seen, change: Option<Change>) -> Verdict {
    let current = seen.current.as_ref().map(|current| current.number);
    Verdict::Refuse(Refusal { reason, detail, current, change })
}
