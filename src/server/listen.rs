//! Accepting connections and, when told to stop, draining them.
//!
//! Both wires and both HTTP versions come in by one port; hyper-util tells the versions apart. Connections,
//! headers and streams are bounded here.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower::Service;

use super::body::Body;

/// The headers of one request, by HTTP/2; HTTP/1 reads them into a buffer of [`HEAD_BYTES`].
const HEADER_BYTES: u32 = 32 * 1024;
const HEADERS_MAX: usize = 100;
const HEAD_BYTES: usize = 64 * 1024;
/// How long a client may take until it is known which version it speaks, and then for each HTTP/1 head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// How long connections are still accepted when the server was told to stop.
const LAME: Duration = Duration::from_millis(500);
/// Requests of one HTTP/2 connection at once.
const STREAMS_MAX: u32 = 1_024;
/// A connection that answers no ping for so long is dead.
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// Serves connections until `stop`, then lets what is in flight finish for at most `drain`.
pub(super) async fn listen<S>(
    listener: TcpListener,
    service: S,
    connections: usize,
    drain: Duration,
    stop: impl Future<Output = ()>,
) where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
{
    let builder = builder();
    let graceful = GracefulShutdown::new();
    let room = Arc::new(Semaphore::new(connections));
    let mut serving = JoinSet::new();
    let closing = CancellationToken::new();
    let mut stop = std::pin::pin!(async {
        stop.await;
        // Whoever asks in this time is told that the node drains.
        tokio::time::sleep(LAME.min(drain / 4)).await;
    });
    loop {
        let accepted = tokio::select! {
            () = &mut stop => break,
            // What has ended is taken note of, so that the set does not grow.
            Some(_) = serving.join_next(), if !serving.is_empty() => continue,
            accepted = accept(&listener, &room) => accepted,
        };
        let (stream, permit) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors, most likely: to try again at once would spin.
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection was gone before it was served");
            continue;
        }
        let service = TowerToHyperService::new(service.clone());
        let (builder, watcher, closing) = (builder.clone(), graceful.watcher(), closing.clone());
        serving.spawn(async move {
            // The time-outs of either version begin when it is known which one is spoken.
            let spoken = tokio::select! {
                () = closing.cancelled() => return,
                spoken = tokio::time::timeout(HEAD_TIMEOUT, first_bytes(&stream)) => spoken,
            };
            if !matches!(spoken, Ok(Ok(()))) {
                return;
            }
            let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
            if let Err(error) = watcher.watch(connection).await {
                tracing::debug!(%error, "a connection ended badly");
            }
            drop(permit);
        });
    }
    drop(listener);
    // A connection that has not asked for anything holds nobody up.
    closing.cancel();
    if tokio::time::timeout(drain, graceful.shutdown()).await.is_err() {
        tracing::warn!(left = serving.len(), "requests were still in flight when the drain time was over");
    }
    serving.shutdown().await;
}

/// Waits until as much has come as tells HTTP/2 from HTTP/1, or more. Takes nothing from the stream.
async fn first_bytes(stream: &TcpStream) -> std::io::Result<()> {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let mut seen = [0; PREFACE.len()];
    loop {
        let count = stream.peek(&mut seen).await?;
        if count == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        if seen[..count] != PREFACE[..count] || count == PREFACE.len() {
            return Ok(());
        }
        // What is there already makes the stream readable at once, so the rest is looked for now and then.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn accept(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> std::io::Result<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    // Beyond the bound connections wait in the kernel's queue.
    let permit = Arc::clone(room).acquire_owned().await.map_err(std::io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    Ok((stream, permit))
}

fn builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEADER_BYTES)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT);
    builder
}
