//! What a guard keeps of each agent: the card in hand, the tasks that are held, and the cards under suspicion.
//!
//! All of it lies behind one lock that is never held across a wait. It is bounded: what is forgotten is only asked
//! for again. A suspicion is not forgotten to make room for a card.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures::future::{BoxFuture, Shared};

use super::intent::{Agreement, Intent};
use super::memo::Copy;
use crate::card::Card;
use crate::client::answer::Resolved;
use crate::clock::Moment;
use crate::fence::{Facts, Fence};
use crate::terms::{AgentName, Digest, MaxStaleness, Origin, Timestamp};

/// Agents whose card is kept.
const AGENTS_MAX: usize = 10_000;
/// Cards of one agent that are under suspicion at a time; beyond, the oldest suspicion goes.
const SUSPECTS_MAX: usize = 64;

/// Evidence that comes so soon after other evidence against the same card is answered by the same read.
const SHARED_FOR: Duration = Duration::from_secs(1);

/// A read on evidence, shared by all who found the same at a time.
pub(super) type Reading = Shared<BoxFuture<'static, Option<Resolved>>>;

#[derive(Debug, Default)]
pub(super) struct Known {
    agents: Mutex<HashMap<AgentName, Agent>>,
    /// The history that the cards in hand are of.
    history: AtomicU64,
}

#[derive(Debug, Default)]
struct Agent {
    memo: Option<Resolved>,
    held: Vec<Weak<Agreement>>,
    suspects: Vec<Suspect>,
}

/// A card that an answer spoke against.
///
/// Only a confirmation of its origin after the evidence clears it, and when that was is the registry's to say, in its
/// own clock. So the first proof asked for after the evidence is the baseline: a confirmation must be later than what
/// it told of the origin, and later than when it was made. Before there was one, nothing clears.
#[derive(Debug)]
struct Suspect {
    content_digest: Digest,
    at: Moment,
    baseline: Option<[Option<Timestamp>; 2]>,
    read_at: Moment,
    reading: Reading,
}

/// What a card is to a guard that just read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nothing speaks against it.
    Clear,
    /// Something did, and its origin was confirmed since.
    Released,
    /// Something does.
    Suspect,
}

impl Known {
    /// Drops every card in hand if they are of another history than `now`: what they say may never have happened.
    pub(super) fn of_history(&self, now: u64) {
        if self.history.swap(now, Ordering::AcqRel) != now {
            self.lock().values_mut().for_each(|known| known.memo = None);
        }
    }

    /// The card in hand, if it may start this task without asking anyone.
    pub(super) fn serving(
        &self,
        agent: &AgentName,
        intent: &Intent,
        fence: &Fence,
        now: &Moment,
    ) -> Option<Resolved> {
        let mut agents = self.lock();
        let known = agents.get_mut(agent)?;
        let memo = known.memo.as_ref()?;
        let revision = &memo.revision;
        let age = memo.staleness(now);
        known.held.retain(|held| held.strong_count() > 0);
        let copy = Copy {
            age,
            revalidate_after: memo.freshness.origin.and_then(|origin| origin.revalidate_after()),
            immutable: revision.immutable_versions == Some(true) && revision.card.version().is_some(),
            breaks_held_task: known
                .held
                .iter()
                .filter_map(Weak::upgrade)
                .any(|held| !held.intent.is_held_by(&revision.card)),
        };
        // What only the registry can judge is always asked.
        let asked = fence.positions().next().is_some()
            || fence.min_revision.is_some()
            || fence.max_origin_age.is_some();
        let within = match fence.max_staleness {
            Some(MaxStaleness::Within(bound)) => age.is_some_and(|age| age <= bound),
            Some(MaxStaleness::Any) | None => true,
        };
        let serves = !asked
            && within
            && copy.must_revalidate(intent.expected_duration).is_none()
            && passes(fence, revision.number, &revision.card)
            && !known.is_suspect(revision.card.content_digest());
        serves.then(|| memo.clone())
    }

    /// The card in hand, whatever its age.
    pub(super) fn memo(&self, agent: &AgentName) -> Option<Resolved> {
        self.lock().get(agent)?.memo.clone()
    }

    pub(super) fn drop_memo(&self, agent: &AgentName) {
        if let Some(known) = self.lock().get_mut(agent) {
            known.memo = None;
        }
    }

    pub(super) fn hold(&self, agent: &AgentName, agreement: Weak<Agreement>) {
        let mut agents = self.lock();
        let known = agents.entry(agent.clone()).or_default();
        known.held.retain(|held| held.strong_count() > 0);
        known.held.push(agreement);
    }

