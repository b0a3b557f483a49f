//! `POST /v1/resolve`: many agents at one position, each under its own fence.

use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use super::super::cache_control::Directives;
use super::super::problem::{self, invalid};
use super::super::route::{Answering, Ask, Route, Sent, Shape, Verb, gives};
use super::super::{Http, answer, body, headers, parameter as p};
use crate::fence::Fence;
use crate::registry::{Batch, BatchItem, Read, Refusal};
use crate::terms::AgentName;
use crate::wire::{self, Spliced};

/// Bytes of a batch as it is asked for.
const BODY_MAX: usize = 1024 * 1024;
/// The largest problem of one item, in bytes, besides its card.
const PROBLEM_MAX: usize = 64 * 1024;
/// Bytes around the parts of an item, or of the answer.
const FRAME: usize = 64;
/// Characters of what is wrong with a body.
const DETAIL_MAX: usize = 300;

pub(super) const ROUTES: &[Route] = &[Route {
    verb: Verb::Post,
    path: "/v1/resolve",
    operation: "batch_resolve",
    about: "Resolves many agents at one position; each passes its fence or is refused by itself.",
    parameters: &[],
    headers: &[p::READ_HEADERS],
    body: Sent::Batch,
    answers: &[gives(
        200,
        Shape::Batch,
        "Past 3 MiB items come without their card, problems are cut, and both say so",
    )],
    run: |http, ask| -> Answering { Box::pin(resolve(http, ask)) },
}];

async fn resolve(http: Http, ask: Ask) -> Result<Response, Refusal> {
    body::check_type(&ask.headers)?;
    let bytes = body::read(&ask.headers, ask.body, BODY_MAX).await?;
    let batch = batch(&bytes, &ask.headers)?;
    let call = http.registry.call(None);
    let (items, freshness) = http.registry.resolve_batch(&call, &batch).await?;
    let text = written(&items, &(&freshness).into())?;
    let mut response = answer::of(StatusCode::OK, answer::JSON, text);
    headers::freshness(response.headers_mut(), &freshness);
    Ok(response)
}

fn batch(bytes: &Bytes, headers: &HeaderMap) -> Result<Batch, Refusal> {
    let asked = wire::BatchRequest::read(bytes).map_err(|error| {
        let why: String = error.to_string().chars().take(DETAIL_MAX).collect();
        invalid(format!("the body is not a batch: {}", why.escape_debug()))
    })?;
    let directives = Directives::of(headers)?;
    let max_staleness = asked.max_staleness.map(|t| wire::max_staleness(p::MAX_STALENESS, &t)).transpose();
    let at_least = asked.at_least.map(|text| wire::position(p::AT_LEAST, &text)).transpose();
    let wait = asked.wait.map(|text| wire::duration(p::WAIT, &text)).transpose();
    let read = Read {
        max_staleness: max_staleness.map_err(invalid)?.or(directives.max_staleness()),
        at_least: at_least.map_err(invalid)?,
        wait: wait.map_err(invalid)?.or(directives.wait()),
    };
    let wanted = asked.agents.into_iter().enumerate().map(|(n, wanted)| {
        let agent: AgentName =
            wanted.agent.parse().map_err(|error| invalid(format!("agents[{n}].agent: {error}")))?;
        let fence: Fence =
            wanted.fence.try_into().map_err(|error| invalid(format!("agents[{n}].fence.{error}")))?;
        Ok((agent, fence))
    });
    Ok(Batch { agents: wanted.collect::<Result<_, Refusal>>()?, read })
}

/// The answer: whole items first, then as many of their cards as there is room for.
///
/// # Errors
/// `payload_too_large` when the items do not fit even without their cards.
fn written(items: &[BatchItem], freshness: &wire::Freshness) -> Result<Vec<u8>, Refusal> {
    let unwritten = |error: serde_json::Error| {
        tracing::error!(%error, "an answer could not be written");
        Refusal::internal()
    };
    let tail = serde_json::to_vec(freshness).map_err(unwritten)?;
    let mut room = answer::ANSWER_MAX.saturating_sub(tail.len() + FRAME);
    let problem_room = (answer::ANSWER_MAX / 2 / items.len().max(1)).min(PROBLEM_MAX);
    let mut bare = Vec::with_capacity(items.len());
    for item in items {
        let (member, value, card) = match &item.outcome {
            Ok(resolved) => {
                let value = Spliced::begin(&wire::Envelope::from(resolved)).map_err(unwritten)?;
                ("resolved", value, Some(&resolved.card))
            }
            Err(refusal) => {
                let value = Spliced::begin(&problem::fitted(refusal, problem_room)).map_err(unwritten)?;
                ("problem", value, refusal.parts().card.as_ref())
            }
        };
        let head = wire::BatchItem { agent: item.agent.to_string(), resolved: None, problem: None };
        let head = Spliced::begin(&head).map_err(unwritten)?;
        room = room.checked_sub(head.len() + value.len() + FRAME).ok_or_else(answer::too_large)?;
        bare.push((head, member, value, card));
    }
    let mut text = b"{\"items\":[".to_vec();
    for (n, (head, member, value, card)) in bare.into_iter().enumerate() {
        if n > 0 {
            text.push(b',');
        }
        let left = card.and_then(|card| room.checked_sub(card.bytes().len()));
        let value = match (card, left) {
            (Some(card), Some(left)) => {
                room = left;
                value.member("card", card.bytes())
            }
            (Some(_), None) => value.member("card_omitted", b"true"),
            (None, _) => value,
        };
        text.extend_from_slice(&head.member(member, &value.end()).end());
    }
    text.extend_from_slice(b"],\"freshness\":");
    text.extend_from_slice(&tail);
    text.push(b'}');
    Ok(text)
}
