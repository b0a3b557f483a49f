//! `confirm`: once, for a fleet, and again and again.

use std::time::Duration;

use super::{Stage, at, summarizer};
use crate::support::eventually::eventually;
use crate::support::proxy::Proxy;

#[tokio::test]
async fn heartbeat_names_the_card_by_its_digest_or_its_file() {
    let stage = Stage::set().await;
    let file = stage.file("card.json", summarizer().build());
    let written = stage.json(0, &format!("register acme/s {file} --ttl 30s")).await;
    let digest = written["content_digest"].as_str().expect("a digest");
    for named in [format!("--digest {digest}"), format!("--card {file}")] {
        let told = stage.json(0, &format!("confirm acme/s {named}")).await;
        assert_eq!((&told["revision"], &told["lease_ttl_ms"]), (&1.into(), &30_000.into()));
        let output = stage.expect(0, &format!("confirm acme/s {named}")).await;
        assert!(output.stdout.starts_with("confirmed acme/s: revision 1 at "), "{}", output.stdout);
        assert!(output.stdout.trim_end().ends_with(", for 30 s"), "{}", output.stdout);
    }
    let shown = stage.expect(0, "resolve acme/s").await;
    assert!(shown.stdout.contains("30 s, held"), "{}", shown.stdout);
    let other = stage.file("other.json", summarizer().version("9.0.0").build());
    let refused = stage.expect(3, &format!("confirm acme/s --card {other}")).await;
    assert!(refused.stderr.starts_with("refused: pin_mismatch"), "{}", refused.stderr);
    stage.expect(4, &format!("confirm acme/none --digest {digest}")).await;
    stage.expect(64, "confirm acme/s").await;
    stage.expect(64, &format!("register acme/s {file} --ttl 31d")).await;
    stage.expect(1, &format!("confirm acme/s --card {}", stage.file("no.json", "{}"))).await;
}

#[tokio::test]
async fn lapsed_lease_is_marked() {
    let stage = Stage::set().await;
    let file = stage.file("card.json", summarizer().build());
    stage.expect(0, &format!("register acme/s {file} --ttl 1s")).await;
    eventually(Duration::from_secs(30), async || {
        let output = stage.expect(0, "resolve acme/s").await;
        if output.stdout.contains("UNCONFIRMED") { Ok(()) } else { Err(output.stdout) }
    })
    .await;
    let listed = stage.expect(0, "list").await;
    assert!(listed.stdout.contains("unconfirmed"), "{}", listed.stdout);
}

#[tokio::test]
async fn fleet_is_confirmed_from_a_file() {
    let stage = Stage::set().await;
    let digest = stage.register("acme/a", &summarizer()).await["content_digest"].clone();
    stage.register("acme/b", &summarizer()).await;
    let digest = digest.as_str().expect("a digest");
    let fleet = stage.file("fleet", format!("# ours\nacme/a {digest}\n\nacme/b {digest}\n"));
    let output = stage.expect(0, &format!("confirm --from {fleet}")).await;
    assert_eq!(output.stdout, "confirmed 2 of 2 agents\n");
    let fleet = stage.file("fleet", format!("acme/none {digest}\nacme/a {digest}\n"));
    let output = stage.expect(4, &format!("confirm --from {fleet}")).await;
    assert_eq!(output.stdout, "confirmed 1 of 2 agents\n");
    assert!(output.stderr.starts_with("acme/none: refused: agent_not_found:"), "{}", output.stderr);
    let bad = stage.file("fleet", "acme/a\n");
    let output = stage.expect(1, &format!("confirm --from {bad}")).await;
    assert!(output.stderr.contains("line 1"), "{}", output.stderr);
}

/// Through an outage it goes on; when another card becomes current it ends, and says so.
#[tokio::test]
async fn heartbeats_go_on_through_an_outage_and_end_with_a_refusal() {
    let stage = Stage::set().await;
    let file = stage.file("card.json", summarizer().build());
    stage.expect(0, &format!("register acme/s {file}")).await;
    let proxy = Proxy::start(stage.server.address()).await;
    let url = format!("http://{}", proxy.address());
    proxy.cut().await;
    let confirmed_at = async || {
        let told = stage.json(0, "resolve acme/s").await;
        told["freshness"]["origin_confirmed_at"].as_str().expect("a time").to_owned()
    };
    let registered = confirmed_at().await;
    let beating = async { at(&url, ["confirm", "acme/s", "--card", &file, "--every", "1s"]).await };
    let deploying = async {
        proxy.heal().await;
        eventually(Duration::from_secs(30), async || {
            let now = confirmed_at().await;
            if now > registered { Ok(()) } else { Err(now) }
        })
        .await;
        proxy.cut().await;
        proxy.heal().await;
        stage.register("acme/s", &summarizer().version("2.0.0")).await;
    };
    let (output, ()) = tokio::join!(beating, deploying);
    assert_eq!(output.code, Some(3), "{}\n{}", output.stdout, output.stderr);
    assert!(output.stdout.starts_with("confirmed acme/s: revision 1"), "{}", output.stdout);
    assert!(output.stderr.contains("refused: pin_mismatch"), "{}", output.stderr);
    let away = async { at("http://127.0.0.1:1", ["confirm", "acme/s", "--card", &file]).await };
    assert_eq!(away.await.code, Some(5));
}
