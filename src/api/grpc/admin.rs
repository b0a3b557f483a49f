//! `cardfence.v1.Admin`: the ledger as it is, page by page, and who follows it.

use tonic::{Request, Response, Status, async_trait};

use super::status::answer;
use super::{call_of, convert};
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
impl pb::admin_server::Admin for Service {
    async fn read_ledger(
        &self,
        request: Request<pb::ReadLedgerRequest>,
    ) -> Result<Response<pb::ReadLedgerResponse>, Status> {
        let call = call_of(&self.registry, &request);
        let request = request.into_inner();
        let read = convert::read(request.max_staleness, request.at_least.as_deref(), request.wait_ms)?;
        let (entries, freshness) = self.registry.ledger(&call, request.from, request.limit, &read).await?;
        answer(convert::ledger_page(entries, &freshness))
    }

    async fn list_replicas(
        &self,
        request: Request<pb::ListReplicasRequest>,
    ) -> Result<Response<pb::ListReplicasResponse>, Status> {
        let call = call_of(&self.registry, &request);
        let request = request.into_inner();
        let read = convert::read(request.max_staleness, request.at_least.as_deref(), request.wait_ms)?;
        let within = convert::millis("within_ms", request.within_ms)?;
        answer(convert::replica_list(self.registry.replicas(&call, within, &read).await?))
    }
}
