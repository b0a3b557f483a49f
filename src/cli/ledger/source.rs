//! The ledger of a registry, page by page, up to a head that was read when it began.

use bytes::Bytes;

use super::super::client::{Client, Request};
use super::super::failure::{Failure, failed};
use super::super::query::Query;
use super::chain::{Broken, Chain};
use crate::terms::Position;
use crate::wire::Watermark;

/// Entries of one request.
const PAGE: u64 = 1_000;

/// A registry's ledger.
#[derive(Debug)]
pub(super) struct Ledger {
    client: Client,
    pub(super) id: String,
    /// Everything acknowledged before this was opened is at or before it.
    pub(super) head: Position,
}

/// Why a ledger could not be read to its head.
#[derive(Debug)]
pub(super) enum Stopped {
    Broken(Broken),
    Failure(Failure),
}

impl From<Failure> for Stopped {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl Ledger {
    /// Reads the ledger's id and its head, confirmed now.
    pub(super) async fn open(client: Client) -> Result<Self, Failure> {
        let mut query = Query::default();
        query.set("max_staleness", "0");
        let watermark: Watermark = client.read(Request::get("/v1/watermark", &query)).await?.read()?;
        let head =
            watermark.position.parse().map_err(|_| failed("the registry's position cannot be read"))?;
        Ok(Self { client, id: watermark.ledger_id, head })
    }

    /// Takes every entry up to the head into `chain`, and gives each page to `page`.
    pub(super) async fn read(
        &self,
        chain: &mut Chain,
        mut page: impl FnMut(&Bytes) -> Result<(), Failure>,
    ) -> Result<(), Stopped> {
        while chain.seq() < self.head.seq {
            let before = chain.seq();
            let text = self.entries(before + 1, PAGE).await?;
            for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                chain.line(line).map_err(Stopped::Broken)?;
                if chain.seq() == self.head.seq {
                    self.holds_head(chain)?;
                }
            }
            if chain.seq() == before {
                let why =
                    format!("the registry gave no entry after {before}, and its head was {}", self.head);
                return Err(Stopped::Failure(failed(why)));
            }
            page(&text)?;
        }
        if self.head.seq == 0 {
            self.holds_head(chain)?;
        }
        Ok(())
    }

    /// The lines of at most `limit` entries.
    pub(super) async fn entries(&self, from: u64, limit: u64) -> Result<Bytes, Failure> {
        let mut query = Query::default();
        query.set("from", from);
        query.set("limit", limit);
        query.set("at_least", self.head);
        query.set("max_staleness", "any");
        Ok(self.client.read(Request::get("/v1/ledger", &query)).await?.body)
    }

    fn holds_head(&self, chain: &Chain) -> Result<(), Stopped> {
        if chain.is_at(self.head.seq, self.head.tag) {
            return Ok(());
        }
        let why = format!("the chain comes to another digest than the registry's position {}", self.head);
        Err(Stopped::Broken(Broken { line: chain.seq(), why }))
    }
}
