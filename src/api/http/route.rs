//! What a route is, and what a request to it has said.

use std::pin::Pin;

use axum::body::Body;
use axum::extract::RawPathParams;
use axum::response::Response;
use http::{HeaderMap, Method};

use super::parameter::Parameter;
use super::query::{Params, whole_number};
use super::{Http, fence, routes};
use crate::registry::{Allowance, Read, Refusal};
use crate::terms::AgentName;

/// One method of one path.
pub(super) struct Route {
    pub(super) verb: Verb,
    pub(super) path: &'static str,
    /// Names the route in metrics, traces and `/openapi.json`.
    pub(super) operation: &'static str,
    pub(super) about: &'static str,
    pub(super) parameters: &'static [&'static [Parameter]],
    pub(super) headers: &'static [&'static [Parameter]],
    pub(super) body: Sent,
    pub(super) answers: &'static [Answer],
    pub(super) run: fn(Http, Ask) -> Answering,
}

impl std::fmt::Debug for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.operation)
    }
}

pub(super) type Answering = Pin<Box<dyn Future<Output = Result<Response, Refusal>> + Send>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    /// HEAD too.
    Get,
    Put,
    Post,
    Delete,
}

impl Verb {
    pub(super) const fn methods(self) -> &'static [&'static str] {
        match self {
            Self::Get => &["GET", "HEAD"],
            Self::Put => &["PUT"],
            Self::Post => &["POST"],
            Self::Delete => &["DELETE"],
        }
    }

    pub(super) fn serves(self, method: &Method) -> bool {
        self.methods().contains(&method.as_str())
    }
}

/// The body that a route takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    Nothing,
    Card,
    Batch,
    Confirm,
    ConfirmBatch,
}

/// An answer that a route gives when it does not refuse.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) about: &'static str,
    pub(super) shape: Shape,
}

pub(super) const fn gives(status: u16, shape: Shape, about: &'static str) -> Answer {
    Answer { status, about, shape }
}

/// The shape of an answer's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Nothing,
    Card,
    Envelope,
    Registered,
    Batch,
    Confirmation,
    Confirmed,
    Agents,
    Revisions,
    Revision,
    Diff,
    Watermark,
    Replicas,
    Ledger,
    Events,
    Health,
    Metrics,
    OpenApi,
}

/// One request, its query checked against the route.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) captured: Vec<(String, String)>,
    pub(super) params: Params,
    pub(super) headers: HeaderMap,
    pub(super) body: Body,
    /// What the layer that bounds the request lets it take.
    pub(super) allowance: Allowance,
}

impl Ask {
    fn captured(&self, name: &str) -> &str {
        self.captured.iter().find(|(captured, _)| captured == name).map_or("", |(_, value)| value)
    }

    /// The agent that the path names.
    ///
    /// # Errors
    /// `invalid_argument` when it is no name.
    pub(super) fn agent(&self) -> Result<AgentName, Refusal> {
        AgentName::new(self.captured("ns"), self.captured("name")).map_err(super::problem::invalid)
    }

    /// The revision that the path names.
    ///
    /// # Errors
    /// `invalid_argument` when it is no number from 1.
    pub(super) fn revision(&self) -> Result<u64, Refusal> {
        Refusal::unless_revision("revision", whole_number("revision", self.captured("n"))?)
    }

    /// What the request demands of the view.
    ///
    /// # Errors
    /// `invalid_argument`.
    pub(super) fn read(&self) -> Result<Read, Refusal> {
        fence::read(&self.params, &self.headers)
    }
}

/// The agent that a path names, where it does.
pub(super) fn agent_of(captured: &RawPathParams) -> Option<AgentName> {
    let of = |name| captured.iter().find(|(captured, _)| *captured == name).map(|(_, value)| value);
    AgentName::new(of("ns")?, of("name")?).ok()
}

/// The name of what is asked for, such as `resolve`, for metrics and traces; `None` when no route has it.
pub fn operation(method: &Method, path: &str) -> Option<&'static str> {
    routes::all().find(|route| route.verb.serves(method) && matches(route.path, path)).map(|r| r.operation)
}

fn matches(template: &str, path: &str) -> bool {
    let mut wanted = template.split('/');
    let mut given = path.split('/');
    loop {
        match (wanted.next(), given.next()) {
            (None, None) => return true,
            (Some(wanted), Some(given)) if wanted == given || wanted.starts_with('{') => {}
            _ => return false,
        }
    }
}
