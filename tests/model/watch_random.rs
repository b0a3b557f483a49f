//! Random writes, random cuts: whatever happens to a stream, what a subscriber folds is what the ledger says.

use std::time::Duration;

use cardfence::card::Class;
use cardfence::clock::Clock;
use cardfence::ledger::memory::Memory;
use cardfence::ledger::{Body, History as _, Kind};
use cardfence::registry::{Registry, Subscription, Watch};
use cardfence::terms::AgentName;

use crate::subscriber::*;
use crate::support::{Valve, call, card, node_with, ready, register, retiring};

/// Numbers that look random and are the same each time.
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).unwrap() % sides
    }
}

const NAMESPACES: [&str; 4] = ["acme", "acme-x", "globex", "z"];

fn name(dice: &mut Dice) -> String {
    format!("{}/a{}", NAMESPACES[dice.roll(4)], dice.roll(6))
}

/// A selection of some kind.
fn selection(dice: &mut Dice) -> Watch {
    let mut watch = match dice.roll(4) {
        0 => all(),
        1 => namespaces(&[NAMESPACES[dice.roll(4)]]),
        2 => agents(&[&name(dice), &name(dice)]),
        _ => Watch { namespaces: vec!["globex".to_owned()], ..agents(&[&name(dice), &name(dice)]) },
    };
    watch.class = [None, Some(Class::Additive), Some(Class::Breaking)][dice.roll(3)];
    watch.without_cards = dice.roll(3) == 0;
    watch
}

fn wants(watch: &Watch, agent: &AgentName) -> bool {
    watch.all
        || watch.agents.contains(agent)
        || watch.namespaces.iter().any(|namespace| namespace == agent.namespace())
}

async fn write(registry: &Registry, dice: &mut Dice) {
    let agent = name(dice);
    if dice.roll(5) == 0 {
        // It may not be there.
        drop(registry.retire(&call(registry), retiring(&agent)).await);
    } else {
        let (version, skill) = (dice.roll(3).to_string(), format!("s{}", dice.roll(3)));
        register(registry, &agent, card(&version, &skill, "text/plain")).await.unwrap();
    }
}

/// What the ledger says is live.
async fn truth(memory: &Memory) -> Held {
    let mut live = Held::new();
    for entry in memory.entries(1, usize::MAX).await.unwrap() {
        let body = Body::parse(&entry.body).unwrap();
        let agent = body.agent().unwrap();
        match body.kind {
            Kind::CardRegistered(facts) => drop(live.insert(agent, (facts.revision, facts.raw_digest))),
            _ => drop(live.remove(&agent)),
        }
    }
    live
}

fn selected(truth: &Held, watch: &Watch) -> Held {
    truth.iter().filter(|(agent, _)| wants(watch, agent)).map(|(a, held)| (a.clone(), *held)).collect()
}

/// One subscriber, connected or not.
struct Follower {
    watch: Watch,
    copy: Copy,
    stream: Option<Subscription>,
}

impl Follower {
    fn new(watch: Watch) -> Self {
        Self { watch, copy: Copy::default(), stream: None }
    }

    async fn connected(&mut self, registry: &Registry) -> &mut Subscription {
        if self.stream.is_none() {
            let request = self.copy.resumed(&self.watch);
            self.stream = Some(subscribe(registry, request).await.unwrap());
        }
        self.stream.as_mut().unwrap()
    }

    /// Takes what is there by now, up to so many events.
    fn take(&mut self, most: usize) {
        let Some(stream) = &mut self.stream else { return };
        for _ in 0..most {
            match futures::FutureExt::now_or_never(stream.next()) {
                Some(Some(event)) => self.copy.take(&event),
                _ => return,
            }
        }
    }

    /// Reaches the end of the ledger by a proof on the stream, and holds what is live there.
    async fn settle(&mut self, registry: &Registry, truth: &Held) {
        self.connected(registry).await;
        let stream = self.stream.as_mut().unwrap();
        let checkpoint = confirmed(registry, stream, &mut self.copy, "last").await;
        assert_eq!(checkpoint.staleness, Some(Duration::ZERO));
        assert_eq!(self.copy.held, selected(truth, &self.watch), "{:?}", self.watch);
        assert_eq!(checkpoint.set_digest, self.copy.sum());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fold_of_a_stream_that_is_cut_at_random_is_the_ledgers() {
    let mut events = 0;
    for seed in 1..=40 {
        let mut dice = Dice::new(seed);
        let memory = Memory::new("00000000-0000-4000-8000-000000000003", Clock::System);
        let node = node_with(&memory, &Valve::open(), Clock::System, |tuning| {
            tuning.registry.watch.checkpoint = Duration::from_millis(5);
        });
        let registry = &node.registry;
        ready(registry).await;
        let mut followers: Vec<Follower> = (0..8).map(|_| Follower::new(selection(&mut dice))).collect();
        for _ in 0..150 {
            let follower = dice.roll(8);
            match dice.roll(6) {
                0 => followers[follower].stream = None,
                1 => drop(followers[follower].connected(registry).await),
                2 => followers[follower].take(dice.roll(20)),
                _ => write(registry, &mut dice).await,
            }
        }
        let truth = truth(&memory).await;
        for follower in &mut followers {
            follower.settle(registry, &truth).await;
            events += follower.copy.events;
        }
        node.stop().await;
    }
    assert!(events > 5_000, "{events} events were folded");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousand_subscribers_fold_to_the_ledger() {
    let memory = Memory::new("00000000-0000-4000-8000-000000000004", Clock::System);
    let node = node_with(&memory, &Valve::open(), Clock::System, |_| {});
    let registry = &node.registry;
    ready(registry).await;
    let mut dice = Dice::new(7);
    let done = tokio_util::sync::CancellationToken::new();
    let mut following = tokio::task::JoinSet::new();
    for n in 0..1_000 {
        let mut follower = Follower::new(selection(&mut dice));
        let (registry, done) = (registry.clone(), done.clone());
        following.spawn(async move {
            let mut dice = Dice::new(n + 100);
            while !done.is_cancelled() {
                let stream = follower.connected(&registry).await;
                let event = tokio::select! {
                    () = done.cancelled() => break,
                    event = next(stream) => event,
                };
                follower.copy.take(&event);
                if dice.roll(100) == 0 {
                    follower.stream = None;
                }
            }
            follower
        });
    }
    for _ in 0..1_000 {
        write(registry, &mut dice).await;
    }
    done.cancel();
    let truth = truth(&memory).await;
    while let Some(follower) = following.join_next().await {
        let mut follower = follower.unwrap();
        follower.settle(registry, &truth).await;
    }
    node.stop().await;
}
