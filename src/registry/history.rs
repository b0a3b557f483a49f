//! The past: revisions, what was served at a position, the ledger itself, and where the view stands.
//!
//! The past is read from the store, and the answer is cut to the view's position and checked against the
//! view's digests, so that it is of the same history and position as its freshness block.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::consult::{Demand, consult, deadline};
use super::{Call, Read, Refusal, Registry, Settings};
use crate::clock::Moment;
use crate::ledger::{Entry, Error, Revision};
use crate::terms::{AgentName, Basis, Freshness, Position, Reason};
use crate::view::{Place, Served};

/// One revision of the past, with its card where it has one.
#[derive(Debug, Clone)]
pub struct Past {
    pub revision: Revision,
    pub card: Option<Bytes>,
    pub freshness: Freshness,
}

/// One page of an agent's revisions, newest first.
#[derive(Debug)]
pub struct RevisionPage {
    pub revisions: Vec<Revision>,
    /// Goes on below this number.
    pub next_page_token: Option<String>,
    pub complete: bool,
    pub freshness: Freshness,
}

/// Where a page of revisions begins.
#[derive(Debug, Clone, Copy)]
pub enum Start<'a> {
    Newest,
    /// Below this number.
    Below(u64),
    /// Where a page before ended.
    Token(&'a str),
}

impl<'a> Start<'a> {
    /// By the token of the page before; without one, from the newest.
    pub fn by_token(token: Option<&'a str>) -> Self {
        token.map_or(Self::Newest, Self::Token)
    }
}

/// Where the view stands.
#[derive(Debug, Clone)]
pub struct Watermark {
    pub position: Position,
    /// The authority's head as of the last time it was asked.
    pub head: u64,
    pub staleness: Option<Duration>,
    pub basis: Basis,
    /// Nodes between this one and the authority's database.
    pub hops: u32,
    pub ledger_id: String,
    pub served_by: Arc<str>,
    pub role: &'static str,
}

/// Entries or revisions that one answer may hold.
const PAGE_MAX: usize = 1_000;

impl Registry {
    /// Revision `number` of an agent.
    ///
    /// # Errors
    /// `agent_not_found`, `revision_not_found`, and what any read may be refused with.
    #[tracing::instrument(level = "debug", skip_all, fields(agent = %agent))]
    pub async fn revision(
        &self,
        call: &Call,
        agent: &AgentName,
        number: u64,
        read: &Read,
    ) -> Result<Past, Refusal> {
        let (served, now) = self.stand(call, read, &[], Some((agent, Some(number)))).await?;
        let until = Until::of(call, read, &self.settings)?;
        let revision = bounded(until, self.history.revision(agent, number)).await?;
        if revision.is_none() && served.state.agent(agent).is_some_and(|held| held.revision >= number) {
            return Err(behind(&served, &now));
        }
        self.past(&served, &now, agent, revision, until, || {
            Refusal::new(Reason::RevisionNotFound, format!("{agent} has no revision {number}"))
        })
        .await
    }

    /// What was current at a position.
    ///
    /// # Errors
    /// `agent_not_found` when the agent was not registered then; reasons of positions as for `at_least`.
    #[tracing::instrument(level = "debug", skip_all, fields(agent = %agent))]
    pub async fn resolve_at(
        &self,
        call: &Call,
        agent: &AgentName,
        at: &Position,
        read: &Read,
    ) -> Result<Past, Refusal> {
        let outcome = self.resolve_at_unmetered(call, agent, at, read).await;
        self.count_resolve(outcome.as_ref().map(|_| false), 1);
        outcome
    }

