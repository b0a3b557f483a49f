//! The Rust client against the real binary: through proxies that cut, freeze and change their mind.

use std::time::Duration;

use cardfence::client::{
    Ask, Cache, CacheEvent, CacheSettings, Error, Guard, GuardError, Intent, Observed, Resolver, Settings,
};
use cardfence::fence::{Fence, SkillWanted};
use cardfence::terms::{AgentName, MaxStaleness, Reason};
use futures::StreamExt as _;
use serde_json::json;

use crate::support::cards::{Card, Shape};
use crate::support::eventually::eventually;
use crate::support::http::Http;
use crate::support::proxy::Proxy;
use crate::support::scratch::Scratch;
use crate::support::server::Server;

const WITHIN: Duration = Duration::from_secs(30);

struct Setting {
    server: Server,
    http: Http,
    proxy: Proxy,
    _folder: Scratch,
}

impl Setting {
    /// A server with one agent, behind a proxy.
    async fn new() -> Self {
        let folder = Scratch::new("client");
        let store = format!("sqlite:{}", folder.path().join("ledger.db").display());
        let server = Server::serve(&store).await;
        let http = Http::to(&server.url());
        http.until_ready().await;
        let proxy = Proxy::start(server.address()).await;
        let setting = Self { server, http, proxy, _folder: folder };
        setting.register(&summarizer("summarize-v2", "text/markdown")).await;
        setting
    }

    async fn register(&self, card: &str) {
        let reply = self.http.put_card(agent().as_str(), "", card).await;
        assert!(matches!(reply.status, 200 | 201), "{reply:?}");
    }

    fn resolver(&self) -> Resolver {
        Resolver::connect(&format!("http://{}", self.proxy.address())).unwrap()
    }

    /// A cache whose copy was proven once.
    async fn cache(&self) -> Cache {
        let settings = CacheSettings {
            silence: Duration::from_secs(20),
            default_wait: Duration::from_secs(5),
            ..CacheSettings::default()
        };
        let cache = Cache::start(self.resolver(), settings);
        cache.resolve(&agent(), &Fence::default()).await.unwrap();
        cache
    }
}

fn agent() -> AgentName {
    "acme/summarizer".parse().unwrap()
}

fn summarizer(skill: &str, mode: &str) -> String {
    Card::new(Shape::V10, "Summarizer")
        .version("1.0")
        .skills(&[(skill, &[mode])])
        .push_notifications(true)
        .build()
}

fn linearizable() -> Fence {
    Fence { max_staleness: Some(MaxStaleness::Within(Duration::ZERO)), ..Fence::default() }
}

