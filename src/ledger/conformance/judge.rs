//! A plain judge: the rules of registering in their order, without policies. The registry has the real one.

use crate::card::Change;
use crate::ledger::{
    Append, Expect, Judge, Op, Outcome, Refusal, RevisionKind, Seen, SeenRevision, Verdict, Write,
};
use crate::terms::Reason;

/// Request id, equal bytes, expectation, release.
#[derive(Debug)]
pub struct Plain;

impl Judge for Plain {
    fn judge(&self, write: &Write, seen: &Seen) -> Verdict {
        if let Some(prior) = &seen.request {
            return if prior.names == write.names {
                Verdict::Replay
            } else {
                refuse(seen, Reason::InvalidArgument)
            };
        }
        let live = seen.current.as_ref().filter(|current| current.kind == RevisionKind::Card);
        match &write.op {
            Op::Retire => retire(write, seen, live),
            Op::Register { .. } => register(write, seen, live),
        }
    }
}

fn retire(write: &Write, seen: &Seen, live: Option<&SeenRevision>) -> Verdict {
    match (&seen.current, live) {
        (None, _) => refuse(seen, Reason::AgentNotFound),
        (Some(_), None) => Verdict::Unchanged { release: seen.release.clone() },
        (Some(_), Some(live)) if !holds(write.expect, Some(live), seen) => {
            refuse(seen, Reason::RevisionConflict)
        }
        _ => Verdict::Append(Append {
            outcome: Outcome::Retired,
            change: Some(Change::retirement()),
            release: seen.release.clone(),
        }),
    }
}

fn register(write: &Write, seen: &Seen, live: Option<&SeenRevision>) -> Verdict {
    let Op::Register { card, against, release, .. } = &write.op else { return Verdict::Rebase };
    let number = |release: &Option<String>| release.as_deref().and_then(|text| text.parse::<u64>().ok());
    let (given, highest) = (number(release), number(&seen.release));
    let now_highest = given.max(highest).map(|number| number.to_string());
    if live.is_some_and(|live| live.raw_digest == Some(card.raw_digest())) {
        return Verdict::Unchanged { release: now_highest };
    }
    if !holds(write.expect, live, seen) {
        return refuse(seen, Reason::RevisionConflict);
    }
    if given.is_some() && given < highest {
        return refuse(seen, Reason::ReleaseSuperseded);
    }
    let outcome = if live.is_some() { Outcome::Updated } else { Outcome::Created };
    let current = seen.current.as_ref();
    let change = match current.and_then(|current| current.last_card) {
        None => None,
        Some(last) => match (against, current.and_then(|current| current.last_card_checked.as_ref())) {
            (Some(against), _) if against.raw_digest == last => Some(against.change.clone()),
            (_, Some(before)) => Some(Change::between(before, card)),
            _ => return Verdict::Rebase,
        },
    };
    Verdict::Append(Append { outcome, change, release: now_highest })
}

fn holds(expect: Expect, live: Option<&SeenRevision>, seen: &Seen) -> bool {
    match expect {
        Expect::Any => true,
        Expect::Absent => live.is_none(),
        Expect::Revision { number, seen_at } => {
            let of_this_history = seen_at.is_none_or(|position| {
                seen.digest_at_expected.is_some_and(|digest| position.tag == (&digest).into())
            });
            of_this_history && live.is_some_and(|live| live.number == number)
        }
        Expect::Digest(digest) => {
            live.is_some_and(|live| live.raw_digest == Some(digest) || live.content_digest == Some(digest))
        }
    }
}

fn refuse(seen: &Seen, reason: Reason) -> Verdict {
    Verdict::Refuse(Refusal {
        reason,
        detail: reason.slug().to_owned(),
        current: seen.current.as_ref().map(|current| current.number),
        change: None,
    })
}
