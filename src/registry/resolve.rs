//! Resolving peers under fences: one agent, or many at one position.

use std::sync::Arc;
use std::time::Duration;

use super::consult::{Demand, Denied, consult, detail, verdict};
use super::{Call, Read, Refusal, Registry};
use crate::card::Card;
use crate::clock::Moment;
use crate::fence::{Condition, Facts, Fence, Outcome};
use crate::telemetry::metrics::OutcomeLabels;
use crate::terms::{AgentName, Digest, Freshness, MaxStaleness, Position, Reason};
use crate::view::{Agent, Served};

/// A resolve as it was asked for.
#[derive(Debug, Clone)]
pub struct Resolve {
    pub agent: AgentName,
    pub fence: Fence,
    /// Raw digests that the caller holds, judged after the fence. Empty: none.
    pub known: Vec<Digest>,
    /// `None`: the server's default.
    pub wait: Option<Duration>,
}

/// An agent that passed the fence.
#[derive(Debug, Clone)]
pub struct Resolved {
    pub agent: Arc<Agent>,
    pub card: Arc<Card>,
    pub freshness: Freshness,
    /// The caller holds these bytes already.
    pub not_modified: bool,
}

/// A resolve of many agents at one position.
#[derive(Debug, Clone)]
pub struct Batch {
    pub agents: Vec<(AgentName, Fence)>,
    pub read: Read,
}

/// What one item of a batch came to.
#[derive(Debug)]
pub struct BatchItem {
    pub agent: AgentName,
    pub outcome: Result<Resolved, Refusal>,
}

/// Agents that one batch may name.
const BATCH_MAX: usize = 1_000;
/// Conditions of all fences of one batch: each is told, with what was found, where it does not pass.
const CONDITIONS_MAX: u32 = 10_000;

impl Registry {
    /// Resolves one agent.
    ///
    /// # Errors
    /// The refusal, with the card that did not pass where there is one.
    #[tracing::instrument(level = "debug", skip_all, fields(agent = %request.agent))]
    pub async fn resolve(&self, call: &Call, request: &Resolve) -> Result<Resolved, Refusal> {
        let outcome = self.resolve_unmetered(call, request).await;
        self.count_resolve(outcome.as_ref().map(|resolved| resolved.not_modified), 1);
        outcome
    }

    /// Counts so many resolves that came to one outcome; `true`: the caller held what is current.
    pub(super) fn count_resolve(&self, outcome: Result<bool, &Refusal>, many: usize) {
        let many = many as u64;
        match outcome {
            Ok(true) => self.metrics.not_modified.inc_by(many),
            Ok(false) => self.metrics.resolved.inc_by(many),
            Err(refusal) => {
                let outcome = OutcomeLabels { outcome: refusal.reason().slug() };
                self.metrics.resolves.get_or_create(&outcome).inc_by(many)
            }
        };
    }

    async fn resolve_unmetered(&self, call: &Call, request: &Resolve) -> Result<Resolved, Refusal> {
        let fence = &request.fence;
        let named: Named = fence.into();
        let demand = Demand {
            tolerance: fence.tolerance(self.settings.default_max_staleness),
            positions: named.positions(),
            wait: request.wait,
        };
        let content = |served: &Arc<Served>, now: &Moment| resolved(served, now, &request.agent, fence);
        match consult(&self.view, &self.settings, call, demand, content).await {
            Ok(mut resolved) => {
                let known = &request.known;
                resolved.not_modified = !known.is_empty() && known.contains(&resolved.card.raw_digest());
                Ok(resolved)
            }
            Err(Ok(denied)) => Err(self.refuse(denied, &request.agent, fence)),
            Err(Err(refusal)) => Err(refusal.about(&request.agent)),
        }
    }

    /// Resolves many agents at one position; each passes or is refused by itself.
    ///
    /// # Errors
    /// When the batch itself is malformed, or the view does not stand where the batch wants it.
    #[tracing::instrument(level = "debug", skip_all, fields(agents = batch.agents.len()))]
    pub async fn resolve_batch(
        &self,
        call: &Call,
        batch: &Batch,
    ) -> Result<(Vec<BatchItem>, Freshness), Refusal> {
        let outcome = self.resolve_batch_unmetered(call, batch).await;
        match &outcome {
            Ok((items, _)) => {
                for item in items {
                    self.count_resolve(item.outcome.as_ref().map(|resolved| resolved.not_modified), 1);
                }
            }
            // Refused whole, each of its agents is.
            Err(refusal) => self.count_resolve(Err(refusal), batch.agents.len()),
        }
        outcome
    }

