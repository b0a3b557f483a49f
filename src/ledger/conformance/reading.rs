//! What reading gives: heads, pages and the past.

use super::{Ledger, agent, bytes_of, checked, small_card};
use crate::ledger::{RevisionKind, chain};
use crate::terms::Tag;

pub async fn an_empty_ledger_has_an_origin(ledger: &Ledger) {
    let mut reading = ledger.reading().await;
    let head = reading.head(0).await.unwrap();
    let origin = chain::origin(&head.ledger_id);
    assert_eq!((head.head.seq, head.head.digest), (0, origin));
    assert_eq!((head.tag_at_asked, head.in_recovery), (Some(Tag::from(&origin)), false));
    assert_eq!(reading.head(1).await.unwrap().tag_at_asked, None);
    assert!(reading.read(0, 10).await.unwrap().is_empty());
    assert!(reading.liveness(None).await.unwrap().is_empty());
    assert_eq!(ledger.history.digest_at(0).await.unwrap(), Some(origin));
    assert_eq!(ledger.history.digest_at(1).await.unwrap(), None);
    assert!(ledger.history.entries(0, 10).await.unwrap().is_empty());
}

pub async fn the_head_is_the_last_entry(ledger: &Ledger) {
    let mut reading = ledger.reading().await;
    let empty = reading.head(0).await.unwrap();
    for number in 1..=5_u64 {
        ledger.register("head/worker", &small_card(&format!("{number}.0"), &["a"])).await;
        // A session that was open before sees what was committed since.
        let head = reading.head(number - 1).await.unwrap();
        assert_eq!((head.head.seq, &head.ledger_id), (number, &empty.ledger_id));
        assert!(head.wall >= empty.wall);
        let before = ledger.history.digest_at(number - 1).await.unwrap();
        assert_eq!(head.tag_at_asked, before.as_ref().map(Tag::from));
        assert_eq!(reading.head(number).await.unwrap().tag_at_asked, Some(Tag::from(&head.head.digest)));
        assert_eq!(reading.head(number + 1).await.unwrap().tag_at_asked, None);
        assert_eq!(reading.head(u64::MAX).await.unwrap().tag_at_asked, None);
        let last = reading.read(number - 1, 10).await.unwrap();
        assert_eq!(last.iter().map(|entry| entry.digest).collect::<Vec<_>>(), [head.head.digest]);
    }
}

pub async fn history_tells_what_was_current(ledger: &Ledger) {
    let name = agent("past/worker");
    let before = small_card("1.0", &["a"]);
    let first = ledger.register("past/worker", &before).await.position.unwrap();
    let other = ledger.register("past/other", &before).await.position.unwrap();
    let second = ledger.register("past/worker", &small_card("2.0", &["a"])).await.position.unwrap();
    let gone = ledger.retire("past/worker").await.position.unwrap();
    let at = async |seq| {
        let revision = ledger.history.revision_at(&name, seq).await.unwrap();
        revision.map(|revision| (revision.number, revision.position))
    };
    assert_eq!(at(0).await, None);
    assert_eq!(at(first.seq).await, Some((1, first)));
    assert_eq!(at(other.seq).await, Some((1, first)), "another agent's entry changes nothing");
    assert_eq!(at(second.seq).await, Some((2, second)));
    assert_eq!(at(gone.seq).await, Some((3, gone)));
    assert_eq!(at(u64::MAX).await, Some((3, gone)));
    assert_eq!(ledger.history.revision_at(&agent("past/other"), first.seq).await.unwrap(), None);
    let revision = ledger.history.revision(&name, 1).await.unwrap().unwrap();
    assert_eq!((revision.kind, revision.position, revision.change), (RevisionKind::Card, first, None));
    assert_eq!(ledger.history.card(&name, 1).await.unwrap().as_ref(), Some(before.bytes()));
}

pub async fn revisions_are_paged_newest_first(ledger: &Ledger) {
    let name = agent("pages/worker");
    for number in 1..=7 {
        ledger.register("pages/worker", &small_card(&format!("{number}.0"), &["a"])).await;
        ledger.register("pages/other", &small_card(&format!("{number}.0"), &["a"])).await;
    }
    let page = async |below, seq, limit| -> Vec<u64> {
        let revisions = ledger.history.revisions(&name, below, seq, limit).await.unwrap();
        revisions.iter().map(|revision| revision.number).collect()
    };
    assert_eq!(page(None, u64::MAX, 3).await, [7, 6, 5]);
    assert_eq!(page(Some(5), u64::MAX, 3).await, [4, 3, 2]);
    assert_eq!(page(Some(2), u64::MAX, 3).await, [1]);
    assert!(page(Some(1), u64::MAX, 3).await.is_empty());
    assert_eq!(page(Some(99), u64::MAX, 100).await, [7, 6, 5, 4, 3, 2, 1]);
    // As it was at the sixth entry: three registers of each agent.
    assert_eq!(page(None, 6, 100).await, [3, 2, 1]);
    assert_eq!(page(Some(3), 6, 1).await, [2]);
    assert!(page(None, 0, 100).await.is_empty());
}

