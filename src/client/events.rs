//! What happens inside, for those who watch: a bounded stream of events, and counts of them.
//!
//! Nobody has to listen, and nobody who listens slowly holds anything up: what did not fit is counted, and told in
//! its place.

use std::sync::atomic::{AtomicU64, Ordering};

use futures::Stream;
use futures::stream::unfold;
use tokio::sync::broadcast::{self, error::RecvError};

/// Events that a slow listener may be behind by.
const BEHIND_MAX: usize = 256;

/// One thing that was observed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Observed<E> {
    Event(E),
    /// So many events were missed, because they were not taken in time.
    Missed(u64),
}

/// Tells whoever listens.
#[derive(Debug)]
pub(super) struct Teller<E> {
    sender: broadcast::Sender<E>,
}

impl<E: Clone + Send + 'static> Teller<E> {
    pub(super) fn new() -> Self {
        Self { sender: broadcast::channel(BEHIND_MAX).0 }
    }

    pub(super) fn tell(&self, event: E) {
        // An error says that nobody listens.
        let _ = self.sender.send(event);
    }

    /// All that is told from now on.
    pub(super) fn listen(&self) -> impl Stream<Item = Observed<E>> + Send + Unpin + use<E> {
        Box::pin(unfold(self.sender.subscribe(), |mut receiver| async {
            match receiver.recv().await {
                Ok(event) => Some((Observed::Event(event), receiver)),
                Err(RecvError::Lagged(missed)) => Some((Observed::Missed(missed), receiver)),
                Err(RecvError::Closed) => None,
            }
        }))
    }
}

/// A count that many hands raise.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn raise(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
