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
use crate::wire::{self, splice};

/// Bytes of a batch as it is asked for.
const BODY_MAX: usize = 1024 * 1024;
/// Bytes of an answer beyond which items come without their card.
const CARDS_MAX: usize = 3 * 1024 * 1024;
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
    answers: &[gives(200, Shape::Batch, "Past 3 MiB items come without their card, and say so")],
    run: |http, ask| -> Answering { Box::pin(resolve(http, ask)) },
}];

async fn resolve(http: Http, ask: Ask) -> Result<Response, Refusal> {
    body::check_type(&ask.headers)?;
    let bytes = body::read(&ask.headers, ask.body, BODY_MAX).await?;
    let batch = batch(&bytes, &ask.headers)?;
    let call = http.registry.call(None);
    let (items, freshness) = http.registry.resolve_batch(&call, &batch).await?;
    let mut response = answer::written(StatusCode::OK, written(&items, &(&freshness).into()))?;
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

/// The answer, with the cards spliced in until it is too large for more.
fn written(items: &[BatchItem], freshness: &wire::Freshness) -> serde_json::Result<Vec<u8>> {
    let mut text = b"{\"items\":[".to_vec();
    for (n, item) in items.iter().enumerate() {
        if n > 0 {
            text.push(b',');
        }
        let head = wire::BatchItem { agent: item.agent.to_string(), resolved: None, problem: None };
        let has_room = |card: &[u8]| text.len() + card.len() <= CARDS_MAX;
        let (member, value) = match &item.outcome {
            Ok(resolved) => {
                let mut envelope = wire::Envelope::from(resolved);
                let card = Some(resolved.card.bytes().as_ref()).filter(|card| has_room(card));
                envelope.card_omitted = card.is_none();
                ("resolved", splice(&envelope, "card", card)?)
            }
            Err(refusal) => {
                let card = refusal.parts().card.as_ref();
                ("problem", problem::body(refusal, card.is_some_and(|card| has_room(card.bytes()))))
            }
        };
        text.extend_from_slice(&splice(&head, member, Some(&value))?);
    }
    text.extend_from_slice(b"],\"freshness\":");
    text.extend_from_slice(&serde_json::to_vec(freshness)?);
    text.push(b'}');
    Ok(text)
}
