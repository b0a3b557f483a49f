//! The fleet over HTTP: who has reported, and who has applied a write.

use std::time::Duration;

use super::support::{CARD, Server};
use crate::ledger::{History as _, Omitted, Replica, Replicas as _};
use crate::terms::{Position, Tag};

fn edge(name: &str, position: Position) -> Replica {
    Replica {
        replica: name.to_owned(),
        role: "edge".to_owned(),
        position,
        staleness: Some(Duration::from_micros(1)),
        hops: 1,
        version: "0.1.0".to_owned(),
        via: Some("node-1".to_owned()),
        silent: Duration::from_millis(1_500),
        omitted: None,
    }
}

#[tokio::test]
async fn a_write_that_waited_says_who_has_applied_it() {
    let server = Server::start().await;
    let reply = server.send("PUT", "/v1/agents/acme/sum", &[], CARD).await;
    assert!(reply.json().get("replicas").is_none(), "it did not wait");
    let written: Position = reply.json()["position"].as_str().unwrap().parse().unwrap();
    let lagging = edge("edge-2", Position { seq: 0, tag: Tag(0) });
    server.ledger.report(&[edge("edge-1", written), lagging]).await.unwrap();
    for (method, path) in [
        ("PUT", "/v1/agents/acme/sum?wait_replicated=50ms"),
        ("POST", "/v1/agents/acme/sum/rollback?to=1&wait_replicated=0"),
    ] {
        let reply = server.send(method, path, &[], if method == "PUT" { CARD } else { b"" }).await;
        assert_eq!((reply.status.as_u16(), reply.json()["outcome"].as_str()), (200, Some("unchanged")));
        let replicas = &reply.json()["replicas"];
        assert_eq!((&replicas["complete"], &replicas["applied"]), (&false.into(), &2.into()), "{replicas}");
        let missing = &replicas["missing"][0];
        assert_eq!(
            (&missing["replica"], &missing["position"]),
            (&"edge-2".into(), &"0.0000000000000000".into())
        );
        assert!(missing["silent_ms"].as_u64().unwrap() >= 1_500, "{missing}");
        assert!(missing["silent_since"].as_str().unwrap().ends_with('Z'), "{missing}");
    }
    let dry = server.send("PUT", "/v1/agents/acme/sum?wait_replicated=5s&dry_run=true", &[], CARD).await;
    assert!(dry.json().get("replicas").is_none(), "nothing was written");
}

#[tokio::test]
async fn replicas_are_listed_by_name_as_each_said_last() {
    let server = Server::start().await;
    server.put("acme/sum", CARD).await;
    let written: Position =
        server.get("/v1/watermark").await.json()["position"].as_str().unwrap().parse().unwrap();
    let omitted = Some(Omitted { count: 3, at_least: written });
    let origin = server.ledger.digest_at(0).await.unwrap().unwrap();
    let behind = edge("edge-b", Position::new(0, &origin));
    server.ledger.report(&[Replica { omitted, ..edge("edge-c", written) }, behind]).await.unwrap();
    let other = Replica { staleness: None, via: None, ..edge("edge-a", Position { seq: 1, tag: Tag(1) }) };
    server.ledger.report(&[other]).await.unwrap();
    let reply = server.get("/v1/replicas?max_staleness=0&wait=10s").await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let list = reply.json();
    let of = |name: &str| {
        list["items"].as_array().unwrap().iter().map(|item| item[name].clone()).collect::<Vec<_>>()
    };
    assert_eq!(of("replica"), ["edge-a", "edge-b", "edge-c"]);
    assert_eq!(of("behind"), [serde_json::Value::Null, 1.into(), 0.into()]);
    assert_eq!(of("staleness_ms"), [serde_json::Value::Null, 1.into(), 1.into()]);
    assert_eq!(of("via"), [serde_json::Value::Null, "node-1".into(), "node-1".into()]);
    assert!(of("silent_ms").iter().all(|silent| silent.as_u64().unwrap() >= 1_500));
    assert_eq!(list["items"][2]["omitted"]["count"], 3);
    assert_eq!((&list["complete"], &list["freshness"]["served_by"]), (&false.into(), &"node-1".into()));
    assert_eq!(server.get("/v1/replicas?within=1s").await.json()["items"].as_array().unwrap().len(), 0);
    server.lose_store().await;
    assert_eq!(server.get("/v1/replicas?wait=50ms").await.reason(), "store_unavailable");
}
