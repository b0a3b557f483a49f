//! `grpc.health.v1.Health`: serving from the first proof until the node drains.
//!
//! The state is computed when it is asked for, so there is none to keep in step. (`tonic-health`'s own reporter was
//! the alternative: it keeps a copy that a task would have to feed, and its streams never end, so that a server
//! with one subscriber could not drain.)

use std::pin::Pin;
use std::time::Duration;

use futures::{Stream, stream};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, async_trait};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse, health_server};

use crate::registry::Registry;

/// Services that may be asked for; the empty name is the node.
const SERVICES: &[&str] =
    &["", "cardfence.v1.Registry", "cardfence.v1.Watch", "cardfence.v1.Replication", "cardfence.v1.Admin"];
/// How often a subscriber's node is looked at while it is not ready.
const LOOK: Duration = Duration::from_millis(100);

/// The service.
#[derive(Debug, Clone)]
pub(super) struct Service {
    registry: Registry,
    drain: CancellationToken,
}

impl Service {
    pub(super) const fn new(registry: Registry, drain: CancellationToken) -> Self {
        Self { registry, drain }
    }

    fn status(&self) -> ServingStatus {
        if self.registry.is_ready() && !self.drain.is_cancelled() {
            ServingStatus::Serving
        } else {
            ServingStatus::NotServing
        }
    }

    /// Waits until the status is another than `last`; `None` when the stream has to end.
    async fn changed(&self, last: Option<ServingStatus>) -> Option<ServingStatus> {
        loop {
            let status = self.status();
            if last != Some(status) {
                return Some(status);
            }
            if self.drain.is_cancelled() {
                return None;
            }
            let ready = self.registry.is_ready();
            tokio::select! {
                () = self.drain.cancelled() => {}
                () = tokio::time::sleep(LOOK), if !ready => {}
            }
        }
    }
}

#[async_trait]
impl health_server::Health for Service {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        if !SERVICES.contains(&request.get_ref().service.as_str()) {
            return Err(Status::not_found("unknown service"));
        }
        Ok(Response::new(HealthCheckResponse { status: self.status().into() }))
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let known = SERVICES.contains(&request.get_ref().service.as_str());
        let start = (self.clone(), None);
        let statuses = stream::unfold(start, move |(service, last)| async move {
            let status = match (known, last) {
                (true, last) => service.changed(last).await?,
                // The protocol wants the call to stay open: the service may become known.
                (false, None) => ServingStatus::ServiceUnknown,
                (false, Some(_)) => {
                    service.drain.cancelled().await;
                    return None;
                }
            };
            Some((Ok(HealthCheckResponse { status: status.into() }), (service, Some(status))))
        });
        Ok(Response::new(Box::pin(statuses)))
    }
}
