//! The HTTP wire: the registry's use cases as resources. Translation only.
//!
//! A request meets one table of routes ([`route`], [`routes`]). From it come the router, the parameters that a
//! route takes, the methods that a path allows, the names for metrics and `/openapi.json`, so none of these
//! can say something else than the others. What a route does is one function from a request to an answer or a
//! [`Refusal`]; [`problem`] tells every refusal in one way.
//!
//! Reading order: `parameter` (what may be said), `query` and `cache_control` (how it is read), `fence` (what
//! it comes to), `conditional` and `expect` (entity tags), `headers`, `answer` and `problem` (what is given
//! back). Time-outs, limits on connections and tracing are layers around [`router`], not here.
//!
//! Absent on purpose: this module knows no ledger and no view, keeps nothing between requests, and no text
//! from inside reaches a caller.

mod answer;
mod body;
mod cache_control;
mod conditional;
mod expect;
mod fence;
mod headers;
mod openapi;
mod parameter;
mod problem;
mod query;
mod route;
mod routes;
mod sse;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{RawPathParams, Request};
use axum::response::Response;
use axum::routing::any;
use http::header::ALLOW;

use crate::registry::{Allowance, Refusal, Registry};
use crate::terms::Reason;
use query::Params;
use route::{Ask, Route};

pub use openapi::document as openapi_document;
pub use route::operation;

/// What every route works with.
#[derive(Debug, Clone)]
struct Http {
    registry: Registry,
    draining: Arc<AtomicBool>,
}

impl Http {
    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }
}

/// The HTTP wire of `registry`. While `draining` is set, `/readyz` says so; everything else goes on.
///
/// Paths that no route has are answered here too, with a problem.
pub fn router(registry: Registry, draining: Arc<AtomicBool>) -> Router {
    let http = Http { registry, draining };
    let mut router = Router::new();
    for path in routes::paths() {
        let http = http.clone();
        let serve = move |captured: Result<RawPathParams, RawPathParamsRejection>, request: Request| {
            serve(http, path, captured, request)
        };
        router = router.route(path, any(serve));
    }
    router.fallback(no_such_route)
}

/// The answer that tells a refusal, for layers around the router.
pub fn problem_answer(refusal: &Refusal) -> Response {
    let mut response = problem::answer(refusal);
    headers::finish(response.headers_mut(), None);
    response
}

/// One request to a path that exists.
async fn serve(
    http: Http,
    path: &'static str,
    captured: Result<RawPathParams, RawPathParamsRejection>,
    request: Request,
) -> Response {
    let (nonce, mut response) = match headers::nonce(request.headers()) {
        Ok(nonce) => (nonce, routed(http, path, captured, request).await),
        Err(refusal) => (None, problem::answer(&refusal)),
    };
    headers::finish(response.headers_mut(), nonce);
    response
}

async fn routed(
    http: Http,
    path: &'static str,
    captured: Result<RawPathParams, RawPathParamsRejection>,
    request: Request,
) -> Response {
    let Some(route) = routes::at(path).find(|route| route.verb.serves(request.method())) else {
        return method_not_allowed(path);
    };
    let agent = captured.as_ref().ok().and_then(route::agent_of);
    let outcome = match asked(route, captured, request) {
        Ok(ask) => (route.run)(http, ask).await,
        Err(refusal) => Err(refusal),
    };
    outcome.unwrap_or_else(|refusal| match agent {
        // A refusal of the request itself does not know yet what it is about; the path does.
        Some(agent) if refusal.parts().agent.is_none() => problem::answer(&refusal.about(&agent)),
        _ => problem::answer(&refusal),
    })
}

fn asked(
    route: &Route,
    captured: Result<RawPathParams, RawPathParamsRejection>,
    request: Request,
) -> Result<Ask, Refusal> {
    let captured = match captured {
        Ok(captured) => captured.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        Err(RawPathParamsRejection::InvalidUtf8InPathParam(_)) => {
            return Err(Refusal::invalid("the path is not UTF-8 once decoded"));
        }
        // A path without parts that vary.
        Err(_) => Vec::new(),
    };
    let (parts, body) = request.into_parts();
    let params = Params::parse(parts.uri.query().unwrap_or(""), route.parameters)?;
    let allowance = parts.extensions.get::<Allowance>().cloned().unwrap_or_default();
    Ok(Ask { captured, params, headers: parts.headers, body, allowance })
}

fn method_not_allowed(path: &'static str) -> Response {
    let methods: Vec<&str> = routes::at(path).flat_map(|route| route.verb.methods()).copied().collect();
    let allowed = methods.join(", ");
    let detail = format!("{path} allows {allowed}");
    let mut response = problem::answer(&Refusal::new(Reason::MethodNotAllowed, detail));
    headers::set(response.headers_mut(), ALLOW, &allowed);
    response
}

async fn no_such_route(request: Request) -> Response {
    let detail = format!("there is nothing at {}; see /openapi.json", query::shown(request.uri().path()));
    let mut response = problem::answer(&Refusal::new(Reason::NoSuchRoute, detail));
    let nonce = headers::nonce(request.headers()).unwrap_or(None);
    headers::finish(response.headers_mut(), nonce);
    response
}

#[cfg(test)]
mod tests;
