//! `cardfence.v1.Registry`: each method reads its request, asks the registry, and writes the answer.

use tonic::{Request, Response, Status, async_trait};

use super::status::{answer, too_large};
use super::{call_of, convert};
use crate::proto::{MESSAGE_MAX, v1 as pb};
use crate::registry::{Refusal, Registry};

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
impl pb::registry_server::Registry for Service {
    async fn register(&self, request: Request<pb::RegisterRequest>) -> Result<Response<pb::Written>, Status> {
        let call = call_of(&self.registry, &request);
        let request = request.into_inner();
        let wait = convert::replicated_wait(request.wait_replicated_ms)?;
        let written = self.registry.register(&call, convert::register(request)?).await?;
        answer(convert::written(self.registry.wait_replicated(&call, written, wait).await))
    }

    async fn retire(&self, request: Request<pb::RetireRequest>) -> Result<Response<pb::Written>, Status> {
        let call = call_of(&self.registry, &request);
        let request = request.into_inner();
        let wait = convert::replicated_wait(request.wait_replicated_ms)?;
        let written = self.registry.retire(&call, convert::retire(request)?).await?;
        answer(convert::written(self.registry.wait_replicated(&call, written, wait).await))
    }

    async fn rollback(&self, request: Request<pb::RollbackRequest>) -> Result<Response<pb::Written>, Status> {
        let call = call_of(&self.registry, &request);
        let request = request.into_inner();
        let wait = convert::replicated_wait(request.wait_replicated_ms)?;
        let written = self.registry.rollback(&call, convert::rollback(request)?).await?;
        answer(convert::written(self.registry.wait_replicated(&call, written, wait).await))
    }

    async fn resolve(&self, request: Request<pb::ResolveRequest>) -> Result<Response<pb::Resolved>, Status> {
        let call = call_of(&self.registry, &request);
        let resolve = convert::resolve(request.into_inner())?;
        answer(convert::resolved(&self.registry.resolve(&call, &resolve).await?))
    }

    async fn batch_resolve(
        &self,
        request: Request<pb::BatchResolveRequest>,
    ) -> Result<Response<pb::BatchResolveResponse>, Status> {
        let call = call_of(&self.registry, &request);
        let batch = convert::batch(request.into_inner())?;
        let (items, freshness) = self.registry.resolve_batch(&call, &batch).await?;
        answer(convert::batch_answer(items, &freshness))
    }

    async fn list_agents(
        &self,
        request: Request<pb::ListAgentsRequest>,
    ) -> Result<Response<pb::ListAgentsResponse>, Status> {
        let call = call_of(&self.registry, &request);
        let mut list = convert::list(request.into_inner())?;
        loop {
            match convert::agents_page(self.registry.list(&call, &list).await?) {
                Ok(page) => return answer(page),
                Err(fits) => list.page_size = Some(shorter(fits)?),
            }
        }
    }

    async fn get_revision(
        &self,
        request: Request<pb::GetRevisionRequest>,
    ) -> Result<Response<pb::GetRevisionResponse>, Status> {
        let call = call_of(&self.registry, &request);
        let request = request.into_inner();
        let agent = convert::agent(&request.agent)?;
        let read = convert::read(request.max_staleness, request.at_least.as_deref(), request.wait_ms)?;
        let past = match convert::which(request.which)? {
            convert::Which::Number(number) => self.registry.revision(&call, &agent, number, &read).await?,
            convert::Which::At(position) => self.registry.resolve_at(&call, &agent, &position, &read).await?,
        };
        answer(convert::past(past))
    }

    async fn list_revisions(
        &self,
        request: Request<pb::ListRevisionsRequest>,
    ) -> Result<Response<pb::ListRevisionsResponse>, Status> {
        let call = call_of(&self.registry, &request);
        let request = request.into_inner();
        let agent = convert::agent(&request.agent)?;
        let read = convert::read(request.max_staleness, request.at_least.as_deref(), request.wait_ms)?;
        let token = convert::page_token(request.page_token);
        let start = convert::start(token.as_deref(), request.below)?;
        let mut size = request.page_size;
        loop {
            let page = self.registry.revisions(&call, &agent, size, start, &read).await?;
            match convert::revisions_page(&agent, page) {
                Ok(page) => return answer(page),
                Err(fits) => size = Some(shorter(fits)?),
            }
        }
    }

    async fn confirm_origin(
        &self,
        request: Request<pb::ConfirmOriginRequest>,
    ) -> Result<Response<pb::ConfirmOriginResponse>, Status> {
        let call = call_of(&self.registry, &request);
        let items = convert::items(request.into_inner())?;
        let (items, freshness) = self.registry.confirm_origins(&call, items).await?;
        answer(convert::confirmed(items, &freshness))
    }

    async fn diff_revisions(
        &self,
        request: Request<pb::DiffRevisionsRequest>,
    ) -> Result<Response<pb::Diff>, Status> {
        let call = call_of(&self.registry, &request);
        let request = request.into_inner();
        let agent = convert::agent(&request.agent)?;
        let read = convert::read(request.max_staleness, request.at_least.as_deref(), request.wait_ms)?;
        let number = |what, number: Option<u64>| {
            number.map(|number| Refusal::unless_revision(what, number)).transpose()
        };
        let (from, to) = (number("from", request.from)?, number("to", request.to)?);
        answer(convert::diff(self.registry.diff(&call, &agent, from, to, &read).await?))
    }
}

/// The size of a page that one message holds: page tokens come from the registry, so it makes the shorter page.
fn shorter(fits: usize) -> Result<u32, Status> {
    match u32::try_from(fits) {
        Ok(fits) if fits > 0 => Ok(fits),
        _ => Err(too_large(MESSAGE_MAX + 1)),
    }
}