pub async fn entries_are_paged_in_order(ledger: &Ledger) {
    for number in 1..=6 {
        ledger.register("log/worker", &small_card(&format!("{number}.0"), &["a"])).await;
    }
    ledger.retire("log/worker").await;
    let mut reading = ledger.reading().await;
    for (after, limit, expected) in [(0, 3, 1..4), (3, 3, 4..7), (6, 3, 7..8), (7, 3, 8..8), (0, 1000, 1..8)]
    {
        let page = reading.read(after, limit).await.unwrap();
        assert_eq!(page.iter().map(|entry| entry.seq).collect::<Vec<_>>(), expected.collect::<Vec<u64>>());
        assert!(page.iter().all(|entry| entry.card.is_some() == (entry.seq < 7)), "a tombstone has no card");
    }
    assert!(reading.read(u64::MAX, 10).await.unwrap().is_empty());
    let seqs = async |from, limit| -> Vec<u64> {
        let entries = ledger.history.entries(from, limit).await.unwrap();
        assert!(entries.iter().all(|entry| entry.card.is_none()), "without cards");
        entries.iter().map(|entry| entry.seq).collect()
    };
    assert_eq!(seqs(0, 2).await, [1, 2]);
    assert_eq!(seqs(1, 2).await, [1, 2]);
    assert_eq!(seqs(6, 9).await, [6, 7]);
    assert!(seqs(8, 9).await.is_empty());
    for entry in reading.read(0, 10).await.unwrap() {
        assert_eq!(ledger.history.digest_at(entry.seq).await.unwrap(), Some(entry.digest));
    }
}

/// More bytes than one page has room for. A page may be shorter than asked, never empty before the end.
pub async fn large_cards_are_read_whole(ledger: &Ledger) {
    let padding = "x".repeat(250_000);
    let text = |number: u64| {
        format!(
            r#"{{"name":"Large","description":"{padding}","url":"https://w.example.com/","version":"{number}.0","protocolVersion":"0.3.0","capabilities":{{}},"defaultInputModes":[],"defaultOutputModes":[],"skills":[]}}"#
        )
    };
    let cards: Vec<_> = (0..40).map(|number| checked(text(number).as_bytes())).collect();
    let registers = cards.iter().enumerate().map(async |(number, card)| {
        ledger.register(&format!("large/agent-{number}"), card).await.position.unwrap().seq
    });
    let seqs = futures::future::join_all(registers).await;
    let mut reading = ledger.reading().await;
    let mut read = Vec::new();
    while read.len() < cards.len() {
        let page = reading.read(read.len() as u64, 1000).await.unwrap();
        assert!(!page.is_empty(), "the ledger goes on after {}", read.len());
        read.extend(page);
    }
    for (seq, card) in seqs.into_iter().zip(&cards) {
        assert_eq!(bytes_of(&read[seq as usize - 1]).as_ref(), Some(card.bytes()));
    }
}

pub async fn unknown_things_are_absent(ledger: &Ledger) {
    ledger.register("known/worker", &small_card("1.0", &["a"])).await;
    let (known, unknown) = (agent("known/worker"), agent("known/nobody"));
    assert_eq!(ledger.history.revision(&known, 2).await.unwrap(), None);
    assert_eq!(ledger.history.revision(&known, u64::MAX).await.unwrap(), None);
    assert_eq!(ledger.history.revision(&unknown, 1).await.unwrap(), None);
    assert_eq!(ledger.history.revision_at(&unknown, u64::MAX).await.unwrap(), None);
    assert!(ledger.history.revisions(&unknown, None, u64::MAX, 10).await.unwrap().is_empty());
    assert_eq!(ledger.history.card(&known, 2).await.unwrap(), None);
    assert_eq!(ledger.history.card(&unknown, 1).await.unwrap(), None);
    assert_eq!(ledger.history.digest_at(u64::MAX).await.unwrap(), None);
}
