//! What writing comes to, seen through receipts, entries and history.

use std::collections::{BTreeMap, BTreeSet};

use super::{Ledger, agent, bytes_of, checked, outcome, reason, register, retire, small_card};
use crate::card::Change;
use crate::ledger::chain::Verifier;
use crate::ledger::{Body, Expect, Kind, Outcome, REGISTERS_KEPT, RevisionKind, Write};
use crate::terms::{Digest, Position, Reason};

/// What concurrent writers are told is what the ledger holds: every number once, chained from the origin.
pub async fn the_sequence_is_dense_and_chained_under_concurrent_writes(ledger: &Ledger) {
    let versions: Vec<_> = (0..12).map(|version| small_card(&format!("{version}.0.0"), &["a"])).collect();
    let writes = versions.iter().flat_map(|card| {
        (0..5).map(move |number| ledger.submit(register(&format!("load/agent-{number}"), card)))
    });
    let receipts = futures::future::join_all(writes).await;
    let receipts: Vec<_> = receipts.into_iter().map(|receipt| receipt.expect("accepted")).collect();

    let entries = ledger.read_all().await;
    let head = ledger.reading().await.head(0).await.unwrap();
    let mut verifier = Verifier::new(&head.ledger_id);
    for entry in &entries {
        verifier
            .take(entry.seq, &entry.digest, &entry.body_digest, Some(entry.body.as_bytes()))
            .expect("the chain holds");
        assert_eq!(Body::parse(&entry.body).unwrap().seq, entry.seq);
    }
    assert_eq!((verifier.seq(), verifier.digest()), (head.head.seq, head.head.digest));

    let told: BTreeSet<u64> = receipts.iter().map(|receipt| receipt.position.unwrap().seq).collect();
    assert_eq!(told, (1..=60).collect(), "each write made one entry, and no two the same");
    let mut revisions = BTreeMap::new();
    for entry in &entries {
        let body = Body::parse(&entry.body).unwrap();
        let Kind::CardRegistered(facts) = body.kind else { panic!("only cards were registered") };
        let number: &mut u64 = revisions.entry(body.subject).or_default();
        *number += 1;
        assert_eq!(facts.revision, *number, "revisions of an agent count from 1 in ledger order");
    }
    assert_eq!(revisions.len(), 5);
}

pub async fn cards_are_kept_byte_for_byte(ledger: &Ledger) {
    let odd = [
        "\u{feff}".to_owned(),
        format!(" \r\n\t{{ \"name\" :\t\"Wörker \u{1F980}\", {}}}\r\n \n", rest("1.0")),
        format!(
            "{{\"name\":\"\\u0041\\/\\u00e9\",\"x-unknown\":{{\"z\":1.0e+2,\"a\":[ ]}},{}}}",
            rest("1.0")
        ),
        format!("{{{},\"name\":\"日本語 \u{200b}\"}}", rest("1.0\\u0000")),
    ];
    for (number, text) in odd.iter().enumerate().skip(1) {
        let card = checked(text.as_bytes());
        let name = format!("odd/card-{number}");
        let receipt = ledger.register(&name, &card).await;
        let kept = ledger.history.card(&agent(&name), receipt.revision).await.unwrap();
        assert_eq!(kept.as_deref(), Some(text.as_bytes()), "{text:?}");
        let revision = ledger.history.revision(&agent(&name), 1).await.unwrap().unwrap();
        let facts = revision.facts.unwrap();
        assert_eq!(facts.raw_digest, Digest::of(text.as_bytes()));
        assert_eq!(facts.content_digest, card.content_digest());
        assert_eq!(facts.skill_fingerprint, card.skill_fingerprint());
        assert_eq!(facts.negotiation_fingerprint, card.negotiation_fingerprint());
        assert_eq!((facts.generation, facts.card_version.as_deref()), (card.generation(), card.version()));
    }
    let entries = ledger.read_all().await;
    let kept: Vec<_> = entries.iter().filter_map(bytes_of).collect();
    assert_eq!(kept, odd[1..].iter().map(|text| text.as_bytes()).collect::<Vec<_>>());
}

fn rest(version: &str) -> String {
    format!(
        r#""description":"d","url":"https://w.example.com/","version":"{version}","protocolVersion":"0.3.0","capabilities":{{}},"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],"skills":[{{"id":"s","name":"s","description":"d","tags":[]}}]"#
    )
}

