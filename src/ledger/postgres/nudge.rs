//! Nudges: an empty `NOTIFY` after a commit, so that other nodes need not wait for their next poll.
//!
//! The poll is the truth; a nudge only shortens the wait, so everything here may fail in silence. It is sent
//! outside of the write transaction and on a connection of its own, because a `NOTIFY` within serialises the
//! commits of the whole database server, and at most twenty times a second. It does not work through PgBouncer
//! in transaction mode, where the task only waits for its end, nor on a standby, where it need not be started.

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgListener, PgPoolOptions};
use sqlx::{Executor as _, PgPool};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::session::{Connector, Role};
use super::{Postgres, STEP};

/// At most one nudge in this time; commits in between share the next.
const APART: Duration = Duration::from_millis(50);

/// A listener that heard nothing for so long asks whether its connection lives.
const QUIET: Duration = Duration::from_secs(15);

const BACKOFF: Duration = Duration::from_millis(100);
const BACKOFF_MOST: Duration = Duration::from_secs(1);

const CHANNEL: &str = "cardfence";

/// Changes whenever somebody committed, or may have while nobody listened.
pub type Nudges = watch::Receiver<u64>;

impl Postgres {
    /// Starts the task that nudges others after this store's commits and hears theirs. It ends with `stop`.
    pub fn start_nudges(&self, stop: CancellationToken) -> (Nudges, JoinHandle<()>) {
        let (heard, nudges) = watch::channel(0);
        let task =
            Task { connector: Arc::clone(&self.connector), committed: Arc::clone(&self.committed), heard };
        let pooled = self.connector.pooled();
        let task = tokio::spawn(async move {
            tokio::select! {
                () = task.run(), if !pooled => {}
                () = stop.cancelled() => {}
            }
            tracing::debug!("nudges have ended");
        });
        (nudges, task)
    }
}

struct Task {
    connector: Arc<Connector>,
    committed: Arc<Notify>,
    heard: watch::Sender<u64>,
}

impl Task {
    async fn run(self) {
        let mut backoff = BACKOFF;
        loop {
            let started = Instant::now();
            if let Err(error) = self.session().await {
                tracing::debug!(%error, "nudges: the connection was lost");
            }
            if started.elapsed() > BACKOFF_MOST {
                backoff = BACKOFF;
            }
            sleep(backoff).await;
            backoff = (backoff * 2).min(BACKOFF_MOST);
        }
    }

    /// Listens and nudges on one connection until it fails.
    async fn session(&self) -> Result<(), sqlx::Error> {
        let mut listener = self.listen().await?;
        // What happened before was not heard.
        self.heard.send_modify(|heard| *heard += 1);
        let mut last = None::<Instant>;
        loop {
            tokio::select! {
                heard = timeout(QUIET, listener.try_recv()) => match heard {
                    Ok(Ok(Some(_))) => self.heard.send_modify(|heard| *heard += 1),
                    Ok(Ok(None)) => return Ok(()),
                    Ok(Err(error)) => return Err(error),
                    Err(_) => within(listener.execute("SELECT 1")).await?,
                },
                () = self.committed.notified() => {
                    if let Some(last) = last {
                        tokio::time::sleep_until(last + APART).await;
                    }
                    within(listener.execute("NOTIFY cardfence")).await?;
                    last = Some(Instant::now());
                }
            }
        }
    }

    async fn listen(&self) -> Result<PgListener, sqlx::Error> {
        let options = timeout(STEP, self.connector.reachable(Role::Nudge)).await;
        let options = options.ok().and_then(Result::ok).ok_or(sqlx::Error::PoolTimedOut)?;
        // A pool of one, because the driver's listener takes its connection from a pool.
        let pool: PgPool = PgPoolOptions::new()
            .max_connections(1)
            .acquire_timeout(STEP)
            .idle_timeout(None)
            .max_lifetime(None)
            .connect_lazy_with(options);
        let mut listener = PgListener::connect_with(&pool).await?;
        listener.eager_reconnect(false);
        // A nudge need not survive anything, so its commit waits for nothing.
        within(listener.execute("SET synchronous_commit = off")).await?;
        timeout(STEP, listener.listen(CHANNEL)).await.unwrap_or(Err(sqlx::Error::PoolTimedOut))?;
        Ok(listener)
    }
}

async fn within<T>(call: impl Future<Output = Result<T, sqlx::Error>>) -> Result<(), sqlx::Error> {
    timeout(STEP, call).await.unwrap_or(Err(sqlx::Error::PoolTimedOut)).map(drop)
}
