//! What every request goes through, on both wires, as tower layers: observed, admitted, bounded in time.
//!
//! They are stacked in [`super::serve`], the one visible place. Each refuses in the words of the wire that the
//! request came by ([`Wire::refuse`]).

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::{Request, Response};
use hyper::body::Incoming;
use tokio::sync::Semaphore;
use tower::{Layer, Service};
use tracing::Instrument as _;

use super::body::Body;
use super::wires::Wire;
use crate::registry::{Allowance, Refusal};
use crate::telemetry::metrics::RequestLabels;
use crate::telemetry::{Metrics, tracing::adopt};
use crate::terms::Reason;

type Answer = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

/// Counts requests, times them, and puts each in a span that adopts the caller's trace.
#[derive(Debug, Clone)]
pub(super) struct Observe(pub(super) Metrics);

/// Lets in so many requests at once; one more is refused as overloaded, at once.
#[derive(Debug, Clone)]
pub(super) struct Admit(pub(super) Arc<Semaphore>);

/// Bounds the time until an answer begins; a request that has to may take more ([`Allowance`]).
#[derive(Debug, Clone)]
pub(super) struct Bound(pub(super) Duration);

/// A layer around a service.
#[derive(Debug, Clone)]
pub(super) struct Layered<L, S> {
    layer: L,
    inner: S,
}

macro_rules! layer {
    ($($name:ident),*) => {$(
        impl<S> Layer<S> for $name {
            type Service = Layered<Self, S>;

            fn layer(&self, inner: S) -> Self::Service {
                Layered { layer: self.clone(), inner }
            }
        }
    )*};
}

layer!(Observe, Admit, Bound);

impl<S> Service<Request<Incoming>> for Layered<Observe, S>
where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Incoming>) -> Answer {
        let started = Instant::now();
        let wire = Wire::of(request.headers());
        let method = wire.method(&request);
        let span = tracing::debug_span!("request", wire = wire.name(), method, code = tracing::field::Empty);
        adopt(&span, request.headers());
        let metrics = self.layer.0.clone();
        let answer = self.inner.call(request);
        let counted = async move {
            let response = answer.await?;
            let code = wire.code(&response);
            tracing::Span::current().record("code", code);
            metrics.requests.get_or_create(&RequestLabels { wire: wire.name(), method, code }).inc();
            metrics.request_seconds.observe(started.elapsed().as_secs_f64());
            Ok(response)
        };
        Box::pin(counted.instrument(span))
    }
}

impl<S> Service<Request<Incoming>> for Layered<Admit, S>
where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Incoming>) -> Answer {
        // An orchestrator that asks whether a busy node lives must be answered.
        let wire = Wire::of(request.headers());
        if wire.is_probe(&request) {
            return Box::pin(self.inner.call(request));
        }
        let Ok(permit) = Arc::clone(&self.layer.0).try_acquire_owned() else {
            let refusal = Refusal::new(Reason::Overloaded, "too many requests are in flight at this node")
                .retry_after(Duration::from_secs(1));
            let response = wire.refuse(refusal);
            return Box::pin(async move { Ok(response) });
        };
        let answer = self.inner.call(request);
        Box::pin(async move {
            let response = answer.await;
            drop(permit);
            response
        })
    }
}

impl<S> Service<Request<Incoming>> for Layered<Bound, S>
where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Incoming>) -> Answer {
        let limit = self.layer.0;
        let until = tokio::time::Instant::now() + limit;
        let wire = Wire::of(request.headers());
        let writes = wire.is_write(&request);
        let allowance = Allowance::default();
        request.extensions_mut().insert(allowance.clone());
        let answer = self.inner.call(request);
        Box::pin(async move {
            if let Some(response) = allowance.within(until, answer).await {
                return response;
            }
            let detail = format!("no answer within {} ms", limit.as_millis());
            Ok(wire.refuse(if writes {
                // Nothing invites to send it again: it may be done, and its request id may be unknown to the caller.
                Refusal::new(
                    Reason::OutcomeUnknown,
                    format!("{detail}; the write may or may not have been done"),
                )
            } else {
                Refusal::new(Reason::DeadlineExceeded, detail).retry_after(Duration::from_secs(1))
            }))
        })
    }
}
