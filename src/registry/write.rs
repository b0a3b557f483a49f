//! Registering, retiring and rolling back.
//!
//! Everything that can be computed before the ledger's lock is computed here: the card is checked and
//! digested, and the change is taken against the card that the view shows. If another card turns out to be
//! current under the lock, the change is computed again.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::{Call, Read, Refusal, Registry, Replicated};
use crate::card::{Card, Change, Limits, Refused, version};
use crate::ledger::{Against, Expect, LEASE_MAX, LEASE_MIN, Op, Outcome, Receipt, Write, WriteError, names};
use crate::telemetry::metrics::{ClassLabels, OutcomeLabels};
use crate::terms::{AgentName, MaxStaleness, Position, Reason, RequestId, display_duration};
use crate::view::Place;

/// A register as it was asked for.
#[derive(Debug, Clone)]
pub struct Register {
    pub agent: AgentName,
    /// The card, byte for byte as received.
    pub bytes: Bytes,
    pub expect: Expect,
    /// `None`: one is made, and a retry is a new request.
    pub request_id: Option<RequestId>,
    /// What the pipeline calls this deploy: SemVer or an integer.
    pub release: Option<String>,
    pub note: Option<String>,
    /// Where the card came from, for people: a commit, a pipeline's address.
    pub source: Option<String>,
    /// How long one confirmation of the agent holds from now on; `None`: there is no lease.
    pub ttl: Option<Duration>,
    pub dry_run: bool,
}

#[derive(Debug, Clone)]
pub struct Retire {
    pub agent: AgentName,
    pub expect: Expect,
    pub request_id: Option<RequestId>,
    pub note: Option<String>,
    pub dry_run: bool,
}

/// Registers the bytes of an earlier revision again.
#[derive(Debug, Clone)]
pub struct Rollback {
    pub agent: AgentName,
    /// The revision whose bytes are to be current.
    pub to: u64,
    pub expect: Expect,
    pub request_id: Option<RequestId>,
    pub note: Option<String>,
    pub dry_run: bool,
}

/// What a write led to.
#[derive(Debug, Clone)]
pub struct Written {
    pub agent: AgentName,
    pub outcome: Outcome,
    pub revision: u64,
    /// The entry that made the revision; `None` when a dry run would make one.
    pub position: Option<Position>,
    /// The card that was sent; absent on a retirement.
    pub card: Option<Arc<Card>>,
    pub change: Option<Change>,
    /// A later revision is current: this is the answer to a repeated request.
    pub superseded: bool,
    /// It was done before, under the same request id.
    pub replayed: bool,
    pub dry_run: bool,
    /// Where it was waited for them.
    pub replicas: Option<Replicated>,
}

/// A card of so many bytes is checked in well under a millisecond.
const CHECKED_IN_PLACE: usize = 16 * 1024;
/// Bytes in a note or a source.
const TEXT_MAX: usize = 4_096;
/// Bytes in a release.
const RELEASE_MAX: usize = 128;

impl Registry {
    /// Registers a card.
    ///
    /// # Errors
    /// The refusal; `outcome_unknown` when it may or may not have been done.
    #[tracing::instrument(level = "debug", skip_all, fields(agent = %request.agent))]
    pub async fn register(&self, call: &Call, request: Register) -> Result<Written, Refusal> {
        let about = request.agent.clone();
        let outcome =
            self.register_as(call, request, "register").await.map_err(|refusal| refusal.about(&about));
        self.count(&outcome);
        outcome
    }

    /// Registers the bytes of an earlier revision.
    ///
    /// # Errors
    /// As [`Registry::register`]; `agent_not_found` or `revision_not_found` when there is no such revision.
    #[tracing::instrument(level = "debug", skip_all, fields(agent = %request.agent))]
    pub async fn rollback(&self, call: &Call, request: Rollback) -> Result<Written, Refusal> {
        let about = request.agent.clone();
        let outcome = self.roll_back(call, request).await.map_err(|refusal| refusal.about(&about));
        self.count(&outcome);
        outcome
    }

