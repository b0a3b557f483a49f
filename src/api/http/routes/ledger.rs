//! `GET /v1/ledger`: the entries, one a line, as they are hashed.

use axum::response::Response;
use http::StatusCode;

use super::super::parameter as p;
use super::super::route::{Answering, Ask, Route, Sent, Shape, Verb, gives};
use super::super::{Http, answer, headers};
use crate::registry::{Entry, Refusal};
use crate::wire::{self, splice};

pub(super) const NDJSON: &str = "application/x-ndjson";

pub(super) const ROUTES: &[Route] = &[Route {
    verb: Verb::Get,
    path: "/v1/ledger",
    operation: "read_ledger",
    about: "Entries of the ledger in order, up to the view's position; past 3 MiB fewer than asked for. An empty answer is the end.",
    parameters: &[p::LEDGER, p::READ],
    headers: &[p::READ_HEADERS],
    body: Sent::Nothing,
    answers: &[gives(200, Shape::Ledger, "One entry a line")],
    run: |http, ask| -> Answering { Box::pin(read(http, ask)) },
}];

async fn read(http: Http, ask: Ask) -> Result<Response, Refusal> {
    let call = http.registry.call(None);
    let from = ask.params.count(p::FROM)?.unwrap_or(1);
    let limit = ask.params.size(p::LIMIT)?;
    let (entries, freshness) = http.registry.ledger(&call, from, limit, &ask.read()?).await?;
    let lines = lines(&entries).map_err(|error| {
        tracing::error!(%error, "entries could not be written");
        Refusal::internal()
    })?;
    let mut response = answer::of(StatusCode::OK, NDJSON, lines);
    headers::freshness(response.headers_mut(), &freshness);
    Ok(response)
}

/// As many entries as an answer holds, and one at least, so that a reader gets on. A body is canonical JSON, which
/// has no line breaks, and goes in as the text that was hashed.
fn lines(entries: &[Entry]) -> serde_json::Result<Vec<u8>> {
    let mut text = Vec::new();
    for entry in entries {
        let line = splice(&wire::LedgerEntry::from(entry), "body", Some(entry.body.as_bytes()))?;
        if !text.is_empty() && text.len() + line.len() >= answer::ANSWER_MAX {
            break;
        }
        text.extend_from_slice(&line);
        text.push(b'\n');
    }
    Ok(text)
}
