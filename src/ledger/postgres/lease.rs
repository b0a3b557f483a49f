//! Sessions that are kept between uses, a bounded number of them.
//!
//! A [`Lease`] that is dropped closes its session; only [`Lease::give_back`] keeps it, and that is called after
//! an exchange that ended well.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::session::{Connector, Role, Session};
use crate::ledger::Error;

/// Keeps sessions of one role. Clones share them.
#[derive(Clone)]
pub(super) struct Sessions {
    connector: Arc<Connector>,
    role: Role,
    permits: Arc<Semaphore>,
    idle: Arc<Mutex<Vec<Session>>>,
}

impl Sessions {
    pub(super) fn new(connector: Arc<Connector>, role: Role, most: usize) -> Self {
        Self { connector, role, permits: Arc::new(Semaphore::new(most.max(1))), idle: Arc::default() }
    }

    /// A session that was kept, or a new one. Waits while all are in use.
    pub(super) async fn lease(&self) -> Result<Lease, Error> {
        let permit = self.permit().await?;
        let kept = self.kept();
        let kept_before = kept.is_some();
        let session = match kept {
            Some(session) => session,
            None => self.connector.open(self.role).await?,
        };
        if !self.connector.is_followed(&session) {
            let text = "the address leads to another server than the one that the view follows";
            return Err(Error::Unavailable(text.to_owned()));
        }
        Ok(Lease { session, kept_before, idle: Arc::clone(&self.idle), _permit: permit })
    }

    /// A new session, after a kept one was found dead; what else is kept is then dead as well.
    pub(super) async fn lease_new(&self) -> Result<Lease, Error> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.lease().await
    }

    /// A session that was kept. One of a server that is not followed any more is closed.
    fn kept(&self) -> Option<Session> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|session| self.connector.is_followed(session));
        idle.pop()
    }

    async fn permit(&self) -> Result<OwnedSemaphorePermit, Error> {
        let closed = |_| Error::Unavailable("the store is closed".to_owned());
        Arc::clone(&self.permits).acquire_owned().await.map_err(closed)
    }
}

/// A session in use.
pub(super) struct Lease {
    pub(super) session: Session,
    /// It was used before, and the server may have ended it since.
    pub(super) kept_before: bool,
    idle: Arc<Mutex<Vec<Session>>>,
    _permit: OwnedSemaphorePermit,
}

impl Lease {
    pub(super) fn give_back(self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(self.session);
    }
}