    async fn resolve_at_unmetered(
        &self,
        call: &Call,
        agent: &AgentName,
        at: &Position,
        read: &Read,
    ) -> Result<Past, Refusal> {
        let (served, now) = self.stand(call, read, &[*at], None).await?;
        let until = Until::of(call, read, &self.settings)?;
        // What the store does not hold it cannot tell the newest of.
        let held = bounded(until, self.history.digest_at(at.seq)).await?;
        if held.is_none_or(|digest| Position::new(at.seq, &digest) != *at) {
            return Err(behind(&served, &now));
        }
        let revision = bounded(until, self.history.revision_at(agent, at.seq)).await?;
        let past = self
            .past(&served, &now, agent, revision, until, || {
                Refusal::new(Reason::AgentNotFound, format!("there was no agent {agent} at {at}"))
            })
            .await?;
        if past.revision.facts.is_none() {
            let number = past.revision.number;
            return Err(Refusal::new(Reason::AgentRetired, format!("{agent} was retired at {at}"))
                .about(agent)
                .with(|parts| {
                    parts.revision = Some(number);
                    parts.freshness = Some(past.freshness);
                }));
        }
        Ok(past)
    }

    /// One page of an agent's revisions, newest first.
    ///
    /// # Errors
    /// `agent_not_found`, and what any read may be refused with.
    #[tracing::instrument(level = "debug", skip_all, fields(agent = %agent))]
    pub async fn revisions(
        &self,
        call: &Call,
        agent: &AgentName,
        page_size: Option<u32>,
        start: Start<'_>,
        read: &Read,
    ) -> Result<RevisionPage, Refusal> {
        let size = match page_size {
            Some(0) => return Err(Refusal::invalid("page_size of 0 is too small: 1 to 1000")),
            size => (size.unwrap_or(100) as usize).min(PAGE_MAX),
        };
        let (token, below) = match start {
            Start::Newest => (None, None),
            Start::Below(number) => (None, Some(number)),
            Start::Token(text) => {
                let token = RevisionToken::parse(text)?;
                let below = token.below;
                (Some(token), Some(below))
            }
        };
        let (served, now) = self.stand(call, read, &[], Some((agent, None))).await?;
        if let Some(token) = &token {
            if token.agent != *agent {
                return Err(Refusal::invalid("page_token belongs to another agent"));
            }
            if token.ledger_id != served.state.ledger_id() {
                let detail = "page_token is of another ledger; list again from the first page";
                return Err(Refusal::new(Reason::PageTokenExpired, detail));
            }
        }
        let until = Until::of(call, read, &self.settings)?;
        let seq = served.state.head().seq;
        let mut revisions = bounded(until, self.history.revisions(agent, below, seq, size + 1)).await?;
        for revision in &revisions {
            same_history(&served, &now, &revision.position)?;
        }
        // Numbers have no gaps, so it shows when the store lacks the newest.
        let held = served.state.agent(agent).map_or(0, |held| held.revision);
        let newest = below.map_or(held, |below| held.min(below.saturating_sub(1)));
        if revisions.first().map_or(0, |first| first.number) < newest {
            return Err(behind(&served, &now));
        }
        let more = revisions.len() > size;
        revisions.truncate(size);
        let next_page_token = revisions
            .last()
            .filter(|_| more)
            .map(|last| RevisionToken::format(agent, served.state.ledger_id(), last.number));
        let freshness = self.about(&served, &now, agent);
        Ok(RevisionPage { revisions, complete: next_page_token.is_none(), next_page_token, freshness })
    }

    /// At most `limit` entries of the ledger from `from` on, up to the view's position.
    ///
    /// # Errors
    /// What any read may be refused with.
    #[tracing::instrument(level = "debug", skip_all)]
    pub async fn ledger(
        &self,
        call: &Call,
        from: u64,
        limit: Option<u32>,
        read: &Read,
    ) -> Result<(Vec<Entry>, Freshness), Refusal> {
        let limit = match limit {
            Some(0) => return Err(Refusal::invalid("limit of 0 is too small: 1 to 1000")),
            limit => (limit.unwrap_or(1_000) as usize).min(PAGE_MAX),
        };
        let (served, now) = self.stand(call, read, &[], None).await?;
        let until = Until::of(call, read, &self.settings)?;
        let mut entries = bounded(until, self.history.entries(from.max(1), limit)).await?;
        let head = served.state.head().seq;
        entries.retain(|entry| entry.seq <= head);
        for entry in &entries {
            same_history(&served, &now, &entry.position())?;
        }
        if from.max(1) <= head && entries.first().is_none_or(|first| first.seq != from.max(1)) {
            return Err(behind(&served, &now));
        }
        Ok((entries, served.freshness(&now)))
    }

