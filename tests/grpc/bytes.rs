//! Bytes that no client of ours would send: each call is answered, and refused in our words where it is refused.

use bytes::Bytes;
use cardfence::proto::v1 as pb;
use http_body_util::Full;
use prost::Message as _;
use tonic::{Code, Status};
use tower::Service as _;

use super::support::{Served, card, said, within};

const RESOLVE: &str = "/cardfence.v1.Registry/Resolve";

/// Sends a body as it is. `None`: it was answered with a message.
async fn send(served: &Served, path: &str, body: impl Into<Bytes>) -> Option<Status> {
    let request = http::Request::post(path)
        .header("content-type", "application/grpc")
        .body(Full::new(body.into()))
        .unwrap();
    let response = served.wire.clone().call(request).await.unwrap();
    Status::from_header_map(response.headers())
}

fn frame(flag: u8, len: usize, message: &[u8]) -> Vec<u8> {
    let mut body = vec![flag];
    body.extend(u32::try_from(len).unwrap().to_be_bytes());
    body.extend(message);
    body
}

fn whole(message: &[u8]) -> Vec<u8> {
    frame(0, message.len(), message)
}

#[tokio::test]
async fn malformed_frames_are_refused_in_our_words() {
    let served = Served::start().await;
    let message = pb::ResolveRequest { agent: "a/b".to_owned(), ..Default::default() }.encode_to_vec();
    let len = message.len();
    for (what, body, reason) in [
        ("nothing", Vec::new(), "invalid_argument"),
        ("half a header", vec![0, 0], "invalid_argument"),
        ("half a message", frame(0, len + 1, &message), "invalid_argument"),
        ("a flag that is none", frame(7, len, &message), "invalid_argument"),
        ("said to be compressed", frame(1, len, &message), "invalid_argument"),
        ("not protobuf", whole(&[0xff; 20]), "invalid_argument"),
        ("no UTF-8", whole(&[0x0a, 2, 0xc3, 0x28]), "invalid_argument"),
        ("said to be large", frame(0, (3 << 20) + 1, &message), "payload_too_large"),
        ("said to be endless", frame(0, usize::try_from(u32::MAX).unwrap(), &[]), "payload_too_large"),
    ] {
        let status = send(&served, RESOLVE, body).await;
        assert_eq!(said(Err::<(), _>(status.expect(what))).reason, reason, "{what}");
    }
}

/// Numbers that look random and are the same each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).unwrap() % sides
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.roll(256)).unwrap()
    }
}

