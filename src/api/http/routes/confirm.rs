//! `POST /v1/agents/{ns}/{name}/confirm` and `POST /v1/confirm`: heartbeats, of one agent and of many.

use axum::response::Response;
use bytes::Bytes;
use http::StatusCode;

use super::super::problem::{self, invalid};
use super::super::route::{Answering, Ask, Route, Sent, Shape, Verb, gives};
use super::super::{Http, answer, body, headers};
use crate::registry::{ConfirmItem, ConfirmedItem, Refusal};
use crate::terms::{AgentName, Digest};
use crate::wire;

/// Bytes of a heartbeat, and of a batch of them.
const ONE_MAX: usize = 4 * 1024;
const BATCH_MAX: usize = 1024 * 1024;
/// The largest problem of one item, in bytes.
const PROBLEM_MAX: usize = 2 * 1024;
/// Characters of what is wrong with a body.
const DETAIL_MAX: usize = 300;

pub(super) const ROUTES: &[Route] = &[
    Route {
        verb: Verb::Post,
        path: "/v1/agents/{ns}/{name}/confirm",
        operation: "confirm_origin",
        about: "Confirms that the agent still serves its current card: a heartbeat. Makes no revision.",
        parameters: &[],
        headers: &[],
        body: Sent::Confirm,
        answers: &[gives(
            200,
            Shape::Confirmation,
            "It is confirmed, and its lease renewed where it has one",
        )],
        run: |http, ask| -> Answering { Box::pin(confirm(http, ask)) },
    },
    Route {
        verb: Verb::Post,
        path: "/v1/confirm",
        operation: "confirm_origins",
        about: "Confirms many agents; each is confirmed or refused by itself.",
        parameters: &[],
        headers: &[],
        body: Sent::ConfirmBatch,
        answers: &[gives(200, Shape::Confirmed, "What each came to")],
        run: |http, ask| -> Answering { Box::pin(confirm_many(http, ask)) },
    },
];

async fn confirm(http: Http, ask: Ask) -> Result<Response, Refusal> {
    let agent = ask.agent()?;
    let bytes = read(&ask.headers, ask.body, ONE_MAX).await?;
    let asked = wire::Confirm::read(&bytes).map_err(|error| malformed("a heartbeat", &error))?;
    let content_digest = digest("content_digest", &asked.content_digest)?;
    let call = http.registry.call(None);
    let confirmed = http.registry.confirm_origin(&call, ConfirmItem { agent, content_digest }).await?;
    let mut response = answer::json(StatusCode::OK, &wire::Confirmation::from(&confirmed))?;
    headers::freshness(response.headers_mut(), &confirmed.freshness);
    headers::revision(response.headers_mut(), confirmed.revision, None);
    Ok(response)
}

async fn confirm_many(http: Http, ask: Ask) -> Result<Response, Refusal> {
    let bytes = read(&ask.headers, ask.body, BATCH_MAX).await?;
    let asked = wire::ConfirmBatch::read(&bytes).map_err(|error| malformed("a batch", &error))?;
    let items = asked.items.into_iter().enumerate().map(|(n, item)| {
        let agent: AgentName =
            item.agent.parse().map_err(|error| invalid(format!("items[{n}].agent: {error}")))?;
        let content_digest = digest(&format!("items[{n}].content_digest"), &item.content_digest)?;
        Ok(ConfirmItem { agent, content_digest })
    });
    let items = items.collect::<Result<_, Refusal>>()?;
    let call = http.registry.call(None);
    let (items, freshness) = http.registry.confirm_origins(&call, items).await?;
    let told =
        wire::ConfirmAnswer { items: items.into_iter().map(told).collect(), freshness: (&freshness).into() };
    let mut response = answer::json(StatusCode::OK, &told)?;
    headers::freshness(response.headers_mut(), &freshness);
    Ok(response)
}

fn told(item: ConfirmedItem) -> wire::ConfirmAnswered {
    let agent = item.agent.to_string();
    match item.outcome {
        Ok(confirmed) => wire::ConfirmAnswered { agent, confirmed: Some((&confirmed).into()), problem: None },
        Err(refusal) => {
            let problem = Some(problem::fitted(&refusal, PROBLEM_MAX));
            wire::ConfirmAnswered { agent, confirmed: None, problem }
        }
    }
}

async fn read(headers: &http::HeaderMap, body: axum::body::Body, limit: usize) -> Result<Bytes, Refusal> {
    body::check_type(headers)?;
    body::read(headers, body, limit).await
}

fn digest(member: &str, text: &str) -> Result<Digest, Refusal> {
    text.parse().map_err(|error| invalid(format!("{member}: {error}")))
}

fn malformed(what: &str, error: &serde_json::Error) -> Refusal {
    let why: String = error.to_string().chars().take(DETAIL_MAX).collect();
    invalid(format!("the body is not {what}: {}", why.escape_debug()))
}
