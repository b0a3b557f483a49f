//! `GET /v1/replicas`: which nodes and edges there are, and how far each has come.

use axum::response::Response;
use http::StatusCode;

use super::super::parameter as p;
use super::super::route::{Answering, Ask, Route, Sent, Shape, Verb, gives};
use super::super::{Http, answer, fence, headers};
use crate::registry::Refusal;
use crate::wire;

pub(super) const ROUTES: &[Route] = &[Route {
    verb: Verb::Get,
    path: "/v1/replicas",
    operation: "list_replicas",
    about: "The nodes and edges that have reported how far they have come, by name.",
    parameters: &[p::REPLICAS, p::READ],
    headers: &[p::READ_HEADERS],
    body: Sent::Nothing,
    answers: &[gives(200, Shape::Replicas, "All of them, as each said last")],
    run: |http, ask| -> Answering { Box::pin(replicas(http, ask)) },
}];

async fn replicas(http: Http, ask: Ask) -> Result<Response, Refusal> {
    let call = http.registry.call(None);
    let within = fence::duration(&ask.params, p::WITHIN)?;
    let list = http.registry.replicas(&call, within, &ask.read()?).await?;
    let mut response = answer::json(StatusCode::OK, &wire::replica_list(&list))?;
    headers::freshness(response.headers_mut(), &list.freshness);
    Ok(response)
}
