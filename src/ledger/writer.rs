//! Group commit: the one task per node that writes to the ledger.
//!
//! Writes wait in one bounded queue. The task takes what waits, up to a batch, and commits it in one
//! transaction under the ledger's lock: begin and lock, look up, append, commit. While it commits, the next
//! batch gathers; so the batch grows with the load and a lone write waits for nobody. One bad write fails
//! alone, because each is judged before the rows are written.
//!
//! # A lost commit answer
//!
//! Every write has a request id, and the ids of a batch are committed with it. So when the answer to a commit
//! is lost, the task submits the same batch again on a new connection: the lock makes it wait for the end of
//! the transaction it lost sight of, and the request ids tell what was done. A write is answered
//! `OutcomeUnknown` only when that could not be found out before its deadline. (Looking for the batch by the
//! sequence number it was to get was the rejected alternative: after a failover that number may be another's.)
//!
//! # Deadlines
//!
//! Each step is bounded by the latest deadline in the batch, and a session whose step timed out is dropped,
//! not cancelled. A write that is still queued at its deadline is withdrawn by its own submitter.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, Span};

use super::decide::decide;
use super::{
    CommitError, Entry, Error, FORGOTTEN_AT_ONCE, Judge, Key, Liveness, Op, Receipt, Rows, Store, Write,
    WriteError, Writes,
};
use crate::telemetry::Metrics;
use crate::terms::Timestamp;

/// Bounds of the writer.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Writes that may wait; one more is refused as overloaded.
    pub queue: usize,
    /// Writes in one transaction.
    pub batch: usize,
    /// A batch takes no further write once its cards have so many bytes: they are sent while the lock is held,
    /// and a store may end a transaction that is idle for a second, which a slow send looks like.
    pub batch_bytes: usize,
    /// The longest that one step of a transaction may take.
    pub step: Duration,
    /// How long request ids are remembered.
    pub remember_requests: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            queue: 1024,
            batch: 256,
            batch_bytes: 1 << 20,
            step: Duration::from_secs(5),
            remember_requests: Duration::from_secs(7 * 24 * 3600),
        }
    }
}

/// Pauses between forgetting old request ids, and while there are more than were forgotten at once.
const FORGET_EVERY: Duration = Duration::from_secs(3600);
const FORGET_MORE: Duration = Duration::from_secs(10);

/// What a commit of this node made, handed to its own view so that it need not wait for the next poll.
/// A hint: the view finds the same entries by reading the ledger.
#[derive(Debug, Clone)]
pub struct Committed {
    pub entries: Vec<Entry>,
    pub liveness: Vec<Liveness>,
}

/// The writer's end of the queue, and the task.
pub struct Writer {
    queue: mpsc::Sender<Queued>,
    metrics: Metrics,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("room", &self.queue.capacity()).finish_non_exhaustive()
    }
}

struct Queued {
    write: Write,
    answer: oneshot::Sender<Result<Receipt, WriteError>>,
    /// Set by the task when it takes the write, or by the submitter when it withdraws it: whoever is first.
    taken: Arc<AtomicBool>,
    /// The span that the write was submitted in.
    span: Span,
}

impl Writer {
    /// Starts the task. It ends when `stop` is cancelled and what was queued is done.
    pub fn start(
        store: Arc<dyn Store>,
        judge: Arc<dyn Judge>,
        committed: mpsc::Sender<Committed>,
        limits: Limits,
        metrics: Metrics,
        stop: CancellationToken,
    ) -> (Self, JoinHandle<()>) {
        let (queue, waiting) = mpsc::channel(limits.queue);
        let task = Task {
            store,
            judge,
            committed,
            limits,
            metrics: metrics.clone(),
            waiting,
            stop,
            forget_at: Instant::now() + FORGET_MORE,
        };
        (Self { queue, metrics }, tokio::spawn(task.run()))
    }
}

