//! `cardfence.v1.Watch`: where the view stands. (Streams of events come with the hub.)

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
impl pb::watch_server::Watch for Service {
    async fn watermark(
        &self,
        request: Request<pb::WatermarkRequest>,
    ) -> Result<Response<pb::WatermarkResponse>, Status> {
        let call = call_of(&self.registry, &request);
        let request = request.into_inner();
        let read = convert::read(request.max_staleness, request.at_least.as_deref(), request.wait_ms)?;
        answer(convert::watermark(self.registry.watermark_within(&call, &read).await?))
    }
}
