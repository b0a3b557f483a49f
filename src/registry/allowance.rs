//! More time than a request gets by itself, which a use case takes once it knows that it needs it.
//!
//! Whoever bounds a request bounds it by [`Allowance::within`], so that a write which waits for replicas is not
//! cut off, and no other request may take longer for it.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

/// What one request has taken. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Allowance(Arc<AtomicU64>);

impl Allowance {
    /// Takes so much.
    pub fn take(&self, more: Duration) {
        let millis = u64::try_from(more.as_millis()).unwrap_or(u64::MAX);
        self.0.fetch_add(millis, Ordering::AcqRel);
    }

    fn taken(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Acquire))
    }

    /// What `answer` comes to, unless it takes longer than until `until` and what was taken.
    pub async fn within<T>(&self, until: Instant, answer: impl Future<Output = T>) -> Option<T> {
        let mut answer = pin!(answer);
        let mut allowed = until;
        loop {
            if let Ok(answered) = timeout_at(allowed, &mut answer).await {
                return Some(answered);
            }
            let now_allowed = until + self.taken();
            if now_allowed <= allowed {
                return None;
            }
            allowed = now_allowed;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_who_takes_more_gets_more() {
        let over = Instant::now() - Duration::from_millis(10);
        assert_eq!(Allowance::default().within(over, std::future::pending::<()>()).await, None);
        let allowance = Allowance::default();
        let taking = async {
            allowance.take(Duration::from_secs(60));
            tokio::task::yield_now().await;
        };
        assert_eq!(allowance.within(over, taking).await, Some(()));
        let brief = Allowance::default();
        brief.take(Duration::from_millis(1));
        assert_eq!(brief.within(over, std::future::pending::<()>()).await, None);
    }
}
