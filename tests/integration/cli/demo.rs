//! `demo`: it plays, every claim holds, and nothing of it is left behind.

use std::fs;

use super::shell;
use crate::support::scratch::Scratch;
use crate::support::server::{Launch, Output};

async fn demo(arguments: &[&str]) -> (Output, Scratch) {
    let folder = Scratch::new("demo");
    let launch = Launch::cardfence(["demo"].iter().chain(arguments).copied());
    let output = launch.env("TMPDIR", folder.path().to_str().expect("our paths are text")).output().await;
    (output, folder)
}

#[tokio::test]
async fn demo_plays_three_incidents_and_leaves_nothing_behind() {
    let (output, folder) = demo(&["--once"]).await;
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{}", output.stdout);
    for part in [
        "1  The skills were replaced, the version was not",
        "skill_missing: skills: summarize-v2 was wanted, translate-v1 was found",
        "breaking and silent",
        "the subscriber is told of revision 2, breaking and silent, within",
        "2  The endpoint moved, and a replica did not hear of it",
        "https://worker-7.acme.example/a2a: the old endpoint",
        "3  A skill kept its id and came to mean something else",
        "mode_missing: skills: summarize-v2;out=text/markdown",
        "9 entries in one chain",
    ] {
        assert!(output.stdout.contains(part), "{part} in\n{}", output.stdout);
    }
    assert!(!output.stdout.contains('\u{1b}'), "no colours without a terminal");
    let wide = output.stdout.lines().find(|line| line.chars().count() > 110);
    assert_eq!(wide, None);
    assert_eq!(fs::read_dir(folder.path()).expect("it is a folder").count(), 0, "its ledger is gone");
}

#[tokio::test]
async fn demo_gives_programs_its_claims() {
    let (output, _folder) = demo(&["--once", "--json"]).await;
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let claims: Vec<serde_json::Value> =
        output.stdout.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect();
    assert!(claims.len() >= 15, "{}", output.stdout);
    assert!(claims.iter().all(|claim| claim["holds"] == true), "{}", output.stdout);
}

#[tokio::test]
async fn demo_goes_on_serving_until_it_is_told_to_stop() {
    // What it says to try next is tried: the lines are commands.
    let script = r#"
        export TMPDIR=$PWD/tmp; mkdir tmp
        "$CARDFENCE" demo >told 2>&1 & demo=$!
        until grep -q Ctrl-C told; do kill -0 $demo || { cat told; exit 9; }; sleep 0.02; done
        grep -E '^ +(export|/.*cardfence) ' told >next
        while read -r line; do eval "$line" >>done 2>&1; echo "$? $line"; done <next
        kill -TERM $demo; wait $demo; echo "ended with $?"; ls tmp | wc -l
    "#;
    let output = shell("http://127.0.0.1:1", script).await;
    let told = &output.stdout;
    assert_eq!(output.code, Some(0), "{told}{}", output.stderr);
    let codes: Vec<&str> =
        told.lines().filter_map(|line| line.split_once(' ')).map(|(code, _)| code).collect();
    assert_eq!(codes, ["0", "0", "0", "0", "0", "3", "0", "ended"], "{told}");
    assert!(told.contains("ended with 0\n0\n"), "{told}");
}

#[tokio::test]
async fn demo_listens_only_where_serve_would() {
    let (output, _folder) = demo(&["--once", "--listen", "0.0.0.0:0"]).await;
    assert_eq!((output.code, output.stdout.as_str()), (Some(64), ""), "{}", output.stderr);
}