    async fn resolve_batch_unmetered(
        &self,
        call: &Call,
        batch: &Batch,
    ) -> Result<(Vec<BatchItem>, Freshness), Refusal> {
        if batch.agents.len() > BATCH_MAX {
            let detail =
                format!("{} agents in one batch are too many: at most {BATCH_MAX}", batch.agents.len());
            return Err(Refusal::invalid(detail));
        }
        let conditions: u32 = batch.agents.iter().map(|(_, fence)| fence.count()).sum();
        if conditions > CONDITIONS_MAX {
            let detail =
                format!("{conditions} conditions in one batch are too many: at most {CONDITIONS_MAX}");
            return Err(Refusal::invalid(detail));
        }
        let (tolerance, positions) = self.batch_demand(batch);
        let demand = Demand { tolerance, positions: &positions, wait: batch.read.wait };
        // One confirmation serves all items that would be refused on what is held.
        let content = |served: &Arc<Served>, now: &Moment| {
            let one = |(agent, fence): &(AgentName, Fence)| {
                let outcome = Ok(resolved(served, now, agent, fence)?);
                Ok(BatchItem { agent: agent.clone(), outcome })
            };
            let items = batch.agents.iter().map(one).collect::<Result<Vec<_>, Reason>>()?;
            Ok((items, served.freshness(now)))
        };
        let denied = match consult(&self.view, &self.settings, call, demand, content).await {
            Ok(passed) => return Ok(passed),
            Err(Ok(denied)) => denied,
            Err(Err(refusal)) => return Err(refusal),
        };
        // What the batch itself demands and cannot have refuses it whole.
        if batch.read.max_staleness.is_some() || batch.read.at_least.is_some() {
            let standing = denied.standing_for(batch.read.at_least.iter());
            // Where the batch says nothing of staleness, its items do.
            let tolerance = batch.read.max_staleness.unwrap_or(MaxStaleness::Any);
            if let Some(reason) = crate::fence::standing(tolerance, &standing) {
                return Err(self.refuse_read(&denied.of_part(reason, standing)));
            }
        }
        let items = batch.agents.iter().map(|(agent, fence)| {
            let outcome = self.resolved_item(batch, agent, fence, &denied);
            BatchItem { agent: agent.clone(), outcome }
        });
        Ok((items.collect(), denied.served.freshness(&denied.now)))
    }

    /// What one item of a batch that did not pass as a whole comes to.
    fn resolved_item(
        &self,
        batch: &Batch,
        agent: &AgentName,
        fence: &Fence,
        denied: &Denied,
    ) -> Result<Resolved, Refusal> {
        let standing = denied.standing_for(batch.read.at_least.iter().chain(fence.positions()));
        let tolerance = self.item_tolerance(batch, fence);
        let content = resolved(&denied.served, &denied.now, agent, fence);
        let reason = verdict(&denied.served, tolerance, &standing, content.as_ref().err().copied());
        reason
            .map_or(content, Err)
            .map_err(|reason| self.refuse_with(denied.of_part(reason, standing), agent, fence, tolerance))
    }

    /// The strictest of what the batch and its items demand.
    fn batch_demand(&self, batch: &Batch) -> (MaxStaleness, Vec<Position>) {
        let mut positions: Vec<Position> = batch.read.at_least.iter().copied().collect();
        let mut strictest = None;
        for (_, fence) in &batch.agents {
            positions.extend(fence.positions());
            strictest = Some(stricter(strictest, self.item_tolerance(batch, fence)));
        }
        (strictest.unwrap_or_else(|| self.tolerance(&batch.read)), positions)
    }

    /// An item's own bound; else the batch's; else the default, which a pin replaces.
    fn item_tolerance(&self, batch: &Batch, fence: &Fence) -> MaxStaleness {
        match (fence.max_staleness, batch.read.max_staleness) {
            (Some(own), Some(of_batch)) => stricter(Some(own), of_batch),
            (None, Some(of_batch)) => of_batch,
            _ => fence.tolerance(self.settings.default_max_staleness),
        }
    }

    fn refuse(&self, denied: Denied, agent: &AgentName, fence: &Fence) -> Refusal {
        self.refuse_with(denied, agent, fence, fence.tolerance(self.settings.default_max_staleness))
    }

