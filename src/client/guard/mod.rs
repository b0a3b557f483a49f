//! Carries the card that was negotiated with, from the first fence to the last artifact.
//!
//! A caller that keeps a card is wrong the moment the agent moves on, and nothing in A2A tells it. The guard is the
//! four places where it can still find out in time:
//!
//! - [`start_task`](Guard::start_task): before a task is queued. A card in hand serves while the rule of [`Copy`]
//!   allows; else the registry is asked under the intent's fence, and a refusal is the end of it.
//! - [`register_webhook`](Guard::register_webhook): push withdrawn meanwhile is an error now, not a silence later.
//! - [`continue_task`](Guard::continue_task): while a task runs. A registry that is away is a warning; a skill that
//!   is gone is an error.
//! - [`check`](Guard::check): on every answer and every streaming event, before what it delivers is handed on.
//!
//! The one rule above the others: after evidence against a card nothing is ever started again with that card. It is
//! dropped, the agent is read anew (once for all who found the same at a time), the registry is told, and the card is
//! *quarantined*: while the registry still serves it and its origin was not confirmed after the evidence, a start is
//! refused with `registry_behind_origin`.
//!
//! The guard decides and remembers; it finds cards through a [`Discovery`] and judges answers with
//! [`check`](super::check). It holds no lock across a wait, and waits only as long as the discovery and one bounded
//! report do.

mod core;
mod error;
mod intent;
mod known;
mod memo;
mod observe;
mod reports;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, Stream};
use serde_json::Value;

use super::answer::{self, Ask, Discovery, Resolved, Revision};
use super::check::{Checked, Finding, Strictness, judge};
use super::events::Observed;
use crate::card::{Card, Change};
use crate::clock::Clock;
use crate::fence::Fence;
use crate::terms::{AgentName, MaxStaleness, Reason, Retry};

use self::core::Core;
use self::intent::Agreement;
use self::known::{Known, Standing};
use self::observe::Observer;

pub use self::error::{Cards, Error, Gone, Held, Stale};
pub use self::intent::{Intent, Negotiated};
pub use self::memo::{Copy, Revalidate};
pub use self::observe::{Counts, Event};
pub use self::reports::{NoReports, Report, Reported, Reports};

/// How a guard judges.
#[derive(Debug, Clone)]
pub struct Settings {
    pub strictness: Strictness,
    /// The longest that a drift report is waited for.
    pub report_within: Duration,
    /// The same kind as the discovery's.
    pub clock: Clock,
}

impl Default for Settings {
    fn default() -> Self {
        Self { strictness: Strictness::Strict, report_within: Duration::from_secs(2), clock: Clock::System }
    }
}

/// Guards the tasks of one caller. Cheap to clone; clones share what they know, and one for a process is best.
///
/// ```no_run
/// use std::time::Duration;
///
/// use cardfence::client::{Guard, Intent, Resolver};
/// use serde_json::json;
///
/// # async fn send(_: &str) -> serde_json::Value { json!(null) }
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let guard = Guard::new(Resolver::connect("http://127.0.0.1:7878")?);
/// let intent = Intent {
///     output_modes: vec!["text/markdown".to_owned()],
///     expected_duration: Some(Duration::from_secs(60)),
///     ..Intent::skill("summarize-v2")
/// };
/// // Refused here, not hours later: `CapabilityMismatch`, `StaleAgentCard`, `DiscoveryUnavailable`.
/// let negotiated = guard.start_task(&"acme/summarizer".parse()?, intent).await?;
/// let answer = send(&negotiated.card().normal().interfaces[0].url).await;
/// // `StaleAgentCard` or `ArtifactSchemaDrift` when the agent is no longer what its card says.
/// let checked = guard.check(&negotiated, &answer, Some(200)).await?;
/// println!("{:?}", checked.state);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Guard<D, R = NoReports> {
    core: Arc<Core<D, R>>,
}

