//! The past over the wire: revisions, diffs, and the ledger with its chain.

use cardfence::ledger::chain;
use cardfence::proto::v1 as pb;
use cardfence::terms::Digest;
use tonic::Code;

use super::support::{Served, card, registering, said};

#[tokio::test]
async fn revisions_are_listed_newest_first_and_fetched_with_their_bytes() {
    let served = Served::start().await;
    let mut registry = served.registry.clone();
    let mut positions = Vec::new();
    for version in ["1", "2", "3"] {
        let request = pb::RegisterRequest {
            note: Some(format!("note {version}")),
            release: Some(version.to_owned()),
            source: Some("ci".to_owned()),
            ..registering("acme/a", card(version, "x", 0))
        };
        positions.push(registry.register(request).await.unwrap().into_inner().position.unwrap());
    }
    let retire = pb::RetireRequest { agent: "acme/a".to_owned(), ..Default::default() };
    registry.retire(retire).await.unwrap();

    let mut request =
        pb::ListRevisionsRequest { agent: "acme/a".to_owned(), page_size: Some(3), ..Default::default() };
    let page = registry.list_revisions(request.clone()).await.unwrap().into_inner();
    let numbers: Vec<u64> = page.items.iter().map(|item| item.revision).collect();
    assert_eq!((numbers, page.complete), (vec![4, 3, 2], false));
    let tombstone = &page.items[0];
    assert_eq!((tombstone.kind(), &tombstone.raw_digest), (pb::RevisionKind::Tombstone, &None));
    let third = &page.items[1];
    assert_eq!((third.kind(), third.card_version.as_deref()), (pb::RevisionKind::Card, Some("3")));
    assert_eq!((third.note.as_deref(), third.release.as_deref()), (Some("note 3"), Some("3")));
    assert_eq!((third.source.as_deref(), &third.position), (Some("ci"), &positions[2]));
    assert_eq!(third.change.as_ref().unwrap().class(), pb::ChangeClass::Cosmetic);
    request.page_token = page.next_page_token;
    let page = registry.list_revisions(request).await.unwrap().into_inner();
    assert_eq!((page.items.len(), page.items[0].revision, page.complete), (1, 1, true));

    let get = |which| pb::GetRevisionRequest {
        agent: "acme/a".to_owned(),
        which: Some(which),
        ..Default::default()
    };
    use pb::get_revision_request::Which;
    let second = registry.get_revision(get(Which::Revision(2))).await.unwrap().into_inner();
    assert_eq!(second.card, Some(card("2", "x", 0)));
    let then = registry.get_revision(get(Which::At(positions[0].clone()))).await.unwrap().into_inner();
    assert_eq!((then.revision.unwrap().revision, then.card), (1, Some(card("1", "x", 0))));
    let tombstone = registry.get_revision(get(Which::Revision(4))).await.unwrap().into_inner();
    assert_eq!(tombstone.card, None);
    let none = said(registry.get_revision(get(Which::Revision(5))).await);
    assert_eq!((none.code, none.reason.as_str()), (Code::NotFound, "revision_not_found"));
    let other = said(registry.get_revision(get(Which::At("1.00000000000000aa".to_owned()))).await);
    assert_eq!((other.code, other.reason.as_str()), (Code::OutOfRange, "history_diverged"));
    let neither = pb::GetRevisionRequest { agent: "acme/a".to_owned(), ..Default::default() };
    assert_eq!(said(registry.get_revision(neither).await).code, Code::InvalidArgument);
}

#[tokio::test]
async fn a_diff_shows_what_changed() {
    let served = Served::start().await;
    served.register("acme/a", card("1", "old", 0)).await;
    served.register("acme/a", card("1", "new", 0)).await;
    let mut registry = served.registry.clone();
    let request = pb::DiffRevisionsRequest { agent: "acme/a".to_owned(), ..Default::default() };
    let diff = registry.diff_revisions(request.clone()).await.unwrap().into_inner();
    assert_eq!((diff.from, diff.to), (1, 2));
    assert!(diff.change.unwrap().silent);
    assert!(diff.unified.contains("-      \"id\": \"old\"") && !diff.unified_cut, "{}", diff.unified);
    let reverse = pb::DiffRevisionsRequest { from: Some(2), to: Some(1), ..request };
    let diff = registry.diff_revisions(reverse).await.unwrap().into_inner();
    assert!(diff.unified.contains("+      \"id\": \"old\""));
}

