//! Deploys that wait until all nodes serve them, and the nodes that keep them waiting.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::cards::{Card, Shape};
use crate::support::eventually::eventually;
use crate::support::http::Http;
use crate::support::postgres::Database;
use crate::support::report;
use crate::support::scratch::Scratch;
use crate::support::server::{Launch, Output, Server};

async fn node(store: &str, name: &str) -> Server {
    // A request gets less than the wait below: a write that waits may take longer.
    let arguments = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--store",
        store,
        "--node",
        name,
        "--request-timeout",
        "4s",
        "--write-timeout",
        "2s",
    ];
    Launch::cardfence(arguments).start().await
}

async fn run(server: &Server, line: &str) -> Output {
    Launch::cardfence(line.split_whitespace()).env("CARDFENCE_SERVER", &server.url()).output().await
}

fn json(output: &Output) -> Value {
    serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// Waits until both nodes have reported, and gives what the list says.
async fn both(server: &Server) -> Value {
    eventually(Duration::from_secs(10), async || {
        let list = Http::to(&server.url()).get("/v1/replicas").await.expect(200).json();
        match list["items"].as_array().map(Vec::len) {
            Some(2) => Ok(list),
            _ => Err(list.to_string()),
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn deploy_waits_for_all_nodes_and_names_a_frozen_one() {
    let database = Database::empty().await;
    let (one, two) = (node(database.url(), "node-1").await, node(database.url(), "node-2").await);
    let list = both(&one).await;
    for (item, name) in list["items"].as_array().unwrap().iter().zip(["node-1", "node-2"]) {
        assert_eq!(
            (&item["replica"], &item["role"], &item["hops"]),
            (&name.into(), &"node".into(), &0.into())
        );
        assert!(item["silent_ms"].as_u64().is_some_and(|silent| silent < 10_000), "{item}");
        assert_eq!((&item["via"], &item["version"]), (&Value::Null, &env!("CARGO_PKG_VERSION").into()));
    }
    let table = run(&two, "replicas").await;
    assert_eq!(table.code, Some(0), "{table:?}");
    for part in ["replica", "last report", "node-1", "node-2", " ago"] {
        assert!(table.stdout.contains(part), "{part} in\n{}", table.stdout);
    }

    let folder = Scratch::new("replicas");
    let file = folder.path().join("card.json");
    let file = file.to_str().unwrap();
    let mut slowest = Duration::ZERO;
    for round in 0..10 {
        let card = Card::new(Shape::V10, "worker").version(&format!("1.{round}")).build();
        std::fs::write(file, card).unwrap();
        let began = Instant::now();
        let output = run(&one, &format!("register acme/worker {file} --wait-replicated 10s --json")).await;
        slowest = slowest.max(began.elapsed());
        assert_eq!(output.code, Some(0), "{output:?}");
        let replicas = &json(&output)["replicas"];
        assert_eq!((&replicas["complete"], &replicas["applied"]), (&true.into(), &2.into()), "{replicas}");
    }

    two.freeze().await;
    std::fs::write(file, Card::new(Shape::V10, "worker").version("2.0").build()).unwrap();
    let began = Instant::now();
    let output = run(&one, &format!("register acme/worker {file} --wait-replicated 6s")).await;
    let waited = began.elapsed();
    assert_eq!(output.code, Some(5), "{output:?}");
    let told = "not replicated: node-2 has not applied it in time; the write is done and stands";
    assert!(output.stderr.contains(told), "{}", output.stderr);
    assert!(output.stdout.starts_with("updated acme/worker: revision 11"), "{}", output.stdout);
    assert!(output.stdout.contains("node-2"), "{}", output.stdout);
    assert!(waited >= Duration::from_secs(6), "{waited:?}");
    let resolved = Http::to(&one.url()).resolve("acme/worker", "?max_staleness=0&wait=10s").await.expect(200);
    assert_eq!(resolved.json()["revision"], 11, "the write stands");

    two.thaw();
    let output = run(&one, &format!("register acme/worker {file} --wait-replicated 10s --json")).await;
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(json(&output)["outcome"], "unchanged");
    report(&format!(
        "10 deploys that waited for two nodes: {} ms at most, the command line included; with one frozen, 6 s asked: {} ms",
        slowest.as_millis(),
        waited.as_millis()
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn replica_is_known_by_its_name_when_it_is_started_again() {
    let folder = Scratch::new("replicas");
    let store = format!("sqlite:{}", folder.path().join("ledger.db").display());
    for _ in 0..2 {
        let server = node(&store, "only").await;
        eventually(Duration::from_secs(10), async || {
            let list = Http::to(&server.url()).get("/v1/replicas").await.expect(200).json();
            let names: Vec<_> =
                list["items"].as_array().unwrap().iter().map(|item| &item["replica"]).collect();
            if names == ["only"] { Ok(()) } else { Err(list.to_string()) }
        })
        .await;
        server.terminate().await;
    }
}
