//! What holds below the methods: paths, time-outs, sizes, health and reflection.

use std::time::{Duration, Instant};

use cardfence::proto::v1 as pb;
use futures::stream;
use http::uri::PathAndQuery;
use tonic::codegen::tokio_stream::StreamExt as _;
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_prost::ProstCodec;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ServerReflectionRequest, server_reflection_response};

use super::support::{Served, card, registering, said};

/// Sends one message of any type to any path.
async fn send<M: prost::Message + Default + 'static>(
    served: &Served,
    path: &'static str,
    request: Request<M>,
) -> Result<(), Status> {
    let mut client = tonic::client::Grpc::new(served.channel.clone());
    client.ready().await.unwrap();
    let codec = ProstCodec::<M, pb::Resolved>::default();
    client.unary(request, PathAndQuery::from_static(path), codec).await.map(drop)
}

#[tokio::test]
async fn unknown_paths_are_refused_with_a_reason() {
    let served = Served::start().await;
    for path in ["/cardfence.v1.Registry/Nope", "/cardfence.v2.Registry/Resolve", "/", "/x/y"] {
        let refused = said(send(&served, path, Request::new(())).await);
        assert_eq!((refused.code, refused.reason.as_str()), (Code::Unimplemented, "no_such_route"), "{path}");
    }
}

#[tokio::test]
async fn a_malformed_timeout_is_refused() {
    let served = Served::start().await;
    for value in ["5", "1s", "-1S", "123456789S"] {
        let mut request = Request::new(pb::ResolveRequest::default());
        request.metadata_mut().insert("grpc-timeout", value.parse().unwrap());
        let refused = said(served.registry.clone().resolve(request).await);
        assert_eq!((refused.code, refused.reason.as_str()), (Code::InvalidArgument, "invalid_argument"));
        assert!(refused.problem.detail.starts_with("grpc-timeout: "), "{}", refused.problem.detail);
    }
}

#[tokio::test]
async fn a_request_that_never_ends_is_told_before_its_deadline() {
    let served = Served::start().await;
    for (path, reason) in [
        ("/cardfence.v1.Registry/Resolve", "deadline_exceeded"),
        ("/cardfence.v1.Registry/Register", "outcome_unknown"),
    ] {
        let mut request = Request::new(stream::pending::<()>());
        request.set_timeout(Duration::from_secs(3));
        let mut client = tonic::client::Grpc::new(served.channel.clone());
        client.ready().await.unwrap();
        let asked = Instant::now();
        let codec = ProstCodec::<(), ()>::default();
        let refused = said(client.client_streaming(request, PathAndQuery::from_static(path), codec).await);
        assert!(asked.elapsed() < Duration::from_secs(3));
        assert_eq!(refused.reason, reason);
    }
}

#[tokio::test]
async fn what_is_too_large_or_no_message_is_refused_in_our_words() {
    let served = Served::start().await;
    let large = vec![b' '; 3 << 20];
    let refused = said(served.registry.clone().register(registering("acme/a", large.into())).await);
    assert_eq!((refused.code, refused.reason.as_str()), (Code::ResourceExhausted, "payload_too_large"));
    assert_eq!(refused.pushback.as_deref(), Some("-1"));
    // Larger than a card may be, and not than a message.
    let large = card("1", "x", 300_000);
    let refused = said(served.registry.clone().register(registering("acme/a", large)).await);
    assert_eq!((refused.code, refused.reason.as_str()), (Code::ResourceExhausted, "payload_too_large"));
    // A message of another type: its first field is no text.
    let other = Request::new(prost_types::Timestamp { seconds: 7, nanos: 0 });
    let refused = said(send(&served, "/cardfence.v1.Registry/Resolve", other).await);
    assert_eq!((refused.code, refused.reason.as_str()), (Code::InvalidArgument, "invalid_argument"));
    // A compressed one.
    let mut request = Request::new(pb::ResolveRequest::default());
    request.metadata_mut().insert("grpc-encoding", "gzip".parse().unwrap());
    let refused = said(served.registry.clone().resolve(request).await);
    assert_eq!((refused.code, refused.reason.as_str()), (Code::Unimplemented, "unsupported_media_type"));
}