pub async fn bodies_keep_any_text(ledger: &Ledger) {
    texts_are_kept(ledger, "quote \" backslash \\ bell \u{7} ü \u{1F980} \u{2028}").await;
}

/// What a database's text type would refuse, and the registry does refuse in a note.
pub async fn bodies_keep_a_nul(ledger: &Ledger) {
    texts_are_kept(ledger, "quote \" backslash \\ nul \u{0} bell \u{7} ü \u{1F980} \u{2028}").await;
}

async fn texts_are_kept(ledger: &Ledger, note: &str) {
    let write =
        Write { note: Some(note.to_owned()), ..register("text/any", &small_card("1.0", &["a\u{0}b"])) };
    ledger.submit(write).await.unwrap();
    let before = small_card("1.0", &["a\u{0}b"]);
    let after = small_card("1.0", &["c"]);
    ledger.submit(register("text/any", &after).against(&before)).await.unwrap();

    let revisions = ledger.history.revisions(&agent("text/any"), None, u64::MAX, 9).await.unwrap();
    assert_eq!(revisions[1].note.as_deref(), Some(note));
    assert_eq!(revisions[0].change, Some(Change::between(&before, &after)));
    assert!(revisions[0].change.as_ref().unwrap().silent);
}

pub async fn a_request_id_returns_its_first_outcome(ledger: &Ledger) {
    let (first, second) = (small_card("1.0", &["a"]), small_card("2.0", &["a", "b"]));
    let create = register("ids/worker", &first).under("anonymous", "create");
    let update = register("ids/worker", &second).under("anonymous", "update");
    let unchanged = register("ids/worker", &second).under("anonymous", "again");

    let created = ledger.submit(create.clone()).await.unwrap();
    assert_eq!((outcome(&created), created.superseded), ((Outcome::Created, 1), false));
    let replayed = ledger.submit(create.clone()).await.unwrap();
    assert_eq!((outcome(&replayed), replayed.superseded), ((Outcome::Created, 1), false));
    assert_eq!((replayed.position, &replayed.change), (created.position, &None));

    let updated = ledger.submit(update.clone()).await.unwrap();
    assert_eq!(outcome(&updated), (Outcome::Updated, 2));
    assert_eq!(updated.change, Some(Change::between(&first, &second)));
    assert_eq!(outcome(&ledger.submit(unchanged.clone()).await.unwrap()), (Outcome::Unchanged, 2));

    let late = ledger.submit(create).await.unwrap();
    assert_eq!(
        (outcome(&late), late.position, late.superseded),
        ((Outcome::Created, 1), created.position, true)
    );
    let replayed = ledger.submit(update).await.unwrap();
    assert_eq!((outcome(&replayed), &replayed.change), ((Outcome::Updated, 2), &updated.change));
    let replayed = ledger.submit(unchanged).await.unwrap();
    assert_eq!((outcome(&replayed), replayed.position), ((Outcome::Unchanged, 2), updated.position));
    assert_eq!(replayed.change, None, "nothing changed, and that is what was told");
    assert_eq!(ledger.read_all().await.len(), 2, "a replay writes nothing");
}

pub async fn a_request_id_names_its_bytes(ledger: &Ledger) {
    request_ids_name_their_bytes(ledger, "anonymous").await;
}

pub async fn a_request_id_is_its_principals_own(ledger: &Ledger) {
    let second = small_card("2.0", &["a"]);
    request_ids_name_their_bytes(ledger, "alice").await;
    let bob = ledger.submit(register("ids/two", &second).under("bob", "same")).await.unwrap();
    assert_eq!(outcome(&bob), (Outcome::Created, 1));
}

async fn request_ids_name_their_bytes(ledger: &Ledger, principal: &str) {
    let (first, second) = (small_card("1.0", &["a"]), small_card("2.0", &["a"]));
    ledger.submit(register("ids/one", &first).under(principal, "same")).await.unwrap();
    let other = ledger.submit(register("ids/one", &second).under(principal, "same")).await;
    assert_eq!(reason(other), Reason::InvalidArgument);
    let other = ledger.submit(register("ids/two", &first).under(principal, "same")).await;
    assert_eq!(reason(other), Reason::InvalidArgument);
    // Only what was accepted is remembered.
    let refused = register("ids/one", &second).under(principal, "refused").expecting(Expect::Absent);
    assert_eq!(reason(ledger.submit(refused).await), Reason::RevisionConflict);
    let accepted = register("ids/one", &second).under(principal, "refused");
    assert_eq!(outcome(&ledger.submit(accepted).await.unwrap()), (Outcome::Updated, 2));
}

