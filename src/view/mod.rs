//! What is served: a node's fold of the ledger in memory, and what is proven of it. Derived and disposable.
//!
//! Readers call [`View::load`] and get one [`Served`]: a state at one position with its proof. That takes no
//! lock, no query and no copy. Who needs more than is proven waits with [`View::confirm`]; who needs a
//! position waits with [`View::wait_for`]. [`feed::Feed`] is the only writer.
//!
//! Absent on purpose: this module does not know the stores, the wires, or what a fence is for.

pub mod feed;
mod freshness;
pub mod hub;
mod liveness;
mod log;
mod origin;
mod state;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::{ArcSwap, Guard};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::Instant;

use crate::clock::{Clock, Moment};
use crate::terms::Position;

pub use freshness::{Place, Proof, Served};
pub use hub::{Ahead, Hub, Seat, Selection};
pub use log::{Change, Forms, Log, PastChange};
pub use state::{Agent, Current, FoldError, State};

/// What waiters are told: that something was published.
#[derive(Debug, Clone, Copy, Default)]
pub struct Progress {
    pub published: u64,
}

/// A handle on the view. Cheap to clone.
#[derive(Debug, Clone)]
pub struct View {
    served: Arc<ArcSwap<Served>>,
    progress: watch::Receiver<Progress>,
    demand: Arc<Notify>,
    authority_head: Arc<AtomicU64>,
    room: Arc<Semaphore>,
    hub: Arc<Hub>,
    clock: Clock,
}

/// Why a wait ended without what it was for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotMet {
    /// The deadline passed first.
    NotInTime,
    /// Too many wait already.
    TooMany,
}

/// Calls that may wait at once. Fewer than a server's requests, so that those which need not wait are answered
/// while the authority does not.
const WAITING_MAX: usize = 1_536;

impl View {
    fn new(served: Served, progress: watch::Receiver<Progress>, demand: Arc<Notify>, clock: Clock) -> Self {
        let served = Arc::new(served);
        let hub = Arc::new(Hub::new(Arc::clone(&served)));
        let served = Arc::new(ArcSwap::new(served));
        let room = Arc::new(Semaphore::new(WAITING_MAX));
        Self { served, progress, demand, authority_head: Arc::default(), room, hub, clock }
    }

    /// Changes each time something is published: the view has grown, or was proven.
    pub fn published(&self) -> watch::Receiver<Progress> {
        self.progress.clone()
    }

    fn publish(&self, served: Served) {
        self.served.store(Arc::new(served));
    }

    /// What is served now.
    pub fn load(&self) -> Guard<Arc<Served>> {
        self.served.load()
    }

    /// What is served now, for who keeps it.
    pub fn load_full(&self) -> Arc<Served> {
        self.served.load_full()
    }

    /// Where subscribers take their seats. It follows the view while [`hub::run`] runs.
    pub fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The authority's head as of the last time it was asked.
    pub fn authority_head(&self) -> u64 {
        self.authority_head.load(Ordering::Acquire)
    }

    fn set_authority_head(&self, seq: u64) {
        self.authority_head.store(seq, Ordering::Release);
    }

    /// Waits until completeness is proven as of `since` or later. Those who wait share confirmations.
    ///
    /// # Errors
    /// [`NotMet`] when the authority did not confirm before `deadline`.
    pub async fn confirm(&self, since: &Moment, deadline: Instant) -> Result<Arc<Served>, NotMet> {
        self.until(deadline, |served| served.proven_since(since)).await
    }

    /// Waits until the view has applied `position`, or one with its number and another digest.
    ///
    /// # Errors
    /// [`NotMet`] when it had not before `deadline`.
    pub async fn wait_for(&self, position: &Position, deadline: Instant) -> Result<Arc<Served>, NotMet> {
        self.until(deadline, |served| served.place(position) != Place::Beyond).await
    }

    async fn until(
        &self,
        deadline: Instant,
        enough: impl Fn(&Served) -> bool,
    ) -> Result<Arc<Served>, NotMet> {
        let mut progress = self.progress.clone();
        progress.borrow_and_update();
        let served = self.served.load_full();
        if enough(&served) {
            return Ok(served);
        }
        let _permit = self.room.try_acquire().map_err(|_| NotMet::TooMany)?;
        // One permit, whoever leaves it: the next cycle to start serves all who left one before.
        self.demand.notify_one();
        loop {
            match tokio::time::timeout_at(deadline, progress.changed()).await {
                Ok(Ok(())) => {}
                // The feed has ended, or the time is over.
                Ok(Err(_)) | Err(_) => return Err(NotMet::NotInTime),
            }
            let served = self.served.load_full();
            if enough(&served) {
                return Ok(served);
            }
        }
    }
}