/// That a task may go on.
#[derive(Debug, Clone)]
pub struct Continue {
    /// What is current. `None`: the registry could not be asked.
    pub fresh: Option<Arc<Revision>>,
    /// From the negotiated card to the current one. `None`: it is the same, or not known.
    pub change: Option<Change>,
    /// Why it is not known: always [`Error::DiscoveryUnavailable`].
    pub warning: Option<Error>,
}

impl<D: Discovery + 'static> Guard<D> {
    /// A guard that reports to nobody and checks strictly.
    pub fn new(discovery: D) -> Self {
        Self::with(discovery, NoReports, Settings::default())
    }
}

impl<D: Discovery + 'static, R: Reports + 'static> Guard<D, R> {
    pub fn with(discovery: D, reports: R, settings: Settings) -> Self {
        let (discovery, reports) = (Arc::new(discovery), Arc::new(reports));
        let (known, observer) = (Known::default(), Observer::new());
        Self { core: Arc::new(Core { discovery, reports, settings, known, observer }) }
    }

    /// Call before a task is created; only what it returns may be negotiated with. A card in hand serves if it is
    /// young enough for the task, else the registry is asked.
    ///
    /// # Errors
    /// [`Error::CapabilityMismatch`] when the current card does not cover the intent; [`Error::StaleAgentCard`] when
    /// the card is below a floor, is not pinned, cannot be proven fresh, or is quarantined;
    /// [`Error::DiscoveryUnavailable`] when the registry cannot be asked; [`Error::Refused`] when there is no such
    /// agent, it is retired, or the question is wrong.
    pub async fn start_task(&self, agent: &AgentName, intent: Intent) -> Result<Negotiated, Error> {
        let core = &*self.core;
        let mut fence = intent.start_fence();
        let asked = core.asks();
        if let Some(memo) = core.known.serving(agent, &intent, &fence, &asked.at) {
            core.observer.tell(Event::MemoServed { agent: agent.clone(), revision: memo.revision.number });
            return Ok(self.hold(memo, intent, true));
        }
        let memo = core.known.memo(agent);
        let origin = core.known.has_suspects(agent);
        if origin {
            // Only a proof made from here on can clear a suspect.
            fence.max_staleness = Some(MaxStaleness::Within(Duration::ZERO));
        }
        let held = memo.as_ref().map(Resolved::card);
        let ask = Ask { held, wait: intent.wait, origin, ..Ask::new(agent, &fence) };
        let resolved = match core.discovery.discover(ask).await {
            Ok(resolved) => resolved,
            Err(error) => return Err(self.not_started(agent, memo, error).await),
        };
        core.observer.tell(Event::Resolved { agent: agent.clone(), revision: resolved.revision.number });
        match core.adopt(&resolved, &asked) {
            Standing::Clear | Standing::Released => Ok(self.hold(resolved, intent, false)),
            Standing::Suspect => {
                let content_digest = resolved.card().content_digest();
                core.observer.tell(Event::QuarantineRefused { agent: agent.clone(), content_digest });
                let same = Some(of(&resolved.revision));
                Err(Error::StaleAgentCard {
                    cards: Cards::new(agent, same.clone(), same),
                    why: Stale::Quarantined,
                    registry_behind_origin: true,
                })
            }
        }
    }

    /// Call before a webhook is registered for a task. The registry is asked anew; what it returns is the fresh card,
    /// which has push notifications.
    ///
    /// # Errors
    /// [`Error::DiscoveryDowngrade`] when push notifications were withdrawn, or the agent is gone;
    /// [`Error::DiscoveryUnavailable`] when that cannot be known; [`Error::Refused`] when the caller may not ask.
    pub async fn register_webhook(&self, negotiated: &Negotiated) -> Result<Arc<Revision>, Error> {
        let (core, agent) = (&*self.core, negotiated.agent());
        let fence = Fence { max_staleness: Some(MaxStaleness::Within(Duration::ZERO)), ..Fence::default() };
        let why = match self.read(negotiated, &fence).await {
            Ok(fresh) if fresh.card().normal().capabilities.push_notifications => return Ok(fresh.revision),
            Ok(fresh) => {
                let cards = Cards::new(agent, Some(of(negotiated.revision())), Some(of(&fresh.revision)));
                Error::DiscoveryDowngrade { cards, why: Gone::PushNotifications }
            }
            Err(error) => match gone(&error) {
                Some(why) => {
                    core.known.drop_memo(agent);
                    let cards = Cards::gone(agent, Some(of(negotiated.revision())));
                    Error::DiscoveryDowngrade { cards, why: Gone::Agent(why) }
                }
                None => return Err(self.unavailable(negotiated, error, "webhook")),
            },
        };
        core.observer.tell(Event::DiscoveryDowngrade { agent: agent.clone() });
        Err(why)
    }

