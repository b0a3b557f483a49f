//! `/openapi.json`, made of the table of routes and the shapes of `wire`.

use std::sync::LazyLock;

use utoipa::openapi::content::Content;
use utoipa::openapi::path::{
    HttpMethod, OperationBuilder, ParameterBuilder, ParameterIn, PathItem, PathsBuilder,
};
use utoipa::openapi::request_body::{RequestBody, RequestBodyBuilder};
use utoipa::openapi::response::{Response, ResponseBuilder};
use utoipa::openapi::schema::{ArrayBuilder, Components, ObjectBuilder, Schema, Type};
use utoipa::openapi::{InfoBuilder, OpenApiBuilder, Ref, RefOr, Required};
use utoipa::{PartialSchema, ToSchema};

use super::parameter::{ANY_HEADERS, Kind, Parameter};
use super::route::{Answer, Route, Sent, Shape, Verb};
use super::routes;
use crate::wire;

static DOCUMENT: LazyLock<String> = LazyLock::new(|| {
    let mut paths = PathsBuilder::new();
    for path in routes::paths() {
        for route in routes::at(path) {
            paths = paths.path(path, PathItem::new(method(route.verb), operation(route)));
        }
    }
    let info = InfoBuilder::new()
        .title("cardfence")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(env!("CARGO_PKG_DESCRIPTION")));
    let document = OpenApiBuilder::new().info(info).paths(paths).components(Some(components())).build();
    document.to_json().unwrap_or_else(|error| {
        tracing::error!(%error, "the OpenAPI document could not be written");
        "{}".to_owned()
    })
});

/// The OpenAPI description of the HTTP wire, as JSON.
pub fn document() -> &'static str {
    &DOCUMENT
}

fn method(verb: Verb) -> HttpMethod {
    match verb {
        Verb::Get => HttpMethod::Get,
        Verb::Put => HttpMethod::Put,
        Verb::Post => HttpMethod::Post,
        Verb::Delete => HttpMethod::Delete,
    }
}

fn operation(route: &'static Route) -> OperationBuilder {
    let mut operation = OperationBuilder::new()
        .operation_id(Some(route.operation))
        .summary(Some(route.about))
        .request_body(request_body(route.body));
    for name in captured(route.path) {
        let schema = if name == "n" { Type::Integer } else { Type::String };
        let parameter = ParameterBuilder::new()
            .name(name)
            .parameter_in(ParameterIn::Path)
            .required(Required::True)
            .schema(Some(ObjectBuilder::new().schema_type(schema)));
        operation = operation.parameter(parameter);
    }
    for parameter in route.parameters.iter().copied().flatten() {
        operation = operation.parameter(described(parameter, ParameterIn::Query));
    }
    for parameter in route.headers.iter().copied().flatten().chain(ANY_HEADERS) {
        operation = operation.parameter(described(parameter, ParameterIn::Header));
    }
    for answer in route.answers {
        operation = operation.response(answer.status.to_string(), response(answer));
    }
    let problem = ResponseBuilder::new()
        .description("A refusal; `reason` says which")
        .content("application/problem+json", Content::new(Some(refers::<wire::Problem>())));
    operation.response("default", problem.build())
}

