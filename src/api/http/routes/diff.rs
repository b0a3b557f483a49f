//! `GET /v1/agents/{ns}/{name}/diff`: what changed between two revisions.

use axum::response::Response;
use http::StatusCode;

use super::super::parameter as p;
use super::super::route::{Answering, Ask, Route, Sent, Shape, Verb, gives};
use super::super::{Http, answer, headers};
use crate::registry::Refusal;
use crate::wire;

pub(super) const ROUTES: &[Route] = &[Route {
    verb: Verb::Get,
    path: "/v1/agents/{ns}/{name}/diff",
    operation: "diff_revisions",
    about: "What changed between two revisions.",
    parameters: &[p::DIFF, p::READ],
    headers: &[p::READ_HEADERS],
    body: Sent::Nothing,
    answers: &[gives(200, Shape::Diff, "The change, and a unified diff for people")],
    run: |http, ask| -> Answering { Box::pin(diff(http, ask)) },
}];

async fn diff(http: Http, ask: Ask) -> Result<Response, Refusal> {
    let call = http.registry.call(None);
    let agent = ask.agent()?;
    let number =
        |name| ask.params.count(name)?.map(|number| Refusal::unless_revision(name, number)).transpose();
    let (from, to) = (number(p::FROM)?, number(p::TO)?);
    let diff = http.registry.diff(&call, &agent, from, to, &ask.read()?).await?;
    let mut response = answer::json(StatusCode::OK, &wire::Diff::from(&diff))?;
    headers::freshness(response.headers_mut(), &diff.freshness);
    Ok(response)
}