    /// Call while a task is held, as often as seems right. A registry that cannot be asked is a warning in what it
    /// returns, and the task goes on; so does it when something changed that the task does not need.
    ///
    /// # Errors
    /// [`Error::TaskContinuationBlocked`] when the agent, the skill, or a mode that the task needs is gone;
    /// [`Error::Refused`] when the caller may not ask.
    pub async fn continue_task(&self, negotiated: &Negotiated) -> Result<Continue, Error> {
        let (core, agent) = (&*self.core, negotiated.agent());
        let blocked = |cards, why| {
            core.observer.tell(Event::ContinuationBlocked { agent: agent.clone() });
            Err(Error::TaskContinuationBlocked { cards, why })
        };
        // Without content conditions, so that the fresh card is known whatever it says.
        match self.read(negotiated, &Fence::default()).await {
            Ok(fresh) => {
                let cards = Cards::new(agent, Some(of(negotiated.revision())), Some(of(&fresh.revision)));
                let intent = negotiated.intent();
                if intent.is_held_by(fresh.card()) {
                    let change = cards.change;
                    return Ok(Continue { fresh: Some(fresh.revision), change, warning: None });
                }
                let skill = intent.skill.clone();
                match fresh.card().normal().skill(&skill) {
                    Some(_) => blocked(cards, Gone::Mode { skill }),
                    None => blocked(cards, Gone::Skill(skill)),
                }
            }
            Err(error) => match gone(&error) {
                Some(why) => {
                    core.known.drop_memo(agent);
                    blocked(Cards::gone(agent, Some(of(negotiated.revision()))), Gone::Agent(why))
                }
                None => match self.unavailable(negotiated, error, "continue") {
                    warning @ Error::DiscoveryUnavailable { .. } => {
                        Ok(Continue { fresh: None, change: None, warning: Some(warning) })
                    }
                    error => Err(error),
                },
            },
        }
    }

    /// Call with every answer and every streaming event, before what it delivers is handed on. `body` is its JSON,
    /// `Value::Null` where there is none; `http_status` is that of the answer where there is one.
    ///
    /// # Errors
    /// [`Error::StaleAgentCard`] or [`Error::ArtifactSchemaDrift`], after which the task must not be tried again with
    /// this card; [`Error::UnreadableResponse`] when checking strictly.
    pub async fn check(
        &self,
        negotiated: &Negotiated,
        body: &Value,
        http_status: Option<u16>,
    ) -> Result<Checked, Error> {
        let (core, agent, revision) = (&*self.core, negotiated.agent(), negotiated.revision());
        let strictness = core.settings.strictness;
        let finding = judge(&revision.card, &negotiated.intent().skill, body, http_status, strictness);
        let (number, negotiated_card) = (revision.number, Some(of(revision)));
        match finding {
            Finding::Checked(checked) => Ok(checked),
            Finding::Unreadable => {
                core.observer.tell(Event::UnreadableResponse { agent: agent.clone() });
                Err(Error::UnreadableResponse { cards: Cards::new(agent, negotiated_card, None) })
            }
            Finding::Stale(evidence) => {
                let found = evidence.to_string();
                let event = Event::StaleCardEvidence { agent: agent.clone(), revision: number, found };
                core.observer.tell(event);
                let fresh = self.evidence(negotiated, evidence.kind(), &evidence.to_string()).await;
                let same = |fresh: &Resolved| fresh.card().content_digest() == revision.card.content_digest();
                Err(Error::StaleAgentCard {
                    registry_behind_origin: fresh.as_ref().is_some_and(same),
                    cards: Cards::new(agent, negotiated_card, fresh.map(|fresh| of(&fresh.revision))),
                    why: Stale::Evidence(evidence),
                })
            }
            Finding::Drift(drift) => {
                let found = drift.to_string();
                core.observer.tell(Event::ArtifactDrift { agent: agent.clone(), revision: number, found });
                let fresh = self.evidence(negotiated, "artifact", &drift.to_string()).await;
                let cards = Cards::new(agent, negotiated_card, fresh.map(|fresh| of(&fresh.revision)));
                Err(Error::ArtifactSchemaDrift { cards, drift: Box::new(drift) })
            }
        }
    }