#[async_trait]
impl Writes for Writer {
    async fn submit(&self, write: Write) -> Result<Receipt, WriteError> {
        let deadline = write.deadline;
        let taken = Arc::new(AtomicBool::new(false));
        let (answer, receipt) = oneshot::channel();
        self.queue
            .try_send(Queued { write, answer, taken: Arc::clone(&taken), span: Span::current() })
            .map_err(|error| match error {
                mpsc::error::TrySendError::Full(_) => WriteError::Overloaded,
                mpsc::error::TrySendError::Closed(_) => WriteError::Draining,
            })?;
        self.metrics.write_queue.inc();
        let mut receipt = receipt;
        tokio::select! {
            answer = &mut receipt => return answer.unwrap_or(Err(WriteError::OutcomeUnknown)),
            () = tokio::time::sleep_until(deadline.into()) => {}
        }
        if !taken.swap(true, Ordering::AcqRel) {
            return Err(WriteError::Unavailable);
        }
        // The task has it, and answers soon after the deadline: its steps are bounded by it.
        receipt.await.unwrap_or(Err(WriteError::OutcomeUnknown))
    }
}

struct Task {
    store: Arc<dyn Store>,
    judge: Arc<dyn Judge>,
    committed: mpsc::Sender<Committed>,
    limits: Limits,
    metrics: Metrics,
    waiting: mpsc::Receiver<Queued>,
    stop: CancellationToken,
    forget_at: Instant,
}

/// How one attempt to commit a batch ended.
enum Attempt {
    Done(Vec<Result<Receipt, WriteError>>),
    /// Nothing was written.
    Failed(Error),
    /// The answer to the commit was lost.
    Lost(Error),
}

impl Task {
    async fn run(mut self) {
        loop {
            let first = tokio::select! {
                biased;
                first = self.waiting.recv() => first,
                () = self.stop.cancelled(), if !self.waiting.is_closed() => {
                    self.waiting.close();
                    continue;
                }
            };
            let Some(first) = first else { break };
            let mut batch = Vec::with_capacity(16);
            let mut bytes = self.take(first, &mut batch);
            while batch.len() < self.limits.batch && bytes < self.limits.batch_bytes {
                let Ok(next) = self.waiting.try_recv() else { break };
                bytes += self.take(next, &mut batch);
            }
            if !batch.is_empty() {
                self.commit(batch).await;
            }
            if self.forget_at <= Instant::now() {
                self.forget().await;
            }
        }
        tracing::debug!("the writer has ended");
    }

    /// Takes a write that nobody withdrew, and says how many bytes it brings.
    fn take(&self, queued: Queued, batch: &mut Vec<Queued>) -> usize {
        self.metrics.write_queue.dec();
        if queued.taken.swap(true, Ordering::AcqRel) {
            return 0;
        }
        let bytes = match &queued.write.op {
            Op::Register { card, .. } => card.bytes().len(),
            Op::Retire => 0,
        };
        batch.push(queued);
        bytes
    }

    /// Commits a batch, again and again until it is done or every deadline in it has passed.
    async fn commit(&mut self, mut batch: Vec<Queued>) {
        let mut lost = false;
        let mut pause = Duration::from_millis(20);
        loop {
            let started = Instant::now();
            let writes: Vec<&Write> = batch.iter().map(|queued| &queued.write).collect();
            let latest = writes.iter().map(|write| write.deadline).max().unwrap_or(started);
            let error = match self.attempt(&writes, latest).instrument(span(&batch)).await {
                Attempt::Done(answers) => {
                    self.metrics.commit_batch_writes.observe(batch.len() as f64);
                    self.metrics.commit_seconds.observe(started.elapsed().as_secs_f64());
                    for (queued, answer) in batch.into_iter().zip(answers) {
                        // A submitter that went away does not need its answer.
                        let _ = queued.answer.send(answer);
                    }
                    return;
                }
                Attempt::Failed(error) => error,
                Attempt::Lost(error) => {
                    lost = true;
                    error
                }
            };
            self.metrics.commit_failures.inc();
            tracing::warn!(%error, lost, writes = batch.len(), "a batch was not committed; it is tried again until its deadline");
            let again = Instant::now() + pause;
            let (keep, expired): (Vec<_>, Vec<_>) =
                batch.into_iter().partition(|queued| queued.write.deadline > again);
            for queued in expired {
                let error = if lost { WriteError::OutcomeUnknown } else { WriteError::Unavailable };
                let _ = queued.answer.send(Err(error));
            }
            if keep.is_empty() {
                return;
            }
            batch = keep;
            tokio::time::sleep_until(again.into()).await;
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }

    async fn attempt(&mut self, writes: &[&Write], latest: Instant) -> Attempt {
        let step = |name: &'static str| {
            let left = latest.saturating_duration_since(Instant::now()).max(Duration::from_millis(100));
            (self.limits.step.min(left), name)
        };
        let mut txn = match within(step("begin"), self.store.begin()).await {
            Ok(txn) => txn,
            Err(error) => return Attempt::Failed(error),
        };
        let keys: Vec<Key> = writes.iter().map(|write| key(write)).collect();
        let seen = match within(step("lookup"), txn.lookup(&keys)).await {
            Ok(seen) if seen.len() == writes.len() => seen,
            Ok(seen) => {
                let text = format!("{} of {} writes were looked up", seen.len(), writes.len());
                return Attempt::Failed(Error::Corrupt(text));
            }
            Err(error) => return Attempt::Failed(error),
        };
        let decided = decide(&*self.judge, txn.head(), txn.now(), txn.service(), writes, seen);
        if decided.rows.is_empty() {
            // Nothing to write, so whatever becomes of the commit: it ends the transaction in a way that lets the
            // store keep its session, which dropping it does not.
            let (limit, _) = step("end");
            let _ = tokio::time::timeout(limit.min(Duration::from_secs(1)), txn.commit()).await;
            return Attempt::Done(decided.answers);
        }
        if let Err(error) = within(step("append"), txn.append(&decided.rows)).await {
            return Attempt::Failed(error);
        }
        let (limit, _) = step("commit");
        match tokio::time::timeout(limit, txn.commit()).await {
            Ok(Ok(())) => {}
            Ok(Err(CommitError::Refused(error))) => return Attempt::Failed(error),
            Ok(Err(CommitError::Unknown(error))) => return Attempt::Lost(error),
            Err(_) => return Attempt::Lost(timed_out("commit", limit)),
        }
        self.tell(decided.rows);
        Attempt::Done(decided.answers)
    }