/// One valid message for each method, with as many fields set as it has.
fn messages() -> Vec<(&'static str, Vec<u8>)> {
    let agent = || "acme/a".to_owned();
    let position = || "1.00000000000000aa".to_owned();
    let expect = || Some(pb::Expect { current: Some(pb::expect::Current::Revision("1".to_owned())) });
    let fence = || {
        Some(pb::Fence {
            condition_count: 4,
            max_staleness: Some(within(5_000)),
            min_version: Some("1".to_owned()),
            skills: vec![pb::SkillWanted {
                id: "x".to_owned(),
                input_modes: vec!["text/plain".to_owned()],
                ..Default::default()
            }],
            streaming: true,
            ..Default::default()
        })
    };
    let register = pb::RegisterRequest {
        agent: agent(),
        card: card("2", "y", 0),
        expect: expect(),
        request_id: "r".to_owned(),
        release: Some("1".to_owned()),
        note: Some("n".to_owned()),
        source: Some("s".to_owned()),
        dry_run: true,
        ttl_ms: Some(1_000),
        wait_replicated_ms: Some(0),
    };
    let retire = pb::RetireRequest { agent: agent(), expect: expect(), dry_run: true, ..Default::default() };
    let rollback = pb::RollbackRequest { agent: agent(), to: 1, dry_run: true, ..Default::default() };
    let resolve =
        pb::ResolveRequest { agent: agent(), fence: fence(), wait_ms: Some(0), ..Default::default() };
    let batch = pb::BatchResolveRequest {
        agents: vec![pb::BatchAgent { agent: agent(), fence: fence() }; 3],
        wait_ms: Some(0),
        ..Default::default()
    };
    let filter = pb::AgentFilter { q: Some("a".to_owned()), tag: Some("t".to_owned()), ..Default::default() };
    let list = pb::ListAgentsRequest { filter: Some(filter), page_size: Some(1), ..Default::default() };
    let get = pb::GetRevisionRequest {
        agent: agent(),
        which: Some(pb::get_revision_request::Which::At(position())),
        wait_ms: Some(0),
        ..Default::default()
    };
    let revisions =
        pb::ListRevisionsRequest { agent: agent(), page_token: "00".to_owned(), ..Default::default() };
    let item = pb::OriginItem { agent: agent(), content_digest: cardfence::terms::Digest::of(b"x").tagged() };
    let confirm = pb::ConfirmOriginRequest { items: vec![item; 3] };
    let diff = pb::DiffRevisionsRequest { agent: agent(), from: Some(1), to: Some(1), ..Default::default() };
    let watermark =
        pb::WatermarkRequest { at_least: Some(position()), wait_ms: Some(0), ..Default::default() };
    let start = pb::WatchStart {
        agents: vec![agent()],
        namespaces: vec!["acme".to_owned()],
        class: pb::ChangeClass::Breaking.into(),
        cards: Some(false),
        from: Some("0.00000000000000aa".to_owned()),
        ..Default::default()
    };
    let watch = pb::WatchRequest { request: Some(pb::watch_request::Request::Start(start)) };
    let ledger = pb::ReadLedgerRequest { from: 1, limit: Some(1), wait_ms: Some(0), ..Default::default() };
    let replicas = pb::ListReplicasRequest { within_ms: Some(1_000), wait_ms: Some(0), ..Default::default() };
    let replica = pb::Replica {
        replica: "edge-1".to_owned(),
        role: "edge".to_owned(),
        position: position(),
        version: "1".to_owned(),
        omitted: Some(pb::OmittedReplicas { count: 1, at_least: position() }),
        ..Default::default()
    };
    let report = pb::ReportRequest { replicas: vec![replica] };
    vec![
        ("/cardfence.v1.Registry/Register", register.encode_to_vec()),
        ("/cardfence.v1.Registry/Retire", retire.encode_to_vec()),
        ("/cardfence.v1.Registry/Rollback", rollback.encode_to_vec()),
        (RESOLVE, resolve.encode_to_vec()),
        ("/cardfence.v1.Registry/BatchResolve", batch.encode_to_vec()),
        ("/cardfence.v1.Registry/ListAgents", list.encode_to_vec()),
        ("/cardfence.v1.Registry/GetRevision", get.encode_to_vec()),
        ("/cardfence.v1.Registry/ListRevisions", revisions.encode_to_vec()),
        ("/cardfence.v1.Registry/ConfirmOrigin", confirm.encode_to_vec()),
        ("/cardfence.v1.Registry/DiffRevisions", diff.encode_to_vec()),
        ("/cardfence.v1.Watch/Watermark", watermark.encode_to_vec()),
        ("/cardfence.v1.Watch/Watch", watch.encode_to_vec()),
        ("/cardfence.v1.Admin/ReadLedger", ledger.encode_to_vec()),
        ("/cardfence.v1.Admin/ListReplicas", replicas.encode_to_vec()),
        ("/cardfence.v1.Replication/Report", report.encode_to_vec()),
    ]
}

#[tokio::test]
async fn mutated_messages_are_answered_or_refused_and_never_fail_inside() {
    let served = Served::start().await;
    served.register("acme/a", card("1", "x", 0)).await;
    let mut dice = Dice(0x5eed);
    let (mut answered, mut refused) = (0, 0);
    for (path, message) in messages() {
        for round in 0..300 {
            let mut mutated = message.clone();
            for _ in 0..round % 5 {
                let at = dice.roll(mutated.len());
                match dice.roll(3) {
                    0 => mutated[at] = dice.byte(),
                    1 => mutated.insert(at, dice.byte()),
                    _ => drop(mutated.remove(at)),
                }
            }
            match send(&served, path, whole(&mutated)).await {
                None => answered += 1,
                Some(status) => {
                    assert_ne!(status.code(), Code::Internal, "{path}: {mutated:?}");
                    assert!(said(Err::<(), _>(status)).len <= 4 * 1024);
                    refused += 1;
                }
            }
        }
    }
    assert!(answered > 300 && refused > 300, "{answered} answered, {refused} refused");
}