    /// Where the view stands, without waiting for anything.
    pub fn watermark(&self) -> Watermark {
        let served = self.view.load();
        let now = self.view.clock().now();
        let freshness = served.freshness(&now);
        Watermark {
            position: freshness.position,
            head: self.view.authority_head().max(freshness.position.seq),
            staleness: freshness.staleness,
            basis: freshness.basis,
            hops: freshness.hops,
            ledger_id: served.state.ledger_id().to_owned(),
            served_by: freshness.served_by,
            role: self.settings.role,
        }
    }

    /// Where the view stands, confirmed since the call arrived where the read asks for that.
    ///
    /// # Errors
    /// What any read may be refused with.
    pub async fn watermark_within(&self, call: &Call, read: &Read) -> Result<Watermark, Refusal> {
        // Asked for nothing, it only looks; what cannot be asked for is refused all the same.
        deadline(call, read.wait, &self.settings)?;
        if read.max_staleness.is_some() || read.at_least.is_some() {
            self.stand(call, read, &[], None).await?;
        }
        Ok(self.watermark())
    }

    /// The view where a read of the past wants it; with `needed`, one that holds the agent and the revision.
    pub(super) async fn stand(
        &self,
        call: &Call,
        read: &Read,
        also: &[Position],
        needed: Option<(&AgentName, Option<u64>)>,
    ) -> Result<(Arc<Served>, Moment), Refusal> {
        let positions: Vec<Position> = read.at_least.iter().chain(also).copied().collect();
        let demand = Demand { tolerance: self.tolerance(read), positions: &positions, wait: read.wait };
        let content = |served: &Served, _: &Moment| {
            if !served.loaded {
                return Some(Reason::FreshnessUnverifiable);
            }
            let (agent, number) = needed?;
            match (served.state.agent(agent), number) {
                (None, _) => Some(Reason::AgentNotFound),
                (Some(found), Some(number)) if found.revision < number => Some(Reason::RevisionNotFound),
                _ => None,
            }
        };
        match consult(&self.view, &self.settings, call, demand, content).await {
            Ok(found) => Ok(found),
            Err(Err(refusal)) => Err(refusal),
            Err(Ok(denied)) => {
                let refusal = self.refuse_read(&denied);
                let Some((agent, number)) = needed else { return Err(refusal) };
                let detail = match (denied.reason, number) {
                    (Reason::AgentNotFound, _) => format!("there is no agent {agent}"),
                    (Reason::RevisionNotFound, Some(number)) => format!("{agent} has no revision {number}"),
                    _ => return Err(refusal.about(agent)),
                };
                Err(refusal.about(agent).with(|parts| parts.detail = detail))
            }
        }
    }

    async fn past(
        &self,
        served: &Served,
        now: &Moment,
        agent: &AgentName,
        revision: Option<Revision>,
        until: Until,
        absent: impl Fn() -> Refusal,
    ) -> Result<Past, Refusal> {
        let freshness = self.about(served, now, agent);
        let beyond = |revision: &Revision| revision.position.seq > served.state.head().seq;
        let Some(revision) = revision.filter(|revision| !beyond(revision)) else {
            return Err(absent().about(agent).with(|parts| parts.freshness = Some(freshness)));
        };
        same_history(served, now, &revision.position)?;
        let card = match revision.facts {
            Some(_) => bounded(until, self.history.card(agent, revision.number)).await?,
            None => None,
        };
        Ok(Past { revision, card, freshness })
    }

    pub(super) fn about(&self, served: &Served, now: &Moment, agent: &AgentName) -> Freshness {
        match served.state.agent(agent) {
            Some(found) => super::resolve::freshness(served, now, found),
            None => served.freshness(now),
        }
    }
}

