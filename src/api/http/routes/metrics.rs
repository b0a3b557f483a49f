//! `GET /metrics`.

use http::StatusCode;

use super::super::answer;
use super::super::route::{Answering, Route, Sent, Shape, Verb, gives};

pub(super) const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(super) const ROUTES: &[Route] = &[Route {
    verb: Verb::Get,
    path: "/metrics",
    operation: "metrics",
    about: "Metrics in the OpenMetrics text format.",
    parameters: &[],
    headers: &[],
    body: Sent::Nothing,
    answers: &[gives(200, Shape::Metrics, "The metrics of this node")],
    run: |http, _| -> Answering {
        Box::pin(async move {
            let text = http.registry.metrics().encode(http.registry.staleness());
            Ok(answer::of(StatusCode::OK, OPENMETRICS, text))
        })
    },
}];