fn health(service: &str) -> HealthCheckRequest {
    HealthCheckRequest { service: service.to_owned() }
}

#[tokio::test]
async fn health_follows_readiness_and_drain() {
    let served = Served::unproven(false).await;
    let mut client = HealthClient::new(served.channel.clone());
    for service in ["", "cardfence.v1.Registry"] {
        let told = client.check(health(service)).await.unwrap().into_inner().status();
        assert_eq!(told, ServingStatus::NotServing, "{service}");
    }
    assert_eq!(client.check(health("nope")).await.unwrap_err().code(), Code::NotFound);

    let mut watched = client.watch(health("cardfence.v1.Registry")).await.unwrap().into_inner();
    assert_eq!(watched.next().await.unwrap().unwrap().status(), ServingStatus::NotServing);
    served.memory.set_reachable(true);
    assert_eq!(watched.next().await.unwrap().unwrap().status(), ServingStatus::Serving);
    let told = client.check(health("")).await.unwrap().into_inner().status();
    assert_eq!(told, ServingStatus::Serving);

    // The store is lost later: staleness says it, health does not.
    served.memory.set_reachable(false);
    let told = client.check(health("")).await.unwrap().into_inner().status();
    assert_eq!(told, ServingStatus::Serving);

    let mut unknown = client.watch(health("nope")).await.unwrap().into_inner();
    assert_eq!(unknown.next().await.unwrap().unwrap().status(), ServingStatus::ServiceUnknown);
    served.drain.cancel();
    assert_eq!(watched.next().await.unwrap().unwrap().status(), ServingStatus::NotServing);
    assert!(watched.next().await.is_none(), "streams end, or a drain would wait for them");
    assert!(unknown.next().await.is_none());
    let told = client.check(health("cardfence.v1.Registry")).await.unwrap().into_inner().status();
    assert_eq!(told, ServingStatus::NotServing);
}

#[tokio::test]
async fn reflection_lists_the_services_and_gives_the_contract() {
    let served = Served::start().await;
    let mut client = ServerReflectionClient::new(served.channel.clone());
    let mut ask = async |request| {
        let request = ServerReflectionRequest { host: String::new(), message_request: Some(request) };
        let mut answers = client.server_reflection_info(stream::iter([request])).await.unwrap().into_inner();
        let answer: server_reflection_response::MessageResponse =
            answers.next().await.unwrap().unwrap().message_response.unwrap();
        answer
    };
    let MessageResponse::ListServicesResponse(listed) =
        ask(MessageRequest::ListServices(String::new())).await
    else {
        panic!("a list was expected")
    };
    let mut names: Vec<_> = listed.service.iter().map(|service| service.name.as_str()).collect();
    names.sort_unstable();
    let expected = [
        "cardfence.v1.Admin",
        "cardfence.v1.Registry",
        "cardfence.v1.Replication",
        "cardfence.v1.Watch",
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
    ];
    assert_eq!(names, expected);
    let symbol = MessageRequest::FileContainingSymbol("cardfence.v1.Registry.Resolve".to_owned());
    let MessageResponse::FileDescriptorResponse(file) = ask(symbol).await else {
        panic!("a file was expected")
    };
    assert!(!file.file_descriptor_proto.is_empty());

    use tonic_reflection::pb::v1alpha;
    let mut client = v1alpha::server_reflection_client::ServerReflectionClient::new(served.channel.clone());
    let request = v1alpha::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(
            v1alpha::server_reflection_request::MessageRequest::ListServices(String::new()),
        ),
    };
    let mut answers = client.server_reflection_info(stream::iter([request])).await.unwrap().into_inner();
    assert!(answers.next().await.unwrap().is_ok());
}
