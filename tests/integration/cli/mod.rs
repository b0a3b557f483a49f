//! The command line: the real binary against a real server, with its exit codes, both kinds of output, and
//! what it does when the server is not there.

mod confirm;
mod demo;
mod ledger;
mod reads;
mod serve;
mod tls;
mod watch;
mod writes;

use serde_json::Value;

use crate::support::cards::{Card, Shape};
use crate::support::scratch::Scratch;
use crate::support::server::{Launch, Output, Server};

/// A server over a ledger of its own, and a folder for cards.
#[derive(Debug)]
struct Stage {
    server: Server,
    folder: Scratch,
}

impl Stage {
    async fn set() -> Self {
        let folder = Scratch::new("cli");
        let store = format!("sqlite:{}", folder.path().join("ledger.db").display());
        Self { server: Server::serve(&store).await, folder }
    }

    /// A server over another store.
    async fn over(store: &str) -> Self {
        Self { server: Server::serve(store).await, folder: Scratch::new("cli") }
    }

    /// Runs the binary against the server.
    async fn run(&self, line: &str) -> Output {
        self.run_all(line.split_whitespace()).await
    }

    async fn run_all(&self, arguments: impl IntoIterator<Item = &str>) -> Output {
        at(&self.server.url(), arguments).await
    }

    /// Runs it and expects the exit code.
    async fn expect(&self, code: i32, line: &str) -> Output {
        let output = self.run(line).await;
        assert_eq!(output.code, Some(code), "{line}\n{}{}", output.stdout, output.stderr);
        output
    }

    /// Runs it with `--json` and expects the exit code; gives what it printed.
    async fn json(&self, code: i32, line: &str) -> Value {
        json(&self.expect(code, &format!("{line} --json")).await)
    }

    /// Writes a file and gives its path.
    fn file(&self, name: &str, text: impl AsRef<[u8]>) -> String {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).expect("a file can be written");
        path.to_str().expect("our paths are text").to_owned()
    }

    /// Registers a card.
    async fn register(&self, agent: &str, card: &Card) -> Value {
        let file = self.file("card.json", card.build());
        self.json(0, &format!("register {agent} {file}")).await
    }
}

/// Runs the binary against whatever is at `server`.
async fn at(server: &str, arguments: impl IntoIterator<Item = &str>) -> Output {
    Launch::cardfence(arguments).env("CARDFENCE_SERVER", server).output().await
}

/// Runs a shell script that finds the binary in `$CARDFENCE`.
async fn shell(server: &str, script: &str) -> Output {
    let launch = Launch::program("sh", ["-c", script]);
    let launch = launch.env("CARDFENCE", env!("CARGO_BIN_EXE_cardfence")).env("CARDFENCE_SERVER", server);
    launch.output().await
}

fn json(output: &Output) -> Value {
    serde_json::from_str(&output.stdout)
        .unwrap_or_else(|error| panic!("{error} in\n{}{}", output.stdout, output.stderr))
}

fn summarizer() -> Card {
    Card::new(Shape::V10, "summarizer").skills(&[("summarize-v2", &["text/markdown"])])
}

#[tokio::test]
async fn arguments_that_make_no_sense_exit_with_64() {
    for line in [
        "",
        "no-such-command",
        "resolve",
        "resolve NOT/ok",
        "resolve a/b --max-staleness 5",
        "list --limit 0",
    ] {
        let output = at("http://127.0.0.1:1", line.split_whitespace()).await;
        assert_eq!((output.code, output.stdout.as_str()), (Some(64), ""), "{line}: {}", output.stderr);
        assert!(!output.stderr.is_empty(), "{line}");
    }
}

#[tokio::test]
async fn help_and_version_are_data() {
    for line in ["--help", "resolve --help", "ledger verify --help", "--version"] {
        let output = at("http://127.0.0.1:1", line.split_whitespace()).await;
        assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{line}");
        assert!(output.stdout.contains("cardfence"), "{line}: {}", output.stdout);
        assert!(!output.stdout.contains('\u{1b}'), "no colours without a terminal");
    }
}

#[tokio::test]
async fn server_that_is_not_there_exits_with_5() {
    for line in ["resolve a/b", "list", "history a/b", "diff a/b", "ledger verify", "ledger export"] {
        let output = at("http://127.0.0.1:1", line.split_whitespace()).await;
        assert_eq!((output.code, output.stdout.as_str()), (Some(5), ""), "{line}");
        assert!(output.stderr.contains("no answer from http://127.0.0.1:1"), "{line}: {}", output.stderr);
    }
}

#[tokio::test]
async fn reader_that_has_seen_enough_is_no_error() {
    let stage = Stage::set().await;
    for number in 0..30 {
        stage.register(&format!("acme/agent-{number}"), &summarizer().version(&format!("1.{number}"))).await;
    }
    let script = r#"{ "$CARDFENCE" list; echo "exit $?" >&2; } | true; { "$CARDFENCE" ledger export; echo "exit $?" >&2; } | head -c 1"#;
    let output = shell(&stage.server.url(), script).await;
    assert_eq!(output.stderr.matches("exit 0").count(), 2, "{}", output.stderr);
    assert!(!output.stderr.contains("panicked"), "{}", output.stderr);
}