    /// Forgets old request ids, in a transaction of its own after everyone was answered. What fails, or is left,
    /// is for a later time.
    async fn forget(&mut self) {
        let limit = self.limits.step;
        let kept = i64::try_from(self.limits.remember_requests.as_micros()).unwrap_or(i64::MAX);
        let forgotten = async {
            let mut txn = within((limit, "begin"), self.store.begin()).await?;
            let before = Timestamp::from_micros(txn.now().as_micros().saturating_sub(kept));
            let forgotten = within((limit, "forget"), txn.forget_requests(before)).await?;
            let commit = async { txn.commit().await.map_err(|error| Error::Unavailable(error.to_string())) };
            within((limit, "commit"), commit).await?;
            Ok::<u64, Error>(forgotten)
        };
        let pause = match forgotten.await {
            Ok(forgotten) if forgotten >= FORGOTTEN_AT_ONCE => FORGET_MORE,
            Ok(_) => FORGET_EVERY,
            Err(error) => {
                tracing::warn!(%error, "old request ids were not forgotten");
                FORGET_EVERY
            }
        };
        self.forget_at = Instant::now() + pause;
    }

    /// Hands what was committed to the node's own view. When its queue is full the view is reading anyway.
    fn tell(&self, rows: Rows) {
        let liveness = rows
            .liveness
            .into_iter()
            .map(|row| Liveness {
                agent: row.agent,
                revision: row.revision,
                origin_confirmed_at: row.origin_confirmed_at,
                registers: row.registers,
                lease: row.lease,
            })
            .collect();
        let _ = self.committed.try_send(Committed { entries: rows.entries, liveness });
    }
}

/// The span of a batch: a child of the first write's, and caused by all of them.
fn span(batch: &[Queued]) -> Span {
    let parent = batch.first().and_then(|queued| queued.span.id());
    let span = tracing::debug_span!(parent: parent, "batch", writes = batch.len());
    for queued in batch {
        span.follows_from(&queued.span);
    }
    span
}

async fn within<T>(
    (limit, name): (Duration, &'static str),
    step: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    tokio::time::timeout(limit, step).await.unwrap_or_else(|_| Err(timed_out(name, limit)))
}

fn timed_out(step: &str, limit: Duration) -> Error {
    Error::Unavailable(format!("{step} took longer than {} ms", limit.as_millis()))
}

fn key(write: &Write) -> Key {
    Key {
        agent: write.agent.clone(),
        principal: write.principal.clone(),
        request_id: write.request_id.clone(),
        expect_seq: match write.expect {
            super::Expect::Revision { seen_at, .. } => seen_at.map(|position| position.seq),
            _ => None,
        },
    }
}
