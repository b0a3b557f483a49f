//! `register`, `retire`, `rollback`: what they print, what they refuse, and what they do when answers are lost.

use std::time::Duration;

use super::{Stage, at, json, shell, summarizer};
use crate::support::eventually::eventually;
use crate::support::proxy::Proxy;

#[tokio::test]
async fn register_tells_what_became_of_a_card() {
    let stage = Stage::set().await;
    let first = stage.file("first.json", summarizer().build());
    let second = stage.file("second.json", summarizer().skills(&[("translate-v1", &["text/plain"])]).build());

    let created =
        stage.json(0, &format!("register acme/s {first} --note first --source ci:1 --release 1")).await;
    assert_eq!((&created["outcome"], &created["revision"]), (&"created".into(), &1.into()));

    let unchanged = stage.expect(0, &format!("register acme/s {first}")).await;
    assert!(unchanged.stdout.starts_with("unchanged: acme/s is at revision 1"), "{}", unchanged.stdout);

    let dry = stage.json(0, &format!("register acme/s {second} --dry-run")).await;
    assert_eq!((&dry["dry_run"], &dry["position"]), (&true.into(), &serde_json::Value::Null));

    let updated = stage.expect(0, &format!("register acme/s {second} --expect 1 --release 2")).await;
    let headline = "updated acme/s: revision 2, breaking and silent";
    assert!(updated.stdout.starts_with(headline), "{}", updated.stdout);
    assert!(updated.stdout.contains("skill removed  summarize-v2"), "{}", updated.stdout);
    assert_eq!(updated.stderr, "");

    for refused in ["--expect 1", "--expect absent", "--release 1"] {
        let output = stage.expect(1, &format!("register acme/s {first} {refused}")).await;
        assert_eq!(output.stdout, "", "{refused}");
        assert!(output.stderr.starts_with("refused: re"), "{refused}: {}", output.stderr);
    }
    let digest = created["content_digest"].as_str().expect("a digest");
    let conflict = stage.json(1, &format!("register acme/s {first} --expect {digest}")).await;
    assert_eq!(conflict["reason"], "revision_conflict");
    let now = updated
        .stdout
        .lines()
        .find_map(|line| line.trim().strip_prefix("content digest"))
        .expect("it is told");
    stage.expect(0, &format!("register acme/s {first} --expect {}", now.trim())).await;

    let history = stage.json(0, "history acme/s").await;
    let first = &history["items"][2];
    assert_eq!(
        (&first["note"], &first["source"], &first["release"]),
        (&"first".into(), &"ci:1".into(), &"1".into())
    );
}

