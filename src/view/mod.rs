//! What is served: a node's fold of the ledger in memory, and what is proven of it. Derived and disposable.
//!
//! Readers call [`View::load`] and get one [`Served`]: a state at one position with its proof. That takes no
//! lock, no query and no copy. Who needs more than is proven waits with [`View::confirm`]; who needs a
//! position waits with [`View::wait_for`]. [`feed::Feed`] is the only writer.
//!
//! Absent on purpose: this module does not know the stores, the wires, or what a fence is for.

pub mod feed;
mod freshness;
mod state;

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::clock::{Clock, Moment};
use crate::terms::Position;

pub use freshness::{Place, Proof, Served};
pub use state::{Agent, Current, FoldError, State};

/// What waiters are told: that something was published, and how far the authority is known to be.
#[derive(Debug, Clone, Copy, Default)]
pub struct Progress {
    pub published: u64,
    /// The authority's head as of the last time it was asked.
    pub authority_head: u64,
}

/// A handle on the view. Cheap to clone.
#[derive(Debug, Clone)]
pub struct View {
    served: Arc<ArcSwap<Served>>,
    progress: watch::Receiver<Progress>,
    demand: Arc<Notify>,
    clock: Clock,
}

/// The deadline passed first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotInTime;

impl View {
    fn new(served: Served, progress: watch::Receiver<Progress>, demand: Arc<Notify>, clock: Clock) -> Self {
        Self { served: Arc::new(ArcSwap::from_pointee(served)), progress, demand, clock }
    }

    fn publish(&self, served: Served) {
        self.served.store(Arc::new(served));
    }

    /// What is served now.
    pub fn load(&self) -> Guard<Arc<Served>> {
        self.served.load()
    }

    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The authority's head as of the last time it was asked.
    pub fn authority_head(&self) -> u64 {
        self.progress.borrow().authority_head
    }

    /// Waits until completeness is proven as of `since` or later. Those who wait share confirmations.
    ///
    /// # Errors
    /// [`NotInTime`] when the authority did not confirm before `deadline`.
    pub async fn confirm(&self, since: &Moment, deadline: Instant) -> Result<Arc<Served>, NotInTime> {
        self.until(deadline, true, |served| served.proven_since(since)).await
    }

    /// Waits until the view has applied `position`, or one with its number and another digest.
    ///
    /// # Errors
    /// [`NotInTime`] when it had not before `deadline`.
    pub async fn wait_for(&self, position: &Position, deadline: Instant) -> Result<Arc<Served>, NotInTime> {
        self.until(deadline, true, |served| served.place(position) != Place::Beyond).await
    }

    async fn until(
        &self,
        deadline: Instant,
        ask: bool,
        enough: impl Fn(&Served) -> bool,
    ) -> Result<Arc<Served>, NotInTime> {
        let mut progress = self.progress.clone();
        progress.borrow_and_update();
        let served = self.served.load_full();
        if enough(&served) {
            return Ok(served);
        }
        if ask {
            // One permit, whoever leaves it: the next cycle to start serves all who left one before.
            self.demand.notify_one();
        }
        loop {
            match tokio::time::timeout_at(deadline, progress.changed()).await {
                Ok(Ok(())) => {}
                // The feed has ended, or the time is over.
                Ok(Err(_)) | Err(_) => return Err(NotInTime),
            }
            let served = self.served.load_full();
            if enough(&served) {
                return Ok(served);
            }
        }
    }
}
