//! Going on from a position that memory does not hold any more: entry by entry from the ledger, until the log is
//! reached.
//!
//! What the ledger gives is checked against the digests that the view kept of all it folded, so it is of the same
//! history as what follows, or it is not told.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::stream::{Over, Stream};
use crate::ledger::{Entry, Error};
use crate::terms::Reason;
use crate::view::{Change, Place, Served};

/// Entries that are read at once.
const PAGE: usize = 256;
/// How long one read may take.
const READ_WITHIN: Duration = Duration::from_secs(10);

impl Stream {
    /// Tells one page of what lies after `after`, as far as `served` reaches.
    pub(super) async fn read_past(&mut self, after: u64, served: &Arc<Served>) -> Result<(), Over> {
        let head = served.state.head().seq;
        let mut entries = read(self.history.entries(after + 1, PAGE)).await?;
        entries.retain(|entry| entry.seq <= head);
        if entries.first().is_none_or(|first| first.seq != after + 1) {
            return Err(self.unlike());
        }
        for entry in entries {
            let seq = entry.seq;
            if served.place(&entry.position()) != Place::Applied {
                return Err(self.unlike());
            }
            if let Some(change) = self.past_change(entry).await? {
                self.tell_change(Arc::new(change)).await?;
            }
            self.passed(seq);
        }
        Ok(())
    }

    /// What an entry changed of the selection, if anything.
    async fn past_change(&self, entry: Entry) -> Result<Option<Change>, Over> {
        let unreadable = |error: &dyn std::fmt::Display| {
            tracing::error!(%error, "an entry of the past cannot be told");
            Over::For(Reason::Internal)
        };
        let Some(past) = Change::past(entry).map_err(|error| unreadable(&error))? else { return Ok(None) };
        if !self.seat.selection().matches(past.agent()) {
            return Ok(None);
        }
        let card = match past.registered() {
            Some(revision) => read(self.history.card(past.agent(), revision)).await?,
            None => None,
        };
        past.with_card(card).map(Some).map_err(|error| unreadable(&error))
    }

    /// The store does not hold what the view does.
    fn unlike(&self) -> Over {
        let stands = self.seat.hub().stands(self.generation);
        Over::For(if stands { Reason::FreshnessUnverifiable } else { Reason::HistoryDiverged })
    }
}

async fn read<T>(reading: impl Future<Output = Result<T, Error>>) -> Result<T, Over> {
    match timeout(READ_WITHIN, reading).await {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(error)) => {
            tracing::warn!(%error, "the store failed a subscriber");
            let reason = match error {
                Error::Unavailable(_) => Reason::StoreUnavailable,
                Error::Corrupt(_) | Error::Unusable(_) => Reason::Internal,
            };
            Err(Over::For(reason))
        }
        Err(_) => Err(Over::For(Reason::StoreUnavailable)),
    }
}
