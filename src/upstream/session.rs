//! One session: a `Replicate` stream of one server, read as a ledger is.
//!
//! A task reads the stream, because an upstream speaks unasked too: that it has grown becomes a nudge, and so does
//! the end of the stream, so that the feed finds out at once instead of at its next poll. Everything else is handed
//! on in order, through a channel of one; the task ends with the session.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use futures::channel::mpsc as asking;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;
use tonic::Streaming;
use tracing::Instrument as _;

use super::convert::{self, Arriving};
use super::{HOPS_MAX, Shared};
use crate::ledger::{Entry, Error, HeadReport, LIVENESS_PAGE, Liveness, Page, Reading};
use crate::proto::MESSAGE_MAX;
use crate::proto::v1 as pb;
use crate::proto::v1::replicate_response::Answer;
use crate::proto::v1::replication_client::ReplicationClient;
use crate::terms::Timestamp;

/// The longest that an upstream is asked to wait for its own authority.
const CONFIRM: Duration = Duration::from_secs(1);
/// A row may reach the upstream so long after one with a later time.
const LATE_MICROS: i64 = 10_000_000;

/// A stream that was opened.
pub(super) struct Session {
    shared: Arc<Shared>,
    /// Which of the servers it is of.
    at: usize,
    asks: asking::Sender<pb::ReplicateRequest>,
    answers: mpsc::Receiver<Result<Answer, Error>>,
    /// It was asked nothing yet: it may be of another server than the last one, which may be behind that one.
    fresh: bool,
    /// The last page of liveness was full: the next one goes on where it ended.
    behind: bool,
    _reader: AbortOnDropHandle<()>,
}

impl Session {
    /// Connects and opens a stream; the server has agreed to be followed when this returns.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when it is not reached, or refuses.
    pub(super) async fn open(shared: Arc<Shared>, at: usize) -> Result<Self, Error> {
        let server = &shared.servers[at];
        let connected = server.endpoint.connect().await;
        let channel = connected.map_err(|error| convert::unreached(&server.url, &error))?;
        // A question waits here until the connection takes it; there is one at a time.
        let (asks, asked) = asking::channel(1);
        let mut client = ReplicationClient::new(channel).max_decoding_message_size(MESSAGE_MAX);
        let answer = client.replicate(asked).await.map_err(|status| convert::failed(&status))?;
        let (handed, answers) = mpsc::channel(1);
        let reading = read(answer.into_inner(), handed, shared.nudges.clone());
        let reader = tokio::spawn(reading.instrument(tracing::debug_span!("upstream", url = %server.url)));
        let _reader = AbortOnDropHandle::new(reader);
        Ok(Self { shared, at, asks, answers, fresh: true, behind: false, _reader })
    }

    async fn ask(&mut self, ask: pb::ReplicateRequest) -> Result<Answer, Error> {
        self.asks
            .try_send(ask)
            .map_err(|_| Error::Unavailable("the stream takes no more questions".to_owned()))?;
        self.next().await
    }

    async fn next(&mut self) -> Result<Answer, Error> {
        self.answers
            .recv()
            .await
            .unwrap_or_else(|| Err(Error::Unavailable("the stream has ended".to_owned())))
    }

    async fn head_within(&mut self, asked: u64, confirm: Option<Duration>) -> Result<HeadReport, Error> {
        let mut report = convert::head(self.ask(convert::head_wanted(asked, confirm)).await?)?;
        // It answers, so it is the one to stay with, and the list begins at its first again.
        self.shared.first.store(0, Ordering::Relaxed);
        self.shared.current.store(self.at, Ordering::Relaxed);
        report.hops = report.hops.saturating_add(1);
        if report.hops > HOPS_MAX && report.age.is_some() {
            tracing::warn!(hops = report.hops, "too many hops from a database: do edges follow each other?");
            report.age = None;
        }
        Ok(report)
    }