fn skill(id: &str) -> Fence {
    let wanted = SkillWanted { id: id.to_owned(), ..SkillWanted::default() };
    Fence { skills: vec![wanted], ..Fence::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn resolver_adds_its_round_trip_and_never_reads_back_in_time() {
    let setting = Setting::new().await;
    let resolver = setting.resolver();
    let found = resolver.resolve(&agent(), &linearizable()).await.unwrap();
    assert_eq!((found.revision.number, found.card().version()), (1, Some("1.0")));
    assert!(found.freshness.origin.unwrap().confirmed_at.is_some());
    setting.proxy.delay(Duration::from_millis(40));
    // The delay comes into force for what is read from now on, which may be the one after next.
    let slow = eventually(WITHIN, async || {
        let found = resolver.resolve(&agent(), &Fence::default()).await.unwrap();
        let staleness = found.freshness.staleness.unwrap();
        if staleness >= Duration::from_millis(80) { Ok(found) } else { Err(format!("{staleness:?}")) }
    })
    .await;
    setting.proxy.delay(Duration::ZERO);
    assert_eq!(resolver.position(), Some(slow.freshness.position));
    setting.register(&summarizer("translate-v1", "text/plain")).await;
    let error = resolver.resolve(&agent(), &skill("summarize-v2")).await.unwrap_err();
    let Error::Refused(refusal) = &error else { panic!("{error}") };
    assert_eq!((refusal.reason, refusal.revision), (Reason::SkillMissing, Some(2)));
    assert!(refusal.conditions.iter().any(|condition| condition.name.starts_with("skill")), "{refusal:?}");
    let absent = "acme/nobody".parse().unwrap();
    let batch = [(agent(), Fence::default()), (absent, Fence::default())];
    let found = resolver.batch(&batch, None).await.unwrap();
    assert_eq!(found[0].as_ref().unwrap().revision.number, 2);
    assert_eq!(found[1].as_ref().unwrap_err().reason(), Some(Reason::AgentNotFound));
}

#[tokio::test(flavor = "multi_thread")]
async fn resolver_forgets_a_position_of_a_history_that_is_lost() {
    let (old, new) = (Setting::new().await, Setting::new().await);
    for n in 0..3 {
        old.register(&summarizer(&format!("skill-{n}"), "text/plain")).await;
    }
    let resolver = old.resolver();
    assert_eq!(resolver.resolve(&agent(), &Fence::default()).await.unwrap().revision.number, 4);
    // What answers under the same address now has another, shorter history.
    old.proxy.cut().await;
    old.proxy.retarget(new.server.address()).await;
    old.proxy.heal().await;
    eventually(WITHIN, async || match resolver.resolve(&agent(), &linearizable()).await {
        Ok(found) if found.revision.number == 1 => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    assert_eq!(cardfence::client::Discovery::history(&resolver), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn resolver_says_unreachable_within_its_deadline() {
    let setting = Setting::new().await;
    let channel =
        tonic::transport::Endpoint::from_shared(format!("http://{}", setting.proxy.address())).unwrap();
    let settings = Settings { deadline: Duration::from_millis(500), ..Settings::default() };
    let resolver = Resolver::over(channel.connect_lazy(), settings);
    resolver.resolve(&agent(), &Fence::default()).await.unwrap();
    setting.proxy.freeze();
    let began = std::time::Instant::now();
    let error = resolver.resolve(&agent(), &Fence::default()).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable(_)), "{error}");
    assert!(began.elapsed() < Duration::from_secs(5));
}

#[tokio::test(flavor = "multi_thread")]
async fn cache_fails_closed_when_its_upstream_is_frozen_and_serves_only_what_is_proven_after_it_came_back() {
    let setting = Setting::new().await;
    let cache = setting.cache().await;
    let within =
        Fence { max_staleness: Some(MaxStaleness::Within(Duration::from_millis(700))), ..Fence::default() };
    cache.resolve(&agent(), &within).await.unwrap();
    setting.proxy.freeze();
    // Behind the frozen proxy the agent moves on.
    setting.register(&summarizer("translate-v1", "text/plain")).await;
    let agent = agent();
    let brief = Ask { wait: Some(Duration::from_millis(100)), ..Ask::new(&agent, &within) };
    eventually(WITHIN, async || match cache.ask(&brief).await {
        Ok(found) => {
            let age = found.freshness.staleness.unwrap();
            assert!(age <= Duration::from_millis(700), "{age:?} old");
            Err(format!("it still answers, {age:?} old"))
        }
        Err(error) => {
            assert!(
                matches!(error.reason(), Some(Reason::FreshnessUnverifiable))
                    || matches!(error, Error::Unreachable(_)),
                "{error}"
            );
            Ok(())
        }
    })
    .await;
    assert!(cache.staleness().unwrap() > Duration::from_millis(700));
    setting.proxy.cut().await;
    setting.proxy.thaw();
    setting.proxy.heal().await;
    eventually(WITHIN, async || match cache.resolve(&agent, &within).await {
        Ok(found) => {
            assert_eq!(found.revision.number, 2, "an answer that passes is the current one");
            Ok(())
        }
        Err(error) => Err(error.to_string()),
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cache_learns_of_changes_and_follows_another_node_through_cuts() {
    let setting = Setting::new().await;
    let cache = setting.cache().await;
    let mut events = cache.events();
    for n in 2..8 {
        if n % 2 == 0 {
            setting.proxy.cut().await;
            setting.proxy.heal().await;
        }
        setting.register(&summarizer(&format!("skill-{n}"), "text/plain")).await;
        eventually(WITHIN, async || match cache.resolve(&agent(), &linearizable()).await {
            Ok(found) => {
                assert_eq!(found.revision.number, n, "a linearizable answer is the current one");
                Ok(())
            }
            Err(error) => Err(error.to_string()),
        })
        .await;
    }
    setting.http.retire(agent().as_str()).await;
    let error = cache.resolve(&agent(), &linearizable()).await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::AgentRetired), "{error}");
    cache.stop().await;
    let (mut changed, mut lost, mut dropped) = (0, 0, 0);
    while let Some(Observed::Event(event)) = events.next().await {
        match event {
            CacheEvent::Changed { .. } => changed += 1,
            CacheEvent::Lost { .. } => lost += 1,
            CacheEvent::Dropped { why } => dropped += usize::from(!why.is_empty()),
            CacheEvent::Ended => break,
            _ => {}
        }
    }
    assert!(changed == 7 && lost >= 3 && dropped == 0, "{changed} {lost} {dropped}");
}

#[tokio::test(flavor = "multi_thread")]
async fn guards_over_one_registry_end_the_incidents_and_a_second_client_has_the_invalidation() {
    let setting = Setting::new().await;
    let first = Guard::new(setting.resolver());
    let cache = setting.cache().await;
    let second = Guard::new(cache.clone());
    let intent = || Intent {
        output_modes: vec!["text/markdown".to_owned()],
        expected_duration: Some(Duration::from_secs(60)),
        ..Intent::skill("summarize-v2")
    };
    let negotiated = first.start_task(&agent(), intent()).await.unwrap();
    second.start_task(&agent(), intent()).await.unwrap();
    let failed = json!({"task": {"id": "t", "status": {
        "state": "TASK_STATE_FAILED",
        "message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "unknown skill"}]}
    }}});
    // Redeployed without registering: the registry serves what it knows, and the guard does not go on with it.
    let error = first.check(&negotiated, &failed, Some(200)).await.unwrap_err();
    assert!(error.registry_behind_origin(), "{error}");
    let error = first.start_task(&agent(), intent()).await.unwrap_err();
    assert!(error.registry_behind_origin(), "{error}");
    // The agent registers what it is now.
    let mut events = cache.events();
    setting.register(&summarizer("translate-v1", "text/plain")).await;
    let told = tokio::time::timeout(WITHIN, async {
        loop {
            if let Some(Observed::Event(CacheEvent::Changed { revision, .. })) = events.next().await {
                return revision;
            }
        }
    });
    assert_eq!(told.await.unwrap(), 2, "the second client never met the failure");
    for guard in [first.start_task(&agent(), intent()).await, second.start_task(&agent(), intent()).await] {
        let error = guard.unwrap_err();
        assert!(matches!(error, GuardError::CapabilityMismatch { .. }), "{error}");
        assert_eq!(error.cards().fresh.as_ref().unwrap().revision, Some(2));
    }
    let started = first.start_task(&agent(), Intent::skill("translate-v1")).await.unwrap();
    assert_eq!(started.revision().number, 2);
    let error = first.continue_task(&negotiated).await.unwrap_err();
    assert!(matches!(error, GuardError::TaskContinuationBlocked { .. }), "{error}");
    // Out of reach: a start is refused, a held task goes on.
    setting.proxy.cut().await;
    let going = first.continue_task(&started).await.unwrap();
    assert!(matches!(going.warning, Some(GuardError::DiscoveryUnavailable { .. })));
    let error = first.start_task(&agent(), Intent::skill("translate-v1")).await.unwrap_err();
    assert!(matches!(error, GuardError::DiscoveryUnavailable { .. }), "{error}");
}
