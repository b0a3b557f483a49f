//! What a caller demands of a resolve, and whether it is so. Pure: (fence, facts, standing) → verdict.
//!
//! Every condition comes out passed, failed or unverifiable; what is not passed refuses, and what cannot be
//! verified counts as failed. All conditions are evaluated, and the reason is that of the first that did not
//! pass, in the order of the contract: position, freshness, not found or retired, revision, pins, version,
//! skill, mode, capability, origin. Freshness is judged before content: a content condition that failed on a
//! view that could not be proven is reported beside it, never instead of it.
//!
//! Judging ([`Fence::content`]) allocates nothing; the texts of a report ([`Fence::report`]) are made for
//! refusals alone. This module does not wait and reads no clock: `registry` decides when to ask again.

mod condition;
mod report;

use std::time::Duration;

use crate::card::{Card, Offered, modes, version};
use crate::terms::{Digest, MaxStaleness, Origin, Position, Reason, RevisionRef, Timestamp};

pub use condition::{Condition, Outcome};

/// Conditions that one fence may set: a card has no more skills than this.
const CONDITIONS_MAX: u32 = 1_000;

/// The conditions that a caller sets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fence {
    /// `None`: the server's default, unless `pin` is given.
    pub max_staleness: Option<MaxStaleness>,
    pub at_least: Option<Position>,
    pub min_revision: Option<RevisionRef>,
    pub min_version: Option<String>,
    pub skills: Vec<SkillWanted>,
    pub capabilities: Capabilities,
    /// The content digest. It replaces the default `max_staleness`.
    pub pin: Option<Digest>,
    pub pin_skills: Option<Digest>,
    pub pin_negotiation: Option<Digest>,
    pub max_origin_age: Option<Duration>,
}

/// A skill that must be there, with these effective modes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SkillWanted {
    pub id: String,
    pub input_modes: Vec<String>,
    pub output_modes: Vec<String>,
}

/// Why a fence is refused before it is judged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{condition}: {why}")]
pub struct Malformed {
    /// The condition, or `conditions` when it is all of them.
    pub condition: &'static str,
    pub why: String,
}

/// What must be switched on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Capabilities {
    pub streaming: bool,
    pub push_notifications: bool,
    pub extended_card: bool,
    /// Extension URIs that must be there.
    pub extensions: Vec<String>,
}

impl Capabilities {
    fn is_empty(&self) -> bool {
        !self.streaming && !self.push_notifications && !self.extended_card && self.extensions.is_empty()
    }
}

/// What a fence is held against, besides the view's standing.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    pub revision: u64,
    pub card: &'a Card,
    pub origin: Origin,
    /// The authority's wall clock now, at the latest; `None` when nothing is proven.
    pub authority_wall: Option<Timestamp>,
}

/// Where a position that the caller named lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placed {
    /// None was named, or the view has applied it.
    Reached,
    /// Applied by the view with another digest, and the authority confirms the view.
    Diverged,
    /// Not applied, and the authority does not have it.
    InFuture,
    /// The authority has it; the view had not applied it in time.
    NotReached,
    /// The authority could not be asked.
    Unverifiable,
}

/// The view's standing for one request.
#[derive(Debug, Clone, Copy)]
pub struct Standing {
    pub placed: Placed,
    /// `None`: unknown.
    pub staleness: Option<Duration>,
    /// Completeness was proven since the request arrived.
    pub proven_since_arrival: bool,
    /// The authority was asked within the wait and could not confirm.
    pub asked_in_vain: bool,
}