pub async fn an_unchanged_register_moves_liveness_only(ledger: &Ledger) {
    let card = small_card("1.0", &["a"]);
    let created = ledger.register("live/worker", &card).await;
    let mut reading = ledger.reading().await;
    let [before] = &reading.liveness(None).await.unwrap()[..] else { panic!("one agent is known") };
    let head = reading.head(0).await.unwrap();

    let unchanged = ledger.register("live/worker", &card).await;
    assert_eq!(outcome(&unchanged), (Outcome::Unchanged, 1));
    assert_eq!(unchanged.position, created.position);
    assert_eq!(reading.head(0).await.unwrap().head, head.head, "no entry");

    let [after] = &reading.liveness(None).await.unwrap()[..] else { panic!("one agent is known") };
    assert!(after.origin_confirmed_at > before.origin_confirmed_at);
}

/// Read from the table itself: which registers there were, what moved since when, and retired agents too.
pub async fn liveness_is_read_since_a_moment(ledger: &Ledger) {
    let card = small_card("1.0", &["a"]);
    ledger.register("live/worker", &card).await;
    let mut reading = ledger.reading().await;
    let [before] = &reading.liveness(None).await.unwrap()[..] else { panic!("one agent is known") };
    ledger.register("live/worker", &card).await;
    let [after] = &reading.liveness(None).await.unwrap()[..] else { panic!("one agent is known") };
    assert_eq!(after.registers, [before.origin_confirmed_at, after.origin_confirmed_at]);
    let since = async |reading: &mut Box<dyn crate::ledger::Reading>, time: crate::terms::Timestamp| {
        reading.liveness(Some(time)).await.unwrap().len()
    };
    assert_eq!(
        since(&mut reading, after.origin_confirmed_at).await,
        1,
        "from that moment on, itself included"
    );
    let later = crate::terms::Timestamp::from_micros(after.origin_confirmed_at.as_micros() + 1);
    assert_eq!(since(&mut reading, later).await, 0);
    ledger.retire("live/worker").await;
    let [retired] = &reading.liveness(None).await.unwrap()[..] else { panic!("one agent is known") };
    assert_eq!(retired, after, "a retirement confirms nothing");
}

pub async fn so_many_registers_are_kept(ledger: &Ledger) {
    let card = small_card("1.0", &["a"]);
    for _ in 0..REGISTERS_KEPT + 3 {
        ledger.register("live/often", &card).await;
    }
    let liveness = ledger.reading().await.liveness(None).await.unwrap();
    let registers = &liveness[0].registers;
    assert_eq!((liveness.len(), registers.len()), (1, REGISTERS_KEPT));
    assert!(registers.is_sorted(), "oldest first");
    assert_eq!(registers.last(), Some(&liveness[0].origin_confirmed_at));
}

pub async fn the_highest_release_counts_unchanged_registers(ledger: &Ledger) {
    let (old, new) = (small_card("1.0", &["a"]), small_card("2.0", &["a"]));
    ledger.submit(register("release/worker", &new).of_release("7")).await.unwrap();
    let unchanged = ledger.submit(register("release/worker", &new).of_release("9")).await.unwrap();
    assert_eq!(outcome(&unchanged), (Outcome::Unchanged, 1));
    let late = ledger.submit(register("release/worker", &old).of_release("8")).await;
    assert_eq!(reason(late), Reason::ReleaseSuperseded);
    // It survives a retirement, and a register without one is not compared.
    ledger.retire("release/worker").await;
    let late = ledger.submit(register("release/worker", &old).of_release("8")).await;
    assert_eq!(reason(late), Reason::ReleaseSuperseded);
    assert_eq!(outcome(&ledger.register("release/worker", &old).await), (Outcome::Created, 3));
    let kept = ledger.history.revision(&agent("release/worker"), 1).await.unwrap().unwrap();
    assert_eq!(kept.facts.unwrap().release.as_deref(), Some("7"));
}

