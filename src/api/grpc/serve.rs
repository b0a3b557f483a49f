//! One tower service for everything that is spoken over gRPC: it finds the service by path.
//!
//! tonic's own router answers unknown paths untyped, and is built for a server that owns its socket; ours shares
//! one with HTTP. What tonic itself refuses, before a method of ours is asked, is said in our words here.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::{Code, Status};
use tonic_health::pb::health_server::HealthServer;
use tower::Service;

use super::{admin, deadline, health, reflection, registry, replication, status, watch};
use crate::proto::MESSAGE_MAX;
use crate::proto::v1::admin_server::AdminServer;
use crate::proto::v1::registry_server::RegistryServer;
use crate::proto::v1::replication_server::ReplicationServer;
use crate::registry::{Allowance, Refusal, Registry};
use crate::terms::Reason;

/// Every path that is answered.
pub(super) const PATHS: &[&str] = &[
    "/cardfence.v1.Registry/Resolve",
    "/cardfence.v1.Registry/BatchResolve",
    "/cardfence.v1.Registry/Register",
    "/cardfence.v1.Registry/Retire",
    "/cardfence.v1.Registry/Rollback",
    "/cardfence.v1.Registry/ListAgents",
    "/cardfence.v1.Registry/GetRevision",
    "/cardfence.v1.Registry/ListRevisions",
    "/cardfence.v1.Registry/ConfirmOrigin",
    "/cardfence.v1.Registry/DiffRevisions",
    "/cardfence.v1.Watch/Watermark",
    "/cardfence.v1.Watch/Watch",
    "/cardfence.v1.Admin/ReadLedger",
    "/cardfence.v1.Admin/ListReplicas",
    "/cardfence.v1.Replication/Replicate",
    "/cardfence.v1.Replication/Report",
    "/grpc.health.v1.Health/Check",
    "/grpc.health.v1.Health/Watch",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];

/// The header that names the encodings which are accepted.
const ACCEPTED: &str = "grpc-accept-encoding";

/// The method of a path as spans and metrics name it, `<service>/<method>`; `unknown` for every other path, so that
/// callers cannot make up names.
pub fn method_name(path: &str) -> &'static str {
    PATHS.iter().find(|known| **known == path).map_or("unknown", |known| &known[1..])
}

/// Whether a request speaks gRPC: by its content type, which must be that of protobuf messages.
pub fn is_grpc(headers: &http::HeaderMap) -> bool {
    let Some(Ok(value)) = headers.get(http::header::CONTENT_TYPE).map(http::HeaderValue::to_str) else {
        return false;
    };
    let essence = value.split(';').next().unwrap_or_default().trim_end();
    ["application/grpc", "application/grpc+proto"].iter().any(|known| essence.eq_ignore_ascii_case(known))
}

/// The gRPC wire of one node. Cheap to clone; it is ready at all times.
#[derive(Debug, Clone)]
pub struct Wire(Arc<Services>);

#[derive(Debug)]
struct Services {
    use_cases: Registry,
    registry: RegistryServer<registry::Service>,
    watch: watch::Service,
    admin: AdminServer<admin::Service>,
    replication: ReplicationServer<replication::Service>,
    health: HealthServer<health::Service>,
    reflection: reflection::Reflection,
}

impl Wire {
    /// Serves the use cases. Health says that the node serves from its first proof on, until `drain` is cancelled;
    /// calls are answered all the same then.
    pub fn new(use_cases: Registry, drain: CancellationToken) -> Self {
        Self(Arc::new(Services {
            registry: RegistryServer::new(registry::Service::new(use_cases.clone()))
                .max_decoding_message_size(MESSAGE_MAX)
                .max_encoding_message_size(MESSAGE_MAX),
            watch: watch::Service::new(use_cases.clone()),
            admin: AdminServer::new(admin::Service::new(use_cases.clone()))
                .max_decoding_message_size(MESSAGE_MAX)
                .max_encoding_message_size(MESSAGE_MAX),
            replication: ReplicationServer::new(replication::Service::new(use_cases.clone(), drain.clone()))
                .max_decoding_message_size(MESSAGE_MAX)
                .max_encoding_message_size(MESSAGE_MAX),
            health: HealthServer::new(health::Service::new(use_cases.clone(), drain))
                .max_decoding_message_size(MESSAGE_MAX),
            reflection: reflection::Reflection::new(),
            use_cases,
        }))
    }