    fn refuse_with(
        &self,
        denied: Denied,
        agent: &AgentName,
        fence: &Fence,
        tolerance: MaxStaleness,
    ) -> Refusal {
        let found = denied.served.state.agent(agent);
        let card = found.and_then(|found| found.card());
        let facts = found.zip(card).map(|(found, card)| facts(&denied.served, &denied.now, found, card));
        let conditions = fence.report(&denied.standing, tolerance, facts.as_ref());
        let detail = match denied.reason {
            Reason::AgentNotFound => {
                format!("there is no agent {agent}, as of {}", denied.served.state.position())
            }
            Reason::AgentRetired => format!("{agent} is retired"),
            reason => {
                let failed = |condition: &&Condition| condition.outcome != Outcome::Passed;
                let mut failed = conditions.iter().filter(failed);
                let first = failed.find(|condition| concerns(reason, condition.condition));
                first.map_or_else(
                    || detail(reason, &denied),
                    |c| format!("{}: {} was wanted, {} was found", c.condition, c.wanted, c.found),
                )
            }
        };
        let content = resolved(&denied.served, &denied.now, agent, fence).err();
        Refusal::new(denied.reason, detail).about(agent).with(|parts| {
            parts.conditions = conditions;
            // The content outcome beside a freshness that could not be proven.
            if content == Some(Reason::AgentNotFound) && denied.reason != Reason::AgentNotFound {
                parts.detail.push_str("; no such agent is held");
            }
            if content == Some(Reason::AgentRetired) && denied.reason != Reason::AgentRetired {
                parts.detail.push_str("; the agent is held as retired");
            }
            parts.revision = found.map(|found| found.revision);
            parts.card = card.cloned();
            parts.freshness = Some(match found {
                Some(found) => freshness(&denied.served, &denied.now, found),
                None => denied.served.freshness(&denied.now),
            });
        })
    }

    /// The refusal of a read that is about no single agent.
    pub(super) fn refuse_read(&self, denied: &Denied) -> Refusal {
        Refusal::new(denied.reason, detail(denied.reason, denied)).with(|parts| {
            parts.freshness = Some(denied.served.freshness(&denied.now));
        })
    }
}

/// Positions that a fence names; at most two, so that a resolve allocates nothing for them.
struct Named {
    all: [Position; 2],
    count: usize,
}

impl From<&Fence> for Named {
    fn from(fence: &Fence) -> Self {
        let mut named = Self { all: [Position { seq: 0, tag: crate::terms::Tag(0) }; 2], count: 0 };
        for position in fence.positions().take(2) {
            named.all[named.count] = *position;
            named.count += 1;
        }
        named
    }
}

impl Named {
    fn positions(&self) -> &[Position] {
        &self.all[..self.count]
    }
}

fn facts<'a>(served: &Served, now: &Moment, agent: &Agent, card: &'a Card) -> Facts<'a> {
    Facts {
        revision: agent.revision,
        card,
        origin: agent.origin(),
        authority_wall: served.authority_wall(now),
    }
}

/// The answer by what is held, whatever its standing; or why the fence does not let it through.
fn resolved(served: &Served, now: &Moment, agent: &AgentName, fence: &Fence) -> Result<Resolved, Reason> {
    let agent = served.state.agent(agent).ok_or(Reason::AgentNotFound)?;
    let card = agent.card().ok_or(Reason::AgentRetired)?;
    match fence.content(&facts(served, now, agent, card)) {
        Some(reason) => Err(reason),
        None => Ok(Resolved {
            agent: Arc::clone(agent),
            card: Arc::clone(card),
            freshness: freshness(served, now, agent),
            not_modified: false,
        }),
    }
}

pub(super) fn freshness(served: &Served, now: &Moment, agent: &Agent) -> Freshness {
    Freshness { origin: Some(agent.origin()), ..served.freshness(now) }
}

fn stricter(one: Option<MaxStaleness>, other: MaxStaleness) -> MaxStaleness {
    match (one, other) {
        (Some(MaxStaleness::Within(a)), MaxStaleness::Within(b)) => MaxStaleness::Within(a.min(b)),
        (Some(MaxStaleness::Within(a)), MaxStaleness::Any) => MaxStaleness::Within(a),
        (_, other) => other,
    }
}

/// Whether a condition is what a reason is about.
fn concerns(reason: Reason, condition: &str) -> bool {
    match reason {
        Reason::RevisionBelowFloor => condition == "min_revision",
        Reason::PinMismatch => condition.starts_with("pin"),
        Reason::VersionBelowFloor | Reason::VersionIncomparable => condition == "min_version",
        Reason::SkillMissing | Reason::ModeMissing => condition == "skills",
        Reason::CapabilityMissing => {
            matches!(condition, "streaming" | "push_notifications" | "extended_card" | "extension")
        }
        Reason::OriginUnconfirmed => condition == "max_origin_age",
        _ => false,
    }
}
