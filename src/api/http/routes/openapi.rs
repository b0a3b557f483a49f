//! `GET /openapi.json`.

use http::StatusCode;

use super::super::route::{Answering, Route, Sent, Shape, Verb, gives};
use super::super::{answer, openapi};

pub(super) const ROUTES: &[Route] = &[Route {
    verb: Verb::Get,
    path: "/openapi.json",
    operation: "openapi",
    about: "This description.",
    parameters: &[],
    headers: &[],
    body: Sent::Nothing,
    answers: &[gives(200, Shape::OpenApi, "OpenAPI 3.1")],
    run: |_, _| -> Answering {
        Box::pin(async { Ok(answer::of(StatusCode::OK, answer::JSON, openapi::document())) })
    },
}];
