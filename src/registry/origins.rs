//! Confirming that agents still serve their cards: heartbeats, one or many at once.
//!
//! The ledger itself is asked, so a refusal is of what is current there and not of what this node has applied. This
//! node's view takes a confirmation at once; other nodes read it within a second or so, edges after them. A value
//! that lags can only refuse too much. Nothing here is answered with `outcome_unknown`: a heartbeat may be sent again.

use std::sync::Arc;

use super::{Call, Refusal, Registry};
use crate::ledger::{CONFIRMED_AT_ONCE, Confirmed, Lease};
use crate::telemetry::metrics::OutcomeLabels;
use crate::terms::{AgentName, Digest, Freshness, Position, Reason, Timestamp};
use crate::view::Served;

/// A heartbeat: an agent, and the content digest of the card that it serves.
#[derive(Debug, Clone)]
pub struct ConfirmItem {
    pub agent: AgentName,
    pub content_digest: Digest,
}

/// An origin that was confirmed.
#[derive(Debug, Clone)]
pub struct Confirmation {
    pub agent: AgentName,
    /// The revision that is current.
    pub revision: u64,
    /// The entry that made it; `None`: this node has not applied it yet.
    pub position: Option<Position>,
    pub origin_confirmed_at: Timestamp,
    pub lease: Option<Lease>,
    pub freshness: Freshness,
}

/// What one heartbeat of a batch came to.
#[derive(Debug)]
pub struct ConfirmedItem {
    pub agent: AgentName,
    pub outcome: Result<Confirmation, Refusal>,
}

impl Registry {
    /// Confirms one agent.
    ///
    /// # Errors
    /// `agent_not_found`, `agent_retired`, `pin_mismatch` when another card is current; `store_unavailable`.
    #[tracing::instrument(level = "debug", skip_all, fields(agent = %item.agent))]
    pub async fn confirm_origin(&self, call: &Call, item: ConfirmItem) -> Result<Confirmation, Refusal> {
        let agent = item.agent.clone();
        let (mut items, _) =
            self.confirm_origins(call, vec![item]).await.map_err(|refusal| refusal.about(&agent))?;
        items.pop().map_or_else(|| Err(Refusal::internal()), |item| item.outcome)
    }

    /// Confirms many agents; each is confirmed or refused by itself.
    ///
    /// # Errors
    /// `invalid_argument` when there are too many; `store_unavailable`: some may have been confirmed.
    #[tracing::instrument(level = "debug", skip_all, fields(agents = items.len()))]
    pub async fn confirm_origins(
        &self,
        call: &Call,
        items: Vec<ConfirmItem>,
    ) -> Result<(Vec<ConfirmedItem>, Freshness), Refusal> {
        let outcome = self.confirm_unmetered(call, items).await;
        let count =
            |outcome| self.metrics.origin_confirmations.get_or_create(&OutcomeLabels { outcome }).inc();
        match &outcome {
            Ok((items, _)) => {
                for item in items {
                    count(
                        item.outcome.as_ref().map_or_else(|refusal| refusal.reason().slug(), |_| "confirmed"),
                    );
                }
            }
            Err(refusal) => {
                count(refusal.reason().slug());
            }
        }
        outcome
    }

    async fn confirm_unmetered(
        &self,
        call: &Call,
        items: Vec<ConfirmItem>,
    ) -> Result<(Vec<ConfirmedItem>, Freshness), Refusal> {
        if items.len() > CONFIRMED_AT_ONCE {
            let detail =
                format!("{} agents in one batch are too many: at most {CONFIRMED_AT_ONCE}", items.len());
            return Err(Refusal::invalid(detail));
        }
        let deadline = self.write_deadline(call);
        let asked: Vec<_> = items.iter().map(|item| (item.agent.clone(), item.content_digest)).collect();
        let confirmed = match tokio::time::timeout_at(deadline, self.origins.confirm(&asked)).await {
            Ok(Ok(confirmed)) if confirmed.len() == items.len() => confirmed,
            Ok(Ok(_)) => return Err(Refusal::internal()),
            Ok(Err(error)) => return Err(super::history::failed(&error)),
            Err(_) => return Err(Refusal::store_unavailable()),
        };
        let mut served = Arc::clone(&self.view.load());
        if !take(&served, &items, &confirmed) {
            // What was current in the ledger is in a view that is proven since. If that cannot be had, it is confirmed
            // all the same, and read from the ledger later.
            let now = self.view.clock().now();
            served = match self.view.confirm(&now, deadline).await {
                Ok(served) => served,
                Err(_) => Arc::clone(&self.view.load()),
            };
            take(&served, &items, &confirmed);
        }
        let now = self.view.clock().now();
        let answers = items.into_iter().zip(confirmed).map(|(item, confirmed)| {
            let freshness = self.about(&served, &now, &item.agent);
            let outcome = told(&served, &item, confirmed, freshness);
            ConfirmedItem { agent: item.agent, outcome }
        });
        Ok((answers.collect(), served.freshness(&now)))
    }
}

/// Gives the view what was confirmed. False when it does not hold all those revisions.
fn take(served: &Served, items: &[ConfirmItem], confirmed: &[Confirmed]) -> bool {
    let mut held = true;
    for (item, confirmed) in items.iter().zip(confirmed) {
        if let Confirmed::Done { revision, at, lease } = *confirmed {
            held &= served.state.take_confirmation(&item.agent, revision, at, lease);
        }
    }
    held
}

fn told(
    served: &Served,
    item: &ConfirmItem,
    confirmed: Confirmed,
    freshness: Freshness,
) -> Result<Confirmation, Refusal> {
    let agent = &item.agent;
    let (reason, detail, revision) = match confirmed {
        Confirmed::Done { revision, at, lease } => {
            let held = served.state.agent(agent).filter(|held| held.revision == revision);
            return Ok(Confirmation {
                agent: agent.clone(),
                revision,
                position: held.map(|held| held.position),
                origin_confirmed_at: at,
                lease,
                freshness,
            });
        }
        Confirmed::NotFound => (Reason::AgentNotFound, format!("there is no agent {agent}"), None),
        Confirmed::Retired { revision } => {
            (Reason::AgentRetired, format!("{agent} is retired"), Some(revision))
        }
        Confirmed::OtherDigest { revision } => {
            let given = item.content_digest.tagged();
            let detail = format!(
                "content digest {given} is not that of revision {revision}, which is current: a heartbeat of another \
                 card does not confirm it"
            );
            (Reason::PinMismatch, detail, Some(revision))
        }
    };
    Err(Refusal::new(reason, detail).about(agent).with(|parts| {
        parts.revision = revision;
        parts.freshness = Some(freshness);
    }))
}
