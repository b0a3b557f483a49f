//! A write on its way to an upstream, and what comes back: done, refused, not sent, or lost sight of.

use std::error::Error as _;

use tonic::Status;

use super::past::change;
use super::{parsed, problem, unexpected};
use crate::ledger::{Error, Expect, Op, Outcome, Receipt, Refusal, Write, WriteError, names};
use crate::proto::v1 as pb;
use crate::terms::Reason;

/// Marks a register as the rollback that it is: `rollback:<revision>`.
const ROLLBACK: &str = "rollback:";

/// A write as the wire has it.
#[derive(Debug, Clone)]
pub(in super::super) enum Call {
    Register(pb::RegisterRequest),
    Retire(pb::RetireRequest),
    Rollback(pb::RollbackRequest),
}

pub(in super::super) fn call(write: &Write) -> Call {
    let agent = write.agent.to_string();
    let (expect, request_id) = (expect(write.expect), write.request_id.to_string());
    let (note, dry_run) = (write.note.clone(), write.dry_run);
    // Waiting for replicas is the use case's, at the server that was asked.
    let wait_replicated_ms = None;
    match &write.op {
        Op::Retire => {
            Call::Retire(pb::RetireRequest { agent, expect, request_id, note, dry_run, wait_replicated_ms })
        }
        Op::Register { card, release, source, ttl, .. } => match rolled_back_to(write) {
            Some(to) => Call::Rollback(pb::RollbackRequest {
                agent,
                to,
                expect,
                request_id,
                note,
                dry_run,
                wait_replicated_ms,
            }),
            None => Call::Register(pb::RegisterRequest {
                agent,
                card: card.bytes().clone(),
                expect,
                request_id,
                release: release.clone(),
                note,
                source: source.clone(),
                dry_run,
                wait_replicated_ms,
                ttl_ms: ttl.map(|ttl| i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX)),
            }),
        },
    }
}

/// The revision that a register rolls back to. A request id names the operation too, so that tells it from a register
/// whose caller only says so: under its id it must be the same operation at every server.
fn rolled_back_to(write: &Write) -> Option<u64> {
    let Op::Register { card, release: None, source: Some(source), .. } = &write.op else { return None };
    let to = source.strip_prefix(ROLLBACK)?.parse().ok()?;
    let as_rollback = names("rollback", &write.agent, Some(&card.raw_digest()), write.expect, None, None);
    (as_rollback == write.names).then_some(to)
}

fn expect(expect: Expect) -> Option<pb::Expect> {
    use pb::expect::Current;
    let current = match expect {
        Expect::Any => return None,
        Expect::Absent => Current::Absent(pb::ExpectAbsent {}),
        Expect::Revision { number, seen_at: None } => Current::Revision(number.to_string()),
        Expect::Revision { number, seen_at: Some(at) } => Current::Revision(format!("{number}@{at}")),
        Expect::Digest(digest) => Current::Digest(digest.tagged()),
    };
    Some(pb::Expect { current: Some(current) })
}

/// The receipt of a write that was done; one that cannot be read leaves the outcome unknown.
pub(in super::super) fn receipt(written: pb::Written) -> Result<Receipt, WriteError> {
    let read = || {
        Ok(Receipt {
            outcome: match written.outcome() {
                pb::Outcome::Created => Outcome::Created,
                pb::Outcome::Updated => Outcome::Updated,
                pb::Outcome::Unchanged => Outcome::Unchanged,
                pb::Outcome::Retired => Outcome::Retired,
                pb::Outcome::Unspecified => return Err(unexpected("the outcome of a write")),
            },
            revision: written.revision,
            position: written.position.as_deref().map(|text| parsed("a position", text)).transpose()?,
            change: written.change.clone().map(change).transpose()?,
            superseded: written.superseded,
            // The wire does not tell a repetition that is still current from the first.
            replayed: written.superseded,
        })
    };
    read().map_err(|error: Error| {
        tracing::error!(%error, "the upstream's answer to a write cannot be read");
        WriteError::OutcomeUnknown
    })
}

