//! What a store promises to the writer.

use std::time::Duration;

use super::{
    Ledger, PATIENCE, agent, outcome, reason, register, retire, small_card, start_writer, start_writer_with,
};
use crate::ledger::write::LivenessRow;
use crate::ledger::{
    Body, Entry, Expect, Key, Kind, Outcome, Receipt, Revision, RevisionKind, Rows, Txn, Write, WriteError,
    chain,
};
use crate::telemetry::Metrics;
use crate::terms::{Digest, Principal, Reason, Timestamp};

/// Submits writes so that all but the first share a batch: the first is what the writer waits with for a lock
/// that is held elsewhere, and the others gather behind it.
async fn in_one_batch(ledger: &Ledger, mut writes: Vec<Write>) -> Vec<Result<Receipt, WriteError>> {
    let held = ledger.store().begin().await.unwrap();
    let metrics = Metrics::new();
    let (writer, _stop) = start_writer_with(ledger.store(), metrics.clone());
    let rest = writes.split_off(1);
    let first = futures::future::join_all(writes.into_iter().map(|write| writer.submit(write)));
    let others = async {
        waiting(&metrics, 0).await;
        let all = rest.len();
        let submitted = futures::future::join_all(rest.into_iter().map(|write| writer.submit(write)));
        let release = async {
            waiting(&metrics, all).await;
            drop(held);
        };
        futures::future::join(submitted, release).await.0
    };
    let (mut answers, others) = futures::future::join(first, others).await;
    answers.extend(others);
    answers
}