    /// A task that was negotiated before this process began, such as by one that was restarted. Nothing is asked: the
    /// next call of the guard that needs to does.
    pub fn resume(&self, resolved: Resolved, intent: Intent) -> Negotiated {
        self.hold(resolved, intent, false)
    }

    /// What happens from now on. A listener that is slow misses events, and is told how many.
    pub fn events(&self) -> impl Stream<Item = Observed<Event>> + Send + Unpin + use<D, R> {
        self.core.observer.listen()
    }

    /// How often each event happened.
    pub fn counts(&self) -> Counts {
        self.core.observer.counts()
    }

    fn hold(&self, resolved: Resolved, intent: Intent, from_memo: bool) -> Negotiated {
        let agent = resolved.revision.agent.clone();
        let agreement = Arc::new(Agreement { resolved, intent, from_memo });
        self.core.known.hold(&agent, Arc::downgrade(&agreement));
        Negotiated(agreement)
    }

    /// Reads the agent of a held task anew, and keeps what comes.
    async fn read(&self, negotiated: &Negotiated, fence: &Fence) -> Result<Resolved, answer::Error> {
        let core = &*self.core;
        let asked = core.asks();
        let held = Some(negotiated.card());
        let ask = Ask { held, wait: negotiated.intent().wait, ..Ask::new(negotiated.agent(), fence) };
        let fresh = core.discovery.discover(ask).await?;
        core.adopt(&fresh, &asked);
        Ok(fresh)
    }

    /// Why a task did not start, with the card that did not pass.
    async fn not_started(&self, agent: &AgentName, memo: Option<Resolved>, error: answer::Error) -> Error {
        let core = &*self.core;
        let negotiated = memo.map(|memo| of(&memo.revision));
        let refusal = match error {
            answer::Error::Refused(refusal) => refusal,
            cause => {
                core.observer.tell(Event::DiscoveryUnavailable { agent: agent.clone(), at: "start" });
                return Error::DiscoveryUnavailable { cards: Cards::new(agent, negotiated, None), cause };
            }
        };
        let (reason, agent_name) = (refusal.reason, agent.clone());
        match reason {
            Reason::SkillMissing | Reason::ModeMissing | Reason::CapabilityMissing => {
                core.known.drop_memo(agent);
                core.observer.tell(Event::CapabilityMismatch { agent: agent_name, reason });
                let fresh = self.refused(agent, &refusal).await;
                Error::CapabilityMismatch { cards: Cards::new(agent, negotiated, fresh), why: refusal }
            }
            Reason::TooStale
            | Reason::FreshnessUnverifiable
            | Reason::PositionNotReached
            | Reason::PositionUnverifiable
            | Reason::HistoryDiverged
            | Reason::PositionInFuture => {
                core.observer.tell(Event::StaleCardRefused { agent: agent_name, reason });
                let fresh = refusal.card.clone().map(|card| Held { revision: refusal.revision, card });
                Error::StaleAgentCard {
                    cards: Cards::new(agent, negotiated, fresh),
                    why: Stale::Refused(refusal),
                    registry_behind_origin: false,
                }
            }
            Reason::RevisionBelowFloor
            | Reason::VersionBelowFloor
            | Reason::VersionIncomparable
            | Reason::PinMismatch
            | Reason::OriginUnconfirmed => {
                core.observer.tell(Event::StaleCardRefused { agent: agent_name, reason });
                let fresh = self.refused(agent, &refusal).await;
                Error::StaleAgentCard {
                    cards: Cards::new(agent, negotiated, fresh),
                    why: Stale::Refused(refusal),
                    registry_behind_origin: false,
                }
            }
            _ if is_unavailable(reason) => {
                core.observer.tell(Event::DiscoveryUnavailable { agent: agent_name, at: "start" });
                let cards = Cards::new(agent, negotiated, None);
                Error::DiscoveryUnavailable { cards, cause: answer::Error::Refused(refusal) }
            }
            Reason::AgentRetired | Reason::AgentNotFound => {
                core.known.drop_memo(agent);
                Error::Refused { cards: Cards::gone(agent, negotiated), refusal }
            }
            _ => Error::Refused { cards: Cards::new(agent, negotiated, None), refusal },
        }
    }

