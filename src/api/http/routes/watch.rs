//! `GET /v1/watch`: what happens to a selection of agents, as server-sent events.

use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::super::parameter as p;
use super::super::problem::invalid;
use super::super::query::shown;
use super::super::route::{Answering, Ask, Route, Sent, Shape, Verb, gives};
use super::super::{Http, answer, headers, sse};
use crate::registry::{Refusal, Watch};
use crate::terms::{AgentName, Position};

const STREAM: HeaderName = HeaderName::from_static("cardfence-stream");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Told to proxies that would hold events back until they have many.
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

pub(super) const ROUTES: &[Route] = &[Route {
    verb: Verb::Get,
    path: "/v1/watch",
    operation: "watch",
    about: "What happens to a selection of agents, without a gap, in the order of the ledger: a snapshot or what follows the position that is resumed from, then every change. Without `agent` and `namespace`: everything.",
    parameters: &[p::WATCH],
    headers: &[p::WATCH_HEADERS],
    body: Sent::Nothing,
    answers: &[gives(
        200,
        Shape::Events,
        "Events: `id` is the position to resume from, `event` one of reset, upsert, moved, retired, synced, checkpoint and end, `data` one line of JSON (WatchReset, AgentEvent, WatchSynced, WatchCheckpoint, WatchEnd)",
    )],
    run: |http, ask| -> Answering { Box::pin(watch(http, ask)) },
}];

async fn watch(http: Http, ask: Ask) -> Result<Response, Refusal> {
    let call = http.registry.call(None);
    let subscription = http.registry.watch(&call, asked(&ask)?).await?;
    let id = subscription.id().to_owned();
    let mut response = answer::of(StatusCode::OK, sse::EVENT_STREAM, sse::body(subscription));
    headers::set(response.headers_mut(), STREAM, &id);
    response.headers_mut().insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
    Ok(response)
}

fn asked(ask: &Ask) -> Result<Watch, Refusal> {
    let params = &ask.params;
    let agents: Vec<AgentName> = params
        .texts(p::AGENT)
        .map(|text| text.parse().map_err(|error| Refusal::invalid(format!("agent: {error}"))))
        .collect::<Result<_, _>>()?;
    let namespaces: Vec<String> = params.texts(p::NAMESPACE).map(str::to_owned).collect();
    let class = match params.text(p::CLASS) {
        None => None,
        Some(text) => Some(text.parse().map_err(|_| {
            let detail = format!("class: `{}` is not allowed: breaking or additive are", shown(text));
            Refusal::invalid(detail)
        })?),
    };
    let without_cards = params.text(p::CARDS).is_some() && !params.flag(p::CARDS)?;
    Ok(Watch {
        all: agents.is_empty() && namespaces.is_empty(),
        agents,
        namespaces,
        class,
        without_cards,
        from: from(params.text(p::FROM), &ask.headers)?,
    })
}

/// Where to resume from: the parameter, or what a browser sends when it comes back by itself.
fn from(given: Option<&str>, headers: &HeaderMap) -> Result<Option<Position>, Refusal> {
    let given = given
        .map(|text| text.parse::<Position>().map_err(|error| invalid(format!("from: {error}"))))
        .transpose()?;
    let last = match headers.get(LAST_EVENT_ID).filter(|value| !value.is_empty()) {
        None => None,
        Some(value) => {
            let text = value.to_str().map_err(|_| Refusal::invalid("Last-Event-ID is not a position"))?;
            let read = text.parse::<Position>();
            Some(read.map_err(|error| Refusal::invalid(format!("Last-Event-ID: {error}")))?)
        }
    };
    match (given, last) {
        (Some(given), Some(last)) if given != last => {
            let detail = format!("from is {given} and Last-Event-ID is {last}: only one of them is allowed");
            Err(Refusal::invalid(detail))
        }
        (given, last) => Ok(given.or(last)),
    }
}
