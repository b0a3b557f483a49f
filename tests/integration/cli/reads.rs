//! `resolve`, `list`, `history`, `diff`, and `card inspect`, which reads without a server.

use std::time::Duration;

use futures::StreamExt as _;
use serde_json::Value;

use super::{Stage, at, json, shell, summarizer};
use crate::support::cards::{Card, Shape};
use crate::support::eventually::eventually;
use crate::support::http::Http;
use crate::support::postgres::{Database, shared, url_at};
use crate::support::proxy::Proxy;

#[tokio::test]
async fn resolve_passes_or_says_what_did_not() {
    let stage = Stage::set().await;
    let written = stage.register("acme/s", &summarizer()).await;
    let (content, skills, negotiation, position) = (
        written["content_digest"].as_str().expect("a digest"),
        written["skill_fingerprint"].as_str().expect("a fingerprint"),
        written["negotiation_fingerprint"].as_str().expect("a fingerprint"),
        written["position"].as_str().expect("a position"),
    );
    let all = format!(
        "resolve acme/s --max-staleness 0 --at-least {position} --min-revision 1@{position} --min-version 1.0 \
         --skill summarize-v2;in=text/plain;out=text/markdown --streaming --push-notifications --pin {content} \
         --pin-skills {skills} --pin-negotiation {negotiation} --max-origin-age 1h --wait 5s"
    );
    let passed = stage.json(0, &all).await;
    assert_eq!((&passed["agent"], &passed["card"]["name"]), (&"acme/s".into(), &"summarizer".into()));
    let told = stage.expect(0, &all).await;
    for part in [
        "acme/s  revision 1",
        "summarize-v2",
        "text/plain → text/markdown",
        "streaming",
        "at most ",
        position,
    ] {
        assert!(told.stdout.contains(part), "{part} in\n{}", told.stdout);
    }

    let other = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    for (flags, reason) in [
        ("--skill translate".to_owned(), "skill_missing"),
        ("--skill summarize-v2;out=text/plain".to_owned(), "mode_missing"),
        ("--extended-card".to_owned(), "capability_missing"),
        ("--extension urn:none".to_owned(), "capability_missing"),
        ("--min-version 2".to_owned(), "version_below_floor"),
        ("--min-version two".to_owned(), "version_incomparable"),
        ("--min-revision 2".to_owned(), "revision_below_floor"),
        (format!("--pin {other}"), "pin_mismatch"),
        (format!("--pin-skills {other}"), "pin_mismatch"),
        ("--at-least 9.0123456789abcdef".to_owned(), "position_in_future"),
        ("--at-least 1.0123456789abcdef".to_owned(), "history_diverged"),
    ] {
        let line = format!("resolve acme/s {flags}");
        let problem = stage.json(3, &line).await;
        assert_eq!(problem["reason"], reason, "{line}: {problem}");
        let output = stage.expect(3, &line).await;
        assert_eq!(output.stdout, "", "{line}");
        assert!(output.stderr.starts_with(&format!("refused: {reason}:")), "{line}: {}", output.stderr);
        assert!(output.stderr.contains("condition"), "{line}: {}", output.stderr);
    }
    let refused = stage.json(3, "resolve acme/s --skill translate").await;
    assert_eq!(refused["card"]["name"], "summarizer", "the card is attached");
    assert_eq!(stage.json(4, "resolve acme/none").await["reason"], "agent_not_found");
    stage.expect(64, "resolve acme/s --wait 11s").await;
}

#[tokio::test]
async fn skill_whose_id_is_full_of_marks_is_found() {
    let stage = Stage::set().await;
    let id = "a b+c/é;100%&x=y";
    stage.register("acme/odd", &summarizer().skills(&[(id, &["image/svg+xml"])])).await;
    let skill = "a b+c/é%3B100%25&x=y;out=image/svg+xml";
    let output = stage.run_all(["resolve", "acme/odd", "--skill", skill, "--json"]).await;
    assert_eq!(output.code, Some(0), "{}{}", output.stdout, output.stderr);
    let listed = stage.run_all(["list", "--skill", id, "--json"]).await;
    assert_eq!(json(&listed)["items"][0]["agent"], "acme/odd");
    let output = stage.run_all(["resolve", "acme/odd", "--skill", "100%"]).await;
    assert_eq!(output.code, Some(64), "{}", output.stderr);
}