/// The store must tell the same history as the view whose freshness goes with the answer.
pub(super) fn same_history(served: &Served, now: &Moment, position: &Position) -> Result<(), Refusal> {
    if served.place(position) == Place::Applied {
        return Ok(());
    }
    Err(behind(served, now))
}

/// The refusal of a read of the past from a store that lacks what the view holds, or holds something else.
pub(super) fn behind(served: &Served, now: &Moment) -> Refusal {
    let detail = "the store does not hold the history that this node's view is of";
    Refusal::new(Reason::FreshnessUnverifiable, detail).with(|parts| {
        parts.freshness = Some(served.freshness(now));
    })
}

/// Until when a call may be at the store.
#[derive(Debug, Clone, Copy)]
pub(super) struct Until {
    /// The end of the caller's wait.
    waited: Instant,
    /// When the answer must be ready, where the caller told how long it stays.
    answered: Option<Instant>,
}

impl Until {
    /// # Errors
    /// `invalid_argument` when the wait is longer than allowed.
    pub(super) fn of(call: &Call, read: &Read, settings: &Settings) -> Result<Self, Refusal> {
        Ok(Self { waited: deadline(call, read.wait, settings)?, answered: call.answer_by() })
    }
}

/// What one read of the store may take whatever the wait is: it is work, and waits for nothing.
const ONE_READ: Duration = Duration::from_millis(500);

/// A read of the store, which ends with the caller's wait or after [`ONE_READ`], whichever is later, and always
/// before the caller has gone.
pub(super) async fn bounded<T>(
    until: Until,
    read: impl Future<Output = Result<T, Error>>,
) -> Result<T, Refusal> {
    let at_ease = until.waited.max(Instant::now() + ONE_READ);
    let until = until.answered.map_or(at_ease, |answered| at_ease.min(answered));
    match tokio::time::timeout_at(until, read).await {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(error)) => Err(failed(&error)),
        Err(_) => Err(Refusal::store_unavailable()),
    }
}

pub(super) fn failed(error: &Error) -> Refusal {
    tracing::warn!(%error, "the store failed a read");
    match error {
        Error::Unavailable(_) => Refusal::store_unavailable(),
        Error::Corrupt(_) | Error::Unusable(_) => Refusal::internal(),
    }
}

struct RevisionToken {
    agent: AgentName,
    ledger_id: String,
    below: u64,
}

impl RevisionToken {
    fn format(agent: &AgentName, ledger_id: &str, below: u64) -> String {
        hex::encode(format!("{agent}\n{ledger_id}\n{below}"))
    }

    fn parse(text: &str) -> Result<Self, Refusal> {
        let read = || {
            let text = String::from_utf8(hex::decode(text).ok()?).ok()?;
            let mut lines = text.split('\n');
            let token = Self {
                agent: lines.next()?.parse().ok()?,
                ledger_id: lines.next()?.to_owned(),
                below: lines.next()?.parse().ok()?,
            };
            lines.next().is_none().then_some(token)
        };
        read().ok_or_else(|| Refusal::invalid("page_token is not one that this registry gave"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_read_of_the_store_is_work_and_ends_before_the_caller_goes() {
        let now = Instant::now();
        let after = |millis| now + Duration::from_millis(millis);
        let silent = std::future::pending::<Result<(), Error>>;
        for (waited, answered, ends) in [
            // It gets its time although nothing may be waited for, but not longer than the caller stays.
            (now, None, 500),
            (now, Some(after(90)), 90),
            (after(10_000), Some(after(120)), 120),
            (after(10_000), Some(now), 0),
        ] {
            let refused = bounded(Until { waited, answered }, silent()).await.expect_err("it never answers");
            assert_eq!(refused.reason(), Reason::StoreUnavailable);
            assert!(now.elapsed() >= Duration::from_millis(ends), "{:?}", now.elapsed());
        }
        assert!(now.elapsed() < Duration::from_secs(5), "{:?}", now.elapsed());
        let answers = async { Ok(7) };
        assert_eq!(bounded(Until { waited: now, answered: None }, answers).await.ok(), Some(7));
    }
}
