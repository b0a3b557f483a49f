//! `/livez` and `/readyz`.
//!
//! Ready is who has proven its view once and is not shutting down. A store that is lost later does not make a
//! node unready: its answers say how old they are, and its callers decide.

use axum::response::Response;
use http::StatusCode;

use super::super::route::{Answering, Route, Sent, Shape, Verb, gives};
use super::super::{Http, answer};
use crate::registry::Refusal;
use crate::terms::Reason;
use crate::wire::Health;

pub(super) const ROUTES: &[Route] = &[
    Route {
        verb: Verb::Get,
        path: "/livez",
        operation: "livez",
        about: "Whether the process answers.",
        parameters: &[],
        headers: &[],
        body: Sent::Nothing,
        answers: &[gives(200, Shape::Health, "It does")],
        run: |_, _| -> Answering { Box::pin(async { healthy("live") }) },
    },
    Route {
        verb: Verb::Get,
        path: "/readyz",
        operation: "readyz",
        about: "Whether requests should be sent here.",
        parameters: &[],
        headers: &[],
        body: Sent::Nothing,
        answers: &[gives(200, Shape::Health, "They should")],
        run: |http, _| -> Answering { Box::pin(async move { ready(&http) }) },
    },
];

fn healthy(status: &str) -> Result<Response, Refusal> {
    answer::json(StatusCode::OK, &Health { status: status.to_owned() })
}

fn ready(http: &Http) -> Result<Response, Refusal> {
    if http.is_draining() {
        return Err(Refusal::new(Reason::Draining, "this node is shutting down"));
    }
    if !http.registry.is_ready() {
        return Err(Refusal::new(Reason::FreshnessUnverifiable, "this node has not proven its view yet"));
    }
    healthy("ready")
}
