//! The card alone, where any A2A client looks for it: the agent's address here can be its base URL.
//!
//! The bytes are those that were registered, with no coding. Without any fence a cache may keep the answer and
//! ask each time; a fenced answer is for its caller alone.

use axum::response::Response;
use http::StatusCode;

use super::super::conditional::Known;
use super::super::parameter as p;
use super::super::route::{Answer, Answering, Ask, Route, Sent, Shape, Verb, gives};
use super::super::{Http, answer, fence, headers};
use super::agents::tell;
use crate::registry::{Refusal, Resolve};

const ANSWERS: &[Answer] = &[
    gives(200, Shape::Card, "The agent passed the fence"),
    gives(304, Shape::Nothing, "It passed, and the caller holds its card"),
];

const fn route(path: &'static str, operation: &'static str, about: &'static str) -> Route {
    Route {
        verb: Verb::Get,
        path,
        operation,
        about,
        parameters: &[p::READ, p::CONDITIONS],
        headers: &[p::READ_HEADERS, p::KNOWN_HEADERS],
        body: Sent::Nothing,
        answers: ANSWERS,
        run: |http, ask| -> Answering { Box::pin(card(http, ask)) },
    }
}

pub(super) const ROUTES: &[Route] = &[
    route(
        "/agents/{ns}/{name}/.well-known/agent-card.json",
        "agent_card",
        "The card's own bytes, under the same fences.",
    ),
    route(
        "/agents/{ns}/{name}/.well-known/agent.json",
        "agent_card_legacy",
        "The card's own bytes, where older clients look for them.",
    ),
];

async fn card(http: Http, ask: Ask) -> Result<Response, Refusal> {
    let call = http.registry.call(None);
    let agent = ask.agent()?;
    let known = Known::of(ask.params.text(p::KNOWN), &ask.headers)?;
    let demanded = fence::demanded(&ask.params, &ask.headers)?;
    let request = Resolve { agent, fence: demanded.fence, known: known.digests(), wait: demanded.wait };
    let resolved = http.registry.resolve(&call, &request).await?;
    let mut response = if resolved.not_modified || known == Known::Anything {
        answer::not_modified()
    } else {
        answer::of(StatusCode::OK, answer::JSON, resolved.card.bytes().clone())
    };
    tell(&mut response, &resolved);
    let all = response.headers_mut();
    headers::strong_tag(all, &resolved.card.raw_digest());
    if let Some(staleness) = resolved.freshness.staleness
        && !demanded.is_fenced
    {
        headers::cacheable(all, staleness);
    }
    Ok(response)
}
