//! Writes, handed on to an upstream.
//!
//! Every write has a request id, so it may be sent again: when an answer is lost, the same write goes out under the
//! same id until somebody says what became of it, or its deadline has passed. Only then is its outcome unknown.
//! A refusal comes back as what it was there; the edge's own registry adds what it knows.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tonic::transport::Channel;
use tonic::{Request, Status};

use super::Upstream;
use super::convert::{self, Call, Said};
use crate::ledger::{Receipt, Write, WriteError, Writes};
use crate::proto::v1 as pb;
use crate::proto::v1::registry_client::RegistryClient;

/// An attempt gets half of the time that is left, but not less than this.
const ATTEMPT_MIN: Duration = Duration::from_secs(1);
/// The first pause between two attempts, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(25), Duration::from_millis(500));
/// With less time left than this no attempt is worth it.
const LEFT_MIN: Duration = Duration::from_millis(5);

#[async_trait]
impl Writes for Upstream {
    async fn submit(&self, write: Write) -> Result<Receipt, WriteError> {
        let call = convert::call(&write);
        let shared = &*self.0;
        let first = shared.current.load(Ordering::Relaxed);
        let (mut lost, mut pause) = (false, PAUSES.0);
        for server in shared.servers.iter().cycle().skip(first) {
            let left = write.deadline.saturating_duration_since(Instant::now());
            if left < LEFT_MIN {
                break;
            }
            let attempt = (left / 2).max(ATTEMPT_MIN).min(left);
            let sent = tokio::time::timeout(attempt, send(server.channel.clone(), &call, attempt)).await;
            let said = match sent {
                Ok(Ok(written)) => return convert::receipt(written),
                Ok(Err(status)) => convert::said(&status),
                Err(_) => Said::Lost,
            };
            match said {
                Said::Refused(error) if !lost || matches!(error, WriteError::Refused(_)) => {
                    return Err(error);
                }
                // That this attempt wrote nothing does not say what an earlier one did.
                Said::Refused(_) | Said::Lost => lost = true,
                Said::Nothing => {}
            }
            let left = write.deadline.saturating_duration_since(Instant::now());
            tokio::time::sleep(pause.min(left)).await;
            pause = (pause * 2).min(PAUSES.1);
        }
        Err(if lost { WriteError::OutcomeUnknown } else { WriteError::Unavailable })
    }
}

async fn send(channel: Channel, call: &Call, within: Duration) -> Result<pb::Written, Status> {
    fn bounded<M>(message: M, within: Duration) -> Request<M> {
        let mut request = Request::new(message);
        request.set_timeout(within);
        request
    }
    let mut registry = RegistryClient::new(channel);
    let answer = match call.clone() {
        Call::Register(message) => registry.register(bounded(message, within)).await,
        Call::Retire(message) => registry.retire(bounded(message, within)).await,
        Call::Rollback(message) => registry.rollback(bounded(message, within)).await,
    };
    answer.map(tonic::Response::into_inner)
}
