//! Opens watch streams of a registry over gRPC.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt, future};
use tokio::sync::mpsc;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use super::answer::Error;
use super::cache::Selection;
use super::convert;
use super::follow::{Source, Subscription};
use super::resolver::Resolver;
use super::session::Event;
use crate::proto::MESSAGE_MAX;
use crate::proto::v1::watch_client::WatchClient;
use crate::proto::v1::{WatchEvent, WatchRequest};
use crate::terms::Position;

/// Nonces on their way; a session has one under way at most.
const CONFIRMS: usize = 4;

#[derive(Debug)]
pub(super) struct Registry {
    client: WatchClient<Channel>,
}

/// Over the connection of a resolver.
pub(super) fn over(resolver: &Resolver) -> Registry {
    Registry { client: WatchClient::new(resolver.channel()).max_decoding_message_size(MESSAGE_MAX) }
}

impl Source for Registry {
    fn open(
        &self,
        selection: &Selection,
        from: Option<Position>,
    ) -> BoxFuture<'static, Result<Subscription, Error>> {
        let (confirms, nonces) = mpsc::channel(CONFIRMS);
        let requests = Said { start: Some(convert::watch_start(selection, from)), nonces };
        let mut client = self.client.clone();
        let open = async move {
            let answer = client.watch(requests).await;
            let events = heard(answer.map_err(|status| convert::failed(&status))?.into_inner());
            Ok(Subscription { confirms, events })
        };
        open.boxed()
    }
}

/// What this end of the stream says: what is watched, then the confirmations.
#[derive(Debug)]
struct Said {
    start: Option<WatchRequest>,
    nonces: mpsc::Receiver<String>,
}

impl Stream for Said {
    type Item = WatchRequest;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<WatchRequest>> {
        if let Some(start) = self.start.take() {
            return Poll::Ready(Some(start));
        }
        self.nonces.poll_recv(context).map(|nonce| nonce.map(convert::watch_confirm))
    }
}

/// What the other end says, as far as it is known here.
fn heard(events: Streaming<WatchEvent>) -> BoxStream<'static, Result<Event, Error>> {
    let read = |event: Result<WatchEvent, Status>| {
        event.map_err(|status| convert::failed(&status)).and_then(convert::watch_event).transpose()
    };
    events.filter_map(move |event| future::ready(read(event))).boxed()
}
