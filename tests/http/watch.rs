//! Streams through the whole server: what bounds requests does not bound them.

use std::time::Duration;

use cardfence::server::Serving;

use crate::support::{Served, header};

const CARD: &[u8] = br#"{"name":"A","url":"https://a.example/rpc","version":"1","skills":[]}"#;

#[tokio::test]
async fn streams_hold_no_request_up_and_outlive_its_time() {
    let serving =
        Serving { max_requests: 2, request_timeout: Duration::from_millis(500), ..Serving::default() };
    let served = Served::start_with(serving, |tuning| {
        tuning.registry.watch.checkpoint = Duration::from_millis(100);
    })
    .await;
    let mut streams = Vec::new();
    for _ in 0..10 {
        let mut stream = served.connect().await;
        stream.send(b"GET /v1/watch HTTP/1.1\r\nHost: x\r\n\r\n").await;
        let head = stream.head().await;
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert_eq!(header(&head, "content-type"), "text/event-stream");
        streams.push(stream);
    }
    // Longer than a request may take, by what the streams themselves tell.
    for stream in &mut streams {
        let mut seen = String::new();
        while seen.matches("event: checkpoint").count() < 8 {
            seen.push_str(&String::from_utf8(stream.body(1).await).unwrap());
        }
    }
    served.put("acme/a", CARD).await;
    for stream in &mut streams {
        let mut seen = String::new();
        while !seen.contains("event: upsert") {
            seen.push_str(&String::from_utf8(stream.body(1).await).unwrap());
        }
    }
    // Told to stop, the server ends them before all else.
    drop(served);
    for mut stream in streams {
        let rest = String::from_utf8(stream.rest().await).unwrap();
        assert!(rest.contains("event: end\ndata: {\"reason\":\"draining\"}"), "{rest}");
    }
}