/// What a failed attempt to write came to.
#[derive(Debug)]
pub(in super::super) enum Said {
    /// It is final, and this attempt has written nothing.
    Refused(WriteError),
    /// This attempt has written nothing, and another may do better.
    Nothing,
    /// It may have been written.
    Lost,
}

pub(in super::super) fn said(status: &Status) -> Said {
    let Some(problem) = problem(status) else {
        return if was_sent(status) { Said::Lost } else { Said::Nothing };
    };
    let Some(reason) = Reason::ALL.iter().find(|reason| reason.slug() == problem.reason) else {
        tracing::error!(reason = problem.reason, "the upstream refused a write for a reason unknown here");
        return Said::Refused(WriteError::Internal);
    };
    match *reason {
        Reason::StoreUnavailable | Reason::Draining => Said::Nothing,
        Reason::OutcomeUnknown | Reason::DeadlineExceeded => Said::Lost,
        Reason::Overloaded => Said::Refused(WriteError::Overloaded),
        Reason::Internal => Said::Refused(WriteError::Internal),
        reason => Said::Refused(WriteError::Refused(Refusal {
            reason,
            detail: problem.detail,
            current: problem.revision,
            change: problem.change.and_then(|sent| change(sent).ok()),
        })),
    }
}

/// Whether a call that failed without a word of the upstream may have reached it.
fn was_sent(status: &Status) -> bool {
    let mut cause = status.source();
    while let Some(error) = cause {
        if error.is::<tonic::ConnectError>() {
            return false;
        }
        cause = error.source();
    }
    true
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use bytes::Bytes;

    use super::*;
    use crate::card::{Card, Limits};
    use crate::terms::{AgentName, Principal};

    fn register(operation: &str, source: Option<&str>) -> Write {
        let card = br#"{"name":"A","url":"https://a.example","version":"1","skills":[]}"#;
        let card = Arc::new(Card::check(Bytes::from_static(card), &Limits::default()).unwrap());
        let agent: AgentName = "acme/one".parse().unwrap();
        Write {
            names: names(operation, &agent, Some(&card.raw_digest()), Expect::Absent, None, None),
            agent,
            principal: Principal::anonymous(),
            request_id: "id-1".parse().unwrap(),
            op: Op::Register {
                card,
                against: None,
                release: None,
                source: source.map(str::to_owned),
                ttl: None,
            },
            expect: Expect::Absent,
            note: Some("why".to_owned()),
            dry_run: false,
            deadline: Instant::now(),
        }
    }

    #[test]
    fn rollback_goes_on_as_one_and_a_register_that_calls_itself_so_does_not() {
        let Call::Rollback(sent) = call(&register("rollback", Some("rollback:3"))) else {
            panic!("no rollback")
        };
        assert_eq!((sent.to, sent.request_id.as_str(), sent.note.as_deref()), (3, "id-1", Some("why")));
        assert!(sent.expect.is_some());
        for source in [Some("rollback:3"), Some("rollback:x"), Some("git"), None] {
            let Call::Register(sent) = call(&register("register", source)) else { panic!("no register") };
            assert_eq!((sent.source.as_deref(), sent.card.is_empty()), (source, false));
        }
    }

    #[test]
    fn what_was_never_sent_is_told_from_what_may_have_been() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let unsent = Status::from_error(Box::new(tonic::ConnectError(Box::new(refused))));
        assert!(matches!(said(&unsent), Said::Nothing), "{unsent:?}");
        for lost in [Status::unavailable("a balancer says so"), Status::unknown("h2 protocol error")] {
            assert!(matches!(said(&lost), Said::Lost), "{lost:?}");
        }
    }

    #[test]
    fn receipt_that_cannot_be_read_leaves_the_outcome_unknown() {
        assert!(matches!(receipt(pb::Written::default()), Err(WriteError::OutcomeUnknown)));
    }
}
