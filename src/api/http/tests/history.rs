//! The past: revisions, what was current at a position, differences, the ledger.

use super::support::{CARD, Server, card_with, members};
use crate::ledger::chain::Verifier;
use crate::terms::Digest;
use crate::wire;

const PATH: &str = "/v1/agents/acme/sum";

/// Three revisions: a card, another card, a tombstone. Their positions.
async fn storied(server: &Server) -> Vec<String> {
    let first = server.put("acme/sum", CARD).await;
    let second = server.put("acme/sum", &card_with("urn:x:one", "urn:x:two")).await;
    let third = server.send("DELETE", PATH, &[], b"").await.json();
    [first, second, third].iter().map(|w| w["position"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn revisions_are_newest_first_and_paged() {
    let server = Server::start().await;
    let positions = storied(&server).await;
    let list = server.get(&format!("{PATH}/revisions")).await;
    assert_eq!(members(&list.json()), ["complete", "freshness", "items", "next_page_token"]);
    let list: wire::List<wire::RevisionItem> = serde_json::from_slice(&list.body).unwrap();
    assert!(list.complete && list.next_page_token.is_none());
    let told: Vec<_> = list.items.iter().map(|i| (i.revision, i.kind.as_str(), i.position.clone())).collect();
    assert_eq!(
        told,
        [
            (3, "tombstone", positions[2].clone()),
            (2, "card", positions[1].clone()),
            (1, "card", positions[0].clone())
        ]
    );
    assert_eq!(list.items[0].raw_digest, None);
    assert_eq!(list.items[1].change.as_ref().unwrap().class, "breaking");
    let first = server.get(&format!("{PATH}/revisions?page_size=2")).await.json();
    assert_eq!((first["items"].as_array().unwrap().len(), &first["complete"]), (2, &false.into()));
    let token = first["next_page_token"].as_str().unwrap();
    let rest = server.get(&format!("{PATH}/revisions?page_size=2&page_token={token}")).await.json();
    assert_eq!((&rest["items"][0]["revision"], &rest["complete"]), (&1.into(), &true.into()));
    assert_eq!(server.get("/v1/agents/acme/none/revisions").await.reason(), "agent_not_found");
}

#[tokio::test]
async fn a_revision_of_the_past_comes_with_its_bytes() {
    let server = Server::start().await;
    storied(&server).await;
    let reply = server.get(&format!("{PATH}/revisions/1")).await;
    assert!(reply.text().contains(std::str::from_utf8(CARD).unwrap()));
    let item: wire::RevisionItem = serde_json::from_slice(&reply.body).unwrap();
    assert_eq!((item.agent.as_deref(), item.revision), (Some("acme/sum"), 1));
    assert!(item.card.is_some() && item.freshness.is_some());
    assert_eq!(reply.header("cardfence-revision"), "1");
    let tombstone = server.get(&format!("{PATH}/revisions/3")).await;
    assert_eq!((tombstone.status.as_u16(), &tombstone.json()["kind"]), (200, &"tombstone".into()));
    assert!(tombstone.json().get("card").is_none());
    assert_eq!(server.get(&format!("{PATH}/revisions/4")).await.reason(), "revision_not_found");
}

#[tokio::test]
async fn what_was_current_at_a_position_is_an_envelope() {
    let server = Server::start().await;
    let positions = storied(&server).await;
    let reply = server.get(&format!("{PATH}?at={}", positions[0])).await;
    let envelope: wire::Envelope = serde_json::from_slice(&reply.body).unwrap();
    assert_eq!((envelope.revision, envelope.raw_digest), (1, Digest::of(CARD).tagged()));
    assert_eq!(envelope.position, positions[0]);
    assert_eq!(envelope.freshness.position, positions[2]);
    assert_eq!(reply.header("cardfence-position"), positions[2]);
    assert_eq!(envelope.card.unwrap().get(), std::str::from_utf8(CARD).unwrap().trim());
    let tag = format!("\"{}\"", Digest::of(CARD).tagged());
    let reply = server.get_with(&format!("{PATH}?at={}", positions[0]), &[("if-none-match", &tag)]).await;
    assert_eq!((reply.status.as_u16(), reply.body.len()), (304, 0));
    let reply = server.get(&format!("{PATH}?at={}", positions[2])).await;
    assert_eq!((reply.status.as_u16(), reply.reason().as_str()), (410, "agent_retired"));
    let origin = server.get("/v1/ledger?limit=1").await;
    assert_eq!(origin.status, 200);
    for (query, reason) in
        [("at=1.9f86d081884c7d65", "history_diverged"), ("at=99.9f86d081884c7d65", "position_in_future")]
    {
        assert_eq!(server.get(&format!("{PATH}?{query}")).await.reason(), reason, "{query}");
    }
}

#[tokio::test]
async fn a_diff_tells_the_change_and_shows_it() {
    let server = Server::start().await;
    storied(&server).await;
    let reply = server.get(&format!("{PATH}/diff?from=1&to=2")).await;
    assert_eq!(
        members(&reply.json()),
        ["agent", "change", "freshness", "from", "to", "unified", "unified_cut"]
    );
    let diff: wire::Diff = serde_json::from_slice(&reply.body).unwrap();
    assert!(diff.unified.contains("-") && diff.unified.contains("urn:x:two"), "{}", diff.unified);
    assert_eq!((diff.from, diff.to, diff.change.class.as_str()), (1, 2, "breaking"));
    let same = server.get(&format!("{PATH}/diff?to=2")).await;
    assert_eq!(same.json()["from"], 1);
    assert_eq!(server.get(&format!("{PATH}/diff?from=1&to=3")).await.reason(), "invalid_argument");
    assert_eq!(server.get(&format!("{PATH}/diff?from=1&to=9")).await.reason(), "revision_not_found");
}

#[tokio::test]
async fn a_diff_past_three_mebibytes_is_cut_and_says_so() {
    let server = Server::start().await;
    // Indented forty deep each line is long; every text needs escapes, and so does what names the many items.
    let deep = |digit: char| {
        let list = vec![format!("\"{digit}\\\"\""); 35_000].join(",");
        let skills: Vec<String> =
            (0..20).map(|n| format!(r#"{{"id":"{digit}{n}{}"}}"#, "\\u0001".repeat(300))).collect();
        format!(
            r#"{{"name":"A","url":"https://a.example","version":"1","skills":[{}],"x":{}{list}{}}}"#,
            skills.join(","),
            "[".repeat(40),
            "]".repeat(40)
        )
    };
    for digit in ['1', '2'] {
        server.put("acme/sum", deep(digit).as_bytes()).await;
    }
    let reply = server.get(&format!("{PATH}/diff")).await;
    assert!(reply.body.len() <= 3 * 1024 * 1024, "{}", reply.body.len());
    let diff: wire::Diff = serde_json::from_slice(&reply.body).unwrap();
    assert!(diff.unified_cut && diff.unified.ends_with('…') && diff.unified.len() > 900_000);
    assert_eq!(diff.change.items.len() as u64 + diff.change.items_omitted, 40);
}

#[tokio::test]
async fn ledger_lines_verify_as_they_stand() {
    let server = Server::start().await;
    storied(&server).await;
    let id = server.get("/v1/watermark").await.json()["ledger_id"].as_str().unwrap().to_owned();
    let reply = server.get("/v1/ledger").await;
    assert_eq!(reply.header("content-type"), "application/x-ndjson");
    let mut verifier = Verifier::new(&id);
    for line in reply.text().lines() {
        let entry: wire::LedgerEntry = serde_json::from_str(line).unwrap();
        let body = entry.body.unwrap();
        let (digest, body_digest) = (entry.digest.parse().unwrap(), entry.body_digest.parse().unwrap());
        verifier.take(entry.seq, &digest, &body_digest, Some(body.get().as_bytes())).unwrap();
        assert_eq!(members(&serde_json::from_str(line).unwrap()), ["body", "body_digest", "digest", "seq"]);
    }
    assert_eq!(verifier.seq(), 3);
    let seqs = |text: &str| -> Vec<u64> {
        let seq = |line| serde_json::from_str::<wire::LedgerEntry>(line).unwrap().seq;
        text.lines().map(seq).collect()
    };
    assert_eq!(seqs(server.get("/v1/ledger?from=2").await.text()), [2, 3]);
    assert_eq!(seqs(server.get("/v1/ledger?from=2&limit=1").await.text()), [2]);
    assert_eq!(server.get("/v1/ledger?from=4").await.text(), "");
}

#[tokio::test]
async fn the_ledger_past_three_mebibytes_is_read_in_fewer_lines() {
    let server = Server::start().await;
    let note = "%01".repeat(4_096);
    for n in 0..150 {
        let card = card_with("1.0.0", &format!("1.0.{n}"));
        let reply = server.send("PUT", &format!("/v1/agents/acme/sum?note={note}"), &[], &card).await;
        assert!(reply.status.is_success(), "{}", reply.text());
    }
    let (mut from, mut seen) = (1, Vec::new());
    loop {
        let reply = server.get(&format!("/v1/ledger?from={from}")).await;
        assert!(reply.body.len() <= 3 * 1024 * 1024, "{}", reply.body.len());
        let lines: Vec<u64> = reply
            .text()
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["seq"].as_u64().unwrap())
            .collect();
        let Some(last) = lines.last() else { break };
        assert!(lines.len() < 150, "one answer does not hold them");
        from = last + 1;
        seen.extend(lines);
    }
    assert_eq!(seen, (1..=150).collect::<Vec<u64>>());
}