    async fn roll_back(&self, call: &Call, request: Rollback) -> Result<Written, Refusal> {
        let deadline = self.write_deadline(call);
        let within = tokio::time::timeout_at(deadline, self.history.card(&request.agent, request.to));
        let bytes = within
            .await
            .map_err(|_| Refusal::store_unavailable())?
            .map_err(|error| super::history::failed(&error))?;
        let Some(bytes) = bytes else { return Err(self.nothing_to_roll_back_to(call, &request).await) };
        let register = Register {
            agent: request.agent,
            bytes,
            expect: request.expect,
            request_id: request.request_id,
            release: None,
            note: request.note,
            source: Some(format!("rollback:{}", request.to)),
            ttl: None,
            dry_run: request.dry_run,
        };
        self.register_as(call, register, "rollback").await
    }

    /// Why there are no bytes of that revision: said by a view that was proven since the call arrived, where it is
    /// that there is no such revision at all.
    async fn nothing_to_roll_back_to(&self, call: &Call, request: &Rollback) -> Refusal {
        let read = Read { max_staleness: Some(MaxStaleness::Any), ..Read::default() };
        let agent = &request.agent;
        match self.stand(call, &read, &[], Some((agent, Some(request.to)))).await {
            Err(refusal) => refusal,
            Ok((served, now)) => {
                let detail = format!("{agent} has no revision {} with a card", request.to);
                let freshness = self.about(&served, &now, agent);
                Refusal::new(Reason::RevisionNotFound, detail).with(|parts| parts.freshness = Some(freshness))
            }
        }
    }

    /// Retires an agent: a tombstone stays.
    ///
    /// # Errors
    /// `agent_not_found`, `revision_conflict`, and what any write may be refused with.
    #[tracing::instrument(level = "debug", skip_all, fields(agent = %request.agent))]
    pub async fn retire(&self, call: &Call, request: Retire) -> Result<Written, Refusal> {
        let about = request.agent.clone();
        let outcome = self.retire_unmetered(call, request).await.map_err(|refusal| refusal.about(&about));
        self.count(&outcome);
        outcome
    }

    async fn retire_unmetered(&self, call: &Call, request: Retire) -> Result<Written, Refusal> {
        let own_id = request.request_id.is_some();
        check_text("note", request.note.as_deref(), TEXT_MAX)?;
        let deadline = self.write_deadline(call);
        let write = Write {
            names: names("retire", &request.agent, None, request.expect, None, None),
            agent: request.agent.clone(),
            principal: call.principal.clone(),
            request_id: request.request_id.unwrap_or_else(RequestId::random),
            op: Op::Retire,
            expect: request.expect,
            note: request.note,
            dry_run: request.dry_run,
            deadline: deadline.into_std(),
        };
        let receipt =
            self.writes.submit(write).await.map_err(|error| self.refused(&request.agent, error, own_id))?;
        self.applied(&receipt, deadline).await?;
        Ok(written(request.agent, None, receipt, request.dry_run))
    }

    async fn register_as(&self, call: &Call, request: Register, operation: &str) -> Result<Written, Refusal> {
        let own_id = request.request_id.is_some();
        check_text("note", request.note.as_deref(), TEXT_MAX)?;
        check_text("source", request.source.as_deref(), TEXT_MAX)?;
        if let Some(release) = &request.release {
            check_release(release)?;
        }
        if let Some(ttl) = request.ttl {
            check_lease(ttl)?;
        }
        let card = Arc::new(check(request.bytes, self.settings.card).await?);
        let deadline = self.write_deadline(call);
        let mut write = Write {
            names: names(
                operation,
                &request.agent,
                Some(&card.raw_digest()),
                request.expect,
                request.release.as_deref(),
                request.ttl,
            ),
            agent: request.agent.clone(),
            principal: call.principal.clone(),
            request_id: request.request_id.unwrap_or_else(RequestId::random),
            op: Op::Retire,
            expect: request.expect,
            note: request.note,
            dry_run: request.dry_run,
            deadline: deadline.into_std(),
        };
        while Instant::now() < deadline {
            write.op = Op::Register {
                card: Arc::clone(&card),
                against: self.against(&request.agent, &card),
                release: request.release.clone(),
                source: request.source.clone(),
                ttl: request.ttl,
            };
            match self.writes.submit(write.clone()).await {
                Ok(receipt) => {
                    self.applied(&receipt, deadline).await?;
                    return Ok(written(request.agent, Some(card), receipt, request.dry_run));
                }
                Err(WriteError::Rebase) => {
                    // What was current under the lock is committed: a proof from now on holds it.
                    let now = self.view.clock().now();
                    if self.view.confirm(&now, deadline).await.is_err() {
                        return Err(Refusal::store_unavailable());
                    }
                }
                Err(error) => return Err(self.refused(&request.agent, error, own_id)),
            }
        }
        let detail = "other registers of the agent were faster until the time was over; nothing was written";
        Err(Refusal::new(Reason::Overloaded, detail))
    }