pub async fn what_is_expected_is_checked(ledger: &Ledger) {
    let (one, two, three) = (small_card("1.0", &["a"]), small_card("2.0", &["a"]), small_card("3.0", &["a"]));
    let name = "expect/worker";
    let first = ledger.submit(register(name, &one).expecting(Expect::Absent)).await.unwrap();
    assert_eq!(
        reason(ledger.submit(register(name, &two).expecting(Expect::Absent)).await),
        Reason::RevisionConflict
    );
    let at = |number, seen_at| Expect::Revision { number, seen_at };
    let other_history = Position { seq: 1, tag: crate::terms::Tag(7) };
    for wrong in [at(2, None), at(1, Some(other_history)), Expect::Digest(two.raw_digest())] {
        let refused = ledger.submit(register(name, &two).expecting(wrong)).await;
        assert_eq!(reason(refused), Reason::RevisionConflict, "{wrong:?}");
    }
    ledger.submit(register(name, &two).expecting(at(1, first.position))).await.unwrap();
    ledger.submit(register(name, &three).expecting(Expect::Digest(two.content_digest()))).await.unwrap();
    let gone = retire(name).expecting(at(3, None));
    assert_eq!(outcome(&ledger.submit(gone).await.unwrap()), (Outcome::Retired, 4));
}

pub async fn a_tombstone_is_a_revision_without_a_card(ledger: &Ledger) {
    let name = "gone/worker";
    let (before, after) = (small_card("1.0", &["a"]), small_card("1.0", &["b"]));
    assert_eq!(reason(ledger.submit(retire(name)).await), Reason::AgentNotFound);
    ledger.register(name, &before).await;
    let retired = ledger.retire(name).await;
    assert_eq!((outcome(&retired), &retired.change), ((Outcome::Retired, 2), &Some(Change::retirement())));
    let again = ledger.retire(name).await;
    assert_eq!((outcome(&again), again.position), ((Outcome::Unchanged, 2), retired.position));

    let tombstone = ledger.history.revision(&agent(name), 2).await.unwrap().unwrap();
    assert_eq!((tombstone.kind, tombstone.facts), (RevisionKind::Tombstone, None));
    assert_eq!(tombstone.change, Some(Change::retirement()));
    assert_eq!(ledger.history.card(&agent(name), 2).await.unwrap(), None);
    let entry = ledger.read_all().await.pop().unwrap();
    assert!(entry.card.is_none());
    assert_eq!(Body::parse(&entry.body).unwrap().kind, Kind::CardRetired { revision: 2 });

    // Even the bytes of before: a tombstone equals nothing. The change is against the last card.
    let same = ledger.register(name, &before).await;
    assert_eq!(outcome(&same), (Outcome::Created, 3));
    ledger.retire(name).await;
    let other = ledger.register(name, &after).await;
    assert_eq!(outcome(&other), (Outcome::Created, 5));
    assert_eq!(other.change, Some(Change::between(&before, &after)));
}

pub async fn a_dry_run_writes_nothing(ledger: &Ledger) {
    let card = small_card("1.0", &["a"]);
    let dry = Write { dry_run: true, ..register("dry/worker", &card).under("anonymous", "dry") };
    let receipt = ledger.submit(dry.clone()).await.unwrap();
    assert_eq!((outcome(&receipt), receipt.position), ((Outcome::Created, 1), None));
    assert!(ledger.read_all().await.is_empty());
    assert!(ledger.reading().await.liveness(None).await.unwrap().is_empty());
    let wet = Write { dry_run: false, ..dry };
    assert!(!ledger.submit(wet).await.unwrap().superseded, "the id was not used up");
}

pub async fn similar_names_are_different_agents(ledger: &Ledger) {
    let names = ["a/b", "a-b/a", "a/b-c", "a.b/c", "a_b/c", "0/a", "a/a"];
    for (number, name) in names.iter().enumerate() {
        let card = small_card(&format!("{number}.0"), &["a"]);
        assert_eq!(outcome(&ledger.register(name, &card).await), (Outcome::Created, 1), "{name}");
    }
    for (number, name) in names.iter().enumerate() {
        let revision = ledger.history.revision(&agent(name), 1).await.unwrap().unwrap();
        assert_eq!(revision.agent, agent(name));
        assert_eq!(revision.facts.unwrap().card_version, Some(format!("{number}.0")));
    }
}
