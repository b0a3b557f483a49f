//! `ledger verify` and `ledger export`.

use super::{Stage, at, json, shell, summarizer};

/// What somebody may do to the lines of an export.
type Rewriting = fn(&mut Vec<String>);

#[tokio::test]
async fn ledger_is_verified_exported_and_verified_again() {
    let stage = Stage::set().await;
    let empty = stage.json(0, "ledger verify").await;
    assert_eq!((&empty["verified"], &empty["entries"]), (&true.into(), &0.into()));
    for number in 1..=5 {
        stage.register("acme/s", &summarizer().version(&format!("1.{number}.0"))).await;
    }
    let whole = stage.json(0, "ledger verify").await;
    assert_eq!((&whole["verified"], &whole["entries"], &whole["from"]), (&true.into(), &5.into(), &1.into()));
    let (id, position) =
        (whole["ledger_id"].as_str().expect("an id"), whole["position"].as_str().expect("a position"));
    let told = stage.expect(0, "ledger verify").await;
    assert_eq!(told.stdout, format!("verified: 5 entries of ledger {id}, up to position {position}\n"));
    stage.expect(0, &format!("ledger verify --ledger-id {id} --through {position}")).await;
    stage.expect(1, "ledger verify --ledger-id another").await;
    stage.expect(1, "ledger verify --through 2.0123456789abcdef").await;

    let file = stage.file("export.ndjson", "");
    let exported = stage.json(0, &format!("ledger export {file}")).await;
    assert_eq!((&exported["entries"], &exported["position"]), (&5.into(), &position.into()));
    let text = std::fs::read_to_string(&file).expect("it was written");
    assert_eq!(text.lines().count(), 5);
    assert_eq!(stage.expect(0, "ledger export").await.stdout, text);
    let members = |line: &str| -> Vec<String> {
        let line: serde_json::Value = serde_json::from_str(line).expect("a line is JSON");
        line.as_object().expect("an object").keys().cloned().collect()
    };
    assert!(text.lines().all(|line| members(line) == ["body", "body_digest", "digest", "seq"]), "{text}");

    // Without a registry.
    let nowhere = "http://127.0.0.1:1";
    let alone = at(nowhere, ["ledger", "verify", &file]).await;
    assert_eq!(
        (alone.code, alone.stdout),
        (Some(0), format!("verified: 5 entries, up to position {position}\n"))
    );
    assert!(alone.stderr.contains("the first entry is taken as it is"), "{}", alone.stderr);
    let anchored = at(nowhere, ["ledger", "verify", &file, "--ledger-id", id, "--through", position]).await;
    assert_eq!((anchored.code, anchored.stderr.as_str()), (Some(0), ""));
    let foreign = at(nowhere, ["ledger", "verify", &file, "--ledger-id", "another"]).await;
    assert_eq!(foreign.code, Some(1), "{}", foreign.stdout);
    let piped = shell(nowhere, &format!(r#""$CARDFENCE" ledger verify - --json <{file}"#)).await;
    assert_eq!(json(&piped)["position"], position);

    // Against the registry, which has gone on meanwhile.
    stage.register("acme/s", &summarizer().version("2.0.0")).await;
    let url = stage.server.url();
    let held = stage.json(0, &format!("ledger verify {file} --server {url}")).await;
    assert_eq!((&held["held_against"], &held["ledger_id"]), (&url.into(), &id.into()));
}

#[tokio::test]
async fn every_rewriting_is_found_with_its_place() {
    let stage = Stage::set().await;
    for number in 1..=5 {
        stage.register("acme/s", &summarizer().version(&format!("1.{number}.0"))).await;
    }
    let text = stage.expect(0, "ledger export").await.stdout;
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let rewritings: [(&str, Rewriting); 5] = [
        ("a word in a body", |lines| lines[2] = lines[2].replace("acme/s", "acme/t")),
        ("an entry left out", |lines| drop(lines.remove(2))),
        ("two entries exchanged", |lines| lines.swap(2, 3)),
        ("an entry twice", |lines| lines.insert(2, lines[1].clone())),
        ("half a line", |lines| lines[2].truncate(40)),
    ];
    for (name, rewrite) in rewritings {
        let mut lines = lines.clone();
        rewrite(&mut lines);
        let file = stage.file("rewritten.ndjson", lines.join("\n"));
        let output = stage.expect(1, &format!("ledger verify {file}")).await;
        assert!(
            output.stdout.starts_with("broken at ") && output.stdout.contains("line 3:"),
            "{name}: {}",
            output.stdout
        );
        let told = stage.json(1, &format!("ledger verify {file}")).await;
        assert_eq!((&told["verified"], &told["broken"]["line"]), (&false.into(), &3.into()), "{name}");
    }
    // A part that hides what came after is a chain, and no longer one once it is held against something.
    let file = stage.file("part.ndjson", lines[..3].join("\n"));
    stage.expect(0, &format!("ledger verify {file}")).await;
    let kept = stage.json(0, "ledger verify").await["position"].as_str().expect("a position").to_owned();
    let output = stage.expect(1, &format!("ledger verify {file} --through {kept}")).await;
    assert!(output.stdout.contains("does not pass through"), "{}", output.stdout);

    // Another ledger's export is a chain as well.
    let other = Stage::set().await;
    other.register("acme/s", &summarizer()).await;
    let file = other.file("other.ndjson", other.expect(0, "ledger export").await.stdout);
    let url = stage.server.url();
    let output = stage.expect(1, &format!("ledger verify {file} --server {url}")).await;
    assert!(output.stdout.contains("line 1:"), "{}", output.stdout);
}

#[tokio::test]
async fn export_that_fails_leaves_nothing_that_looks_whole() {
    let stage = Stage::set().await;
    stage.register("acme/s", &summarizer()).await;
    let file = stage.file("export.ndjson", "of before");
    let (url, kept) = (stage.server.url(), || std::fs::read_to_string(&file).expect("it is there"));
    stage.server.kill_9();
    assert_eq!(at(&url, ["ledger", "export", &file]).await.code, Some(5));
    assert_eq!(kept(), "of before");
    let output = at(&url, ["ledger", "export", "/no/such/folder/x"]).await;
    assert_eq!(output.code, Some(5), "{}", output.stderr);
}
