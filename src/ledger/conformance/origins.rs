//! What confirming an origin is, and what it is not; leases, and the clock that they run on.

use std::time::Duration;

use super::judge::Plain;
use super::{Ledger, agent, outcome, register, small_card};
use crate::ledger::decide::decide;
use crate::ledger::{CONFIRMED_AT_ONCE, Confirmed, Key, Lease, Liveness, Outcome, TICK_MOST};

async fn liveness_of(ledger: &Ledger, name: &str) -> Liveness {
    let rows = ledger.reading().await.liveness(None).await.unwrap();
    rows.into_iter().find(|row| row.agent == agent(name)).expect("the agent is known")
}

pub async fn the_current_card_is_confirmed(ledger: &Ledger) {
    let card = small_card("1.0", &["a"]);
    ledger.register("origin/worker", &card).await;
    let before = liveness_of(ledger, "origin/worker").await;
    let head = ledger.reading().await.head(0).await.unwrap().head;
    for _ in 0..3 {
        let answers = ledger.confirm(&[("origin/worker", &card)]).await;
        let [Confirmed::Done { revision: 1, at, lease: None }] = answers[..] else { panic!("{answers:?}") };
        assert!(at > before.origin_confirmed_at);
        let after = liveness_of(ledger, "origin/worker").await;
        assert_eq!((after.revision, after.origin_confirmed_at), (1, at));
    }
    assert_eq!(ledger.reading().await.head(0).await.unwrap().head, head, "no entry");
    let revisions = ledger.history.revisions(&agent("origin/worker"), None, u64::MAX, 10).await.unwrap();
    assert_eq!(revisions.len(), 1, "no revision");
}

pub async fn another_card_confirms_nothing(ledger: &Ledger) {
    let (old, new) = (small_card("1.0", &["a"]), small_card("2.0", &["a"]));
    ledger.register("origin/worker", &old).await;
    ledger.register("origin/worker", &new).await;
    ledger.register("origin/gone", &old).await;
    ledger.retire("origin/gone").await;
    let before = liveness_of(ledger, "origin/worker").await;
    let asked = [
        ("origin/worker", &*old),
        ("origin/gone", &old),
        ("origin/nobody", &old),
        ("origin/worker", &new),
        ("origin/worker", &old),
    ];
    let answers = ledger.confirm(&asked).await;
    let [other, gone, nobody, done, again] = answers[..] else { panic!("{answers:?}") };
    assert_eq!((other, again), (Confirmed::OtherDigest { revision: 2 }, other));
    assert_eq!((gone, nobody), (Confirmed::Retired { revision: 2 }, Confirmed::NotFound));
    assert!(matches!(done, Confirmed::Done { revision: 2, .. }), "{done:?}");
    let after = liveness_of(ledger, "origin/worker").await;
    assert!(after.origin_confirmed_at > before.origin_confirmed_at);
    ledger.confirm(&asked[..3]).await;
    assert_eq!(liveness_of(ledger, "origin/worker").await, after, "what is refused moves nothing");
    assert!(ledger.confirm(&[]).await.is_empty());
}

pub async fn a_thousand_are_confirmed_at_once(ledger: &Ledger) {
    let card = small_card("1.0", &["a"]);
    let names: Vec<String> = (0..40).map(|number| format!("fleet/agent-{number}")).collect();
    for name in &names {
        ledger.register(name, &card).await;
    }
    // Many times the same ones, out of order: a thousand agents would take longer to register than to confirm.
    let asked: Vec<_> =
        (0..CONFIRMED_AT_ONCE).map(|number| (names[number * 7 % names.len()].as_str(), &*card)).collect();
    let answers = ledger.confirm(&asked).await;
    assert_eq!(answers.len(), CONFIRMED_AT_ONCE);
    assert!(answers.iter().all(|answer| matches!(answer, Confirmed::Done { revision: 1, .. })));
}

