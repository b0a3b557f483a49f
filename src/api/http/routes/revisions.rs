//! `/v1/agents/{ns}/{name}/revisions`: an agent's history.

use axum::response::Response;
use http::StatusCode;

use super::super::parameter as p;
use super::super::route::{Answering, Ask, Route, Sent, Shape, Verb, gives};
use super::super::{Http, answer, headers};
use crate::registry::{Refusal, Start};
use crate::wire::{self, splice};

pub(super) const ROUTES: &[Route] = &[
    Route {
        verb: Verb::Get,
        path: "/v1/agents/{ns}/{name}/revisions",
        operation: "list_revisions",
        about: "An agent's revisions, newest first, tombstones included.",
        parameters: &[p::PAGED, p::READ],
        headers: &[p::READ_HEADERS],
        body: Sent::Nothing,
        answers: &[gives(200, Shape::Revisions, "One page")],
        run: |http, ask| -> Answering { Box::pin(list(http, ask)) },
    },
    Route {
        verb: Verb::Get,
        path: "/v1/agents/{ns}/{name}/revisions/{n}",
        operation: "get_revision",
        about: "One revision of an agent, with its card where it has one.",
        parameters: &[p::READ],
        headers: &[p::READ_HEADERS],
        body: Sent::Nothing,
        answers: &[gives(200, Shape::Revision, "The revision")],
        run: |http, ask| -> Answering { Box::pin(get(http, ask)) },
    },
];

async fn list(http: Http, ask: Ask) -> Result<Response, Refusal> {
    let call = http.registry.call(None);
    let agent = ask.agent()?;
    let mut size = ask.params.size(p::PAGE_SIZE)?;
    let start = Start::by_token(ask.params.text(p::PAGE_TOKEN));
    let read = ask.read()?;
    let (page, items) = loop {
        let page = http.registry.revisions(&call, &agent, size, start, &read).await?;
        match answer::items(wire::revision_items(&page))? {
            Ok(items) => break (page, items),
            Err(fits) => size = Some(fits),
        }
    };
    let list = wire::List {
        items,
        next_page_token: page.next_page_token,
        complete: page.complete,
        freshness: (&page.freshness).into(),
    };
    let mut response = answer::json(StatusCode::OK, &list)?;
    headers::freshness(response.headers_mut(), &page.freshness);
    Ok(response)
}

async fn get(http: Http, ask: Ask) -> Result<Response, Refusal> {
    let call = http.registry.call(None);
    let agent = ask.agent()?;
    let past = http.registry.revision(&call, &agent, ask.revision()?, &ask.read()?).await?;
    let text = splice(&wire::RevisionItem::from(&past), "card", past.card.as_deref());
    let mut response = answer::written(StatusCode::OK, text)?;
    let all = response.headers_mut();
    headers::freshness(all, &past.freshness);
    let fingerprint = past.revision.facts.as_ref().map(|facts| facts.skill_fingerprint);
    headers::revision(all, past.revision.number, fingerprint.as_ref());
    Ok(response)
}