    /// The rest of a snapshot. As long as it goes on coming it may take its time.
    async fn snapshot(&mut self, begin: pb::SnapshotBegin) -> Result<Page, Error> {
        let mut arriving = Arriving::begin(begin)?;
        loop {
            let patience = self.shared.patience;
            let part =
                timeout(patience, self.next()).await.map_err(|_| late("the next part", patience))??;
            match part {
                Answer::SnapshotTags(tags) => arriving.tags(tags)?,
                Answer::SnapshotAgents(agents) => arriving.agents(agents)?,
                Answer::SnapshotEnd(end) => {
                    let snapshot = arriving.end(&end)?;
                    tracing::info!(
                        position = %snapshot.head.position(), agents = snapshot.agents.len(), "a snapshot has come"
                    );
                    return Ok(Page::Snapshot(Box::new(snapshot)));
                }
                _ => return Err(convert::unexpected("a part of a snapshot")),
            }
        }
    }
}

#[async_trait]
impl Reading for Session {
    async fn head(&mut self, asked: u64) -> Result<HeadReport, Error> {
        // What has been acknowledged is in what a server confirms, and need not be in what it has at hand.
        if self.fresh { self.head_now(asked).await } else { self.head_within(asked, None).await }
    }

    async fn head_now(&mut self, asked: u64) -> Result<HeadReport, Error> {
        self.fresh = false;
        // The answer must still come in time when the upstream's authority does not.
        let confirm = CONFIRM.min(self.shared.patience / 2);
        self.head_within(asked, Some(confirm)).await
    }

    async fn read(&mut self, after: u64, limit: usize) -> Result<Vec<Entry>, Error> {
        match self.page(after, limit).await? {
            Page::Entries(entries) => Ok(entries),
            Page::Snapshot(_) => {
                Err(Error::Unavailable("the upstream keeps these entries no more".to_owned()))
            }
        }
    }

    async fn page(&mut self, after: u64, limit: usize) -> Result<Page, Error> {
        let patience = self.shared.patience;
        let answer = timeout(patience, self.ask(convert::entries_wanted(after, limit)));
        match answer.await.map_err(|_| late("entries", patience))?? {
            Answer::Entries(entries) => convert::entries(entries).map(Page::Entries),
            Answer::SnapshotBegin(begin) => self.snapshot(begin).await,
            _ => Err(convert::unexpected("entries")),
        }
    }

    async fn liveness(&mut self, since: Option<Timestamp>) -> Result<Vec<Liveness>, Error> {
        let overlap = if self.behind { 0 } else { LATE_MICROS };
        let since = since.map(|since| Timestamp::from_micros(since.as_micros().saturating_sub(overlap)));
        let rows = match self.ask(convert::liveness_wanted(since)).await? {
            Answer::Liveness(rows) => convert::liveness(rows)?,
            _ => return Err(convert::unexpected("liveness")),
        };
        self.behind = rows.len() >= LIVENESS_PAGE;
        Ok(rows)
    }
}

fn late(what: &str, patience: Duration) -> Error {
    Error::Unavailable(format!("{what} did not come within {} ms", patience.as_millis()))
}

/// Reads the stream until it ends or nobody takes what it brings.
async fn read(
    mut stream: Streaming<pb::ReplicateResponse>,
    handed: mpsc::Sender<Result<Answer, Error>>,
    nudges: watch::Sender<u64>,
) {
    loop {
        let next = match stream.message().await {
            Ok(Some(pb::ReplicateResponse { answer: Some(Answer::Moved(_)) })) => {
                nudges.send_modify(|nudge| *nudge += 1);
                continue;
            }
            Ok(Some(pb::ReplicateResponse { answer: Some(answer) })) => Ok(answer),
            // What a later version says unasked.
            Ok(Some(pb::ReplicateResponse { answer: None })) => continue,
            Ok(None) => Err(Error::Unavailable("the upstream has ended the stream".to_owned())),
            Err(status) => Err(convert::failed(&status)),
        };
        let ended = next.is_err();
        if ended {
            nudges.send_modify(|nudge| *nudge += 1);
        }
        if handed.send(next).await.is_err() || ended {
            return;
        }
    }
}