/// The parts of a path that vary.
fn captured(path: &'static str) -> impl Iterator<Item = &'static str> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

fn described(parameter: &Parameter, place: ParameterIn) -> ParameterBuilder {
    let of = |schema| ObjectBuilder::new().schema_type(schema);
    let schema: RefOr<Schema> = match parameter.kind {
        Kind::Text => of(Type::String).into(),
        Kind::Flag => of(Type::Boolean).into(),
        Kind::Count | Kind::Needed => of(Type::Integer).into(),
        Kind::Repeated | Kind::Skill => ArrayBuilder::new().items(of(Type::String)).into(),
    };
    let required = if parameter.kind == Kind::Needed { Required::True } else { Required::False };
    ParameterBuilder::new()
        .name(parameter.name)
        .parameter_in(place)
        .required(required)
        .description(Some(parameter.about))
        .schema(Some(schema))
}

fn request_body(sent: Sent) -> Option<RequestBody> {
    let (about, schema) = match sent {
        Sent::Nothing => return None,
        Sent::Card => ("An A2A Agent Card of any generation", document_schema()),
        Sent::Batch => ("Agents, each with its fence", refers::<wire::BatchRequest>()),
        Sent::Confirm => ("The digest of the card that the agent serves", refers::<wire::Confirm>()),
        Sent::ConfirmBatch => ("Agents, each with its card's digest", refers::<wire::ConfirmBatch>()),
    };
    let body = RequestBodyBuilder::new()
        .description(Some(about))
        .required(Some(Required::True))
        .content("application/json", Content::new(Some(schema)));
    Some(body.build())
}

fn response(answer: &Answer) -> Response {
    let json = "application/json";
    let text = || ObjectBuilder::new().schema_type(Type::String).into();
    let content: Option<(&str, RefOr<Schema>)> = match answer.shape {
        Shape::Nothing => None,
        Shape::Card | Shape::OpenApi => Some((json, document_schema())),
        Shape::Envelope => Some((json, refers::<wire::Envelope>())),
        Shape::Registered => Some((json, refers::<wire::Registered>())),
        Shape::Batch => Some((json, refers::<wire::BatchAnswer>())),
        Shape::Confirmation => Some((json, refers::<wire::Confirmation>())),
        Shape::Confirmed => Some((json, refers::<wire::ConfirmAnswer>())),
        Shape::Agents => Some((json, refers_to(&list_of::<wire::AgentItem>()))),
        Shape::Revisions => Some((json, refers_to(&list_of::<wire::RevisionItem>()))),
        Shape::Revision => Some((json, refers::<wire::RevisionItem>())),
        Shape::Diff => Some((json, refers::<wire::Diff>())),
        Shape::Watermark => Some((json, refers::<wire::Watermark>())),
        Shape::Replicas => Some((json, refers_to(&list_of::<wire::ReplicaItem>()))),
        Shape::Ledger => Some(("application/x-ndjson", refers::<wire::LedgerEntry>())),
        Shape::Events => Some(("text/event-stream", text())),
        Shape::Health => Some((json, refers::<wire::Health>())),
        Shape::Metrics => Some(("application/openmetrics-text", text())),
    };
    let mut response = ResponseBuilder::new().description(answer.about);
    if let Some((content_type, schema)) = content {
        response = response.content(content_type, Content::new(Some(schema)));
    }
    response.build()
}

/// A JSON object of any shape.
fn document_schema() -> RefOr<Schema> {
    ObjectBuilder::new().schema_type(Type::Object).into()
}

fn refers<T: ToSchema>() -> RefOr<Schema> {
    refers_to(&T::name())
}

fn refers_to(name: &str) -> RefOr<Schema> {
    RefOr::Ref(Ref::from_schema_name(name))
}

/// The name of a list: the derived one is the same for lists of all things.
fn list_of<T: ToSchema>() -> String {
    format!("{}List", T::name())
}

/// Every shape that an answer, a body or a problem refers to, with all that these refer to.
fn components() -> Components {
    fn add_as<T: ToSchema>(name: String, all: &mut Vec<(String, RefOr<Schema>)>) {
        all.push((name, <T as PartialSchema>::schema()));
        T::schemas(all);
    }
    fn add<T: ToSchema>(all: &mut Vec<(String, RefOr<Schema>)>) {
        add_as::<T>(T::name().into_owned(), all);
    }
    let mut all = Vec::new();
    add::<wire::Problem>(&mut all);
    add::<wire::Envelope>(&mut all);
    add::<wire::Registered>(&mut all);
    add::<wire::BatchRequest>(&mut all);
    add::<wire::BatchAnswer>(&mut all);
    add::<wire::Confirm>(&mut all);
    add::<wire::ConfirmBatch>(&mut all);
    add::<wire::Confirmation>(&mut all);
    add::<wire::ConfirmAnswer>(&mut all);
    add_as::<wire::List<wire::AgentItem>>(list_of::<wire::AgentItem>(), &mut all);
    add_as::<wire::List<wire::RevisionItem>>(list_of::<wire::RevisionItem>(), &mut all);
    add_as::<wire::List<wire::ReplicaItem>>(list_of::<wire::ReplicaItem>(), &mut all);
    add::<wire::ReplicaItem>(&mut all);
    add::<wire::RevisionItem>(&mut all);
    add::<wire::Diff>(&mut all);
    add::<wire::Watermark>(&mut all);
    add::<wire::LedgerEntry>(&mut all);
    add::<wire::Health>(&mut all);
    add::<wire::AgentEvent>(&mut all);
    add::<wire::WatchReset>(&mut all);
    add::<wire::WatchSynced>(&mut all);
    add::<wire::WatchCheckpoint>(&mut all);
    add::<wire::WatchEnd>(&mut all);
    let mut components = Components::new();
    components.schemas.extend(all);
    components
}
