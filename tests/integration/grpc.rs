//! The gRPC wire of the real binary, beside HTTP on one port: both say the same, and a drain ends what would
//! never end by itself. (The wire as such is tested in `tests/grpc`.)

use std::time::{Duration, Instant};

use cardfence::proto::v1 as pb;
use cardfence::proto::v1::registry_client::RegistryClient;
use cardfence::terms::Timestamp;
use prost::{Message as _, Name as _};
use serde_json::{Value, json};
use tonic::codegen::tokio_stream::StreamExt as _;
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt as _;

use super::support::cards::{Card, Shape};
use super::support::http::Http;
use super::support::postgres::{Cluster, Settings};
use super::support::scratch::Scratch;
use super::support::server::Server;

async fn channel(server: &Server) -> Channel {
    Endpoint::from_shared(server.url()).unwrap().connect().await.unwrap()
}

fn time(stamp: &prost_types::Timestamp) -> String {
    Timestamp::from_micros(stamp.seconds * 1_000_000 + i64::from(stamp.nanos) / 1_000).to_string()
}

/// An envelope as HTTP has it, but for its card and how fresh it is.
fn envelope(resolved: &pb::Resolved) -> Value {
    json!({
        "agent": resolved.agent,
        "revision": resolved.revision,
        "position": resolved.position,
        "card_version": resolved.card_version,
        "generation": resolved.generation,
        "content_digest": resolved.content_digest,
        "raw_digest": resolved.raw_digest,
        "skill_fingerprint": resolved.skill_fingerprint,
        "negotiation_fingerprint": resolved.negotiation_fingerprint,
        "registered_at": time(resolved.registered_at.as_ref().unwrap()),
        "registered_by": resolved.registered_by,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn both_wires_on_one_port_say_the_same() {
    let scratch = Scratch::new("grpc");
    let server = Server::serve(&format!("sqlite:{}", scratch.path().join("ledger.db").display())).await;
    let http = Http::to(&server.url());
    http.until_ready().await;
    let mut registry = RegistryClient::new(channel(&server).await);
    let card = Card::new(Shape::V03, "Sum").version("1.0.0").skills(&[("sum", &["text/plain"])]).build();
    let register =
        pb::RegisterRequest { agent: "acme/sum".to_owned(), card: card.clone().into(), ..Default::default() };
    let written = registry.register(register).await.unwrap().into_inner();

    // Written here, read there.
    let position = written.position.unwrap();
    let raw = http.raw_card("acme/sum", &format!("?at_least={position}")).await.expect(200);
    assert_eq!(raw.body, card.as_bytes());
    let mut there = http.resolve("acme/sum", "").await.expect(200).json();
    let request = pb::ResolveRequest { agent: "acme/sum".to_owned(), ..Default::default() };
    let here = registry.resolve(request.clone()).await.unwrap().into_inner();
    assert_eq!(here.card.as_deref(), Some(card.as_bytes()));
    let members = there.as_object_mut().unwrap();
    members.remove("card");
    let freshness = members.remove("freshness").unwrap();
    assert_eq!(there, envelope(&here));
    let fresh = here.freshness.unwrap();
    assert_eq!(freshness["position"], fresh.position);
    assert_eq!(freshness["served_by"], fresh.served_by);
    assert_eq!(freshness["origin_confirmed_at"], time(fresh.origin_confirmed_at.as_ref().unwrap()));

    // Mutated there, caught here, in the same words.
    let card = Card::new(Shape::V03, "Sum").version("1.0.0").skills(&[("other", &["text/plain"])]).build();
    let changed = http.put_card("acme/sum", "", &card).await.expect(200).json();
    assert_eq!(changed["change"]["silent"], true);
    let pin = &here.content_digest;
    let there = http.resolve("acme/sum", &format!("?pin={pin}&skill=sum")).await.expect(412).json();
    let skills = vec![pb::SkillWanted { id: "sum".to_owned(), ..Default::default() }];
    let fence = pb::Fence { condition_count: 2, pin: Some(pin.clone()), skills, ..Default::default() };
    let status = registry.resolve(pb::ResolveRequest { fence: Some(fence), ..request }).await.unwrap_err();
    let details = tonic_types::pb::Status::decode(status.details()).unwrap().details;
    let url = format!("type.googleapis.com/{}", pb::Problem::full_name());
    let detail = details.iter().find(|detail| detail.type_url == url).unwrap();
    let here = pb::Problem::decode(&*detail.value).unwrap();
    assert_eq!(there["reason"], here.reason);
    assert_eq!(there["detail"], here.detail);
    assert_eq!((&there["agent"], &there["revision"]), (&json!(here.agent), &json!(here.revision)));
    let conditions: Vec<Value> = here
        .conditions
        .iter()
        .map(|c| {
            let outcome = c.outcome().as_str_name().trim_start_matches("CONDITION_OUTCOME_").to_lowercase();
            json!({ "condition": c.condition, "outcome": outcome, "wanted": c.wanted, "found": c.found })
        })
        .collect();
    assert_eq!(there["conditions"], json!(conditions));
    assert_eq!(here.card.as_deref(), Some(card.as_bytes()));
}

/// A store that says nothing is told as what it is, and before the caller has given up.
#[tokio::test(flavor = "multi_thread")]
async fn a_read_of_a_frozen_store_is_refused_before_the_callers_deadline() {
    let cluster = Cluster::start(Settings::default()).await;
    let server = Server::serve(&cluster.url(&cluster.create_database().await)).await;
    let http = Http::to(&server.url());
    http.until_ready().await;
    http.put_card("acme/sum", "", &Card::new(Shape::V03, "Sum").build()).await.expect(201);
    let mut registry = RegistryClient::new(channel(&server).await);
    let any = pb::MaxStaleness { bound: Some(pb::max_staleness::Bound::Any(pb::AnyStaleness {})) };
    cluster.freeze();
    // The shorter one leaves so little between the two that on a busy machine the call's end may come first.
    for (wait_ms, timeout, also) in [(10_000, 2_000, "store_unavailable"), (0, 500, "deadline_exceeded")] {
        let mut asked = tonic::Request::new(pb::GetRevisionRequest {
            agent: "acme/sum".to_owned(),
            which: Some(pb::get_revision_request::Which::Revision(1)),
            max_staleness: Some(any),
            wait_ms: Some(wait_ms),
            ..Default::default()
        });
        let timeout = Duration::from_millis(timeout);
        asked.set_timeout(timeout);
        let began = Instant::now();
        let status = registry.get_revision(asked).await.unwrap_err();
        assert!(began.elapsed() < timeout, "{:?}", began.elapsed());
        let told = status.get_error_details();
        let told = told.error_info().unwrap_or_else(|| panic!("{status:?}"));
        assert!(told.reason == "store_unavailable" || told.reason == also, "wait of {wait_ms} ms: {told:?}");
    }
    cluster.thaw();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_ends_streams_that_would_never_end() {
    let scratch = Scratch::new("grpc-drain");
    let server = Server::serve(&format!("sqlite:{}", scratch.path().join("ledger.db").display())).await;
    Http::to(&server.url()).until_ready().await;
    let mut health = HealthClient::new(channel(&server).await);
    let mut watched = health.watch(HealthCheckRequest::default()).await.unwrap().into_inner();
    assert_eq!(watched.next().await.unwrap().unwrap().status(), ServingStatus::Serving);
    let asked = Instant::now();
    let (status, told) = tokio::join!(server.terminate(), watched.next());
    assert_eq!(told.unwrap().unwrap().status(), ServingStatus::NotServing);
    assert!(watched.next().await.is_none());
    assert!(status.success());
    assert!(asked.elapsed() < Duration::from_secs(5), "a drain waits at most 10 s, and need not here");
}