/// Whatever comes first: what a heartbeat of the old card confirms is the old card.
pub async fn a_confirmation_races_with_registers(ledger: &Ledger) {
    let name = "race/worker";
    let cards: Vec<_> = (0..12).map(|number| small_card(&format!("{number}.0"), &["a"])).collect();
    ledger.register(name, &cards[0]).await;
    for (number, pair) in (1..).zip(cards.windows(2)) {
        let beats = async {
            let mut last = None;
            for _ in 0..4 {
                let answer = ledger.confirm(&[(name, &pair[0])]).await[0];
                let fine = match answer {
                    Confirmed::Done { revision, .. } => revision == number,
                    Confirmed::OtherDigest { revision } => revision == number + 1,
                    _ => false,
                };
                assert!(fine, "{answer:?} of a card that was revision {number}");
                assert!(
                    !matches!((last, answer), (Some(Confirmed::OtherDigest { .. }), Confirmed::Done { .. })),
                    "an old card came back"
                );
                last = Some(answer);
            }
        };
        let (receipt, ()) = futures::future::join(ledger.register(name, &pair[1]), beats).await;
        assert_eq!(outcome(&receipt), (Outcome::Updated, number + 1));
    }
}

pub async fn heartbeats_are_no_registers(ledger: &Ledger) {
    let card = small_card("1.0", &["a"]);
    ledger.register("beat/worker", &card).await;
    let registered = liveness_of(ledger, "beat/worker").await.registers;
    for _ in 0..5 {
        ledger.confirm(&[("beat/worker", &card)]).await;
    }
    let beaten = liveness_of(ledger, "beat/worker").await;
    assert_eq!(beaten.registers, registered);
    ledger.retire("beat/worker").await;
    let retired = liveness_of(ledger, "beat/worker").await;
    assert_eq!(retired.origin_confirmed_at, beaten.origin_confirmed_at, "a retirement confirms nothing");
}

pub async fn each_register_states_its_lease(ledger: &Ledger) {
    let (one, two) = (small_card("1.0", &["a"]), small_card("2.0", &["a"]));
    let (name, ttl) = ("lease/worker", Duration::from_secs(30));
    let lease = async || liveness_of(ledger, name).await.lease.map(|lease| lease.ttl);
    ledger.submit(register(name, &one).with_lease(ttl)).await.unwrap();
    assert_eq!(lease().await, Some(ttl));
    let unchanged = ledger.submit(register(name, &one).with_lease(ttl * 2)).await.unwrap();
    assert_eq!((outcome(&unchanged), lease().await), ((Outcome::Unchanged, 1), Some(ttl * 2)));
    ledger.submit(register(name, &two).with_lease(ttl)).await.unwrap();
    assert_eq!(lease().await, Some(ttl));
    ledger.register(name, &two).await;
    assert_eq!(lease().await, None, "a register without a lease ends it");
    ledger.submit(register(name, &two).with_lease(ttl)).await.unwrap();
    ledger.retire(name).await;
    assert_eq!(lease().await, None, "a retirement ends it");
}

pub async fn a_confirmation_renews_the_lease(ledger: &Ledger) {
    let card = small_card("1.0", &["a"]);
    let (name, ttl) = ("lease/worker", Duration::from_secs(30));
    ledger.submit(register(name, &card).with_lease(ttl)).await.unwrap();
    let granted = liveness_of(ledger, name).await.lease.unwrap();
    let mut service = granted.confirmed;
    while service == granted.confirmed {
        service = ledger.service().tick().await.unwrap();
    }
    let answers = ledger.confirm(&[(name, &card)]).await;
    let [Confirmed::Done { lease: Some(renewed), at, .. }] = answers[..] else { panic!("{answers:?}") };
    assert_eq!(renewed, Lease { ttl, confirmed: service });
    let held = liveness_of(ledger, name).await;
    assert_eq!((held.lease, held.origin_confirmed_at), (Some(renewed), at));
    assert!(!renewed.has_lapsed(service + ttl), "never early");
    assert!(renewed.has_lapsed(service + ttl + Duration::from_secs(5)), "a few seconds late at most");
    assert!(!renewed.has_lapsed(Duration::ZERO), "a clock that lags lapses nothing");
}