    /// The refusal of a write. That there is nothing is said with how far this node's view knows it.
    fn refused(&self, agent: &AgentName, error: WriteError, own_id: bool) -> Refusal {
        let refusal = refused(error, own_id);
        if !matches!(refusal.reason(), Reason::AgentNotFound | Reason::RevisionNotFound) {
            return refusal;
        }
        let served = self.view.load();
        let freshness = self.about(&served, &self.view.clock().now(), agent);
        refusal.with(|parts| parts.freshness = Some(freshness))
    }

    /// The change against the card that the view shows, to stand if that is the one under the lock.
    fn against(&self, agent: &AgentName, card: &Card) -> Option<Against> {
        let served = self.view.load();
        let before = served.state.agent(agent)?.last_card()?;
        Some(Against { raw_digest: before.raw_digest(), change: Change::between(before, card) })
    }

    pub(super) fn write_deadline(&self, call: &Call) -> Instant {
        let limit = call.started + self.settings.write_timeout;
        call.answer_by().map_or(limit, |by| limit.min(by))
    }

    /// Waits until this node's own view has applied the write. When it cannot in time, the write is done all
    /// the same and is not turned into an error.
    ///
    /// # Errors
    /// `outcome_unknown` when the authority holds another entry there: a fail-over has lost the write already.
    async fn applied(&self, receipt: &Receipt, deadline: Instant) -> Result<(), Refusal> {
        let Some(position) = receipt.position else { return Ok(()) };
        match self.view.wait_for(&position, deadline).await {
            Ok(served) if served.place(&position) == Place::Differs => {
                tracing::error!(%position, "a write was committed to a history that the authority does not hold");
                let detail =
                    "the write was committed, and a fail-over has lost it since; read what is current";
                Err(Refusal::new(Reason::OutcomeUnknown, detail))
            }
            Ok(_) => Ok(()),
            Err(_) => {
                tracing::warn!(%position, "a write is committed, and this node's view had not applied it in time");
                Ok(())
            }
        }
    }

    fn count(&self, outcome: &Result<Written, Refusal>) {
        let name = match outcome {
            Ok(written) if written.dry_run => "dry_run",
            Ok(written) if written.replayed => "replayed",
            Ok(written) => written.outcome.as_str(),
            Err(refusal) => refusal.reason().slug(),
        };
        self.metrics.writes.get_or_create(&OutcomeLabels { outcome: name }).inc();
        let Ok(written) = outcome else { return };
        let Some(change) = written.change.as_ref().filter(|_| !written.dry_run && !written.replayed) else {
            return;
        };
        self.metrics.changes.get_or_create(&ClassLabels { class: change.class.as_str() }).inc();
        if change.silent {
            self.metrics.silent_mutations.inc();
            tracing::info!(agent = %written.agent, revision = written.revision, "silent mutation accepted");
        }
    }
}

fn written(agent: AgentName, card: Option<Arc<Card>>, receipt: Receipt, dry_run: bool) -> Written {
    Written {
        agent,
        outcome: receipt.outcome,
        revision: receipt.revision,
        position: receipt.position,
        card,
        change: receipt.change,
        superseded: receipt.superseded,
        replayed: receipt.replayed,
        dry_run,
        replicas: None,
    }
}

