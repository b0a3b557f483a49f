//! `cardfence.v1.Replication`: what nodes and edges say to the node that they hang off.

use tonic::{Request, Response, Status, async_trait};

use super::convert;
use super::status::answer;
use crate::proto::v1 as pb;
use crate::registry::Registry;

/// The service.
#[derive(Debug, Clone)]
pub(super) struct Service {
    registry: Registry,
}

impl Service {
    pub(super) const fn new(registry: Registry) -> Self {
        Self { registry }
    }
}

#[async_trait]
impl pb::replication_server::Replication for Service {
    async fn report(
        &self,
        request: Request<pb::ReportRequest>,
    ) -> Result<Response<pb::ReportResponse>, Status> {
        self.registry.report(convert::report(request.into_inner())?)?;
        answer(pb::ReportResponse {})
    }
}