#[tokio::test]
async fn card_alone_is_every_byte_of_it() {
    let stage = Stage::set().await;
    let text = format!("\n  {}\n\n", summarizer().build());
    let file = stage.file("card.json", &text);
    let written = stage.json(0, &format!("register acme/s {file}")).await;
    assert_eq!(stage.expect(0, "resolve acme/s --card --skill summarize-v2").await.stdout, text);
    stage.expect(3, "resolve acme/s --card --skill none").await;
    let position = written["position"].as_str().expect("a position");
    let past = stage.expect(0, &format!("resolve acme/s --card --at {position}")).await;
    assert_eq!(past.stdout, text.trim(), "{}", past.stderr);
    assert!(past.stderr.contains("white space"), "{}", past.stderr);
}

#[tokio::test]
async fn known_card_is_not_sent_again() {
    let stage = Stage::set().await;
    let written = stage.register("acme/s", &summarizer()).await;
    let known = written["raw_digest"].as_str().expect("a digest");
    let line = format!("resolve acme/s --known {known}");
    let told = stage.expect(0, &line).await;
    assert!(told.stdout.starts_with("not modified: acme/s is at revision 1; at most "), "{}", told.stdout);
    let answer = stage.json(0, &line).await;
    assert_eq!(
        (&answer["not_modified"], &answer["freshness"]["position"]),
        (&true.into(), &written["position"])
    );
    stage.register("acme/s", &summarizer().version("2.0.0")).await;
    assert_eq!(stage.json(0, &line).await["revision"], 2);
}

#[tokio::test]
async fn past_is_what_was_served_there() {
    let stage = Stage::set().await;
    let first = stage.register("acme/s", &summarizer()).await;
    stage.register("acme/s", &summarizer().version("2.0.0")).await;
    let at = first["position"].as_str().expect("a position");
    let past = stage.json(0, &format!("resolve acme/s --at {at}")).await;
    assert_eq!((&past["revision"], &past["card_version"]), (&1.into(), &"1.0.0".into()));
}

#[tokio::test]
async fn lists_are_paged_to_their_end_or_limit() {
    let stage = Stage::set().await;
    let cards: Vec<_> = (0..25).map(|n| (format!("acme/agent-{n:02}"), summarizer())).collect();
    for (agent, card) in &cards {
        stage.register(agent, card).await;
    }
    stage.register("globex/t", &Card::new(Shape::V03, "t").streaming(false)).await;

    let all = stage.json(0, "list").await;
    let names = |list: &Value| -> Vec<String> {
        let items = list["items"].as_array().expect("items");
        items.iter().map(|item| item["agent"].as_str().expect("a name").to_owned()).collect()
    };
    assert_eq!(names(&all).len(), 26);
    assert_eq!((&all["complete"], &all["next_page_token"]), (&true.into(), &Value::Null));

    let first = stage.json(0, "list --namespace acme --limit 10").await;
    assert_eq!((names(&first).len(), &first["complete"]), (10, &false.into()));
    let token = first["next_page_token"].as_str().expect("there is more");
    let rest = stage.json(0, &format!("list --namespace acme --page-token {token}")).await;
    let together: Vec<String> = names(&first).into_iter().chain(names(&rest)).collect();
    assert_eq!(together, cards.iter().map(|(agent, _)| agent.clone()).collect::<Vec<_>>());

    for (filter, count) in [
        ("--skill summarize-v2", 25),
        ("--mode text/markdown", 25),
        ("--capability streaming", 25),
        ("--tag example --namespace globex", 1),
        ("--url https://t.example.com/a2a", 1),
        ("--q SUMMARIZER", 25),
        ("--skill none", 0),
    ] {
        assert_eq!(names(&stage.json(0, &format!("list {filter}")).await).len(), count, "{filter}");
    }
    let told = stage.expect(0, "list --limit 2").await;
    assert_eq!(told.stdout.lines().count(), 3, "a header and two agents:\n{}", told.stdout);
    assert!(told.stderr.contains("2 items, more with --page-token"), "{}", told.stderr);
    assert_eq!(stage.expect(0, "list --skill none").await.stdout, "no agents\n");
    stage.expect(64, "list --capability strming").await;
}

