//! The suite over a file, and what only a file has: one process, one lock, and what a killed process leaves.

use std::process::{Command, Stdio};
use std::time::Instant;

use async_trait::async_trait;
use sqlx::Executor as _;

use super::*;
use crate::ledger::conformance::{Backend, Ledger, register, small_card};
use crate::ledger::{Confirmed, Store as _, chain};

struct InAFile;

#[async_trait]
impl Backend for InAFile {
    async fn fresh(&self) -> Ledger {
        let folder = tempfile::tempdir().unwrap();
        let store = Sqlite::open(folder.path().join("ledger.db"), Clock::System).await.unwrap();
        let mut ledger = Ledger::over(store);
        ledger.keep.push(Box::new(folder));
        ledger
    }
}

crate::ledger_conformance!(InAFile);

async fn refusal(path: &Path) -> String {
    match Sqlite::open(path, Clock::System).await {
        Err(Error::Unusable(text)) => text,
        other => panic!("it should be unusable, not {other:?}"),
    }
}

#[tokio::test]
async fn second_opening_is_refused_and_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let first = Sqlite::open(&path, Clock::System).await.unwrap();
    let link = folder.path().join("link.db");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    for way in [&path, &link] {
        let text = refusal(way).await;
        assert!(text.contains("ledger.db") && text.contains("another process"), "{text}");
    }
    let clone = first.clone();
    drop(first);
    refusal(&path).await;
    drop(clone);
    Sqlite::open(&path, Clock::System).await.unwrap();
}

/// Held by a process that is killed without a chance to clean up.
#[tokio::test]
async fn lock_dies_with_its_holder() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let mut holder = Command::new("flock")
        .arg("--no-fork")
        .arg(folder.path().join("ledger.db.lock"))
        .args(["sh", "-c", "echo held; exec sleep 1000"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("flock is part of util-linux");
    let mut said = [0; 5];
    std::io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut said).unwrap();
    refusal(&path).await;
    holder.kill().unwrap();
    holder.wait().unwrap();
    Sqlite::open(&path, Clock::System).await.unwrap();
}

/// What lies in the files at a moment under load is what a killed process would leave.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_process_leaves_what_it_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let ledger = Ledger::over(Sqlite::open(&path, Clock::System).await.unwrap());
    let card = small_card("1.0", &["a"]);
    let mut acknowledged = 0;
    for turn in 0..4 {
        for number in 0..20 {
            let write = register(&format!("kill/agent-{turn}-{number}"), &card);
            acknowledged = ledger.writes.submit(write).await.unwrap().position.unwrap().seq;
        }
        // The log before the file: a checkpoint in between would move pages from the one to the other.
        let left = folder.path().join(format!("left-{turn}.db"));
        std::fs::copy(folder.path().join("ledger.db-wal"), folder.path().join(format!("left-{turn}.db-wal")))
            .unwrap();
        std::fs::copy(&path, &left).unwrap();
        let found = Ledger::over(Sqlite::open(&left, Clock::System).await.unwrap());
        let entries = found.read_all().await;
        assert_eq!(entries.len() as u64, acknowledged);
        let head = found.entries.open().await.unwrap().head(0).await.unwrap();
        let mut verifier = chain::Verifier::new(&head.ledger_id);
        for entry in &entries {
            verifier.take(entry.seq, &entry.digest, &entry.body_digest, Some(entry.body.as_bytes())).unwrap();
        }
        // And it can be written on.
        found.register("kill/after", &card).await;
    }
}

#[tokio::test]
async fn each_connection_that_writes_is_durable() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let store = Sqlite::open(&path, Clock::System).await.unwrap();
    // Dropped transactions cost their connections; the next one is another.
    for _ in 0..3 {
        drop(store.begin().await.unwrap());
        let mut connection = open_writer(&path).await.unwrap();
        for (name, value) in [("synchronous", "2"), ("journal_mode", "wal"), ("foreign_keys", "1")] {
            assert_eq!(pragma(&mut connection, name).await.unwrap(), value);
        }
    }
}

