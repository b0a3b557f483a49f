//! `cardfence.v1.Replication`: the sessions of edges, and what they and nodes say to the node that they hang off.
//!
//! Each session is one task, which its response owns: when the connection or the caller is gone, so is the task. It
//! answers one question after the other and holds one message at most that the edge has not taken; an edge that does
//! not take it, or asks for nothing, for long is let go, so that nobody's standstill holds a permit.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tonic::{Request, Response, Status, Streaming, async_trait};
use tracing::Instrument as _;

use super::convert::{self, Ask};
use super::status::answer;
use crate::proto::v1 as pb;
use crate::registry::replicate::{Given, Source};
use crate::registry::{Refusal, Registry};
use crate::terms::Reason;

/// How long an edge may take for one message.
const TAKES: Duration = Duration::from_secs(30);
/// How long an edge may ask for nothing: more than twice the longest pause between polls.
const ASKS: Duration = Duration::from_secs(150);

/// The service.
#[derive(Debug, Clone)]
pub(super) struct Service {
    registry: Registry,
    drain: CancellationToken,
}

impl Service {
    pub(super) const fn new(registry: Registry, drain: CancellationToken) -> Self {
        Self { registry, drain }
    }
}

/// What an edge is sent, and the task that sends it.
#[derive(Debug)]
pub(super) struct Answers {
    sent: mpsc::Receiver<Result<pb::ReplicateResponse, Status>>,
    _task: AbortOnDropHandle<()>,
}

impl Stream for Answers {
    type Item = Result<pb::ReplicateResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.sent.poll_recv(cx)
    }
}

#[async_trait]
impl pb::replication_server::Replication for Service {
    type ReplicateStream = Answers;

    async fn replicate(
        &self,
        request: Request<Streaming<pb::ReplicateRequest>>,
    ) -> Result<Response<Answers>, Status> {
        let source = self.registry.follow()?;
        let (answers, sent) = mpsc::channel(1);
        let session =
            Session { source, answers, drain: self.drain.clone(), counted: Counted::one(&self.registry) };
        let task = tokio::spawn(session.run(request.into_inner()).instrument(tracing::debug_span!("edge")));
        Ok(Response::new(Answers { sent, _task: AbortOnDropHandle::new(task) }))
    }

    async fn report(
        &self,
        request: Request<pb::ReportRequest>,
    ) -> Result<Response<pb::ReportResponse>, Status> {
        self.registry.report(convert::report(request.into_inner())?)?;
        answer(pb::ReportResponse {})
    }
}

struct Session {
    source: Source,
    answers: mpsc::Sender<Result<pb::ReplicateResponse, Status>>,
    drain: CancellationToken,
    counted: Counted,
}

impl Session {
    async fn run(mut self, asks: Streaming<pb::ReplicateRequest>) {
        match self.answer(asks).await {
            Ok(()) => tracing::debug!("an edge has gone"),
            Err(refusal) => {
                tracing::info!(%refusal, "an edge is let go");
                // If it takes nothing, it is not told either.
                let _told = timeout(TAKES, self.answers.send(Err(refusal.into()))).await;
            }
        }
        drop(self.counted);
    }

    /// Until the edge goes.
    async fn answer(&mut self, mut asks: Streaming<pb::ReplicateRequest>) -> Result<(), Refusal> {
        let mut until = Instant::now() + ASKS;
        loop {
            let asked = tokio::select! {
                biased;
                () = self.drain.cancelled() => {
                    return Err(draining());
                }
                asked = asks.message() => asked,
                moved = self.source.moved() => {
                    let Some(seq) = moved else {
                        return Err(Refusal::new(Reason::Draining, "this node's view has ended"));
                    };
                    self.send(convert::moved(seq)).await?;
                    continue;
                }
                () = sleep_until(until) => {
                    let detail = format!("nothing was asked for {} s", ASKS.as_secs());
                    return Err(Refusal::new(Reason::DeadlineExceeded, detail));
                }
            };
            let received = self.source.now();
            let asked = match asked {
                Ok(Some(asked)) => convert::ask(asked)?,
                // It has closed its half, or the connection is gone.
                Ok(None) => return Ok(()),
                Err(status) if status.code() == tonic::Code::Cancelled => return Ok(()),
                Err(status) => {
                    tracing::debug!(%status, "an edge's question was not read");
                    return Err(Refusal::invalid("a request is not one whole message of the method's type"));
                }
            };
            match asked {
                Ask::Head { asked, confirm } => {
                    let report = self.source.head(received, asked, confirm).await;
                    self.send(convert::head(&report)).await?;
                }
                Ask::Entries { after, limit } => match self.source.after(after, limit)? {
                    Given::Entries(entries) => self.send(convert::entries(entries)).await?,
                    Given::Snapshot(parts) => {
                        for part in parts {
                            if self.drain.is_cancelled() {
                                return Err(draining());
                            }
                            self.send(convert::part(part)).await?;
                        }
                    }
                },
                Ask::Liveness { since } => {
                    self.send(convert::liveness(&self.source.liveness(since))).await?;
                }
            }
            until = Instant::now() + ASKS;
        }
    }

    async fn send(&self, answer: pb::ReplicateResponse) -> Result<(), Refusal> {
        match timeout(TAKES, self.answers.send(Ok(answer))).await {
            // Nobody is left to take it: the next question will not come.
            Ok(_) => Ok(()),
            Err(_) => {
                let detail = format!("a message was not taken for {} s", TAKES.as_secs());
                Err(Refusal::new(Reason::DeadlineExceeded, detail))
            }
        }
    }
}

fn draining() -> Refusal {
    Refusal::new(Reason::Draining, "this node is shutting down")
}

/// One edge more, until this is dropped.
struct Counted(Registry);

impl Counted {
    fn one(registry: &Registry) -> Self {
        registry.metrics().edges.inc();
        Self(registry.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.metrics().edges.dec();
    }
}
