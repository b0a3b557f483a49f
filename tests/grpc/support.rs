//! A served node, its clients, and the shapes that tests send and expect.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use cardfence::api::grpc::Wire;
use cardfence::clock::Clock;
use cardfence::ledger::memory::Memory;
use cardfence::proto::v1 as pb;
use cardfence::proto::v1::admin_client::AdminClient;
use cardfence::proto::v1::registry_client::RegistryClient;
use cardfence::proto::v1::watch_client::WatchClient;
use cardfence::server::{Node, Parts, Tuning};
use cardfence::telemetry::Metrics;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use prost::{Message as _, Name as _};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use tonic_types::pb as rpc;

/// A node behind a socket.
pub(crate) struct Served {
    pub(crate) memory: Memory,
    pub(crate) drain: CancellationToken,
    pub(crate) channel: Channel,
    pub(crate) registry: RegistryClient<Channel>,
    pub(crate) wire: Wire,
    pub(crate) node: Node,
}

impl Served {
    /// A node that has not proven anything yet, and may never.
    pub(crate) async fn unproven(reachable: bool) -> Self {
        let memory = Memory::new("ledger", Clock::System);
        memory.set_reachable(reachable);
        let parts = Parts::over(&memory, Clock::System);
        let mut tuning = Tuning::named("tester");
        tuning.feed.poll = Duration::from_millis(10);
        tuning.feed.backoff = Duration::from_millis(20);
        let node = Node::start(parts, tuning, Metrics::new());
        let drain = CancellationToken::new();
        let wire = Wire::new(node.registry.clone(), drain.clone());
        let address = listen(wire.clone()).await;
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        let channel = endpoint.connect().await.unwrap();
        let registry = RegistryClient::new(channel.clone()).max_decoding_message_size(4 << 20);
        Self { memory, drain, channel, registry, wire, node }
    }

    pub(crate) async fn start() -> Self {
        let served = Self::unproven(true).await;
        let linearizable = pb::WatermarkRequest {
            max_staleness: Some(within(0)),
            wait_ms: Some(10_000),
            ..pb::WatermarkRequest::default()
        };
        served.watch().watermark(linearizable).await.unwrap();
        served
    }

    pub(crate) fn watch(&self) -> WatchClient<Channel> {
        WatchClient::new(self.channel.clone())
    }

    pub(crate) fn admin(&self) -> AdminClient<Channel> {
        AdminClient::new(self.channel.clone()).max_decoding_message_size(4 << 20)
    }

    pub(crate) async fn register(&self, agent: &str, card: Bytes) -> pb::Written {
        self.registry.clone().register(registering(agent, card)).await.unwrap().into_inner()
    }

    pub(crate) async fn resolve(&self, agent: &str, fence: pb::Fence) -> Result<pb::Resolved, Status> {
        let request =
            pb::ResolveRequest { agent: agent.to_owned(), fence: Some(fence), ..Default::default() };
        self.registry.clone().resolve(request).await.map(tonic::Response::into_inner)
    }
}

async fn listen(wire: Wire) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            // Else a small answer waits 40 ms for the acknowledgement of its headers.
            stream.set_nodelay(true).unwrap();
            let wire = TowerToHyperService::new(wire.clone());
            tokio::spawn(async move {
                let builder = auto::Builder::new(TokioExecutor::new());
                // A client that goes away ends its connection with an error.
                drop(builder.serve_connection(TokioIo::new(stream), wire).await);
            });
        }
    });
    address
}

pub(crate) fn registering(agent: &str, card: Bytes) -> pb::RegisterRequest {
    pb::RegisterRequest { agent: agent.to_owned(), card, ..Default::default() }
}

pub(crate) fn within(millis: i64) -> pb::MaxStaleness {
    pb::MaxStaleness { bound: Some(pb::max_staleness::Bound::WithinMs(millis)) }
}

pub(crate) fn any() -> pb::MaxStaleness {
    pb::MaxStaleness { bound: Some(pb::max_staleness::Bound::Any(pb::AnyStaleness {})) }
}

/// A v1.0 card with one skill and a description of `padding` bytes.
pub(crate) fn card(version: &str, skill: &str, padding: usize) -> Bytes {
    let description = "d".repeat(padding);
    format!(
        r#"{{"name":"A","description":"{description}","supportedInterfaces":[{{"url":"https://a.example.com/rpc","protocolBinding":"JSONRPC","protocolVersion":"1.0"}}],"version":"{version}","capabilities":{{"streaming":true}},"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],"skills":[{{"id":"{skill}","name":"S","description":"d","tags":["t"],"outputModes":["text/plain"]}}]}}"#
    )
    .into()
}

/// What a failed call says, every detail decoded. Fails unless all that must be there is.
pub(crate) struct Said {
    pub(crate) code: Code,
    pub(crate) reason: String,
    pub(crate) problem: pb::Problem,
    /// The bytes of the details, before base64.
    pub(crate) len: usize,
    pub(crate) pushback: Option<String>,
}

pub(crate) fn said<T>(outcome: Result<T, Status>) -> Said {
    let Err(status) = outcome else { panic!("a refusal was expected") };
    let whole = rpc::Status::decode(status.details()).unwrap();
    assert_eq!((whole.code, whole.message.as_str()), (status.code() as i32, status.message()), "{status:?}");
    let detail = |name: &str| {
        let url = format!("type.googleapis.com/{name}");
        whole.details.iter().find(|any| any.type_url == url).map(|any| &*any.value)
    };
    let info = rpc::ErrorInfo::decode(detail("google.rpc.ErrorInfo").unwrap()).unwrap();
    assert_eq!(info.domain, "cardfence");
    let problem = pb::Problem::decode(detail(&pb::Problem::full_name()).unwrap()).unwrap();
    assert_eq!(info.reason, problem.reason);
    let retried = detail("google.rpc.RetryInfo").is_some();
    assert_eq!(retried, problem.retry_after_ms.is_some());
    let pushback = status.metadata().get("grpc-retry-pushback-ms").map(|v| v.to_str().unwrap().to_owned());
    Said { code: status.code(), reason: info.reason, problem, len: status.details().len(), pushback }
}