    async fn answer<B>(self, mut request: http::Request<B>) -> http::Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<tonic::codegen::StdError> + Send + 'static,
    {
        let method = method_name(request.uri().path());
        let (service, name) = method.split_once('/').unwrap_or((method, ""));
        let services = &*self.0;
        let own = match service {
            "cardfence.v1.Registry"
            | "cardfence.v1.Watch"
            | "cardfence.v1.Admin"
            | "cardfence.v1.Replication" => service,
            "grpc.health.v1.Health" => return infallible(services.health.clone().call(request).await),
            "unknown" => return unknown(request.uri().path()).into_http(),
            _ => return services.reflection.answer(service, request.map(Body::new)).await,
        };
        let timeout = match deadline::timeout(request.headers()) {
            Ok(timeout) => timeout,
            Err(refusal) => return Status::from(refusal).into_http(),
        };
        let mut call = services.use_cases.call(timeout);
        if let Some(allowance) = request.extensions().get::<Allowance>() {
            call.allowance = allowance.clone();
        }
        let allowance = call.allowance.clone();
        let until = call.started + deadline::allowed(timeout, services.use_cases.settings());
        request.extensions_mut().insert(call);
        let answer = async {
            match own {
                "cardfence.v1.Registry" => infallible(services.registry.clone().call(request).await),
                "cardfence.v1.Watch" => services.watch.clone().answer(name, request).await,
                // Of a stream only its beginning is bounded so.
                "cardfence.v1.Replication" => infallible(services.replication.clone().call(request).await),
                _ => infallible(services.admin.clone().call(request).await),
            }
        };
        match allowance.within(until, answer).await {
            Some(answered) => typed(answered),
            None => {
                let writes = matches!(name, "Register" | "Retire" | "Rollback");
                Status::from(deadline::over(writes)).into_http()
            }
        }
    }
}

impl<B> Service<http::Request<B>> for Wire
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<tonic::codegen::StdError> + Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let wire = self.clone();
        Box::pin(async move { Ok(wire.answer(request).await) })
    }
}

pub(super) fn infallible<T>(answered: Result<T, Infallible>) -> T {
    match answered {
        Ok(answered) => answered,
        Err(never) => match never {},
    }
}

fn unknown(path: &str) -> Status {
    let detail =
        format!("there is no method `{}`: reflection lists those that there are", path.escape_debug());
    Refusal::new(Reason::NoSuchRoute, detail).into()
}

/// Says in our words what tonic refused before there was an answer.
fn typed(response: http::Response<Body>) -> http::Response<Body> {
    match response.extensions().get::<Status>().and_then(reworded) {
        Some(status) => status.into_http(),
        None => response,
    }
}

/// The same in our words, where tonic refused. Every status of ours has details, so one without is tonic's: a request
/// that is too large, that is no message of the method's type, or that is compressed.
pub(super) fn reworded(tonics: &Status) -> Option<Status> {
    if !tonics.details().is_empty() {
        return None;
    }
    match tonics.code() {
        Code::OutOfRange => {
            let detail = format!("the request is too large: at most {MESSAGE_MAX} bytes");
            Some(Refusal::new(Reason::PayloadTooLarge, detail).into())
        }
        Code::Internal => {
            Some(Refusal::invalid("the request is not one whole message of the method's type").into())
        }
        // gRPC prescribes the code, and a header that names what is accepted: no compression.
        Code::Unimplemented => {
            let detail = "the request is compressed, and only uncompressed ones are accepted";
            let refusal = Refusal::new(Reason::UnsupportedMediaType, detail);
            let mut status = status::spoken(refusal, Code::Unimplemented);
            if let Some(accepted) = tonics.metadata().get(ACCEPTED) {
                status.metadata_mut().insert(ACCEPTED, accepted.clone());
            }
            Some(status)
        }
        // The caller went away.
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;

    #[test]
    fn every_method_of_the_contract_is_served() {
        let descriptors = prost_types::FileDescriptorSet::decode(crate::proto::DESCRIPTORS).unwrap();
        let ours = descriptors.file.iter().filter(|file| file.package() == "cardfence.v1");
        let mut defined: Vec<String> = ours
            .flat_map(|file| &file.service)
            .flat_map(|service| {
                let path = |method: &prost_types::MethodDescriptorProto| {
                    format!("/cardfence.v1.{}/{}", service.name(), method.name())
                };
                service.method.iter().map(path).collect::<Vec<_>>()
            })
            .collect();
        let mut served: Vec<&str> =
            PATHS.iter().copied().filter(|path| path.starts_with("/cardfence.v1.")).collect();
        defined.sort_unstable();
        served.sort_unstable();
        assert_eq!(served, defined);
    }

    #[test]
    fn names_are_those_of_the_table() {
        assert_eq!(method_name("/cardfence.v1.Registry/Resolve"), "cardfence.v1.Registry/Resolve");
        for path in ["", "/", "/cardfence.v1.Registry/", "/cardfence.v1.Registry/resolve", "//"] {
            assert_eq!(method_name(path), "unknown", "{path}");
        }
    }

    #[test]
    fn grpc_is_told_by_its_content_type() {
        let with = |value: &str| {
            let mut headers = http::HeaderMap::new();
            headers.insert(http::header::CONTENT_TYPE, value.parse().unwrap());
            is_grpc(&headers)
        };
        for yes in ["application/grpc", "application/grpc+proto", "application/grpc; charset=x"] {
            assert!(with(yes), "{yes}");
        }
        for no in ["application/grpc-web", "application/grpc+json", "application/json", "application/grpcx"] {
            assert!(!with(no), "{no}");
        }
        assert!(!is_grpc(&http::HeaderMap::new()));
    }
}
