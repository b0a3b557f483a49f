//! Streams of events over HTTP.

use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use futures::StreamExt as _;
use http::{HeaderMap, Request};
use serde_json::Value;
use tower::ServiceExt as _;

use super::support::{CARD, Server, card_with};

/// One event.
#[derive(Debug)]
struct Told {
    id: Option<String>,
    event: String,
    data: Value,
}

/// A stream that is read.
struct Events {
    headers: HeaderMap,
    body: BodyDataStream,
}

impl Events {
    async fn of(server: &Server, query: &str, headers: &[(&str, &str)]) -> Self {
        let mut request = Request::get(format!("/v1/watch{query}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::empty()).unwrap();
        let response = server.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        assert_eq!(parts.status, 200);
        Self { headers: parts.headers, body: body.into_data_stream() }
    }

    async fn next(&mut self) -> Option<Told> {
        let frame =
            tokio::time::timeout(Duration::from_secs(10), self.body.next()).await.expect("in time")?;
        let frame = String::from_utf8(frame.unwrap().to_vec()).unwrap();
        let text = frame.strip_suffix("\n\n").expect("a frame is one whole event");
        let mut told = Told { id: None, event: String::new(), data: Value::Null };
        for line in text.split('\n') {
            match line.split_once(": ").unwrap() {
                ("id", id) => told.id = Some(id.to_owned()),
                ("event", event) => event.clone_into(&mut told.event),
                ("data", data) => told.data = serde_json::from_str(data).unwrap(),
                other => panic!("{other:?}"),
            }
        }
        Some(told)
    }

    async fn expect(&mut self, event: &str) -> Told {
        let told = self.next().await.expect("the stream has ended");
        assert_eq!(told.event, event, "{told:?}");
        told
    }
}

#[tokio::test]
async fn stream_tells_a_snapshot_and_then_what_happens() {
    let server = Server::start().await;
    let first = server.put("acme/sum", CARD).await;
    server.put("other/x", CARD).await;
    let mut events = Events::of(&server, "?namespace=acme&agent=acme/sum", &[]).await;
    for (name, value) in
        [("content-type", "text/event-stream"), ("cache-control", "no-store"), ("x-accel-buffering", "no")]
    {
        assert_eq!(events.headers[name], value);
    }
    let stream = events.headers["cardfence-stream"].to_str().unwrap().to_owned();
    let reset = events.expect("reset").await;
    assert_eq!((reset.id, &reset.data["reason"]), (None, &"start".into()));
    let upsert = events.expect("upsert").await;
    assert_eq!((upsert.id, &upsert.data["position"]), (None, &first["position"]));
    assert_eq!(upsert.data["card"]["name"], "Summarizer");
    let synced = events.expect("synced").await;
    assert_eq!(synced.id.as_deref(), reset.data["position"].as_str());
    assert_eq!(synced.data["stream"], stream);
    assert_eq!(events.expect("checkpoint").await.data["set_digest"].as_str().unwrap().len(), 64);

    let second = server.put("acme/sum", &card_with("\"tell\"", "\"say\"")).await;
    let upsert = events.expect("upsert").await;
    assert_eq!(upsert.id.as_deref(), second["position"].as_str());
    let said = &upsert.data;
    assert_eq!((&said["class"], &said["silent"]), (&"breaking".into(), &true.into()));
    assert_eq!(said["raw_digest"], second["raw_digest"]);
    assert!(said.get("freshness").is_none());
    server.send("DELETE", "/v1/agents/acme/sum", &[], b"").await;
    let retired = events.expect("retired").await;
    assert!(retired.data.get("raw_digest").is_none() && retired.data.get("card").is_none());
    assert_eq!(retired.data["revision"], 3);
    server.registry.end_streams();
    let end = events.expect("end").await;
    assert_eq!((end.id, &end.data["reason"]), (None, &"draining".into()));
    assert!(events.next().await.is_none());
}

#[tokio::test]
async fn what_is_below_the_class_moves_and_cards_can_be_left_out() {
    let server = Server::start().await;
    server.put("acme/sum", CARD).await;
    let mut events = Events::of(&server, "?class=breaking&cards=true", &[]).await;
    let mut bare = Events::of(&server, "?cards=false", &[]).await;
    for events in [&mut events, &mut bare] {
        while events.next().await.unwrap().event != "checkpoint" {}
    }
    server.put("acme/sum", &card_with("Sums up", "Sums it up")).await;
    let moved = events.expect("moved").await;
    assert_eq!((&moved.data["class"], &moved.data["silent"]), (&"cosmetic".into(), &false.into()));
    assert!(moved.data.get("card").is_none() && moved.data["content_digest"].is_string());
    let upsert = bare.expect("upsert").await;
    assert!(upsert.data.get("card").is_none());
}

#[tokio::test]
async fn last_event_id_is_where_a_stream_goes_on() {
    let server = Server::start().await;
    let first = server.put("acme/sum", CARD).await;
    let second = server.put("acme/sum", &card_with("1.0.0", "1.0.1")).await;
    let position = |written: &Value| written["position"].as_str().unwrap().to_owned();
    let (first, second) = (position(&first), position(&second));
    for (query, headers) in [
        (format!("?from={first}"), vec![]),
        (String::new(), vec![("last-event-id", first.as_str())]),
        (format!("?from={first}"), vec![("last-event-id", first.as_str())]),
    ] {
        let mut events = Events::of(&server, &query, &headers).await;
        assert_eq!(events.expect("upsert").await.id.as_deref(), Some(second.as_str()));
        assert_eq!(events.expect("synced").await.id.as_deref(), Some(second.as_str()));
    }
    let mut events = Events::of(&server, "?from=1.00000000000000aa", &[]).await;
    assert_eq!(events.expect("reset").await.data["reason"], "history_diverged");
    for (query, headers) in [
        (format!("?from={first}"), vec![("last-event-id", second.as_str())]),
        (String::new(), vec![("last-event-id", "7")]),
        ("?from=7".to_owned(), vec![]),
        ("?class=cosmetic".to_owned(), vec![]),
        ("?class=grave".to_owned(), vec![]),
        ("?cards=no".to_owned(), vec![]),
        ("?agent=acme".to_owned(), vec![]),
        ("?namespace=Acme".to_owned(), vec![]),
        ("?max_staleness=0".to_owned(), vec![]),
    ] {
        let reply = server.get_with(&format!("/v1/watch{query}"), &headers).await;
        assert_eq!(reply.reason(), "invalid_argument", "{query} {headers:?}");
    }
}

#[tokio::test]
async fn proof_is_asked_for_beside_the_stream_and_comes_on_it() {
    let server = Server::start().await;
    server.put("acme/sum", CARD).await;
    let mut events = Events::of(&server, "?agent=acme/sum", &[]).await;
    while events.next().await.unwrap().event != "checkpoint" {}
    let stream = events.headers["cardfence-stream"].to_str().unwrap().to_owned();
    let reply = server.get(&format!("/v1/watermark?stream={stream}&nonce=n-1")).await;
    assert_eq!(reply.status, 200);
    let checkpoint = loop {
        let told = events.expect("checkpoint").await;
        if told.data.get("nonce").is_some() {
            break told;
        }
    };
    assert_eq!((&checkpoint.data["nonce"], &checkpoint.data["staleness_ms"]), (&"n-1".into(), &0.into()));
    let elsewhere = server.get("/v1/watermark?stream=0123&nonce=n").await;
    assert_eq!((elsewhere.status.as_u16(), elsewhere.reason().as_str()), (409, "stream_not_here"));
    for half in [format!("stream={stream}"), "nonce=n".to_owned(), format!("stream={stream}&nonce=a%20b")] {
        assert_eq!(server.get(&format!("/v1/watermark?{half}")).await.reason(), "invalid_argument");
    }
}