    /// The card that a refusal is about. A large one does not fit into it, and is read by itself then: an error that
    /// does not show the card leaves its reader guessing.
    async fn refused(&self, agent: &AgentName, refusal: &answer::Refusal) -> Option<Held> {
        if let Some(card) = refusal.card.clone() {
            return Some(Held { revision: refusal.revision, card });
        }
        let fence = Fence::default();
        let fresh = self.core.discovery.discover(Ask::new(agent, &fence)).await.ok()?;
        Some(of(&fresh.revision))
    }

    /// That the registry could not be asked for a held task; or its refusal, when asking again would not help.
    fn unavailable(&self, negotiated: &Negotiated, error: answer::Error, at: &'static str) -> Error {
        let agent = negotiated.agent();
        let cards = Cards::new(agent, Some(of(negotiated.revision())), None);
        match error {
            answer::Error::Refused(refusal) if !is_unavailable(refusal.reason) => {
                Error::Refused { cards, refusal }
            }
            cause => {
                self.core.observer.tell(Event::DiscoveryUnavailable { agent: agent.clone(), at });
                Error::DiscoveryUnavailable { cards, cause }
            }
        }
    }

    /// Quarantines the negotiated card, reads the agent anew, reports; once for all who find the same at a time.
    async fn evidence(&self, negotiated: &Negotiated, kind: &'static str, detail: &str) -> Option<Resolved> {
        let core = &self.core;
        let (agent, content_digest) = (negotiated.agent(), negotiated.card().content_digest());
        let report = Report {
            agent: agent.clone(),
            content_digest,
            revision: negotiated.revision().number,
            skill: negotiated.intent().skill.clone(),
            kind,
            detail: detail.chars().take(500).collect(),
        };
        let begin = || Core::reread(core, report).boxed().shared();
        // Before anything that takes time: from here on no task starts with this card.
        match core.known.suspect(agent, content_digest, core.settings.clock.now(), begin) {
            Ok(fresh) => Some(fresh),
            Err((reading, is_new)) => {
                if is_new {
                    core.observer.tell(Event::Quarantined { agent: agent.clone(), content_digest });
                }
                reading.await
            }
        }
    }
}

impl<D, R> Clone for Guard<D, R> {
    fn clone(&self) -> Self {
        Self { core: Arc::clone(&self.core) }
    }
}

fn of(revision: &Revision) -> Held {
    Held { revision: Some(revision.number), card: Arc::<Card>::clone(&revision.card) }
}

/// The reason, if the registry proved that there is no such agent any more.
fn gone(error: &answer::Error) -> Option<Reason> {
    error.reason().filter(|reason| matches!(reason, Reason::AgentRetired | Reason::AgentNotFound))
}

/// Whether a refusal says that nothing could be proven now, rather than what was found.
fn is_unavailable(reason: Reason) -> bool {
    matches!(reason.retry(), Retry::Yes | Retry::Later | Retry::AfterResync)
}
