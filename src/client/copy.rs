//! A copy of a selection of agents at one position: what a cache answers from.
//!
//! Whole, or not there. Cheap to clone: what two copies have in common is shared, so that one change makes a new
//! copy in the time of the change, and readers of the old one are not disturbed. Answering takes no lock and waits
//! for nothing; whoever reads asks, and decides what to do when the copy cannot say.

use std::sync::Arc;
use std::time::Duration;

use super::answer::{Ask, Refusal, Resolved, Revision};
use crate::card::Card;
use crate::clock::Moment;
use crate::fence::{Facts, Fence};
use crate::terms::{
    AgentName, Basis, Digest, Freshness, MaxStaleness, Origin, Position, Reason, SetDigest, Timestamp,
};

/// Positions that a copy remembers having been at.
const PLACES_MAX: usize = 256;

/// What is known of an agent.
#[derive(Debug, Clone)]
pub(super) enum Entry {
    Live(Arc<Revision>),
    /// It has a card that did not come along.
    Bare {
        revision: u64,
        raw_digest: Digest,
    },
    Retired {
        revision: u64,
    },
}

impl Entry {
    pub(super) fn revision(&self) -> u64 {
        match self {
            Self::Live(revision) => revision.number,
            Self::Bare { revision, .. } | Self::Retired { revision } => *revision,
        }
    }

    fn share(&self, agent: &AgentName) -> SetDigest {
        match self {
            Self::Live(revision) => SetDigest::of(agent, revision.number, &revision.card.raw_digest()),
            Self::Bare { revision, raw_digest } => SetDigest::of(agent, *revision, raw_digest),
            Self::Retired { .. } => SetDigest::default(),
        }
    }
}

type Agents = imbl::GenericHashMap<AgentName, Entry, ahash::RandomState, imbl::shared_ptr::DefaultSharedPtr>;

#[derive(Debug, Clone)]
pub(super) struct Copy {
    agents: Agents,
    sum: SetDigest,
    /// Where it is; the last of `places`.
    pub(super) position: Position,
    places: imbl::Vector<Position>,
    /// All that was acknowledged before this moment is in it. `None`: nothing is proven.
    pub(super) proven: Option<Moment>,
    /// When the last confirmation was asked for that was answered with a proof.
    pub(super) asked: Option<Moment>,
    /// Shown as the node that answered.
    name: Arc<str>,
}

/// What a copy has to say to a question.
#[derive(Debug)]
pub(super) enum Answer {
    Passed(Resolved),
    Refused(Box<Refusal>),
    /// The copy must be proven anew first. What it would have said, if it is a refusal by content.
    Unproven {
        content: Option<Reason>,
    },
    /// The copy cannot say: the registry itself must be asked.
    Elsewhere,
}

impl Copy {
    pub(super) fn empty(position: Position, name: Arc<str>) -> Self {
        Self {
            agents: Agents::default(),
            sum: SetDigest::default(),
            position,
            places: imbl::Vector::unit(position),
            proven: None,
            asked: None,
            name,
        }
    }

    pub(super) fn get(&self, agent: &AgentName) -> Option<&Entry> {
        self.agents.get(agent)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.agents.len()
    }

    pub(super) fn sum(&self) -> SetDigest {
        self.sum
    }

    pub(super) fn put(&mut self, agent: AgentName, entry: Entry) {
        let share = entry.share(&agent);
        let old = self.agents.get(&agent).map_or_else(SetDigest::default, |old| old.share(&agent));
        self.sum = self.sum.minus(old).plus(share);
        self.agents.insert(agent, entry);
    }

    pub(super) fn moved_to(&mut self, position: Position) {
        if self.position == position {
            return;
        }
        self.position = position;
        self.places.push_back(position);
        if self.places.len() > PLACES_MAX {
            self.places.pop_front();
        }
    }

    /// Upper bound on how long ago the copy could have stopped being complete; `None`: unknown.
    pub(super) fn staleness(&self, now: &Moment) -> Option<Duration> {
        self.proven.map(|proven| now.since(&proven))
    }

    /// What it has to say at `now` to a question that arrived at `arrival`. A pass is as old as the fence allows; a
    /// refusal by content is proven since the arrival.
    pub(super) fn answer(&self, ask: &Ask<'_>, default: Duration, arrival: &Moment, now: &Moment) -> Answer {
        let fence = ask.fence;
        let knows = |position: &Position| self.places.contains(position);
        if ask.origin || fence.max_origin_age.is_some() || !fence.positions().all(knows) {
            return Answer::Elsewhere;
        }
        let staleness = self.staleness(now);
        let proven_since = self.proven.is_some_and(|proven| proven.at_or_after(arrival));
        let fresh = match fence.tolerance(default) {
            MaxStaleness::Any => true,
            MaxStaleness::Within(bound) => {
                proven_since || staleness.is_some_and(|staleness| staleness <= bound)
            }
        };
        let refused = |reason: Reason, detail: &str, card: Option<(&Arc<Card>, u64)>| {
            if !proven_since {
                return Answer::Unproven { content: Some(reason) };
            }
            Answer::Refused(Box::new(Refusal {
                freshness: Some(self.freshness(staleness, None)),
                card: card.map(|(card, _)| Arc::clone(card)),
                revision: card.map(|(_, revision)| revision),
                ..Refusal::new(reason, detail)
            }))
        };
        match self.agents.get(ask.agent) {
            None => refused(Reason::AgentNotFound, "the watched copy does not have it", None),
            Some(Entry::Retired { .. }) => refused(Reason::AgentRetired, "it is retired", None),
            Some(Entry::Bare { .. }) => Answer::Elsewhere,
            Some(Entry::Live(revision)) => match content(fence, revision) {
                Some(reason) => {
                    let card = Some((&revision.card, revision.number));
                    refused(reason, "the watched copy's card does not pass", card)
                }
                None if !fresh => Answer::Unproven { content: None },
                None => {
                    let freshness = self.freshness(staleness, Some(revision.registered_at));
                    Answer::Passed(Resolved::new(Arc::clone(revision), freshness, self.proven))
                }
            },
        }
    }

    fn freshness(&self, staleness: Option<Duration>, registered_at: Option<Timestamp>) -> Freshness {
        Freshness {
            position: self.position,
            staleness,
            proven_at: self.proven.map(|proven| proven.wall()),
            basis: if self.proven.is_some() { Basis::Upstream } else { Basis::Unproven },
            served_by: Arc::clone(&self.name),
            hops: 1,
            origin: registered_at.map(origin),
        }
    }
}

fn content(fence: &Fence, revision: &Revision) -> Option<Reason> {
    let origin = origin(revision.registered_at);
    fence.content(&Facts { revision: revision.number, card: &revision.card, origin, authority_wall: None })
}

/// A stream tells when a card was registered, and nothing else of its origin.
const fn origin(registered_at: Timestamp) -> Origin {
    Origin { registered_at, confirmed_at: None, redeploy_interval: None, lease: None }
}
