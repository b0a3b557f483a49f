//! `serve`: settings, the line that says it listens, and how it ends.

use serde_json::Value;

use super::{Stage, json};
use crate::support::cards::{Card, Shape};
use crate::support::http::Http;
use crate::support::scratch::Scratch;
use crate::support::server::{Launch, Output, Server};

async fn print_config(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let launch = Launch::cardfence(["serve", "--print-config"].iter().chain(arguments).copied());
    environment.iter().fold(launch, |launch, (name, value)| launch.env(name, value)).output().await
}

#[tokio::test]
async fn flags_win_over_environment_over_file() {
    let folder = Scratch::new("config");
    let file = folder.path().join("cardfence.toml");
    std::fs::write(&file, "poll = \"1s\"\ndefault_wait = \"2s\"\nlog = \"warn\"\n")
        .expect("a file can be written");
    let file = file.to_str().expect("our paths are text");
    let output = print_config(
        &["--config", file, "--poll", "50ms", "--json"],
        &[("CARDFENCE_POLL", "3s"), ("CARDFENCE_DEFAULT_WAIT", "4s")],
    )
    .await;
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let config = json(&output);
    assert_eq!(
        (&config["poll"], &config["default_wait"], &config["log"]),
        (&"50ms".into(), &"4s".into(), &"warn".into())
    );

    let text = print_config(&[], &[("CARDFENCE_CONFIG", file)]).await.stdout;
    assert!(text.contains("poll = \"1s\"") && text.contains("listen = \"127.0.0.1:7878\""), "{text}");
}

/// A card with so many levels below it, and so many skills.
fn large(levels: usize, skills: usize) -> String {
    let ids: Vec<String> = (0..skills).map(|n| format!("skill-{n}")).collect();
    let skills: Vec<(&str, &[&str])> = ids.iter().map(|id| (id.as_str(), &["text/plain"][..])).collect();
    let mut card = Card::new(Shape::V10, "large").skills(&skills).to_value();
    card["x"] = (0..levels).fold(Value::Null, |inner, _| Value::Array(vec![inner]));
    card.to_string()
}

#[tokio::test]
async fn limits_of_a_card_are_settings_and_hold_for_what_is_registered_from_now_on() {
    let folder = Scratch::new("limits");
    let store = format!("sqlite:{}", folder.path().join("ledger.db").display());
    let wide = [
        ["--max-card-depth", "120"],
        ["--max-card-skills", "1200"],
        ["--max-card-bytes", "1000000"],
        ["--listen", "127.0.0.1:0"],
        ["--store", &store],
    ];
    let server = Launch::cardfence(["serve"].into_iter().chain(wide.into_iter().flatten())).start().await;
    let http = Http::to(&server.url());
    http.until_ready().await;
    for (levels, skills, code) in [(120, 1, "too_deep"), (1, 1_201, "too_many_skills")] {
        let refused = http.put_card("acme/large", "", &large(levels, skills)).await.expect(400).json();
        assert_eq!(refused["violations"][0]["code"], code, "{refused}");
    }
    let card = large(119, 1_200);
    http.put_card("acme/large", "", &large(118, 1_199)).await.expect(201);
    http.put_card("acme/large", "", &card).await.expect(200);
    assert!(server.terminate().await.success());

    let server = Server::serve(&store).await;
    let http = Http::to(&server.url());
    http.until_ready().await;
    assert_eq!(http.raw_card("acme/large", "?skill=skill-1199").await.expect(200).body, card.as_bytes());
    let diff = http.get("/v1/agents/acme/large/diff").await.expect(200).json();
    assert_eq!(diff["change"]["items"][0]["subject"], "skill-1199", "{}", diff["change"]);
    let refused = http.put_card("acme/other", "", &card).await.expect(413).json();
    assert_eq!(refused["reason"], "payload_too_large");
    let refused = http.put_card("acme/other", "", &large(64, 1)).await.expect(400).json();
    assert_eq!(refused["violations"][0]["code"], "too_deep");
}

#[tokio::test]
async fn settings_that_cannot_be_used_exit_with_64_and_hide_secrets() {
    for (arguments, named) in [
        (&["--listen", "0.0.0.0:1"][..], "--insecure"),
        (&["--poll", "fast"], "poll"),
        (&["--config", "/no/such/file"], "/no/such/file"),
        (&["--store", "mysql://u:hunter2@db"], "store"),
        (&["--max-card-depth", "121"], "max_card_depth: `121` is not allowed: 8 to 120"),
    ] {
        let output = print_config(arguments, &[]).await;
        assert_eq!((output.code, output.stdout.as_str()), (Some(64), ""), "{arguments:?}: {}", output.stderr);
        assert!(output.stderr.contains(named), "{arguments:?}: {}", output.stderr);
        assert!(!output.stderr.contains("hunter2"), "{}", output.stderr);
    }
    let shown = print_config(&["--store", "postgres://u:hunter2@db/x"], &[]).await;
    assert!(shown.code == Some(0) && !shown.stdout.contains("hunter2"), "{}", shown.stdout);
}

#[tokio::test]
async fn server_says_once_where_it_listens_and_drains_on_sigterm() {
    let stage = Stage::set().await;
    assert_eq!(stage.server.stderr().matches("listening on http://").count(), 1, "{}", stage.server.stderr());
    stage.expect(4, "resolve acme/none").await;
    assert_eq!(stage.server.terminate().await.code(), Some(0), "{}", stage.server.stderr());
}

#[tokio::test]
async fn second_process_on_one_file_and_a_taken_port_are_failures_that_say_so() {
    let stage = Stage::set().await;
    let store = format!("sqlite:{}", stage.folder.path().join("ledger.db").display());
    let second = Launch::cardfence(["serve", "--listen", "127.0.0.1:0", "--store", &store]).output().await;
    assert_eq!(second.code, Some(1), "{}", second.stderr);
    assert!(second.stderr.contains("error: "), "{}", second.stderr);
    let other = format!("sqlite:{}", stage.folder.path().join("other.db").display());
    let listen = stage.server.address().to_string();
    let taken = Launch::cardfence(["serve", "--listen", &listen, "--store", &other]).output().await;
    assert_eq!(taken.code, Some(1), "{}", taken.stderr);
    assert!(taken.stderr.contains(&format!("cannot listen on {listen}")), "{}", taken.stderr);
}