#[tokio::test]
async fn history_and_diff_tell_what_changed() {
    let stage = Stage::set().await;
    stage.register("acme/s", &summarizer()).await;
    stage.register("acme/s", &summarizer().skills(&[("translate-v1", &["text/plain"])])).await;
    stage.expect(0, "retire acme/s").await;

    let told = stage.expect(0, "history acme/s").await;
    let lines: Vec<&str> = told.stdout.lines().collect();
    assert_eq!(lines.len(), 4, "{}", told.stdout);
    assert!(lines[1].starts_with("3 ") && lines[1].contains("agent retired"), "{}", told.stdout);
    assert!(lines[2].contains("breaking") && lines[2].contains("silent"), "{}", told.stdout);
    assert_eq!(stage.json(0, "history acme/s --limit 1").await["items"][0]["kind"], "tombstone");

    let told = stage.expect(0, "diff acme/s --to 2").await;
    for part in [
        "acme/s: revision 1 → 2, breaking and silent",
        "skill removed  summarize-v2",
        "--- ",
        "-      \"id\": \"summarize-v2\"",
        "+      \"id\": \"translate-v1\"",
    ] {
        assert!(told.stdout.contains(part), "{part} in\n{}", told.stdout);
    }
    let diff = stage.json(0, "diff acme/s --from 2 --to 1").await;
    assert_eq!((&diff["from"], &diff["change"]["class"]), (&2.into(), &"breaking".into()));
    // The current revision is a tombstone: the last two cards are compared.
    stage.expect(0, "diff acme/s").await;
    stage.expect(4, "diff acme/s --to 1").await;
    stage.expect(64, "diff acme/s --to 3").await;
    stage.expect(4, "diff acme/s --to 9").await;
    stage.expect(4, "history acme/none").await;
}

#[tokio::test]
async fn staleness_is_told_in_words_and_the_want_of_proof_exits_with_5() {
    let database = Database::empty().await;
    let proxy = Proxy::start(shared().await.address()).await;
    let stage = Stage::over(&url_at(proxy.address(), database.name())).await;
    stage.register("acme/s", &summarizer()).await;
    let told = stage.expect(0, "resolve acme/s").await;
    let last = told.stdout.lines().last().unwrap_or_default();
    assert!(last.starts_with("at most ") && last.contains(" old, proven by node "), "{last}");

    proxy.freeze();
    eventually(Duration::from_secs(20), async || {
        let output = stage.run("resolve acme/s --max-staleness 300ms --wait 100ms --json").await;
        if output.code != Some(5) {
            return Err(format!("{:?} {}", output.code, output.stdout));
        }
        let problem = json(&output);
        assert!(["freshness_unverifiable", "too_stale"].contains(&problem["reason"].as_str().unwrap_or("")));
        assert_eq!(problem["card"]["name"], "summarizer", "the stale card is attached");
        assert!(problem["freshness"]["staleness_ms"].as_u64().is_some_and(|bound| bound > 300), "{problem}");
        Ok(())
    })
    .await;
    let told = stage.expect(5, "resolve acme/s --max-staleness 0 --wait 100ms").await;
    for part in
        ["refused: freshness_unverifiable:", "what it was judged on: at most ", "it may be tried again in"]
    {
        assert!(told.stderr.contains(part), "{part} in\n{}", told.stderr);
    }
    // A content condition that fails on a view which cannot be proven is not what it is refused for.
    stage.expect(5, "resolve acme/s --skill none --wait 100ms").await;
    stage.expect(0, "resolve acme/s --max-staleness any").await;
    stage.expect(5, "list --max-staleness 0 --wait 100ms").await;
    proxy.thaw();
    eventually(Duration::from_secs(20), async || {
        let output = stage.run("resolve acme/s --max-staleness 0").await;
        if output.code == Some(0) { Ok(()) } else { Err(output.stderr) }
    })
    .await;
}

