//! Writers that never lose track: each register has a request id and is sent again under it until it is
//! answered. What was acknowledged is recorded, to be held against the ledger afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cardfence::ledger::chain::Verifier;
use cardfence::terms::Digest;
use http::Method;
use serde_json::Value;

use crate::support::cards::{Card, Shape};
use crate::support::http::{Http, Reply};

/// An acknowledged register: the revision that was told, and the digest of the bytes that were sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Acked {
    pub(crate) revision: u64,
    pub(crate) position: String,
    pub(crate) raw_digest: String,
    pub(crate) request_id: String,
}

/// What writers share.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// By agent, in the order of acknowledgement.
    pub(crate) acked: Mutex<BTreeMap<String, Vec<Acked>>>,
    pub(crate) retries: AtomicU64,
    pub(crate) stop: AtomicBool,
}

impl Record {
    pub(crate) fn count(&self) -> usize {
        self.acked.lock().unwrap().values().map(Vec::len).sum()
    }
}

/// One PUT under a request id, without retrying.
pub(crate) async fn put(http: &Http, agent: &str, card: &str, request_id: &str) -> Result<Reply, String> {
    let headers = [("content-type", "application/json"), ("idempotency-key", request_id)];
    http.try_send(Method::PUT, &format!("/v1/agents/{agent}"), &headers, card.to_owned()).await
}

/// Registers one card after another as `agent` until told to stop; every one is sent until it is answered.
/// `base` gives the server to send to, which may change between attempts.
pub(crate) async fn write(record: Arc<Record>, agent: String, salt: String, base: impl Fn() -> String) {
    let mut n = 0_u64;
    while !record.stop.load(Ordering::Acquire) {
        n += 1;
        let version = format!("{n}.{salt}");
        let card = Card::new(Shape::V10, &agent).version(&version).build();
        let request_id = format!("{salt}-{}-{n}", agent.replace('/', "-"));
        loop {
            // A connection of its own, since a killed server leaves pooled ones half dead.
            let http = Http::to(&base());
            match put(&http, &agent, &card, &request_id).await {
                Ok(reply) if matches!(reply.status, 200 | 201) => {
                    let json = reply.json();
                    let acked = Acked {
                        revision: json["revision"].as_u64().unwrap(),
                        position: json["position"].as_str().unwrap().to_owned(),
                        raw_digest: json["raw_digest"].as_str().unwrap().to_owned(),
                        request_id: request_id.clone(),
                    };
                    assert_eq!(acked.raw_digest, Digest::of(card.as_bytes()).tagged());
                    record.acked.lock().unwrap().entry(agent.clone()).or_default().push(acked);
                    break;
                }
                Ok(reply) if matches!(reply.status, 503 | 504) => {}
                Ok(reply) => panic!("{}: {}", reply.status, String::from_utf8_lossy(&reply.body)),
                Err(_) => {}
            }
            record.retries.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Reads the whole ledger over the wire and verifies it: dense, chained, each request id once.
pub(crate) async fn verified(http: &Http) -> Vec<Value> {
    let watermark = http.get("/v1/watermark?max_staleness=0&wait=10s").await.expect(200).json();
    let mut verifier = Verifier::new(watermark["ledger_id"].as_str().unwrap());
    let head: u64 = watermark["position"].as_str().unwrap().split('.').next().unwrap().parse().unwrap();
    let mut entries = Vec::new();
    let mut request_ids = BTreeSet::new();
    while verifier.seq() < head {
        let page = http.get(&format!("/v1/ledger?from={}&limit=1000", verifier.seq() + 1)).await.expect(200);
        let before = verifier.seq();
        for line in String::from_utf8(page.body.to_vec()).unwrap().lines() {
            let entry: Value = serde_json::from_str(line).unwrap();
            let digest = |member: &str| entry[member].as_str().unwrap().parse::<Digest>().unwrap();
            let body = serde_json_canonicalizer::to_vec(&entry["body"]).unwrap();
            verifier
                .take(entry["seq"].as_u64().unwrap(), &digest("digest"), &digest("body_digest"), Some(&body))
                .unwrap();
            let request_id = entry["body"]["request_id"].as_str().unwrap().to_owned();
            assert!(request_ids.insert(request_id), "one request made two entries: {entry}");
            entries.push(entry);
        }
        assert!(verifier.seq() > before, "an empty page before the head");
    }
    entries
}

/// Holds what was acknowledged against the ledger: nothing is missing, and nothing is there twice.
pub(crate) fn nothing_is_missing(entries: &[Value], record: &Record) {
    let mut kept: BTreeMap<(String, u64), (String, String)> = BTreeMap::new();
    for entry in entries {
        let body = &entry["body"];
        let text = |member: &str| body[member].as_str().unwrap().to_owned();
        let key = (text("subject"), body["revision"].as_u64().unwrap());
        assert!(kept.insert(key, (text("raw_digest"), text("request_id"))).is_none(), "a revision twice");
    }
    for (agent, all) in record.acked.lock().unwrap().iter() {
        for acked in all {
            let found = kept.get(&(agent.clone(), acked.revision));
            let expected = (acked.raw_digest.clone(), acked.request_id.clone());
            assert_eq!(found, Some(&expected), "acknowledged revision {} of {agent}", acked.revision);
        }
    }
}
