//! A resolve from a watched copy that is proven: the fence evaluated, the bound evaluated, the answer built.
//!
//! The goal is 5 million a second on one core, which is 200 ns each.

use std::hint::black_box;
use std::time::Duration;

use cardfence::client::{Cache, CacheSettings, Resolver};
use cardfence::config::Args;
use cardfence::fence::{Capabilities, Fence, SkillWanted};
use cardfence::terms::{AgentName, MaxStaleness};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use tokio::sync::oneshot;

fn card(n: usize) -> String {
    let skills: Vec<String> = (0..6)
        .map(|s| {
            format!(
                r#"{{"id":"skill-{s}","name":"Skill {s}","description":"d","tags":["a"],"outputModes":["text/markdown"]}}"#
            )
        })
        .collect();
    format!(
        r#"{{"name":"Agent {n}","description":"d","supportedInterfaces":[{{"url":"https://a{n}.example.com/rpc","protocolBinding":"JSONRPC","protocolVersion":"1.0"}}],"version":"1.2.3","capabilities":{{"streaming":true,"pushNotifications":true}},"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],"skills":[{}]}}"#,
        skills.join(",")
    )
}

fn name(n: usize) -> AgentName {
    format!("bench/agent-{n}").parse().expect("a name")
}

/// A server in this process with so many agents, and a cache of it that was proven.
async fn proven(agents: usize, folder: &std::path::Path) -> (Cache, oneshot::Sender<()>) {
    let store = format!("sqlite:{}", folder.join(format!("{agents}.db")).display());
    let args = Args { listen: Some("127.0.0.1:0".to_owned()), store: Some(store), ..Args::default() };
    let config = args.check().expect("settings");
    let (ready, address) = oneshot::channel();
    let (stop, stopped) = oneshot::channel::<()>();
    tokio::spawn(cardfence::server::run(
        config,
        |address| ready.send(address).expect("somebody waits"),
        async {
            stopped.await.ok();
        },
    ));
    let base = format!("http://{}", address.await.expect("it listens"));
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    for from in (0..agents).step_by(100) {
        let registers = (from..agents.min(from + 100)).map(|n| {
            let request = client.put(format!("{base}/v1/agents/{}", name(n))).body(card(n));
            async move { request.send().await.expect("answered").error_for_status().expect("registered") }
        });
        futures::future::join_all(registers).await;
    }
    let cache = Cache::start(Resolver::connect(&base).expect("an address"), CacheSettings::default());
    let fence = Fence { max_staleness: Some(MaxStaleness::Within(Duration::ZERO)), ..Fence::default() };
    while cache.resolve(&name(0), &fence).await.is_err() {
        tokio::task::yield_now().await;
    }
    (cache, stop)
}

fn fences() -> Vec<(&'static str, Fence)> {
    // Wide enough for the bench not to wait for a confirmation; its bound is evaluated all the same.
    let bounded =
        Fence { max_staleness: Some(MaxStaleness::Within(Duration::from_secs(3_600))), ..Fence::default() };
    let skill = SkillWanted {
        id: "skill-3".to_owned(),
        input_modes: vec!["text/plain".to_owned()],
        output_modes: vec!["text/markdown".to_owned()],
    };
    let full = Fence {
        min_version: Some("1.2".to_owned()),
        skills: vec![skill],
        capabilities: Capabilities { streaming: true, push_notifications: true, ..Capabilities::default() },
        ..bounded.clone()
    };
    vec![("bounded", bounded), ("full", full)]
}

fn resolve(c: &mut Criterion) {
    rustls::crypto::ring::default_provider().install_default().ok();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let folder = tempfile::tempdir().expect("a folder");
    let mut group = c.benchmark_group("cache");
    group.throughput(Throughput::Elements(1));
    for agents in [100, 10_000] {
        let (cache, stop) = runtime.block_on(proven(agents, folder.path()));
        let names: Vec<AgentName> = (0..agents).map(|n| name(n * 7_919 % agents)).collect();
        for (kind, fence) in fences() {
            let mut next = 0;
            group.bench_function(BenchmarkId::new(kind, agents), |b| {
                b.iter(|| {
                    next = (next + 1) % names.len();
                    let found = futures::executor::block_on(cache.resolve(&names[next], &fence));
                    black_box(found.expect("passes"))
                });
            });
        }
        runtime.block_on(cache.stop());
        stop.send(()).ok();
    }
    group.finish();
}

criterion_group!(benches, resolve);
criterion_main!(benches);
