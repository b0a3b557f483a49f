//! HTTP itself, byte by byte: what a router in a test does not show.

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use super::support::{Served, header};

const CARD: &[u8] = b"{ \"name\": \"x\", \"url\": \"https://x.example\", \"version\": \"1\" }\n";
const PATH: &str = "/v1/agents/acme/x";
const RAW: &str = "/agents/acme/x/.well-known/agent-card.json";

#[tokio::test]
async fn head_and_not_modified_have_no_body_and_keep_the_connection() {
    let served = Served::start().await;
    let registered = served.put("acme/x", CARD).await;
    let tag = format!("\"{}\"", registered["raw_digest"].as_str().unwrap());
    let mut connection = served.connect().await;
    connection.send(format!("HEAD {RAW} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await;
    let head = connection.head().await;
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    assert_eq!(header(&head, "content-length"), CARD.len().to_string());
    let conditional = format!("GET {RAW} HTTP/1.1\r\nHost: x\r\nIf-None-Match: {tag}\r\n\r\n");
    connection.send(conditional.as_bytes()).await;
    let head = connection.head().await;
    assert!(head.starts_with("HTTP/1.1 304"), "{head}");
    assert_eq!(header(&head, "etag"), tag);
    assert_ne!(header(&head, "content-length"), "0", "a 304 tells the length of the card or none");
    connection.send(format!("GET {RAW} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await;
    let head = connection.head().await;
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    assert_eq!(connection.body(CARD.len()).await, CARD);
}

#[tokio::test]
async fn a_card_that_is_too_large_is_refused_before_it_is_sent() {
    let served = Served::start().await;
    let mut connection = served.connect().await;
    let head =
        format!("PUT {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: 300000\r\nExpect: 100-continue\r\n\r\n");
    connection.send(head.as_bytes()).await;
    let head = connection.head().await;
    assert!(head.starts_with("HTTP/1.1 413"), "{head}");
    let length = header(&head, "content-length").parse().unwrap();
    let problem: serde_json::Value = serde_json::from_slice(&connection.body(length).await).unwrap();
    assert_eq!(problem["reason"], "payload_too_large");
}

#[tokio::test]
async fn a_body_that_ends_early_registers_nothing() {
    let served = Served::start().await;
    let mut connection = served.connect().await;
    connection
        .send(format!("PUT {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n").as_bytes())
        .await;
    connection.send(CARD).await;
    connection.finish().await;
    connection.rest().await;
    let reply = served.client.get(served.url(PATH)).send().await.unwrap();
    assert_eq!(reply.status(), 404);
}

#[tokio::test]
async fn both_versions_of_http_are_spoken() {
    let served = Served::start().await;
    let client = reqwest::Client::builder().http2_prior_knowledge().no_proxy().build().unwrap();
    let reply = client.put(served.url(PATH)).body(CARD).send().await.unwrap();
    assert_eq!((reply.status().as_u16(), reply.version()), (201, reqwest::Version::HTTP_2));
    let reply = client.get(served.url(RAW)).send().await.unwrap();
    assert_eq!(reply.bytes().await.unwrap(), CARD);
    let reply = client.head(served.url(PATH)).send().await.unwrap();
    assert_eq!(reply.status(), 200);
    assert!(reply.bytes().await.unwrap().is_empty());
    let reply = served.client.get(served.url(RAW)).send().await.unwrap();
    assert_eq!(reply.version(), reqwest::Version::HTTP_11);
}

/// What a request is made of, in the right places or not.
fn pieces() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let words: Vec<&'static [u8]> = vec![
        b"GET ",
        b"PUT ",
        b"POST ",
        b"HEAD ",
        b"/v1/agents/a/b",
        b"/v1/resolve",
        b"/v1/agents",
        b"?",
        b"skill=%",
        b";in=",
        b"%ff",
        b" HTTP/1.1\r\n",
        b"Host: x\r\n",
        b"\r\n",
        b"Content-Length: 3\r\n",
        b"abc",
        b"\0",
        b"\xff",
        b"If-None-Match: \"\r\n",
        b"Cache-Control: max-age=\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"0\r\n\r\n",
        b"Cardfence-Nonce: \xe4\r\n",
        b"Idempotency-Key: \r\n",
        b"{\"agents\":[]}",
    ];
    let word = prop::sample::select(words).prop_map(<[u8]>::to_vec);
    let noise = prop::collection::vec(any::<u8>(), 0..20);
    prop::collection::vec(prop_oneof![4 => word, 1 => noise], 1..14)
}

#[tokio::test]
async fn random_bytes_on_a_connection_leave_the_server_well() {
    let served = Served::start().await;
    served.put("acme/x", CARD).await;
    let mut runner = TestRunner::deterministic();
    let mut answered = 0;
    for _ in 0..1_000 {
        let bytes = pieces().new_tree(&mut runner).unwrap().current().concat();
        let mut connection = served.connect().await;
        connection.send(&bytes).await;
        connection.finish().await;
        let answer = connection.rest().await;
        assert!(!answer.starts_with(b"HTTP/1.1 5"), "{:?}", String::from_utf8_lossy(&bytes));
        answered += usize::from(answer.starts_with(b"HTTP/1.1"));
    }
    assert!(answered > 100, "{answered} were answered at all");
    let reply = served.client.get(served.url(RAW)).send().await.unwrap();
    assert_eq!(reply.bytes().await.unwrap(), CARD);
}
