//! Servers as processes, with a shell in the place of the product, and what outlives whom.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::support::eventually::{eventually, throughout, try_eventually};
use crate::support::processes;
use crate::support::scratch::Scratch;
use crate::support::server::{Launch, Server};

const SOON: Duration = Duration::from_secs(10);

/// A stand-in that says what a server says and then waits, ending with 7 when it is asked to end.
const STAND_IN: &str = r#"
trap 'echo draining >&2; exit 7' TERM
echo "starting, $CARDFENCE_LOG" >&2
echo "listening on http://127.0.0.1:4711" >&2
while :; do sleep 0.01; done
"#;

async fn stand_in() -> Server {
    Launch::program("sh", ["-c", STAND_IN]).env("CARDFENCE_LOG", "quiet").start().await
}

#[tokio::test]
async fn server_is_known_by_its_listening_line_and_drains_on_sigterm() {
    let server = stand_in().await;
    assert_eq!(server.address(), "127.0.0.1:4711".parse().expect("it is an address"));
    assert_eq!(server.url(), "http://127.0.0.1:4711");
    assert_eq!(server.terminate().await.code(), Some(7));
    eventually(SOON, async || match server.stderr() {
        said if said.contains("starting, quiet\n") && said.ends_with("draining\n") => Ok(()),
        said => Err(said),
    })
    .await;
}

#[tokio::test]
async fn frozen_server_goes_on_when_thawed() {
    let server = stand_in().await;
    server.freeze().await;
    assert!(processes::is_stopped(server.pid()));
    server.thaw();
    assert_eq!(server.terminate().await.code(), Some(7));
}

#[tokio::test]
async fn killed_server_is_gone_at_once() {
    let server = stand_in().await;
    let pid = server.pid();
    server.kill_9();
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
}

#[tokio::test]
async fn server_that_ends_before_it_listens_is_told_with_its_words() {
    let failed = Launch::program("sh", ["-c", "echo no such store >&2; exit 3"]).try_start().await;
    let said = failed.expect_err("it does not listen");
    assert!(said.contains("exit status: 3") && said.contains("no such store"), "{said}");
}

#[tokio::test]
async fn binary_refuses_a_store_of_an_unknown_kind() {
    let output = Launch::cardfence(["serve", "--store", "no-such-kind:x"]).output().await;
    // Whatever the words: it ends by itself, and it does not claim to listen.
    assert!(output.code.is_some() && !output.stderr.contains("listening on"), "{output:?}");
    assert_eq!(output.stdout, "", "standard output is for data");
}

#[tokio::test]
async fn server_on_an_impossible_store_does_not_start() {
    let scratch = Scratch::new("store");
    let store = format!("sqlite:{}", scratch.path().join("no/such/folder/ledger.db").display());
    let started = tokio::spawn(async move { Server::serve(&store).await });
    assert!(started.await.expect_err("there is no such folder").is_panic());
}

#[tokio::test]
async fn scratch_ends_what_works_in_it_and_what_stands_still_too() {
    let scratch = Scratch::new("ends");
    let path = scratch.path().to_owned();
    let mut child = Command::new("sleep").arg("600").current_dir(&path).spawn().expect("sleep is everywhere");
    processes::freeze(&path, None);
    assert_eq!(processes::inside(&path), [child.id()]);
    processes::thaw(&path);
    processes::freeze(&path, Some(child.id()));
    drop(scratch);
    assert!(!path.exists());
    child.wait().expect("it is our child");
}

/// The part of the next test that is killed; alone it proves nothing, and does nothing unless told to.
#[tokio::test]
async fn killed_test_program_leaves_nothing_behind() {
    const INNER: &str = "CARDFENCE_TEST_INNER";
    if let Some(marker) = std::env::var_os(INNER) {
        let server = stand_in().await;
        let cluster = crate::support::postgres::shared().await;
        cluster.freeze();
        let root = cluster.data().ancestors().nth(2).expect("data lies in a scratch folder in the root");
        server.freeze().await;
        std::fs::write(marker, root.to_str().expect("our own path is text"))
            .expect("the marker can be written");
        throughout(Duration::from_secs(600), async || Ok(())).await;
    }
    let scratch = Scratch::new("marker");
    let marker = scratch.path().join("root");
    let mut inner = Command::new(std::env::current_exe().expect("a program knows itself"))
        .args(["--exact", "harness::processes::killed_test_program_leaves_nothing_behind"])
        .env(INNER, &marker)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it can be started again");
    let root = eventually(Duration::from_secs(60), async || {
        let root = std::fs::read_to_string(&marker).map_err(|error| error.to_string())?;
        if root.is_empty() { Err("nothing is written yet".to_owned()) } else { Ok(root) }
    })
    .await;
    let root = std::path::PathBuf::from(root);
    assert!(processes::inside(&root).len() > 3, "a server and a cluster stand there");
    inner.kill().expect("it is our child");
    inner.wait().expect("it is our child");
    eventually(SOON, async || match (processes::inside(&root), root.exists()) {
        (left, false) if left.is_empty() => Ok(()),
        left => Err(format!("left: {left:?}")),
    })
    .await;
}

#[tokio::test]
async fn eventually_prints_the_last_status_and_cuts_off_what_hangs() {
    let within = Duration::from_millis(50);
    let asked = AtomicU32::new(0);
    let last = try_eventually(within, async || -> Result<(), String> {
        Err(format!("answer {}", asked.fetch_add(1, Ordering::Relaxed)))
    });
    let last = last.await.expect_err("it never holds");
    let asked = asked.into_inner();
    assert!(asked > 1 && last == format!("answer {}", asked - 1), "{last}");

    let hung = try_eventually(within, async || -> Result<(), String> { std::future::pending().await });
    assert!(hung.await.expect_err("it never answers").contains("cut off"));

    let told = tokio::spawn(eventually(within, async || -> Result<(), String> { Err("why".to_owned()) }));
    let panic = told.await.expect_err("it panics").into_panic();
    let said = panic.downcast_ref::<String>().expect("it says why");
    assert!(said.contains("why") && said.contains("processes.rs"), "{said}");
}

#[tokio::test]
async fn throughout_fails_at_the_first_breach() {
    assert!(throughout(Duration::from_millis(200), async || Ok(())).await > 1);
    let broken = tokio::spawn(throughout(SOON, async || Err("stale".to_owned())));
    let panic = broken.await.expect_err("it panics").into_panic();
    assert!(panic.downcast_ref::<String>().expect("it says why").contains("stale"));
}
