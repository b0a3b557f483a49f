//! What replicas say of themselves: kept by name, the newest, for as long as it is not too old.

use std::sync::Arc;
use std::time::Duration;

use super::Ledger;
use crate::ledger::{Omitted, REPLICA_KEPT, Replica, Replicas};
use crate::terms::{Position, Tag};

const DAY: Duration = Duration::from_secs(86_400);

fn replicas(ledger: &Ledger) -> Arc<dyn Replicas> {
    Arc::clone(ledger.replicas.as_ref().expect("this case needs the table of replicas"))
}

fn at(seq: u64) -> Position {
    // The tag's highest bit is set: databases know no unsigned numbers.
    Position { seq, tag: Tag(0xf00d_0000_0000_0000 | seq) }
}

/// A replica that said something so long ago.
fn said(name: &str, seq: u64, silent: Duration) -> Replica {
    Replica {
        replica: name.to_owned(),
        role: "node".to_owned(),
        position: at(seq),
        staleness: None,
        hops: 0,
        version: "1.2.3".to_owned(),
        via: None,
        silent,
        omitted: None,
    }
}

async fn names(replicas: &Arc<dyn Replicas>, within: Duration) -> Vec<String> {
    let mut names: Vec<String> =
        replicas.replicas(within).await.unwrap().into_iter().map(|replica| replica.replica).collect();
    names.sort();
    names
}

pub async fn a_replica_is_kept_as_it_reported(ledger: &Ledger) {
    let replicas = replicas(ledger);
    assert!(replicas.replicas(DAY).await.unwrap().is_empty());
    replicas.report(&[]).await.unwrap();
    let edge = Replica {
        role: "edge".to_owned(),
        staleness: Some(Duration::from_millis(12)),
        hops: 2,
        via: Some("node-1".to_owned()),
        omitted: Some(Omitted { count: 7, at_least: at(3) }),
        ..said("edge-1", 4, Duration::from_secs(9))
    };
    let node = said("node-1", u64::from(u32::MAX), Duration::ZERO);
    replicas.report(&[node.clone(), edge.clone()]).await.unwrap();
    let found = replicas.replicas(DAY).await.unwrap();
    let silent: Vec<Duration> = found.iter().map(|replica| replica.silent).collect();
    assert!(silent[0] < Duration::from_secs(9) && silent[1] >= Duration::from_secs(9), "{silent:?}");
    let as_said = |kept: &Replica, said: &Replica| Replica { silent: said.silent, ..kept.clone() };
    assert_eq!([as_said(&found[0], &node), as_said(&found[1], &edge)], [node, edge]);
    // Only those who spoke lately.
    assert_eq!(names(&replicas, Duration::from_secs(8)).await, ["node-1"]);
}

pub async fn a_later_report_takes_the_place_of_an_earlier_one(ledger: &Ledger) {
    let replicas = replicas(ledger);
    let seconds = Duration::from_secs;
    replicas.report(&[said("a", 5, seconds(10))]).await.unwrap();
    // Older news of it, by a way on which it was held longer.
    replicas.report(&[said("b", 9, Duration::ZERO), said("a", 4, seconds(20))]).await.unwrap();
    let seq = async || {
        let found = replicas.replicas(DAY).await.unwrap();
        found.iter().find(|replica| replica.replica == "a").unwrap().position.seq
    };
    assert_eq!(seq().await, 5);
    // A replica that lost its history goes back, and says so.
    replicas.report(&[said("a", 3, Duration::ZERO)]).await.unwrap();
    assert_eq!(seq().await, 3);
    assert_eq!(names(&replicas, DAY).await, ["a", "b"]);
}

pub async fn a_replica_that_is_omitted_now_is_forgotten(ledger: &Ledger) {
    let replicas = replicas(ledger);
    let all = ["hub", "x", "y"].map(|name| said(name, 1, Duration::ZERO));
    replicas.report(&all).await.unwrap();
    replicas.report(&[said("other", 1, Duration::ZERO)]).await.unwrap();
    // Fewer without a word of omission: those are silent, and not forgotten.
    replicas.report(&all[..2]).await.unwrap();
    assert_eq!(names(&replicas, DAY).await, ["hub", "other", "x", "y"]);
    let hub = Replica { omitted: Some(Omitted { count: 1, at_least: at(1) }), ..all[0].clone() };
    replicas.report(&[hub, all[2].clone()]).await.unwrap();
    assert_eq!(names(&replicas, DAY).await, ["hub", "other", "y"]);
}

pub async fn a_replica_that_was_silent_for_a_week_is_forgotten(ledger: &Ledger) {
    let replicas = replicas(ledger);
    replicas.report(&[said("old", 1, REPLICA_KEPT + DAY), said("new", 1, DAY)]).await.unwrap();
    replicas.report(&[said("new", 2, Duration::ZERO)]).await.unwrap();
    assert_eq!(names(&replicas, REPLICA_KEPT * 4).await, ["new"]);
}
