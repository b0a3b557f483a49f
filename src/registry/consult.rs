//! When to answer, when to ask again, and when to refuse: the rule that every read follows.
//!
//! *Passes are bounded, refusals are linearizable.* A read that passes on what the view holds is answered at
//! once. Before a read is refused, by content or for want of freshness or position, the view is confirmed
//! once within the caller's wait, and the read is judged again on what was proven since it arrived. If that
//! cannot be had, the refusal says that it could not be verified, with the content outcome beside it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{Call, Refusal, Settings};
use crate::clock::Moment;
use crate::fence::{Placed, Standing};
use crate::terms::{MaxStaleness, Position, Reason, display_duration};
use crate::view::{NotMet, Place, Served, View};

/// What a read demands of the view.
#[derive(Debug, Clone, Copy)]
pub(super) struct Demand<'a> {
    pub tolerance: MaxStaleness,
    pub positions: &'a [Position],
    pub wait: Option<Duration>,
}

/// What was found when a read was not let through.
#[derive(Debug)]
pub(super) struct Denied {
    pub reason: Reason,
    pub served: Arc<Served>,
    pub standing: Standing,
    pub now: Moment,
    asked: Asked,
}

impl Denied {
    /// The standing for one part of what was asked together, which names these positions alone.
    pub(super) fn standing_for<'a>(&self, positions: impl Iterator<Item = &'a Position>) -> Standing {
        let placed = placed(&self.served, positions, self.standing.proven_since_arrival, self.asked);
        Standing { placed, ..self.standing }
    }

    /// The same denial for another reason, of one part of what was asked together.
    pub(super) fn of_part(&self, reason: Reason, standing: Standing) -> Self {
        Self { reason, standing, served: Arc::clone(&self.served), now: self.now, asked: self.asked }
    }
}

/// The longest wait that may be asked for.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// A position that is ahead of an authority that is no primary database may be there soon: whoever gave it may
/// have been ahead of that one. For so long it is asked again, with pauses.
const AHEAD: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(50);

/// Whether the view was proven by somebody who may be behind others.
fn may_be_ahead(served: &Served) -> bool {
    served.proof.is_some_and(|proof| proof.hops > 0)
}

/// The moment until which a call may wait.
///
/// # Errors
/// `invalid_argument` when the wait is longer than allowed.
pub(super) fn deadline(call: &Call, wait: Option<Duration>, settings: &Settings) -> Result<Instant, Refusal> {
    let wait = wait.unwrap_or(settings.default_wait);
    if wait > WAIT_MAX {
        let detail =
            format!("wait of {} is too long: at most {}", display_duration(wait), display_duration(WAIT_MAX));
        return Err(Refusal::invalid(detail));
    }
    let waited = call.started + wait;
    Ok(call.answer_by().map_or(waited, |by| waited.min(by)))
}

/// Finds a served state on which the read passes. `content` says why it does not pass by content.
///
/// # Errors
/// [`Denied`] with the reason that comes first, or the refusal of a wait that is too long.
pub(super) async fn consult(
    view: &View,
    settings: &Settings,
    call: &Call,
    demand: Demand<'_>,
    content: impl Fn(&Served, &Moment) -> Option<Reason>,
) -> Result<(Arc<Served>, Moment), Result<Denied, Refusal>> {
    let deadline = deadline(call, demand.wait, settings).map_err(Err)?;
    let served = view.load();
    let now = view.clock().now();
    let (standing, reason) =
        judge(&served, &now, call, &demand, &content, Asked::NotYet(view.authority_head()));
    let Some(reason) = reason else { return Ok((Arc::clone(&served), now)) };
    if standing.proven_since_arrival {
        let asked = Asked::NotYet(view.authority_head());
        return Err(Ok(Denied { reason, served: Arc::clone(&served), standing, now, asked }));
    }
    drop(served);
    let may_wait = Instant::now() < deadline;
    let (served, asked) = if may_wait {
        match view.confirm(&call.arrival, deadline).await {
            Ok(served) => (served, Asked::Answered),
            Err(NotMet::NotInTime) => (Arc::clone(&view.load()), Asked::InVain(view.authority_head())),
            Err(NotMet::TooMany) => {
                let detail = "too many requests wait for a proof at this node";
                return Err(Err(Refusal::new(Reason::Overloaded, detail)));
            }
        }
    } else {
        (Arc::clone(&view.load()), Asked::NotYet(view.authority_head()))
    };
    let mut served = served;
    let (now, standing, reason) = loop {
        let now = view.clock().now();
        let (standing, reason) = judge(&served, &now, call, &demand, &content, asked);
        let again = reason == Some(Reason::PositionInFuture) && may_be_ahead(&served);
        let until = deadline.min(call.started + AHEAD);
        if !again || Instant::now() + PAUSE >= until {
            break (now, standing, reason);
        }
        tokio::time::sleep(PAUSE).await;
        match view.confirm(&now, until).await {
            Ok(newer) => served = newer,
            Err(_) => break (now, standing, reason),
        }
    };
    match reason {
        None => Ok((served, now)),
        Some(reason) => Err(Ok(Denied { reason, served, standing, now, asked })),
    }
}