    pub(super) fn has_suspects(&self, agent: &AgentName) -> bool {
        self.lock().get(agent).is_some_and(|known| !known.suspects.is_empty())
    }

    /// Judges a card that was just read, asked for at `asked`, and keeps it if `keep` says so and nothing speaks
    /// against it.
    pub(super) fn adopt(&self, resolved: &Resolved, keep: bool, asked: &Moment, now: &Moment) -> Standing {
        let mut agents = self.lock();
        let full = agents.len() >= AGENTS_MAX;
        let agent = &resolved.revision.agent;
        if full && !agents.contains_key(agent) {
            agents.retain(|_, known| !known.is_idle());
            if agents.len() >= AGENTS_MAX {
                return Standing::Clear;
            }
        }
        let known = agents.entry(agent.clone()).or_default();
        let standing = known.judge(resolved, asked, now);
        let older =
            known.memo.as_ref().is_some_and(|memo| match (memo.staleness(now), resolved.staleness(now)) {
                (Some(held), Some(read)) => held < read,
                (held, _) => held.is_some(),
            });
        if standing == Standing::Suspect {
            // What is in hand is either the same card, or older than the one that is under suspicion.
            known.memo = None;
        } else if keep && !older {
            known.memo = Some(resolved.clone());
        }
        standing
    }

    /// The card that evidence already led to from `content_digest`, or else a suspicion that is new or renewed: the
    /// reading that is under way or just ended, or the one that `begin` makes. Also tells whether it is new.
    pub(super) fn suspect(
        &self,
        agent: &AgentName,
        content_digest: Digest,
        now: Moment,
        begin: impl FnOnce() -> Reading,
    ) -> Result<Resolved, (Reading, bool)> {
        let mut agents = self.lock();
        let known = agents.entry(agent.clone()).or_default();
        let moved = known.memo.as_ref().filter(|memo| memo.card().content_digest() != content_digest);
        if let Some(memo) = moved
            && known.is_suspect(content_digest)
        {
            return Ok(memo.clone());
        }
        if moved.is_none() {
            known.memo = None;
        }
        let place = known.suspects.iter().position(|suspect| suspect.content_digest == content_digest);
        let old = place.map(|place| known.suspects.remove(place));
        let is_new = old.is_none();
        let shared = |old: &Suspect| old.reading.peek().is_none() || now.since(&old.read_at) < SHARED_FOR;
        let (read_at, reading) = match old.filter(shared) {
            Some(old) => (old.read_at, old.reading),
            None => (now, begin()),
        };
        if known.suspects.len() >= SUSPECTS_MAX {
            known.suspects.remove(0);
        }
        known.suspects.push(Suspect {
            content_digest,
            at: now,
            baseline: None,
            read_at,
            reading: reading.clone(),
        });
        Err((reading, is_new))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<AgentName, Agent>> {
        self.agents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Agent {
    fn is_idle(&self) -> bool {
        self.suspects.is_empty() && self.held.iter().all(|held| held.strong_count() == 0)
    }

    fn is_suspect(&self, content_digest: Digest) -> bool {
        self.suspects.iter().any(|suspect| suspect.content_digest == content_digest)
    }

    fn judge(&mut self, resolved: &Resolved, asked: &Moment, now: &Moment) -> Standing {
        let digest = resolved.card().content_digest();
        let Some(place) = self.suspects.iter().position(|suspect| suspect.content_digest == digest) else {
            return Standing::Clear;
        };
        let suspect = &mut self.suspects[place];
        let unproven = resolved.staleness(now).is_none();
        let Some(origin) = resolved.freshness.origin.filter(|_| asked.at_or_after(&suspect.at) && !unproven)
        else {
            return Standing::Suspect;
        };
        let Some(baseline) = suspect.baseline else {
            suspect.baseline = Some([origin.confirmed_at, resolved.freshness.proven_at]);
            return Standing::Suspect;
        };
        let later = |confirmed: Timestamp| baseline.iter().flatten().all(|before| confirmed > *before);
        if !origin.confirmed_at.is_some_and(later) {
            return Standing::Suspect;
        }
        self.suspects.remove(place);
        Standing::Released
    }
}

/// Whether the card passes what the fence asks of content.
fn passes(fence: &Fence, revision: u64, card: &Card) -> bool {
    let origin = Origin {
        registered_at: Timestamp::from_micros(0),
        confirmed_at: None,
        redeploy_interval: None,
        lease: None,
    };
    fence.content(&Facts { revision, card, origin, authority_wall: None }).is_none()
}
