//! Confirmations of origins, handed on to an upstream: the ledger's own word comes back.
//!
//! They may be repeated, so nothing is ever of unknown outcome: what got no answer is asked for again.

use async_trait::async_trait;

use super::{Upstream, convert};
use crate::ledger::{Confirmed, Error, Origins};
use crate::proto::v1::registry_client::RegistryClient;
use crate::terms::{AgentName, Digest};

#[async_trait]
impl Origins for Upstream {
    async fn confirm(&self, items: &[(AgentName, Digest)]) -> Result<Vec<Confirmed>, Error> {
        let asked = self.ask(convert::origins_told(items), async |channel, request| {
            RegistryClient::new(channel).confirm_origin(request).await
        });
        let answer = asked.await.map_err(|status| convert::failed(&status))?;
        convert::confirmed(answer, items)
    }
}