/// Whether the authority was asked for this read. Where it did not answer: how far it was known to be.
#[derive(Debug, Clone, Copy)]
enum Asked {
    NotYet(u64),
    Answered,
    InVain(u64),
}

fn judge(
    served: &Served,
    now: &Moment,
    call: &Call,
    demand: &Demand<'_>,
    content: &impl Fn(&Served, &Moment) -> Option<Reason>,
    asked: Asked,
) -> (Standing, Option<Reason>) {
    let proven_since_arrival = served.proven_since(&call.arrival);
    let standing = Standing {
        placed: placed(served, demand.positions.iter(), proven_since_arrival, asked),
        staleness: served.staleness(now),
        proven_since_arrival,
        asked_in_vain: matches!(asked, Asked::InVain(_)),
    };
    let reason = verdict(served, demand.tolerance, &standing, content(served, now));
    (standing, reason)
}

/// What a standing and an outcome of content come to: freshness is judged first, and a content outcome on a view
/// that was not proven since the call arrived is no verdict.
pub(super) fn verdict(
    served: &Served,
    tolerance: MaxStaleness,
    standing: &Standing,
    content: Option<Reason>,
) -> Option<Reason> {
    let unverifiable = || {
        // The view has stopped for good: waiting longer will not prove it.
        if served.unsupported { Reason::UnsupportedEntry } else { Reason::FreshnessUnverifiable }
    };
    match (crate::fence::standing(tolerance, standing), content) {
        (Some(Reason::FreshnessUnverifiable), _) => Some(unverifiable()),
        (Some(reason), _) => Some(reason),
        (None, Some(reason)) if standing.proven_since_arrival => Some(reason),
        (None, Some(_)) => Some(unverifiable()),
        (None, None) => None,
    }
}

fn placed<'a>(
    served: &Served,
    positions: impl Iterator<Item = &'a Position>,
    proven: bool,
    asked: Asked,
) -> Placed {
    let mut worst = Placed::Reached;
    for position in positions {
        let placed = match (served.place(position), proven) {
            // Applied in a history that the authority contradicts is no answer.
            (Place::Applied, false) if served.diverged || served.doubted => Placed::Unverifiable,
            (Place::Applied, _) => continue,
            (Place::Differs, true) => Placed::Diverged,
            (Place::Beyond, true) => Placed::InFuture,
            (Place::Differs, false) => Placed::Unverifiable,
            (Place::Beyond, false) => match asked {
                Asked::NotYet(head) | Asked::InVain(head) if head >= position.seq => Placed::NotReached,
                _ => Placed::Unverifiable,
            },
        };
        if worst == Placed::Reached || placed == Placed::Diverged {
            worst = placed;
        }
    }
    worst
}

/// What a reason says, where the parts beside it do not say it already.
pub(super) fn detail(reason: Reason, denied: &Denied) -> String {
    let known = match denied.standing.staleness {
        Some(staleness) => format!("at most {} old", display_duration(staleness)),
        None => "of unknown age".to_owned(),
    };
    let position = denied.served.state.position();
    match reason {
        Reason::TooStale => format!("what this node holds is {known}, more than was asked for"),
        Reason::FreshnessUnverifiable if !denied.served.loaded => {
            "this node has not loaded the ledger yet, so it can prove nothing".to_owned()
        }
        Reason::FreshnessUnverifiable => {
            format!("what this node holds is {known}, and the authority did not confirm it within the wait")
        }
        Reason::PositionInFuture => format!("the authority has no such position yet: its head is {position}"),
        Reason::PositionNotReached => format!("this node had applied {position} when the wait was over"),
        Reason::HistoryDiverged => "the position is of another history than the authority's".to_owned(),
        Reason::UnsupportedEntry => {
            "the ledger holds an entry that this version of the registry does not know".to_owned()
        }
        _ => "a condition of the fence did not pass".to_owned(),
    }
}