#[tokio::test]
async fn file_of_another_schema_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (number, (change, expected)) in [
        (
            "INSERT INTO cardfence_migration VALUES (9999, 'later', 1, true, x'00', 1)",
            "newer than this program",
        ),
        ("UPDATE cardfence_migration SET checksum = x'00'", "another file"),
    ]
    .into_iter()
    .enumerate()
    {
        let path = folder.path().join(format!("{number}.db"));
        drop(Sqlite::open(&path, Clock::System).await.unwrap());
        let mut connection = open_writer(&path).await.unwrap();
        connection.execute(change).await.unwrap();
        drop(connection);
        let text = refusal(&path).await;
        assert!(text.contains(expected), "{text}");
    }
}

#[tokio::test]
async fn paths_that_cannot_hold_a_ledger_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    refusal(&folder.path().join("missing/ledger.db")).await;
    refusal(folder.path()).await;
    let other = folder.path().join("other.db");
    std::fs::write(&other, "this is no database, but long enough to be read as one ".repeat(40)).unwrap();
    let begun = Instant::now();
    let refused = Sqlite::open(&other, Clock::System).await;
    assert!(matches!(refused, Err(Error::Unusable(_) | Error::Corrupt(_))), "{refused:?}");
    assert!(begun.elapsed() < BUSY);
}

/// A page ends where it is full, and the next begins there.
#[tokio::test]
async fn pages_are_bounded_by_bytes() {
    let ledger = InAFile.fresh().await;
    let skills: Vec<String> = (0..450).map(|number| format!("{number:0200}")).collect();
    let skills: Vec<&str> = skills.iter().map(String::as_str).collect();
    let card = small_card("1.0", &skills);
    let length = card.bytes().len();
    let count = usize::try_from(crate::ledger::stored::PAGE_BYTES).unwrap() / length + 5;
    for number in 0..count {
        ledger.register(&format!("page/agent-{number}"), &card).await;
    }
    let first = ledger.entries.open().await.unwrap().read(0, 1000).await.unwrap();
    assert!(first.len() < count && first.len() > count / 2, "{} of {count}", first.len());
    assert_eq!(ledger.read_all().await.len(), count);
}

/// A file of the first schema, with an agent in it, goes on as if it had always had this one.
#[tokio::test]
async fn file_of_an_older_schema_is_brought_up_with_what_it_holds() {
    let folder = tempfile::tempdir().unwrap();
    let (new, old) = (folder.path().join("new.db"), folder.path().join("old.db"));
    let card = small_card("1.0", &["a"]);
    let written = Ledger::over(Sqlite::open(&new, Clock::System).await.unwrap());
    let write = register("acme/old", &card).under("anonymous", "deploy-1").of_release("7");
    let receipt = written.submit(write.clone()).await.unwrap();
    let held = written.entries.open().await.unwrap().liveness(None).await.unwrap();
    drop(written);

    let mut connection = options(&old).create_if_missing(true).connect().await.unwrap();
    migrate::only_first().run_direct(None, &mut connection, false).await.unwrap();
    let copy = format!(
        "ATTACH '{}' AS new; UPDATE ledger SET id = (SELECT id FROM new.ledger);
         INSERT INTO entry SELECT * FROM new.entry; INSERT INTO revision SELECT * FROM new.revision;
         INSERT INTO request SELECT * FROM new.request;
         INSERT INTO liveness SELECT namespace, name, revision, origin_confirmed_at, registers, release FROM new.liveness;",
        new.display()
    );
    connection.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(copy))).await.unwrap();
    connection.close().await.unwrap();
    let text = match Sqlite::check(&old).await {
        Err(Error::Unusable(text)) => text,
        other => panic!("it should be unusable, not {other:?}"),
    };
    assert!(text.contains("not this program's"), "{text}");

    let ledger = Ledger::over(Sqlite::open(&old, Clock::System).await.unwrap());
    assert_eq!(ledger.entries.open().await.unwrap().liveness(None).await.unwrap(), held);
    let again = ledger.submit(write).await.unwrap();
    assert_eq!((again.replayed, again.position), (true, receipt.position));
    let answers = ledger.confirm(&[("acme/old", &card)]).await;
    assert!(matches!(answers[..], [Confirmed::Done { revision: 1, lease: None, .. }]), "{answers:?}");
    let leased = register("acme/old", &card).with_lease(Duration::from_secs(30));
    ledger.submit(leased).await.unwrap();
    Sqlite::check(&old).await.unwrap();
}