#[tokio::test]
async fn a_diff_that_no_message_holds_is_cut_and_says_so() {
    let served = Served::start().await;
    let deep = |digit: &str| {
        let list = vec![digit; 100_000].join(",");
        let nested = format!("{}{list}{}", "[".repeat(40), "]".repeat(40));
        let text = format!(r#"{{"name":"A","url":"https://a.example","version":"1","x":{nested}}}"#);
        bytes::Bytes::from(text)
    };
    served.register("acme/a", deep("1")).await;
    served.register("acme/a", deep("2")).await;
    let request = pb::DiffRevisionsRequest { agent: "acme/a".to_owned(), ..Default::default() };
    let registry = served.registry.clone();
    let diff =
        registry.max_decoding_message_size(4 << 20).diff_revisions(request).await.unwrap().into_inner();
    assert!(diff.unified_cut && diff.unified.ends_with('…'));
    assert!(prost::Message::encoded_len(&diff) <= 3 << 20);
}

#[tokio::test]
async fn the_ledger_is_read_to_its_end_and_its_chain_holds() {
    let served = Served::start().await;
    let mut registry = served.registry.clone();
    for at in 0..250 {
        let note = Some("\u{1}".repeat(4_096));
        let request = pb::RegisterRequest { note, ..registering("acme/a", card(&at.to_string(), "x", 0)) };
        registry.register(request).await.unwrap();
    }
    let mut admin = served.admin();
    let mut digest = chain::origin("ledger");
    let (mut next, mut seen, mut pages) = (Some(1), 0, 0);
    while let Some(from) = next {
        let request = pb::ReadLedgerRequest { from, ..Default::default() };
        let page = admin.read_ledger(request).await.unwrap().into_inner();
        assert!(prost::Message::encoded_len(&page) <= 3 << 20);
        for entry in page.entries {
            seen += 1;
            assert_eq!(entry.seq, seen);
            let body = Digest::of(entry.body.as_bytes());
            assert_eq!(body.hex(), entry.body_digest);
            digest = Digest::of_both(digest.as_bytes(), body.as_bytes());
            assert_eq!(digest.hex(), entry.digest);
        }
        (next, pages) = (page.next_from, pages + 1);
    }
    assert_eq!(seen, 250);
    assert!(pages > 1, "the entries pass 3 MiB");
    let beyond = pb::ReadLedgerRequest { from: 251, ..Default::default() };
    let beyond = admin.read_ledger(beyond).await.unwrap().into_inner();
    assert_eq!((beyond.entries.len(), beyond.next_from), (0, None));
    let none = pb::ReadLedgerRequest { limit: Some(0), ..Default::default() };
    assert_eq!(said(admin.read_ledger(none).await).code, Code::InvalidArgument);
}

/// A card of 100 skills that take modes of their own, or 300 long ones by default.
fn wide(own: &str) -> bytes::Bytes {
    let modes: Vec<String> = (0..300).map(|n| format!("\"text/{}{n}\"", "m".repeat(400))).collect();
    let skills: Vec<String> = (0..100).map(|n| format!(r#"{{"id":"s{n}","name":"S"{own}}}"#)).collect();
    let (modes, skills) = (modes.join(","), skills.join(","));
    format!(
        r#"{{"name":"A","url":"https://a.example","version":"1","defaultInputModes":[{modes}],"skills":[{skills}]}}"#
    )
    .into()
}

#[tokio::test]
async fn a_done_write_is_no_error_because_its_change_is_large() {
    let served = Served::start().await;
    served.register("acme/a", wide(r#","inputModes":["a/b"]"#)).await;
    let written = served.register("acme/a", wide("")).await;
    assert_eq!(written.revision, 2);
    assert!(prost::Message::encoded_len(&written) <= 3 << 20);
    let change = written.change.unwrap();
    assert!(change.silent && !change.items.is_empty());
    let request = pb::ListRevisionsRequest { agent: "acme/a".to_owned(), ..Default::default() };
    let mut registry = served.registry.clone();
    let page = registry.list_revisions(request).await.unwrap().into_inner();
    assert_eq!(page.items[0].change.as_ref(), Some(&change));
    let request = pb::DiffRevisionsRequest { agent: "acme/a".to_owned(), ..Default::default() };
    let diff =
        registry.max_decoding_message_size(4 << 20).diff_revisions(request).await.unwrap().into_inner();
    assert!(diff.change.unwrap().silent);
}
