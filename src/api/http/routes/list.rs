//! `GET /v1/agents`: list and search.

use axum::response::Response;
use http::StatusCode;

use super::super::parameter as p;
use super::super::route::{Answering, Ask, Route, Sent, Shape, Verb, gives};
use super::super::{Http, answer, headers};
use crate::registry::{Filter, List, Refusal};
use crate::wire;

pub(super) const ROUTES: &[Route] = &[Route {
    verb: Verb::Get,
    path: "/v1/agents",
    operation: "list_agents",
    about: "Agents that are not retired, by namespace and name; all filters given must hold.",
    parameters: &[p::FILTER, p::PAGED, p::READ],
    headers: &[p::READ_HEADERS],
    body: Sent::Nothing,
    answers: &[gives(200, Shape::Agents, "One page, of one position")],
    run: |http, ask| -> Answering { Box::pin(list(http, ask)) },
}];

async fn list(http: Http, ask: Ask) -> Result<Response, Refusal> {
    let call = http.registry.call(None);
    let params = &ask.params;
    let mut request = List {
        filter: Filter {
            namespace: params.owned(p::NAMESPACE),
            skill: params.owned(p::SKILL),
            tag: params.owned(p::TAG),
            mode: params.owned(p::MODE),
            capability: params.owned(p::CAPABILITY),
            url: params.owned(p::URL),
            text: params.owned(p::Q),
        },
        page_size: params.size(p::PAGE_SIZE)?,
        page_token: params.owned(p::PAGE_TOKEN),
        read: ask.read()?,
    };
    let (page, items) = loop {
        let page = http.registry.list(&call, &request).await?;
        match answer::items(wire::agent_items(&page))? {
            Ok(items) => break (page, items),
            Err(fits) => request.page_size = Some(fits),
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
