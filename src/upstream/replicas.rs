//! What an edge says of itself and of those below it, said to an upstream; and who has reported, asked of one.
//!
//! Whichever upstream hears a report passes it on with its own, so the store at the root has them all.

use std::time::Duration;

use async_trait::async_trait;

use super::{Upstream, convert};
use crate::ledger::{Error, Replica, Replicas};
use crate::proto::MESSAGE_MAX;
use crate::proto::v1::admin_client::AdminClient;
use crate::proto::v1::replication_client::ReplicationClient;

#[async_trait]
impl Replicas for Upstream {
    async fn report(&self, replicas: &[Replica]) -> Result<(), Error> {
        let said = self.ask(convert::report(replicas), async |channel, request| {
            ReplicationClient::new(channel).report(request).await
        });
        said.await.map(drop).map_err(|status| convert::failed(&status))
    }

    async fn replicas(&self, within: Duration) -> Result<Vec<Replica>, Error> {
        let asked = self.ask(convert::replicas_wanted(within), async |channel, request| {
            AdminClient::new(channel).max_decoding_message_size(MESSAGE_MAX).list_replicas(request).await
        });
        convert::replicas(asked.await.map_err(|status| convert::failed(&status))?)
    }
}
