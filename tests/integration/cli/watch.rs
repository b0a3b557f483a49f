//! `watch`: what it prints, and how it ends.

use super::{Stage, shell, summarizer};

#[tokio::test]
async fn watch_tells_what_there_is_and_then_what_happens_until_it_is_told_to_stop() {
    let stage = Stage::set().await;
    stage.register("acme/sum", &summarizer()).await;
    let mutated = summarizer().skills(&[("translate-v1", &["text/plain"])]);
    let file = stage.file("mutated.json", mutated.build());
    let script = format!(
        r#""$CARDFENCE" watch acme/sum >told 2>notes & people=$!
        "$CARDFENCE" watch --class breaking --json >lines 2>>notes & programs=$!
        until grep -q synced told && grep -q checkpoint lines; do sleep 0.02; done
        "$CARDFENCE" register acme/sum {file} >/dev/null 2>&1
        "$CARDFENCE" retire acme/sum >/dev/null 2>&1
        until grep -q retired told && grep -q retired lines; do sleep 0.02; done
        kill -INT $people; kill -TERM $programs
        wait $people; echo "people $?"; wait $programs; echo "programs $?"; cat told; cat lines; cat notes >&2"#
    );
    let output = shell(&stage.server.url(), &script).await;
    let text = &output.stdout;
    assert_eq!(output.stderr, "", "{text}");
    assert!(text.starts_with("people 0\nprograms 0\n"), "{text}");
    for part in [
        "  reset     what there is",
        "  upsert    acme/sum  revision 1  version 1.0.0\n",
        "  synced    complete up to here",
        "  upsert    acme/sum  revision 2  version 1.0.0  breaking  silent\n",
        "  retired   acme/sum  revision 3\n",
        r#"{"event":"reset","id":null,"data":{"position":"#,
        r#""card":{"#,
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    let lines = text.lines().filter(|line| line.starts_with('{'));
    let kinds: Vec<String> = lines
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("a line is JSON"))
        .map(|line| line["event"].as_str().expect("it has a kind").to_owned())
        .filter(|kind| kind != "checkpoint")
        .collect();
    assert_eq!(kinds, ["reset", "upsert", "synced", "upsert", "retired"]);
}

#[tokio::test]
async fn watch_ends_at_the_first_line_that_nobody_reads_and_fails_when_nobody_answers() {
    let stage = Stage::set().await;
    for name in ["a", "b", "c"] {
        stage.register(&format!("acme/{name}"), &summarizer()).await;
    }
    // It finds out at the next line, so there has to be one.
    let file = stage.file("card.json", summarizer().build());
    let script = format!(
        r#"("$CARDFENCE" watch --namespace acme; echo "ended with $?" >ended) | head -n 1 >one &
        n=0; until [ -s ended ]; do
            n=$((n + 1)); "$CARDFENCE" register acme/n$n {file} >/dev/null
        done; cat ended; wc -l <one"#
    );
    let output = shell(&stage.server.url(), &script).await;
    let told: Vec<&str> = output.stdout.split_whitespace().collect();
    assert_eq!(told, ["ended", "with", "0", "1"], "{}", output.stderr);
    let nobody = super::at("http://127.0.0.1:1", ["watch"]).await;
    assert_eq!(nobody.code, Some(5), "{}", nobody.stderr);
    assert_eq!(super::at(&stage.server.url(), ["watch", "--class", "grave"]).await.code, Some(64));
}

#[tokio::test]
async fn drain_ends_streams_at_once_and_a_subscriber_waits_for_the_next_server() {
    let stage = Stage::set().await;
    stage.register("acme/sum", &summarizer()).await;
    let script = r#""$CARDFENCE" watch --json >told 2>notes & watch=$!
        until grep -q checkpoint told; do sleep 0.02; done; echo ready >>notes
        until grep -q 'no answer from' notes; do sleep 0.02; done
        kill -INT $watch; wait $watch; echo "ended with $?"; cat told notes"#;
    let url = stage.server.url();
    let watching = tokio::spawn(async move { shell(&url, script).await });
    crate::support::eventually::eventually(std::time::Duration::from_secs(30), async || {
        let metrics = crate::support::http::Http::to(&stage.server.url()).get("/metrics").await;
        let text = String::from_utf8_lossy(&metrics.body).into_owned();
        if text.contains("cardfence_subscribers 1") {
            Ok(())
        } else {
            Err("nobody has subscribed".to_owned())
        }
    })
    .await;
    let began = std::time::Instant::now();
    assert_eq!(stage.server.terminate().await.code(), Some(0));
    assert!(began.elapsed().as_secs() < 5, "a stream held the drain up: {:?}", began.elapsed());
    let output = watching.await.expect("the script ends");
    let told = &output.stdout;
    assert!(told.starts_with("ended with 0\n"), "{told}");
    assert!(told.contains(r#"{"event":"end","id":null,"data":{"reason":"draining"}}"#), "{told}");
}
