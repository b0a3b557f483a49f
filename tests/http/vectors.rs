//! The vectors that others' implementations agree on, asked over the wire.

use serde_json::Value;

use super::support::Served;

const VECTORS: &str = include_str!("../fixtures/fingerprints.jsonl");

#[tokio::test]
async fn fingerprints_and_content_digests_are_those_of_the_vectors() {
    let served = Served::start().await;
    let mut count = 0;
    for (n, line) in VECTORS.lines().enumerate() {
        let vector: Value = serde_json::from_str(line).unwrap();
        let case = vector["case"].as_str().unwrap();
        let fingerprint = &vector["skill_fingerprint"];
        let content = format!("sha256:{}", vector["content_digest"].as_str().unwrap());
        let agent = format!("vectors/v{n}");
        let registered = served.put(&agent, vector["card"].to_string().as_bytes()).await;
        assert_eq!(registered["skill_fingerprint"], *fingerprint, "{case}");
        assert_eq!(registered["content_digest"], content, "{case}");
        let reply = served.client.get(served.url(&format!("/v1/agents/{agent}"))).send().await.unwrap();
        assert_eq!(reply.headers()["cardfence-skill-fingerprint"], fingerprint.as_str().unwrap(), "{case}");
        let envelope: Value = serde_json::from_slice(&reply.bytes().await.unwrap()).unwrap();
        assert_eq!(envelope["skill_fingerprint"], *fingerprint, "{case}");
        assert_eq!(envelope["content_digest"], content, "{case}");
        count += 1;
    }
    assert_eq!(count, 25);
}