impl Fence {
    /// The fence, if every condition says something and there are not too many. Whatever reads a fence off a wire
    /// ends in this.
    ///
    /// # Errors
    /// [`Malformed`], which names the condition.
    pub fn checked(self) -> Result<Self, Malformed> {
        let count = self.count();
        if count > CONDITIONS_MAX {
            let why = format!("{count} in one fence are too many: at most {CONDITIONS_MAX}");
            return Err(Malformed { condition: "conditions", why });
        }
        let any_empty = |texts: &[String]| texts.iter().any(String::is_empty);
        let skills = &self.skills;
        let empty = [
            ("min_version", self.min_version.as_deref() == Some("")),
            ("skills", skills.iter().any(|skill| skill.id.is_empty())),
            ("input_modes", skills.iter().any(|skill| any_empty(&skill.input_modes))),
            ("output_modes", skills.iter().any(|skill| any_empty(&skill.output_modes))),
            ("extensions", any_empty(&self.capabilities.extensions)),
        ];
        match empty.into_iter().find(|(_, is_empty)| *is_empty) {
            // It would say nothing, and a card held against it would pass or fail by accident.
            Some((condition, _)) => Err(Malformed { condition, why: "must not be empty".to_owned() }),
            None => Ok(self),
        }
    }

    /// The number of conditions set: what a server counts to know that it understood them all.
    pub fn count(&self) -> u32 {
        let set = [
            self.max_staleness.is_some(),
            self.at_least.is_some(),
            self.min_revision.is_some(),
            self.min_version.is_some(),
            self.capabilities.streaming,
            self.capabilities.push_notifications,
            self.capabilities.extended_card,
            self.pin.is_some(),
            self.pin_skills.is_some(),
            self.pin_negotiation.is_some(),
            self.max_origin_age.is_some(),
        ];
        let single = set.into_iter().filter(|set| *set).count();
        let all = single + self.skills.len() + self.capabilities.extensions.len();
        u32::try_from(all).unwrap_or(u32::MAX)
    }

    /// The staleness that this fence accepts, with `default` where it says nothing. A pin says what the bytes
    /// mean, so it stands in for the default; it does not for a bound that was asked for outright.
    pub fn tolerance(&self, default: Duration) -> MaxStaleness {
        match (self.max_staleness, &self.pin) {
            (Some(explicit), _) => explicit,
            (None, Some(_)) => MaxStaleness::Any,
            (None, None) => MaxStaleness::Within(default),
        }
    }

    /// Every position that the caller named: a view must have applied them all.
    pub fn positions(&self) -> impl Iterator<Item = &Position> {
        let of_revision = self.min_revision.as_ref().and_then(|revision| revision.seen_at.as_ref());
        self.at_least.iter().chain(of_revision)
    }

    /// The first condition on content that does not pass.
    pub fn content(&self, facts: &Facts<'_>) -> Option<Reason> {
        self.revision(facts)
            .or_else(|| self.pins(facts))
            .or_else(|| self.version(facts))
            .or_else(|| self.missing_skill_or_mode(facts))
            .or_else(|| self.missing_capability(facts))
            .or_else(|| self.origin(facts))
    }

    /// Every condition that was set, with what was wanted and found. `tolerance` is the staleness that was
    /// accepted in the end; `facts` is `None` when there is no card, and then conditions on it are unverifiable.
    pub fn report(
        &self,
        standing: &Standing,
        tolerance: MaxStaleness,
        facts: Option<&Facts<'_>>,
    ) -> Vec<Condition> {
        report::conditions(self, standing, tolerance, facts)
    }

    fn revision(&self, facts: &Facts<'_>) -> Option<Reason> {
        let floor = self.min_revision.as_ref()?;
        (facts.revision < floor.number).then_some(Reason::RevisionBelowFloor)
    }

    fn pins(&self, facts: &Facts<'_>) -> Option<Reason> {
        let differs = |pin: &Option<Digest>, digest: Digest| pin.is_some_and(|pin| pin != digest);
        let mismatch = differs(&self.pin, facts.card.content_digest())
            || differs(&self.pin_skills, facts.card.skill_fingerprint())
            || differs(&self.pin_negotiation, facts.card.negotiation_fingerprint());
        mismatch.then_some(Reason::PinMismatch)
    }

