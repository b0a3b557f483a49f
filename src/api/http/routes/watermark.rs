//! `GET /v1/watermark`: where this node's view stands.

use axum::response::Response;
use http::StatusCode;

use super::super::parameter as p;
use super::super::route::{Answering, Ask, Route, Sent, Shape, Verb, gives};
use super::super::{Http, answer, headers};
use crate::registry::Refusal;
use crate::wire;

pub(super) const ROUTES: &[Route] = &[Route {
    verb: Verb::Get,
    path: "/v1/watermark",
    operation: "watermark",
    about: "Where this node's view stands; confirmed first where the request demands that. With `stream` and `nonce` a proof is asked for on that stream, and comes there.",
    parameters: &[p::READ, p::PROOF],
    headers: &[p::READ_HEADERS],
    body: Sent::Nothing,
    answers: &[gives(200, Shape::Watermark, "The watermark")],
    run: |http, ask| -> Answering { Box::pin(watermark(http, ask)) },
}];

async fn watermark(http: Http, ask: Ask) -> Result<Response, Refusal> {
    let call = http.registry.call(None);
    match (ask.params.text(p::STREAM), ask.params.text(p::NONCE)) {
        (None, None) => {}
        (Some(stream), Some(nonce)) => http.registry.confirm_stream(&call, stream, nonce)?,
        _ => return Err(Refusal::invalid("stream and nonce are only allowed together")),
    }
    let watermark = http.registry.watermark_within(&call, &ask.read()?).await?;
    let mut response = answer::json(StatusCode::OK, &wire::Watermark::from(&watermark))?;
    headers::standing(response.headers_mut(), &watermark.position, watermark.staleness);
    Ok(response)
}