/// Waits until so many writes wait for the writer, none of which it has taken.
async fn waiting(metrics: &Metrics, count: usize) {
    let until = tokio::time::Instant::now() + PATIENCE;
    // Polled once, a submitted write is in the queue.
    tokio::task::yield_now().await;
    while metrics.write_queue.get() != i64::try_from(count).unwrap() {
        assert!(
            tokio::time::Instant::now() < until,
            "{} writes wait, not {count}",
            metrics.write_queue.get()
        );
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

pub async fn a_batch_is_judged_in_order(ledger: &Ledger) {
    let (one, two) = (small_card("1.0", &["a"]), small_card("2.0", &["a"]));
    let name = "batch/worker";
    let answers = in_one_batch(
        ledger,
        vec![
            register("batch/first", &one),
            register(name, &one),
            register(name, &two).expecting(Expect::Revision { number: 1, seen_at: None }),
            register(name, &two),
            register(name, &one).expecting(Expect::Absent),
            retire(name).under("anonymous", "gone"),
            retire(name),
            retire(name).under("anonymous", "gone"),
            register(name, &one).expecting(Expect::Absent),
        ],
    )
    .await;
    let told: Vec<_> = answers.iter().map(|answer| answer.as_ref().ok().map(outcome)).collect();
    let expected = [
        Some((Outcome::Created, 1)),
        Some((Outcome::Created, 1)),
        Some((Outcome::Updated, 2)),
        Some((Outcome::Unchanged, 2)),
        None,
        Some((Outcome::Retired, 3)),
        Some((Outcome::Unchanged, 3)),
        Some((Outcome::Retired, 3)),
        Some((Outcome::Created, 4)),
    ];
    assert_eq!(told, expected, "{answers:?}");
    let revisions = ledger.history.revisions(&agent(name), None, u64::MAX, 10).await.unwrap();
    assert_eq!(revisions.iter().map(|revision| revision.number).collect::<Vec<_>>(), [4, 3, 2, 1]);
    let change = answers[2].as_ref().unwrap().change.clone();
    assert_eq!(revisions[2].change, change, "told and kept alike");
    assert_eq!(change, Some(crate::card::Change::between(&one, &two)));
    assert_eq!(ledger.read_all().await.len(), 5);
}

pub async fn a_bad_write_fails_alone(ledger: &Ledger) {
    let card = small_card("1.0", &["a"]);
    ledger.register("batch/other", &card).await;
    let answers = in_one_batch(
        ledger,
        vec![
            register("batch/a", &card),
            register("batch/b", &card),
            register("batch/other", &small_card("2.0", &["a"])).expecting(Expect::Absent),
            retire("batch/nobody"),
            register("batch/c", &card),
        ],
    )
    .await;
    let accepted: Vec<bool> = answers.iter().map(Result::is_ok).collect();
    assert_eq!(accepted, [true, true, false, false, true]);
    let mut answers = answers.into_iter().skip(2);
    assert_eq!(reason(answers.next().unwrap()), Reason::RevisionConflict);
    assert_eq!(reason(answers.next().unwrap()), Reason::AgentNotFound);
    assert_eq!(ledger.read_all().await.len(), 4);
}

/// Rows as the writer makes them: a retirement without anything before it, which a store has no opinion on.
fn rows(txn: &dyn Txn, name: &str) -> Rows {
    let head = txn.head();
    let body = Body {
        seq: head.seq + 1,
        kind: Kind::CardRetired { revision: 1 },
        subject: name.to_owned(),
        principal: Principal::anonymous(),
        at: txn.now(),
        request_id: "by-hand".parse().unwrap(),
        note: None,
        salt: "00".repeat(16),
    };
    let text = body.to_canonical().unwrap();
    let body_digest = Digest::of(text.as_bytes());
    let digest = chain::link(&head.digest, &body_digest);
    let entry = Entry { seq: head.seq + 1, digest, body_digest, body: text.into(), card: None };
    let revision = Revision {
        agent: agent(name),
        number: 1,
        position: entry.position(),
        kind: RevisionKind::Tombstone,
        registered_at: txn.now(),
        registered_by: Principal::anonymous(),
        note: None,
        facts: None,
        change: None,
    };
    let liveness = LivenessRow {
        agent: agent(name),
        revision: 1,
        origin_confirmed_at: txn.now(),
        registers: vec![txn.now()],
        release: None,
        lease: None,
    };
    Rows {
        entries: vec![entry],
        revisions: vec![(revision, None)],
        requests: Vec::new(),
        liveness: vec![liveness],
    }
}

fn key(name: &str, request_id: &str, expect_seq: Option<u64>) -> Key {
    let request_id = request_id.parse().unwrap();
    Key { agent: agent(name), principal: Principal::anonymous(), request_id, expect_seq }
}

pub async fn a_dropped_transaction_leaves_nothing(ledger: &Ledger) {
    ledger.register("drop/before", &small_card("1.0", &["a"])).await;
    let store = ledger.store();
    let head = store.begin().await.unwrap().head();
    for step in 0..3 {
        let mut txn = store.begin().await.unwrap();
        assert_eq!(txn.head(), head, "after step {step}");
        if step > 0 {
            txn.lookup(&[key("drop/worker", "x", None)]).await.unwrap();
        }
        if step > 1 {
            let rows = rows(&*txn, "drop/worker");
            txn.append(&rows).await.unwrap();
        }
        drop(txn);
    }
    assert_eq!(ledger.reading().await.head(0).await.unwrap().head, head);
    assert_eq!(ledger.history.revision(&agent("drop/worker"), 1).await.unwrap(), None);
    assert_eq!(ledger.reading().await.liveness(None).await.unwrap().len(), 1);

    // The same rows, committed, are there; and the writer goes on after them.
    let mut txn = store.begin().await.unwrap();
    let rows = rows(&*txn, "drop/worker");
    txn.append(&rows).await.unwrap();
    txn.commit().await.unwrap();
    assert_eq!(ledger.register("drop/after", &small_card("1.0", &["a"])).await.position.unwrap().seq, 3);
    assert_eq!(ledger.read_all().await.len(), 3);
}

/// A caller that gives up while it waits for the lock, or while a statement runs, blocks nobody.
pub async fn an_abandoned_wait_holds_nothing(ledger: &Ledger) {
    let store = ledger.store();
    let held = store.begin().await.unwrap();
    for _ in 0..3 {
        let waiting = tokio::time::timeout(Duration::from_millis(30), store.begin()).await;
        assert!(waiting.is_err(), "the lock is held");
    }
    drop(held);
    for millis in [0, 1, 2, 5] {
        let _ = tokio::time::timeout(Duration::from_micros(millis * 300), async {
            let mut txn = store.begin().await.unwrap();
            txn.lookup(&[key("wait/worker", "x", None)]).await.unwrap();
            let rows = rows(&*txn, "wait/worker");
            txn.append(&rows).await.unwrap();
            std::future::pending::<()>().await;
        })
        .await;
    }
    let started = std::time::Instant::now();
    let receipt = ledger.register("wait/worker", &small_card("1.0", &["a"])).await;
    assert_eq!((outcome(&receipt), receipt.position.unwrap().seq), ((Outcome::Created, 1), 1));
    assert!(started.elapsed() < PATIENCE / 3, "took {:?}", started.elapsed());
}

pub async fn what_the_lock_shows_is_what_was_committed(ledger: &Ledger) {
    let (one, two) = (small_card("1.0", &["a"]), small_card("2.0", &["b"]));
    let create = register("seen/worker", &one).under("anonymous", "create").of_release("4");
    let created = ledger.submit(create).await.unwrap();
    let updated = ledger.submit(register("seen/worker", &two).under("anonymous", "update")).await.unwrap();
    ledger.register("seen/gone", &one).await;
    let gone = ledger.retire("seen/gone").await;

    let first = ledger.history.digest_at(1).await.unwrap();

    let mut txn = ledger.store().begin().await.unwrap();
    let keys = [
        key("seen/worker", "update", Some(1)),
        key("seen/gone", "create", Some(0)),
        key("seen/nobody", "nothing", Some(99)),
        key("seen/worker", "nothing", None),
    ];
    let seen = txn.lookup(&keys).await.unwrap();
    assert_eq!(seen.len(), 4);

    let current = seen[0].current.as_ref().unwrap();
    assert_eq!((current.number, Some(current.position)), (2, updated.position));
    assert_eq!((current.kind, current.raw_digest), (RevisionKind::Card, Some(two.raw_digest())));
    assert_eq!(
        (current.content_digest, current.last_card),
        (Some(two.content_digest()), Some(two.raw_digest()))
    );
    let prior = seen[0].request.as_ref().unwrap();
    assert_eq!(
        (prior.outcome, prior.revision, Some(prior.position)),
        (Outcome::Updated, 2, updated.position)
    );
    assert_eq!(prior.change, updated.change);
    assert_eq!((seen[0].release.as_deref(), seen[0].registers.len()), (Some("4"), 2));
    assert_eq!(seen[0].digest_at_expected, first);

    let current = seen[1].current.as_ref().unwrap();
    assert_eq!((current.number, Some(current.position)), (2, gone.position));
    assert_eq!((current.kind, current.raw_digest), (RevisionKind::Tombstone, None));
    assert_eq!((current.content_digest, current.last_card), (None, Some(one.raw_digest())));
    let prior = seen[1].request.as_ref().unwrap();
    assert_eq!(
        (prior.outcome, Some(prior.position)),
        (Outcome::Created, created.position),
        "another agent's"
    );
    assert_eq!(seen[1].digest_at_expected, Some(chain::origin(txn.ledger_id())));

    assert!(seen[2].current.is_none() && seen[2].request.is_none() && seen[2].release.is_none());
    assert!(seen[2].registers.is_empty() && seen[2].digest_at_expected.is_none());
    assert!(seen[3].current.is_some() && seen[3].request.is_none() && seen[3].digest_at_expected.is_none());
    assert!(txn.lookup(&[]).await.unwrap().is_empty());
}

pub async fn forgotten_requests_may_be_used_again(ledger: &Ledger) {
    let (one, two) = (small_card("1.0", &["a"]), small_card("2.0", &["a"]));
    ledger.submit(register("forget/worker", &one).under("anonymous", "old")).await.unwrap();
    let store = ledger.store();
    let mut txn = store.begin().await.unwrap();
    let before = txn.now();
    assert_eq!(txn.forget_requests(Timestamp::from_micros(0)).await.unwrap(), 0);
    txn.commit().await.unwrap();
    ledger.submit(register("forget/other", &one).under("anonymous", "new")).await.unwrap();

    let mut txn = store.begin().await.unwrap();
    assert_eq!(txn.forget_requests(before).await.unwrap(), 1);
    drop(txn);
    let reused = register("forget/worker", &two).under("anonymous", "old");
    assert_eq!(reason(ledger.submit(reused.clone()).await), Reason::InvalidArgument, "it was rolled back");

    let mut txn = store.begin().await.unwrap();
    assert_eq!(txn.forget_requests(before).await.unwrap(), 1);
    txn.commit().await.unwrap();
    assert_eq!(outcome(&ledger.submit(reused).await.unwrap()), (Outcome::Updated, 2));
    let kept = register("forget/other", &two).under("anonymous", "new");
    assert_eq!(reason(ledger.submit(kept).await), Reason::InvalidArgument, "later ids are kept");
}

/// Two writers, as two nodes have them, take their numbers under one lock.
pub async fn two_writers_stay_dense(ledger: &Ledger) {
    let (second, _stop) = start_writer(ledger.store());
    let card = small_card("1.0", &["a"]);
    let writes = (0..80).map(|number| {
        let writes = if number % 2 == 0 { &ledger.writes } else { &second };
        writes.submit(register(&format!("two/agent-{number}"), &card))
    });
    for answer in futures::future::join_all(writes).await {
        answer.expect("accepted");
    }
    let entries = ledger.read_all().await;
    let ledger_id = ledger.reading().await.head(0).await.unwrap().ledger_id;
    let mut verifier = chain::Verifier::new(&ledger_id);
    for entry in &entries {
        verifier.take(entry.seq, &entry.digest, &entry.body_digest, Some(entry.body.as_bytes())).unwrap();
    }
    assert_eq!(entries.len(), 80);
}