#[tokio::test]
async fn what_is_more_than_one_page_is_all_there() {
    const COUNT: usize = 2_050;
    let stage = Stage::set().await;
    let http = Http::to(&stage.server.url());
    let card = summarizer().build();
    let registering = (0..COUNT).map(|n| {
        let (http, card) = (http.clone(), &card);
        async move { http.put_card(&format!("acme/agent-{n:04}"), "", card).await.status }
    });
    let statuses: Vec<u16> = futures::stream::iter(registering).buffer_unordered(64).collect().await;
    assert!(statuses.iter().all(|status| *status == 201));

    let list = stage.json(0, "list").await;
    let names: Vec<&str> =
        list["items"].as_array().expect("items").iter().filter_map(|item| item["agent"].as_str()).collect();
    assert!(names.len() == COUNT && names.is_sorted(), "{} of {COUNT}", names.len());
    assert_eq!((&list["complete"], &list["next_page_token"]), (&true.into(), &Value::Null));
    let some = stage.json(0, "list --limit 1020").await;
    assert_eq!((some["items"].as_array().map(Vec::len), &some["complete"]), (Some(1_020), &false.into()));
    let token = some["next_page_token"].as_str().expect("there is more");
    let rest = stage.json(0, &format!("list --page-token {token}")).await;
    assert_eq!(rest["items"][0]["agent"], "acme/agent-1020");
    assert_eq!(rest["items"].as_array().map(Vec::len), Some(COUNT - 1_020));

    assert_eq!(stage.json(0, "ledger verify").await["entries"], COUNT);
    assert_eq!(stage.expect(0, "ledger export").await.stdout.lines().count(), COUNT);
}

#[tokio::test]
async fn card_is_inspected_without_a_server() {
    let stage = Stage::set().await;
    let good = stage.file("good.json", summarizer().build());
    let output = at("http://127.0.0.1:1", ["card", "inspect", &good]).await;
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert!(
        output.stdout.contains("a usable card") && output.stdout.contains("summarize-v2"),
        "{}",
        output.stdout
    );
    let inspected = json(&at("http://127.0.0.1:1", ["card", "inspect", &good, "--json"]).await);
    let registered = stage.json(0, &format!("register acme/s {good}")).await;
    for digest in
        ["content_digest", "raw_digest", "skill_fingerprint", "negotiation_fingerprint", "generation"]
    {
        assert_eq!(inspected[digest], registered[digest], "{digest}");
    }
    assert_eq!(inspected["spoken_versions"], serde_json::json!(["1.0"]));

    let script =
        r#"echo '{"name":"x","skills":[{"id":"a"},{"id":"a"}]}' | "$CARDFENCE" card inspect - --json"#;
    let refused = shell("http://127.0.0.1:1", script).await;
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    let refused = json(&refused);
    let members: Vec<&str> = refused.as_object().expect("an object").keys().map(String::as_str).collect();
    assert_eq!(
        members,
        [
            "content_digest",
            "generation",
            "negotiation_fingerprint",
            "raw_digest",
            "skill_fingerprint",
            "spoken_versions",
            "violations",
            "warnings"
        ]
    );
    assert_eq!(refused["violations"].as_array().map(Vec::len), Some(2));
}
