//! A resolve from the view, in process: the fence evaluated, the answer built, no wire.
//!
//! The goal is a microsecond or less with a handful of conditions, whatever the number of agents.

use std::hint::black_box;
use std::time::Duration;

use bytes::Bytes;
use cardfence::clock::Clock;
use cardfence::fence::{Capabilities, Fence, SkillWanted};
use cardfence::ledger::Expect;
use cardfence::ledger::memory::Memory;
use cardfence::registry::{Register, Resolve};
use cardfence::server::{Node, Parts, Tuning};
use cardfence::telemetry::Metrics;
use cardfence::terms::MaxStaleness;
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};

fn card(n: usize) -> Bytes {
    let skills: Vec<String> = (0..6)
        .map(|s| {
            format!(
                r#"{{"id":"skill-{s}","name":"Skill {s}","description":"{}","tags":["a","b"],"outputModes":["text/markdown"]}}"#,
                "x".repeat(150)
            )
        })
        .collect();
    format!(
        r#"{{"name":"Agent {n}","description":"d","supportedInterfaces":[{{"url":"https://a{n}.example.com/rpc","protocolBinding":"JSONRPC","protocolVersion":"1.0"}}],"version":"1.2.3","capabilities":{{"streaming":true,"pushNotifications":true}},"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],"skills":[{}]}}"#,
        skills.join(",")
    )
    .into()
}

/// Registers in flight at once, so that loading is not one commit per agent.
const IN_FLIGHT: usize = 200;

async fn node(agents: usize) -> Node {
    let memory = Memory::new("00000000-0000-4000-8000-000000000009", Clock::System);
    let node = Node::start(Parts::over(&memory, Clock::System), Tuning::named("bench"), Metrics::new());
    while !node.registry.is_ready() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for from in (0..agents).step_by(IN_FLIGHT) {
        let registers = (from..agents.min(from + IN_FLIGHT)).map(|n| {
            let register = Register {
                agent: format!("bench/agent-{n}").parse().expect("a name"),
                bytes: card(n),
                expect: Expect::Any,
                request_id: None,
                release: None,
                note: None,
                source: None,
                ttl: None,
                dry_run: false,
            };
            let registry = node.registry.clone();
            async move { registry.register(&registry.call(None), register).await.expect("registered") }
        });
        futures::future::join_all(registers).await;
    }
    node
}

fn fences() -> Vec<(&'static str, Fence)> {
    // Wide enough for the bench not to wait for a confirmation.
    let bounded =
        Fence { max_staleness: Some(MaxStaleness::Within(Duration::from_secs(60))), ..Fence::default() };
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
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let mut group = c.benchmark_group("resolve");
    for agents in [100, 10_000] {
        let node = runtime.block_on(node(agents));
        for (name, fence) in fences() {
            let requests: Vec<Resolve> = (0..agents)
                .map(|n| Resolve {
                    agent: format!("bench/agent-{}", n * 7919 % agents).parse().expect("a name"),
                    fence: fence.clone(),
                    known: Vec::new(),
                    wait: None,
                })
                .collect();
            let mut next = 0;
            group.bench_function(BenchmarkId::new(name, agents), |b| {
                b.iter(|| {
                    next = (next + 1) % requests.len();
                    let call = node.registry.call(None);
                    let resolved = futures::executor::block_on(node.registry.resolve(&call, &requests[next]));
                    black_box(resolved.expect("passes"))
                });
            });
        }
        runtime.block_on(node.stop());
    }
    group.finish();
}

criterion_group!(benches, resolve);
criterion_main!(benches);
