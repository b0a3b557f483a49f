//! The two wires behind one port: a request goes to one of them by its content type.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll};

use axum::Router;
use http::{HeaderMap, Request, Response};
use hyper::body::Incoming;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tower::Service;

use super::body::Body;
use crate::api::{grpc, http as rest};
use crate::registry::{Refusal, Registry};

/// The wire that a request came by, which is the one to answer in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wire {
    Grpc,
    Http,
}

impl Wire {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        if grpc::is_grpc(headers) { Self::Grpc } else { Self::Http }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::Http => "http",
        }
    }

    /// The name of what is asked for: one of a closed set, so that callers cannot make up metrics.
    pub(super) fn method<B>(self, request: &Request<B>) -> &'static str {
        let path = request.uri().path();
        match self {
            Self::Grpc => grpc::method_name(path),
            Self::Http => rest::operation(request.method(), path).unwrap_or("unknown"),
        }
    }

    /// Whether it is asked how the node is, and nothing else.
    pub(super) fn is_probe<B>(self, request: &Request<B>) -> bool {
        let method = self.method(request);
        matches!(method, "livez" | "readyz" | "metrics") || method.starts_with("grpc.health.v1.Health/")
    }

    /// Whether something may be written.
    pub(super) fn is_write<B>(self, request: &Request<B>) -> bool {
        let method = self.method(request);
        let (_, name) = method.rsplit_once('/').unwrap_or(("", method));
        ["register", "retire", "rollback"].iter().any(|write| name.eq_ignore_ascii_case(write))
    }

    /// The gRPC status or the HTTP status of an answer.
    pub(super) fn code(self, response: &Response<Body>) -> u16 {
        match self {
            // A refusal has no body, so its status is a header; the status of an answer with a body comes after it.
            Self::Grpc => {
                let status = response.headers().get("grpc-status").and_then(|value| value.to_str().ok());
                status.and_then(|status| status.parse().ok()).unwrap_or(0)
            }
            Self::Http => response.status().as_u16(),
        }
    }

    pub(super) fn refuse(self, refusal: Refusal) -> Response<Body> {
        match self {
            Self::Grpc => Status::from(refusal).into_http().map(Body::Grpc),
            Self::Http => rest::problem_answer(&refusal).map(Body::Http),
        }
    }
}

/// Both wires of one node.
#[derive(Debug, Clone)]
pub(super) struct Wires {
    grpc: grpc::Wire,
    http: Router,
}

impl Wires {
    pub(super) fn new(registry: &Registry, draining: &Arc<AtomicBool>, drain: CancellationToken) -> Self {
        Self {
            grpc: grpc::Wire::new(registry.clone(), drain),
            http: rest::router(registry.clone(), Arc::clone(draining)),
        }
    }
}

impl Service<Request<Incoming>> for Wires {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        match Wire::of(request.headers()) {
            Wire::Grpc => {
                let answer = self.grpc.call(request);
                Box::pin(async move { Ok(answer.await?.map(Body::Grpc)) })
            }
            Wire::Http => {
                let answer = self.http.call(request.map(axum::body::Body::new));
                Box::pin(async move { Ok(answer.await?.map(Body::Http)) })
            }
        }
    }
}
