//! Traces from the wire to the SQL statement, exported over OTLP, as children of the caller's own trace.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Method;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::trace::v1::Span;
use tokio::net::TcpListener;
use tonic::{Request, Response, Status};

use crate::support::cards::{Card, Shape};
use crate::support::eventually::eventually;
use crate::support::http::Http;
use crate::support::postgres::Database;
use crate::support::server::Launch;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

#[derive(Debug, Clone, Default)]
struct Collector(Arc<Mutex<Vec<Span>>>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let resources = request.into_inner().resource_spans;
        let spans =
            resources.into_iter().flat_map(|resource| resource.scope_spans).flat_map(|scope| scope.spans);
        self.0.lock().unwrap().extend(spans);
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    async fn start() -> (Self, String) {
        let collector = Self::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let service = TraceServiceServer::new(collector.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let service = TowerToHyperService::new(service.clone());
                let connection = auto::Builder::new(TokioExecutor::new());
                tokio::spawn(async move { connection.serve_connection(TokioIo::new(stream), service).await });
            }
        });
        (collector, format!("http://{address}"))
    }

    /// The names from a span of the caller's trace up to the caller, once that span has arrived.
    async fn path_from(&self, name: &str, attribute: Option<(&str, &str)>) -> Vec<String> {
        eventually(Duration::from_secs(30), async || {
            let spans = self.0.lock().unwrap();
            let ours: Vec<&Span> = spans.iter().filter(|span| hex::encode(&span.trace_id) == TRACE).collect();
            let found = ours.iter().find(|span| span.name == name && attribute.is_none_or(|a| has(span, a)));
            let Some(mut span) = found.copied() else {
                let names: Vec<&str> = ours.iter().map(|span| span.name.as_str()).collect();
                return Err(format!("{name} {attribute:?} is not among {names:?}"));
            };
            let mut path = vec![span.name.clone()];
            while hex::encode(&span.parent_span_id) != CALLER {
                let Some(parent) = ours.iter().find(|parent| parent.span_id == span.parent_span_id) else {
                    return Err(format!("the parent of {} has not arrived", span.name));
                };
                path.push(parent.name.clone());
                span = parent;
            }
            Ok(path)
        })
        .await
    }
}

fn has(span: &Span, (key, value): (&str, &str)) -> bool {
    let text = |found: &opentelemetry_proto::tonic::common::v1::KeyValue| format!("{:?}", found.value);
    span.attributes.iter().any(|attribute| attribute.key == key && text(attribute).contains(value))
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_reach_from_the_callers_trace_to_the_statement() {
    let (collector, endpoint) = Collector::start().await;
    let database = Database::empty().await;
    let serve = ["serve", "--listen", "127.0.0.1:0", "--store", database.url(), "--otlp-endpoint", &endpoint];
    let server = Launch::cardfence(serve).start().await;
    let http = Http::to(&server.url());
    let traceparent = format!("00-{TRACE}-{CALLER}-01");
    let headers = [("traceparent", traceparent.as_str()), ("content-type", "application/json")];
    let card = Card::new(Shape::V10, "traced").build();
    http.send(Method::PUT, "/v1/agents/acme/traced", &headers, card).await.expect(201);
    http.send(Method::GET, "/v1/agents/acme/traced/revisions", &headers[..1], "").await.expect(200);

    let up = collector.path_from("sql", Some(("statement", "append"))).await;
    assert_eq!(up, ["sql", "batch", "register", "request"]);
    let up = collector.path_from("sql", Some(("statement", "read revisions"))).await;
    assert_eq!(up, ["sql", "revisions", "request"]);
}
