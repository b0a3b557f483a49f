//! What stands between the demo's replica and the ledger, and can be shut: a replication that has stopped
//! without anybody being told. `serve` has nothing like it.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;

use crate::ledger::{Entries, Entry, Error, HeadReport, Liveness, Reading};
use crate::terms::Timestamp;

/// Open, or shut so that nothing comes through.
#[derive(Debug, Clone)]
pub(super) struct Valve(watch::Sender<bool>);

impl Valve {
    pub(super) fn open() -> Self {
        Self(watch::Sender::new(true))
    }

    pub(super) fn set_open(&self, open: bool) {
        self.0.send_replace(open);
    }

    /// `entries` as they are seen through the valve.
    pub(super) fn before(&self, entries: Arc<dyn Entries>) -> Arc<dyn Entries> {
        Arc::new(Valved { inner: entries, valve: self.clone() })
    }

    async fn pass(&self) {
        // Fails only without a sender, and this is one.
        let _ = self.0.subscribe().wait_for(|open| *open).await;
    }

    /// Lets a question through, and its answer: one given before the valve was shut is held as well.
    async fn both_ways<T>(&self, asking: impl Future<Output = T>) -> T {
        self.pass().await;
        let answer = asking.await;
        self.pass().await;
        answer
    }
}

#[derive(Debug)]
struct Valved {
    inner: Arc<dyn Entries>,
    valve: Valve,
}

#[async_trait]
impl Entries for Valved {
    async fn open(&self) -> Result<Box<dyn Reading>, Error> {
        let inner = self.valve.both_ways(self.inner.open()).await?;
        Ok(Box::new(Through { inner, valve: self.valve.clone() }))
    }
}

struct Through {
    inner: Box<dyn Reading>,
    valve: Valve,
}

#[async_trait]
impl Reading for Through {
    async fn head(&mut self, asked: u64) -> Result<HeadReport, Error> {
        self.valve.both_ways(self.inner.head(asked)).await
    }

    async fn read(&mut self, after: u64, limit: usize) -> Result<Vec<Entry>, Error> {
        self.valve.both_ways(self.inner.read(after, limit)).await
    }

    async fn liveness(&mut self, since: Option<Timestamp>) -> Result<Vec<Liveness>, Error> {
        self.valve.both_ways(self.inner.liveness(since)).await
    }
}