fn check_text(what: &str, text: Option<&str>, max: usize) -> Result<(), Refusal> {
    match text {
        Some(text) if text.len() > max => {
            Err(Refusal::invalid(format!("{what} of {} bytes is too long: at most {max}", text.len())))
        }
        Some(text) if text.contains('\0') => {
            Err(Refusal::invalid(format!("{what} must not hold a NUL character")))
        }
        _ => Ok(()),
    }
}

fn check_release(release: &str) -> Result<(), Refusal> {
    let plain = release.bytes().all(|b| b.is_ascii_graphic()) && release.len() <= RELEASE_MAX;
    if !plain || version::Version::parse(release).is_none() {
        let shown: String = release.chars().take(40).collect();
        let detail = format!("release `{}` is neither SemVer nor an integer", shown.escape_debug());
        return Err(Refusal::invalid(detail));
    }
    Ok(())
}

fn check_lease(ttl: Duration) -> Result<(), Refusal> {
    if (LEASE_MIN..=LEASE_MAX).contains(&ttl) {
        return Ok(());
    }
    let [ttl, min, max] = [ttl, LEASE_MIN, LEASE_MAX].map(display_duration);
    Err(Refusal::invalid(format!("ttl of {ttl} is out of bounds: {min} to {max}")))
}

/// Checks a card, off the async threads when it is large enough for others to notice.
async fn check(bytes: Bytes, limits: Limits) -> Result<Card, Refusal> {
    if bytes.len() <= CHECKED_IN_PLACE {
        return Card::check(bytes, &limits).map_err(invalid_card);
    }
    let checked = tokio::task::spawn_blocking(move || Card::check(bytes, &limits));
    checked.await.map_err(|_| Refusal::internal())?.map_err(invalid_card)
}

fn invalid_card(refused: Refused) -> Refusal {
    let reason = if refused.is_too_large() { Reason::PayloadTooLarge } else { Reason::InvalidCard };
    // The violations are told one by one beside this.
    let detail = match refused.violations.as_slice() {
        [only] => only.message.clone(),
        all => format!("the card is refused for {} reasons", all.len()),
    };
    Refusal::new(reason, detail).with(|parts| parts.violations = refused.violations)
}

/// `own_id`: the caller gave the request id, so it can send the same request again.
fn refused(error: WriteError, own_id: bool) -> Refusal {
    match error {
        WriteError::Refused(refusal) => Refusal::new(refusal.reason, refusal.detail).with(|parts| {
            parts.revision = refusal.current;
            parts.change = refusal.change;
        }),
        WriteError::Unavailable => {
            Refusal::new(Reason::StoreUnavailable, "the store did not answer in time; nothing was written")
        }
        WriteError::OutcomeUnknown if own_id => Refusal::new(
            Reason::OutcomeUnknown,
            "the write may or may not have been done; send it again with the same request id",
        )
        .retry_after(Duration::from_secs(1)),
        // Sent again, it would be another request, and could undo what someone else wrote meanwhile.
        WriteError::OutcomeUnknown => Refusal::new(
            Reason::OutcomeUnknown,
            "the write may or may not have been done; its request id was made by the server and cannot be \
             repeated: read the current revision instead of sending it again",
        ),
        WriteError::Overloaded => Refusal::new(Reason::Overloaded, "too many writes are waiting"),
        WriteError::Draining => Refusal::new(Reason::Draining, "this node is shutting down"),
        WriteError::Rebase | WriteError::Internal => Refusal::internal(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_of_unknown_outcome_is_repeated_only_under_the_callers_own_id() {
        let own = refused(WriteError::OutcomeUnknown, true);
        assert_eq!(own.parts().retry_after, Some(Duration::from_secs(1)));
        assert!(own.parts().detail.contains("with the same request id"));
        let made = refused(WriteError::OutcomeUnknown, false);
        assert_eq!((made.reason(), made.parts().retry_after), (Reason::OutcomeUnknown, None));
        assert!(made.parts().detail.contains("made by the server"), "{made}");
        // What was not done may be sent again by all.
        for error in [WriteError::Unavailable, WriteError::Overloaded, WriteError::Draining] {
            assert_eq!(refused(error, false).parts().retry_after, Some(Duration::from_secs(1)));
        }
    }
}
