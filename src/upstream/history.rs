//! The past, asked of an upstream: what an edge does not keep.
//!
//! Asked for at any staleness. What is there does not change, and what is *not* there an upstream says only once it
//! was proven since it was asked; whether the answer is of the edge's own history is checked by the use cases.

use async_trait::async_trait;
use bytes::Bytes;

use super::{Upstream, convert};
use crate::ledger::{Entry, Error, History, Revision, chain};
use crate::proto::MESSAGE_MAX;
use crate::proto::v1 as pb;
use crate::proto::v1::admin_client::AdminClient;
use crate::proto::v1::get_revision_request::Which;
use crate::proto::v1::registry_client::RegistryClient;
use crate::proto::v1::watch_client::WatchClient;
use crate::terms::{AgentName, Digest, Position};

impl Upstream {
    /// A revision; `None` when there is none.
    async fn one(&self, agent: &AgentName, which: Which) -> Result<Option<pb::GetRevisionResponse>, Error> {
        let asked = self.ask(convert::revision_wanted(agent, which), async |channel, request| {
            RegistryClient::new(channel).max_decoding_message_size(MESSAGE_MAX).get_revision(request).await
        });
        convert::known(asked.await)
    }

    async fn ledger_page(&self, from: u64, limit: usize) -> Result<Vec<Entry>, Error> {
        let asked = self.ask(convert::ledger_wanted(from, limit), async |channel, request| {
            AdminClient::new(channel).max_decoding_message_size(MESSAGE_MAX).read_ledger(request).await
        });
        convert::ledger_page(asked.await.map_err(|status| convert::failed(&status))?)
    }

    async fn ledger_id(&self) -> Result<String, Error> {
        let asked = self.ask(pb::WatermarkRequest::default(), async |channel, request| {
            WatchClient::new(channel).watermark(request).await
        });
        match asked.await.map_err(|status| convert::failed(&status))?.ledger_id {
            id if id.is_empty() => {
                Err(Error::Unavailable("the upstream has not loaded the ledger yet".to_owned()))
            }
            id => Ok(id),
        }
    }
}

#[async_trait]
impl History for Upstream {
    async fn revision(&self, agent: &AgentName, number: u64) -> Result<Option<Revision>, Error> {
        let found = self.one(agent, Which::Revision(number)).await?;
        found.map(|answer| convert::revision(agent, answer.revision)).transpose()
    }

    async fn revision_at(&self, agent: &AgentName, seq: u64) -> Result<Option<Revision>, Error> {
        let Some(digest) = self.digest_at(seq).await? else {
            return Err(Error::Unavailable(format!("the upstream has not applied entry {seq}")));
        };
        let at = Position::new(seq, &digest);
        let asked =
            self.ask(convert::revision_wanted(agent, Which::At(at.to_string())), async |channel, request| {
                RegistryClient::new(channel)
                    .max_decoding_message_size(MESSAGE_MAX)
                    .get_revision(request)
                    .await
            });
        match asked.await {
            Err(status) => match convert::retired_as(&status) {
                Some(number) => self.revision(agent, number).await,
                None => convert::known::<()>(Err(status)).map(|_| None),
            },
            Ok(answer) => convert::revision(agent, answer.revision).map(Some),
        }
    }

    async fn revisions(
        &self,
        agent: &AgentName,
        below: Option<u64>,
        seq: u64,
        limit: usize,
    ) -> Result<Vec<Revision>, Error> {
        let (mut found, mut below) = (Vec::new(), below);
        // Numbers below 1 there are none, which need not be asked.
        while found.len() < limit && below != Some(0) && below != Some(1) {
            let message = convert::revisions_wanted(agent, below, limit - found.len());
            let asked = self.ask(message, async |channel, request| {
                RegistryClient::new(channel)
                    .max_decoding_message_size(MESSAGE_MAX)
                    .list_revisions(request)
                    .await
            });
            let Some(page) = convert::known(asked.await)? else { break };
            let complete = page.complete;
            let page = convert::revisions(agent, page)?;
            let Some(last) = page.last() else { break };
            below = Some(last.number);
            // The upstream may be ahead of the edge.
            found.extend(page.into_iter().filter(|revision| revision.position.seq <= seq));
            if complete {
                break;
            }
        }
        Ok(found)
    }

    async fn card(&self, agent: &AgentName, number: u64) -> Result<Option<Bytes>, Error> {
        let found = self.one(agent, Which::Revision(number)).await?;
        Ok(found.and_then(|answer| answer.card))
    }

    async fn entries(&self, from: u64, limit: usize) -> Result<Vec<Entry>, Error> {
        self.ledger_page(from, limit).await
    }

    async fn digest_at(&self, seq: u64) -> Result<Option<Digest>, Error> {
        if seq == 0 {
            return Ok(Some(chain::origin(&self.ledger_id().await?)));
        }
        Ok(self.ledger_page(seq, 1).await?.first().filter(|entry| entry.seq == seq).map(|entry| entry.digest))
    }
}
