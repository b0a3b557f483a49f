//! One body for both wires, so that neither is boxed a second time on its way out.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

/// The body of an answer.
#[derive(Debug)]
pub(super) enum Body {
    Grpc(tonic::body::Body),
    Http(axum::body::Body),
}

/// Why a body could not be sent on.
pub(super) type BodyError = Box<dyn std::error::Error + Send + Sync>;

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Self::Grpc(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            Self::Http(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Grpc(body) => body.is_end_stream(),
            Self::Http(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Grpc(body) => body.size_hint(),
            Self::Http(body) => body.size_hint(),
        }
    }
}