/// The register is held open while the old card is confirmed: whatever the confirmation saw at first, it must come to
/// what is current once the register is done.
pub async fn a_register_on_its_way_is_waited_for(ledger: &Ledger) {
    let (old, new) = (small_card("1.0", &["a"]), small_card("2.0", &["a"]));
    let name = "held/worker";
    for committed in [false, true] {
        ledger.register(name, &old).await;
        let before = liveness_of(ledger, name).await;
        let mut txn = ledger.store().begin().await.unwrap();
        let write = register(name, &new).against(&old);
        let key = Key {
            agent: write.agent.clone(),
            principal: write.principal.clone(),
            request_id: write.request_id.clone(),
            expect_seq: None,
        };
        let seen = txn.lookup(&[key]).await.unwrap();
        let rows = decide(&Plain, txn.head(), txn.now(), txn.service(), &[&write], seen).rows;
        txn.append(&rows).await.unwrap();
        let origins = std::sync::Arc::clone(ledger.origins.as_ref().unwrap());
        let asked = [(agent(name), old.content_digest())];
        let mut confirming = tokio::spawn(async move { origins.confirm(&asked).await });
        let early = tokio::time::timeout(Duration::from_millis(300), &mut confirming).await;
        assert!(early.is_err(), "confirmed while a register was on its way: {early:?}");
        if committed {
            txn.commit().await.unwrap();
            let answers = confirming.await.unwrap().unwrap();
            assert_eq!(answers, [Confirmed::OtherDigest { revision: before.revision + 1 }]);
            let after = liveness_of(ledger, name).await;
            assert_eq!(after.origin_confirmed_at, rows.liveness[0].origin_confirmed_at);
        } else {
            drop(txn);
            let answers = confirming.await.unwrap().unwrap();
            assert!(
                matches!(answers[..], [Confirmed::Done { revision, .. }] if revision == before.revision),
                "{answers:?}"
            );
        }
    }
}

/// It goes on by what passed between two ticks, up to a bound, and is the same for everyone.
pub async fn the_service_clock_counts_ticks(ledger: &Ledger) {
    let began = std::time::Instant::now();
    let first = ledger.service().tick().await.unwrap();
    let started = std::time::Instant::now();
    let mut last = first;
    while last < first + Duration::from_millis(1_100) {
        let ticks = futures::future::join_all((0..4).map(|_| ledger.service().tick())).await;
        for tick in ticks {
            // Of ticks at once one may have been read before another was committed.
            last = last.max(tick.unwrap());
        }
        assert!(last - first <= began.elapsed() + Duration::from_millis(50), "ticks at once do not add up");
    }
    assert!(last - first <= TICK_MOST + started.elapsed());
    let head = ledger.reading().await.head(0).await.unwrap();
    assert_eq!(head.service, last);
    assert_eq!(ledger.store().begin().await.unwrap().service(), last);
}

/// Batches of confirmations in any order, beside batches of registers.
pub async fn confirmations_and_registers_do_not_lock_each_other_out(ledger: &Ledger) {
    let card = small_card("1.0", &["a"]);
    let names: Vec<String> = (0..30).map(|number| format!("cross/agent-{number}")).collect();
    for name in &names {
        ledger.register(name, &card).await;
    }
    let confirms = futures::future::join_all((0..8).map(async |turn: usize| {
        for round in 0..10 {
            let mut asked: Vec<_> = names.iter().map(|name| (name.as_str(), &*card)).collect();
            asked.rotate_left((turn * 7 + round) % names.len());
            if turn.is_multiple_of(2) {
                asked.reverse();
            }
            let answers = ledger.confirm(&asked).await;
            assert!(answers.iter().all(|answer| matches!(answer, Confirmed::Done { revision: 1, .. })));
        }
    }));
    let registers = futures::future::join_all((0..8).map(async |turn: usize| {
        for round in 0..10 {
            let name = &names[(turn * 11 + round * 3) % names.len()];
            let receipt = ledger.register(name, &card).await;
            assert_eq!(outcome(&receipt), (Outcome::Unchanged, 1));
        }
    }));
    futures::future::join(confirms, registers).await;
}