    fn version(&self, facts: &Facts<'_>) -> Option<Reason> {
        let floor = self.min_version.as_deref()?;
        match version::compare(facts.card.version().unwrap_or(""), floor) {
            Some(std::cmp::Ordering::Less) => Some(Reason::VersionBelowFloor),
            Some(_) => None,
            None => Some(Reason::VersionIncomparable),
        }
    }

    /// A skill that is missing comes before a mode that is, whichever is wanted first.
    fn missing_skill_or_mode(&self, facts: &Facts<'_>) -> Option<Reason> {
        let mut missing = None;
        for wanted in &self.skills {
            let Some(skill) = facts.card.offer().skill(&wanted.id) else {
                return Some(Reason::SkillMissing);
            };
            if !has_modes(skill, wanted) {
                missing = Some(Reason::ModeMissing);
            }
        }
        missing
    }

    fn missing_capability(&self, facts: &Facts<'_>) -> Option<Reason> {
        if self.capabilities.is_empty() {
            return None;
        }
        let normal = facts.card.normal();
        let wanted = &self.capabilities;
        let here = (!wanted.streaming || normal.capabilities.streaming)
            && (!wanted.push_notifications || normal.capabilities.push_notifications)
            && (!wanted.extended_card || normal.capabilities.extended_card)
            && wanted.extensions.iter().all(|uri| normal.extension(uri).is_some());
        (!here).then_some(Reason::CapabilityMissing)
    }

    fn origin(&self, facts: &Facts<'_>) -> Option<Reason> {
        let wanted = self.max_origin_age?;
        let within = facts.origin_age().is_some_and(|age| age <= wanted);
        (!within).then_some(Reason::OriginUnconfirmed)
    }
}

impl Facts<'_> {
    /// The age of the last confirmation of the origin; `None` when it, or the authority's time, is unknown.
    fn origin_age(&self) -> Option<Duration> {
        Some(self.authority_wall?.since(self.origin.confirmed_at?))
    }
}

/// Why the view does not stand where it must: position first, then freshness.
pub fn standing(tolerance: MaxStaleness, standing: &Standing) -> Option<Reason> {
    condition::position(standing.placed).or_else(|| condition::freshness(tolerance, standing))
}

fn has_modes(skill: Offered<'_>, wanted: &SkillWanted) -> bool {
    covered(skill.input(), &wanted.input_modes) && covered(skill.output(), &wanted.output_modes)
}

fn covered<'o>(offered: impl Iterator<Item = &'o str> + Clone, wanted: &[String]) -> bool {
    wanted.iter().all(|wanted| offered.clone().any(|mode| modes::accepts(mode, wanted)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_and_empty_is_malformed_and_so_is_too_much() {
        let skill = SkillWanted { id: "s".to_owned(), ..SkillWanted::default() };
        let of = |skills: Vec<SkillWanted>| Fence { skills, ..Fence::default() };
        let empty = vec![String::new()];
        let refused = [
            (
                Fence { min_version: Some(String::new()), ..Fence::default() },
                "min_version: must not be empty",
            ),
            (of(vec![skill.clone(), SkillWanted::default()]), "skills: must not be empty"),
            (
                of(vec![SkillWanted { input_modes: empty.clone(), ..skill.clone() }]),
                "input_modes: must not be empty",
            ),
            (
                of(vec![SkillWanted { output_modes: empty.clone(), ..skill.clone() }]),
                "output_modes: must not be empty",
            ),
            (
                Fence {
                    capabilities: Capabilities { extensions: empty, ..Capabilities::default() },
                    ..Fence::default()
                },
                "extensions: must not be empty",
            ),
            (of(vec![skill.clone(); 1_001]), "conditions: 1001 in one fence are too many: at most 1000"),
        ];
        for (fence, why) in refused {
            assert_eq!(fence.checked().unwrap_err().to_string(), why);
        }
        let most = of(vec![skill; 1_000]);
        assert_eq!(most.clone().checked(), Ok(most));
    }
}
