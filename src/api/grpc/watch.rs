//! `cardfence.v1.Watch`: where the view stands, and streams of what happens.
//!
//! The service dispatches its two methods itself: what `tonic` generates would encode each event once for each
//! subscriber, and keep sixteen KiB of buffers for one that is idle. Here an event comes encoded and is put into the
//! stream as it is.

use bytes::{Buf as _, BufMut as _, Bytes};
use futures::{Stream, stream};
use prost::Message;
use tonic::body::Body;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Request, Response, Status, Streaming};
use tower::service_fn;

use super::serve::reworded;
use super::status::answer;
use super::{call_of, convert};
use crate::proto::{MESSAGE_MAX, v1 as pb};
use crate::registry::{Event, Refusal, Registry, Subscription};

/// The service.
#[derive(Debug, Clone)]
pub(super) struct Service {
    registry: Registry,
}

impl Service {
    pub(super) const fn new(registry: Registry) -> Self {
        Self { registry }
    }

    /// Answers the method `name`, one of the two.
    pub(super) async fn answer<B>(self, name: &str, request: http::Request<B>) -> http::Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<tonic::codegen::StdError> + Send + 'static,
    {
        if name == "Watch" {
            let service = service_fn(move |request| self.clone().watch(request));
            let mut grpc = tonic::server::Grpc::new(Events).max_decoding_message_size(MESSAGE_MAX);
            return grpc.streaming(service, request).await;
        }
        let codec = tonic_prost::ProstCodec::<pb::WatermarkResponse, pb::WatermarkRequest>::default();
        let service = service_fn(move |request| self.clone().watermark(request));
        let mut grpc = tonic::server::Grpc::new(codec).max_decoding_message_size(MESSAGE_MAX);
        grpc.unary(service, request).await
    }

    async fn watermark(
        self,
        request: Request<pb::WatermarkRequest>,
    ) -> Result<Response<pb::WatermarkResponse>, Status> {
        let call = call_of(&self.registry, &request);
        let request = request.into_inner();
        let read = convert::read(request.max_staleness, request.at_least.as_deref(), request.wait_ms)?;
        answer(convert::watermark(self.registry.watermark_within(&call, &read).await?))
    }

    async fn watch(
        self,
        request: Request<Streaming<pb::WatchRequest>>,
    ) -> Result<Response<impl Stream<Item = Result<Bytes, Status>>>, Status> {
        let call = call_of(&self.registry, &request);
        let mut said = request.into_inner();
        let start = match said.message().await?.and_then(|message| message.request) {
            Some(pb::watch_request::Request::Start(start)) => start,
            _ => return Err(Refusal::invalid("the first message of a stream must be its `start`").into()),
        };
        let events = self.registry.watch(&call, convert::watch(start)?).await?;
        let registry = self.registry;
        let told = Told { registry, events, said: Some(said), ending: None };
        Ok(Response::new(stream::unfold(told, |mut told| async move {
            let next = told.next().await?;
            Some((next, told))
        })))
    }
}

/// One stream: its events, and what its subscriber says meanwhile.
struct Told {
    registry: Registry,
    events: Subscription,
    /// `None`: the subscriber has nothing more to say, or the stream is over.
    said: Option<Streaming<pb::WatchRequest>>,
    /// The status that the stream ends with, once its last event is out.
    ending: Option<Status>,
}

impl Told {
    async fn next(&mut self) -> Option<Result<Bytes, Status>> {
        if let Some(status) = self.ending.take() {
            return Some(Err(status));
        }
        loop {
            tokio::select! {
                biased;
                said = heard(&mut self.said) => if let Err(status) = self.hear(said) {
                    self.ended();
                    return Some(Err(status));
                },
                event = self.events.next() => {
                    let event = event?;
                    if let Event::End { reason } = event {
                        self.ended();
                        self.ending = Some(Refusal::of_end(reason).into());
                    }
                    return Some(Ok(convert::event(&event)));
                }
            }
        }
    }

    /// The next message, or that there are no more.
    fn hear(&mut self, said: Result<Option<pb::WatchRequest>, Status>) -> Result<(), Status> {
        let Some(message) = said.map_err(|status| reworded(&status).unwrap_or(status))? else {
            self.said = None;
            return Ok(());
        };
        match message.request {
            Some(pb::watch_request::Request::Confirm(confirm)) => {
                let receipt = self.registry.call(None).arrival;
                // A stream that has ended says so next.
                match self.events.confirm(&confirm.nonce, receipt) {
                    Err(refusal) if refusal.reason() != crate::terms::Reason::StreamNotHere => {
                        Err(refusal.into())
                    }
                    _ => Ok(()),
                }
            }
            _ => Err(Refusal::invalid("only `confirm` is allowed after `start`").into()),
        }
    }

    fn ended(&mut self) {
        self.said = None;
    }
}

/// The next message; never comes when there are no more.
async fn heard(said: &mut Option<Streaming<pb::WatchRequest>>) -> Result<Option<pb::WatchRequest>, Status> {
    match said {
        Some(said) => said.message().await,
        None => std::future::pending().await,
    }
}

/// Bytes that a stream keeps for what it sends and for what it reads; they grow when they are needed.
const BUFFER: usize = 512;
/// Bytes of events after which they are handed on.
const YIELD: usize = 32 * 1024;

/// Requests are read as messages; events are messages already.
#[derive(Debug, Clone, Copy)]
struct Events;

impl Codec for Events {
    type Encode = Bytes;
    type Decode = pb::WatchRequest;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Events {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, event: Bytes, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put(event);
        Ok(())
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFER, YIELD)
    }
}

impl Decoder for Events {
    type Item = pb::WatchRequest;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<pb::WatchRequest>, Status> {
        let whole = from.copy_to_bytes(from.remaining());
        // As tonic says it of other methods; it is said in our words later.
        pb::WatchRequest::decode(whole).map(Some).map_err(|error| Status::internal(error.to_string()))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFER, YIELD)
    }
}
