//! Reports, the list of replicas, and writes that wait for them, over the wire.

use cardfence::proto::v1 as pb;
use cardfence::proto::v1::replication_client::ReplicationClient;
use tonic::{Code, Status};

use super::support::{Served, card, registering, said};

fn edge(name: &str, position: &str) -> pb::Replica {
    pb::Replica {
        replica: name.to_owned(),
        role: "edge".to_owned(),
        position: position.to_owned(),
        staleness_ms: Some(3),
        hops: 1,
        version: "0.1.0".to_owned(),
        ..Default::default()
    }
}

async fn report(served: &Served, replicas: Vec<pb::Replica>) -> Result<(), Status> {
    let mut client = ReplicationClient::new(served.channel.clone());
    client.report(pb::ReportRequest { replicas }).await.map(drop)
}

/// Waits until so many replicas are listed.
async fn listed(served: &Served, count: usize) -> pb::ListReplicasResponse {
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    loop {
        let list =
            served.admin().list_replicas(pb::ListReplicasRequest::default()).await.unwrap().into_inner();
        if list.replicas.len() == count {
            return list;
        }
        assert!(std::time::Instant::now() < until, "{list:?}");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn what_is_reported_is_listed_and_waited_for() {
    let served = Served::start().await;
    let written = served.register("acme/a", card("1", "x", 0)).await;
    assert_eq!(written.replicas, None);
    let (at, nowhere) = (written.position.unwrap(), "0.0000000000000000");
    let below = pb::Replica { via: Some("edge-1".to_owned()), silent_ms: 7, ..edge("edge-2", nowhere) };
    report(&served, vec![edge("edge-1", &at), below]).await.unwrap();
    let list = listed(&served, 3).await;
    let told: Vec<_> =
        list.replicas.iter().map(|r| (r.replica.as_str(), r.role.as_str(), r.via.as_deref())).collect();
    let expected =
        [("edge-1", "edge", Some("tester")), ("edge-2", "edge", Some("edge-1")), ("tester", "node", None)];
    assert_eq!((told, list.complete), (expected.to_vec(), true));
    assert_eq!((list.replicas[0].behind, list.replicas[1].behind), (Some(0), None), "no such history");
    assert!(list.replicas[1].silent_ms >= 7 && list.freshness.is_some());
    let request =
        pb::RegisterRequest { wait_replicated_ms: Some(50), ..registering("acme/a", card("2", "x", 0)) };
    let written = served.registry.clone().register(request).await.unwrap().into_inner();
    let replicas = written.replicas.unwrap();
    assert_eq!((replicas.complete, replicas.applied, replicas.missing.len()), (false, 1, 2));
    let at = written.position.unwrap();
    report(&served, vec![edge("edge-1", &at), edge("edge-2", &at)]).await.unwrap();
    let request =
        pb::RetireRequest { agent: "acme/a".to_owned(), wait_replicated_ms: Some(500), ..Default::default() };
    let retired = served.registry.clone().retire(request).await.unwrap().into_inner();
    assert_eq!(retired.replicas.unwrap().missing[0].position, at);
}

#[tokio::test]
async fn malformed_reports_and_waits_are_refused() {
    let served = Served::start().await;
    let fine = || edge("edge-1", "1.00000000000000aa");
    let many = (0..257).map(|n| edge(&format!("edge-{n}"), "1.00000000000000aa")).collect();
    let omitted = Some(pb::OmittedReplicas { count: 1, at_least: String::new() });
    for (replicas, says) in [
        (vec![], "0 replicas: 1 to 256"),
        (many, "257 replicas: 1 to 256"),
        (vec![pb::Replica { replica: String::new(), ..fine() }], "replica: ``"),
        (vec![pb::Replica { replica: "a b".to_owned(), ..fine() }], "replica: `a b`"),
        (vec![pb::Replica { replica: "n".repeat(129), ..fine() }], "1 to 128 visible"),
        (vec![pb::Replica { role: String::new(), ..fine() }], "role: ``"),
        (vec![pb::Replica { version: "\n".to_owned(), ..fine() }], "version: `\\n`"),
        (vec![pb::Replica { via: Some(String::new()), ..fine() }], "via: ``"),
        (vec![pb::Replica { position: "1".to_owned(), ..fine() }], "position: `1` is not a position"),
        (vec![pb::Replica { silent_ms: -1, ..fine() }], "silent_ms of -1 is negative"),
        (vec![pb::Replica { staleness_ms: Some(-1), ..fine() }], "staleness_ms of -1 is negative"),
        (vec![pb::Replica { omitted, ..fine() }], "omitted.at_least: ``"),
        (vec![fine(), fine()], "`edge-1` is reported twice"),
    ] {
        let refused = said(report(&served, replicas).await);
        assert_eq!((refused.code, refused.reason.as_str()), (Code::InvalidArgument, "invalid_argument"));
        assert!(refused.problem.detail.contains(says), "{says} in {}", refused.problem.detail);
    }
    assert_eq!(listed(&served, 1).await.replicas[0].replica, "tester");
    for (wait, says) in [(-1, "wait_replicated_ms of -1 is negative"), (60_001, "too long: at most 1m")] {
        let sent = pb::RegisterRequest {
            wait_replicated_ms: Some(wait),
            ..registering("acme/a", card("1", "x", 0))
        };
        let refused = said(served.registry.clone().register(sent).await);
        assert!(refused.problem.detail.contains(says), "{says} in {}", refused.problem.detail);
    }
    let request = pb::ListReplicasRequest { within_ms: Some(604_800_001), ..Default::default() };
    let refused = said(served.admin().list_replicas(request).await);
    assert!(refused.problem.detail.contains("at most 7d"), "{}", refused.problem.detail);
}