#[tokio::test]
async fn card_that_is_no_card_is_refused_with_every_violation() {
    let stage = Stage::set().await;
    let bad = stage.file("bad.json", r#"{"name":"","skills":[{"id":"a"},{"id":"a"}]}"#);
    let output = stage.expect(1, &format!("register acme/bad {bad}")).await;
    for part in
        ["refused: invalid_card: the card has 3 violations", "/name", "/skills/1/id", "skill_id_duplicate"]
    {
        assert!(output.stderr.contains(part), "{part} in\n{}", output.stderr);
    }
    let problem = stage.json(1, &format!("register acme/bad {bad}")).await;
    assert_eq!(problem["violations"].as_array().map(Vec::len), Some(3));
    let output = stage.expect(1, "register acme/bad /no/such/file").await;
    assert!(output.stderr.contains("cannot read /no/such/file"), "{}", output.stderr);
}

#[tokio::test]
async fn odd_card_is_accepted_with_warnings_beside_the_data() {
    let stage = Stage::set().await;
    let odd = stage.file("odd.json", r#"{"name":"x","url":"/relative","version":"1","skills":[]}"#);
    let output = stage.expect(0, &format!("register acme/odd {odd} --json")).await;
    assert!(output.stderr.contains("warning: url_relative at /url"), "{}", output.stderr);
    assert_eq!(json(&output)["warnings"][0]["code"], "url_relative");
}

#[tokio::test]
async fn standard_input_is_read_for_a_dash() {
    let stage = Stage::set().await;
    let file = stage.file("card.json", summarizer().build());
    let output = shell(&stage.server.url(), &format!(r#""$CARDFENCE" register acme/s - <{file}"#)).await;
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert!(output.stdout.starts_with("created acme/s: revision 1"), "{}", output.stdout);
}

#[tokio::test]
async fn one_request_id_is_done_once() {
    let stage = Stage::set().await;
    let first = stage.file("first.json", summarizer().build());
    let second = stage.file("second.json", summarizer().version("2.0.0").build());
    let one = stage.json(0, &format!("register acme/s {first} --request-id deploy-1")).await;
    stage.json(0, &format!("register acme/s {second} --request-id deploy-2")).await;
    let again = stage.json(0, &format!("register acme/s {first} --request-id deploy-1")).await;
    assert_eq!((&again["revision"], &again["position"]), (&one["revision"], &one["position"]));
    assert_eq!(again["superseded"], true);
    let told = stage.expect(0, &format!("register acme/s {first} --request-id deploy-1")).await;
    assert!(told.stdout.contains("a later revision is current"), "{}", told.stdout);
    stage.expect(64, &format!("register acme/s {second} --request-id deploy-1")).await;
}

#[tokio::test]
async fn register_whose_answer_is_lost_is_sent_again_and_done_once() {
    let stage = Stage::set().await;
    let proxy = Proxy::start(stage.server.address()).await;
    let url = format!("http://{}", proxy.address());
    let file = stage.file("card.json", summarizer().build());
    proxy.freeze_answers();
    let registering = async { at(&url, ["register", "acme/s", &file, "--json"]).await };
    let losing = async {
        eventually(Duration::from_secs(10), async || {
            let output = stage.run("resolve acme/s").await;
            if output.code == Some(0) { Ok(()) } else { Err(output.stderr) }
        })
        .await;
        // It is done, and the caller has not heard of it.
        proxy.cut().await;
        proxy.thaw();
        proxy.heal().await;
    };
    let (output, ()) = tokio::join!(registering, losing);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert!(output.stderr.contains("sending it again in"), "{}", output.stderr);
    let told = json(&output);
    assert_eq!((&told["outcome"], &told["revision"]), (&"created".into(), &1.into()));
    let history = stage.json(0, "history acme/s").await;
    assert_eq!(history["items"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn register_that_never_gets_an_answer_names_its_request_id() {
    let output = {
        let stage = Stage::set().await;
        let file = stage.file("card.json", summarizer().build());
        at("http://127.0.0.1:1", ["register", "acme/s", &file, "--request-id", "deploy-9"]).await
    };
    assert_eq!((output.code, output.stdout.as_str()), (Some(5), ""));
    assert_eq!(output.stderr.matches("sending it again").count(), 5, "{}", output.stderr);
    assert!(output.stderr.contains("run it again with --request-id deploy-9"), "{}", output.stderr);
}

#[tokio::test]
async fn retire_and_rollback_make_revisions() {
    let stage = Stage::set().await;
    let one = stage.register("acme/s", &summarizer()).await;
    stage.register("acme/s", &summarizer().version("2.0.0")).await;

    let back = stage.json(0, "rollback acme/s --to 1 --note undo --expect 2").await;
    assert_eq!((&back["revision"], &back["raw_digest"]), (&3.into(), &one["raw_digest"]));
    stage.expect(4, "rollback acme/s --to 9").await;
    stage.expect(1, "rollback acme/s --to 2 --expect 1").await;

    stage.expect(1, "retire acme/s --expect 1").await;
    let dry = stage.expect(0, "retire acme/s --dry-run").await;
    assert!(dry.stdout.starts_with("acme/s would be retired: revision 4"), "{}", dry.stdout);
    let retired = stage.json(0, "retire acme/s --note bye").await;
    assert_eq!((&retired["outcome"], &retired["revision"]), (&"retired".into(), &4.into()));
    let again = stage.json(0, "retire acme/s").await;
    assert_eq!(again["outcome"], "unchanged");
    stage.expect(4, "retire acme/none").await;
    stage.expect(4, "resolve acme/s").await;
    stage.expect(0, "rollback acme/s --to 2").await;
    stage.expect(0, "resolve acme/s").await;
}
