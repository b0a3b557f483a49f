//! Random commands and faults, with the invariants after every step.
//!
//! The commands of a run are a function of its seed; how tasks interleave is not. The world is a ledger in memory, a node that writes to it, a node that is
//! read from and follows it through a valve, clocks that only the run moves, and a plain record of what was
//! acknowledged when. Faults: the valve shuts (questions and answers alike are held until it opens), the
//! ledger becomes unreachable, the ledger is replaced by one that lost its last entries (a fail-over), time
//! passes on both clocks or on one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cardfence::clock::{Clock, Hands};
use cardfence::fence::Fence;
use cardfence::ledger::chain::Verifier;
use cardfence::ledger::memory::Memory;
use cardfence::ledger::{Expect, History, Outcome};
use cardfence::registry::{Refusal, Register, Resolved, Rollback, Written};
use cardfence::terms::{Digest, MaxStaleness, Reason};

use crate::support::*;

const ID: &str = "00000000-0000-4000-8000-000000000003";
const AGENTS: [&str; 3] = ["a/one", "a/two", "b/one"];
const STEPS: usize = 120;

/// Seeds that failed once.
const PAST: &[u64] = &[];

#[tokio::test]
async fn invariants_hold_after_every_step() {
    let mut answers = Answers::default();
    for seed in PAST.iter().copied().chain(1..=60) {
        run(seed, &mut answers).await;
    }
    // The run must have been about something.
    assert!(answers.fresh > 500, "{answers:?}");
    assert!(answers.refused_stale > 100, "{answers:?}");
    assert!(answers.written > 500, "{answers:?}");
    assert!(answers.failovers > 20, "{answers:?}");
}

#[derive(Debug, Default)]
struct Answers {
    fresh: usize,
    refused_stale: usize,
    written: usize,
    failovers: usize,
}

/// A small generator; its quality does not matter, its repeatability does.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }

    fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        let n = self.roll(all.len() as u64);
        &all[usize::try_from(n).unwrap()]
    }
}

/// One acknowledged revision. Times are boot time: the wall clock of a run jumps, true time does not.
#[derive(Debug, Clone)]
struct Acked {
    seq: u64,
    revision: u64,
    /// `None`: a tombstone.
    raw: Option<Digest>,
    bytes: Bytes,
    /// When it was acknowledged that another is current, or when a fail-over lost it.
    ended: Option<Duration>,
}

struct World {
    memory: Memory,
    valve: Valve,
    hands: Arc<Hands>,
    /// Writes, and follows the ledger without hindrance.
    writer: cardfence::server::Node,
    /// Is read from.
    node: cardfence::server::Node,
    /// What is in the ledger, per agent, oldest first.
    record: HashMap<&'static str, Vec<Acked>>,
    /// Revisions that a fail-over lost.
    lost: HashMap<&'static str, Vec<Acked>>,
    shut: bool,
    unreachable: bool,
}

async fn run(seed: u64, answers: &mut Answers) {
    let hands = Arc::new(Hands::default());
    hands.advance(Duration::from_secs(1_000_000));
    let clock = Clock::Manual(Arc::clone(&hands));
    let memory = Memory::new(ID, clock.clone());
    let valve = Valve::open();
    let node = node(&memory, &valve, clock.clone());
    let writer = crate::support::node(&memory, &Valve::open(), clock.clone());
    ready(&node.registry).await;
    ready(&writer.registry).await;
    let mut world = World {
        memory,
        valve,
        hands,
        writer,
        node,
        record: HashMap::new(),
        lost: HashMap::new(),
        shut: false,
        unreachable: false,
    };
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    for step in 0..STEPS {
        world.step(&mut dice, answers).await;
        world.check(seed, step).await;
    }
    world.valve.set_open(true);
    world.memory.set_reachable(true);
    world.node.stop().await;
    world.writer.stop().await;
}

impl World {
    async fn step(&mut self, dice: &mut Dice, answers: &mut Answers) {
        match dice.roll(20) {
            0..=5 => self.register(dice, answers).await,
            6 => self.retire(dice, answers).await,
            7 => self.rollback(dice, answers).await,
            8..=12 => self.resolve(dice, answers).await,
            13 => self.hands.advance(Duration::from_millis(dice.roll(9_000))),
            14 => self.hands.advance_boot(Duration::from_millis(dice.roll(3_000))),
            15 => self.hands.step_wall(i64::try_from(dice.roll(2_000_000_000)).unwrap() - 1_000_000_000),
            16 | 17 => {
                self.shut = !self.shut && dice.roll(2) == 0;
                self.valve.set_open(!self.shut);
            }
            18 => {
                self.unreachable = !self.unreachable && dice.roll(2) == 0;
                self.memory.set_reachable(!self.unreachable);
            }
            _ => self.fail_over(dice, answers).await,
        }
    }

    /// Whether the node that is read from can be proven.
    fn healthy(&self) -> bool {
        !self.shut && !self.unreachable
    }

    async fn register(&mut self, dice: &mut Dice, answers: &mut Answers) {
        if self.unreachable {
            return;
        }
        let name = *dice.pick(&AGENTS);
        let bytes = card(&dice.roll(3).to_string(), dice.pick::<&str>(&["s", "t"]), "text/plain");
        let current = self.record.get(name).and_then(|all| all.last()).cloned();
        let (expect, met) = match dice.roll(4) {
            0 => (Expect::Absent, current.as_ref().is_none_or(|acked| acked.raw.is_none())),
            1 => {
                let number = dice.roll(4) + 1;
                let met = current.as_ref().is_some_and(|acked| acked.revision == number);
                (Expect::Revision { number, seen_at: None }, met)
            }
            _ => (Expect::Any, true),
        };
        let raw = Digest::of(&bytes);
        let equal = current.as_ref().is_some_and(|acked| acked.raw == Some(raw));
        let registry = self.writer.registry.clone();
        let outcome = registry
            .register(&call(&registry), Register { expect, ..registering(name, bytes.clone()) })
            .await;
        match outcome {
            Ok(written) if equal => assert_eq!(written.outcome, Outcome::Unchanged),
            Ok(written) => {
                assert!(met, "{written:?}");
                let created = current.as_ref().is_none_or(|acked| acked.raw.is_none());
                assert_eq!(written.outcome == Outcome::Created, created);
                self.acked(name, &written, Some(raw), bytes);
                answers.written += 1;
            }
            Err(refusal) => {
                assert_eq!(refusal.reason(), Reason::RevisionConflict, "{refusal}");
                assert!(!met && !equal);
            }
        }
    }

    async fn retire(&mut self, dice: &mut Dice, answers: &mut Answers) {
        if self.unreachable {
            return;
        }
        let name = *dice.pick(&AGENTS);
        let registry = self.writer.registry.clone();
        let current = self.record.get(name).and_then(|all| all.last()).cloned();
        match (registry.retire(&call(&registry), retiring(name)).await, current) {
            (Ok(written), Some(Acked { raw: None, .. })) => assert_eq!(written.outcome, Outcome::Unchanged),
            (Ok(written), Some(_)) => {
                self.acked(name, &written, None, Bytes::new());
                answers.written += 1;
            }
            (Err(refusal), None) => assert_eq!(refusal.reason(), Reason::AgentNotFound),
            (outcome, current) => panic!("{outcome:?} with {current:?}"),
        }
    }

    async fn rollback(&mut self, dice: &mut Dice, answers: &mut Answers) {
        if self.unreachable {
            return;
        }
        let name = *dice.pick(&AGENTS);
        let to = dice.roll(5) + 1;
        let registry = self.writer.registry.clone();
        let all = self.record.get(name).cloned().unwrap_or_default();
        let wanted = all.iter().find(|acked| acked.revision == to && acked.raw.is_some());
        let request = Rollback {
            agent: agent(name),
            to,
            expect: Expect::Any,
            request_id: None,
            note: None,
            dry_run: false,
        };
        match (registry.rollback(&call(&registry), request).await, wanted) {
            (Ok(written), Some(wanted)) if all.last().unwrap().raw == wanted.raw => {
                assert_eq!(written.outcome, Outcome::Unchanged);
            }
            (Ok(written), Some(wanted)) => {
                self.acked(name, &written, wanted.raw, wanted.bytes.clone());
                answers.written += 1;
            }
            (Err(refusal), None) => {
                let reason = if all.is_empty() { Reason::AgentNotFound } else { Reason::RevisionNotFound };
                assert_eq!(refusal.reason(), reason, "{refusal}");
            }
            (outcome, wanted) => panic!("{outcome:?} with {wanted:?}"),
        }
    }

    fn acked(&mut self, name: &'static str, written: &Written, raw: Option<Digest>, bytes: Bytes) {
        let at = self.hands.boot();
        let all = self.record.entry(name).or_default();
        assert_eq!(written.revision, all.last().map_or(0, |acked| acked.revision) + 1, "no revision is lost");
        if let Some(last) = all.last_mut() {
            last.ended = Some(at);
        }
        let seq = written.position.unwrap().seq;
        all.push(Acked { seq, revision: written.revision, raw, bytes, ended: None });
    }

    async fn resolve(&mut self, dice: &mut Dice, answers: &mut Answers) {
        let name = *dice.pick(&AGENTS);
        let bound = *dice.pick(&[0, 100, 1_000, 5_000]);
        let wait = Duration::from_millis(*dice.pick(&[0, 15]));
        let fence = match dice.roll(4) {
            0 => any(),
            1 => Fence { min_version: Some("1".to_owned()), ..within(bound) },
            _ => within(bound),
        };
        let arrival = self.hands.boot();
        let outcome = resolve(&self.node.registry, name, fence.clone(), wait).await;
        self.judge(name, &fence, arrival, outcome, answers);
    }

    /// No answer is called younger than it is, and no refusal by content is made on what is out of date.
    fn judge(
        &self,
        name: &str,
        fence: &Fence,
        arrival: Duration,
        outcome: Result<Resolved, Refusal>,
        answers: &mut Answers,
    ) {
        let took = self.hands.boot() - arrival;
        match outcome {
            Ok(resolved) => {
                let raw = resolved.card.raw_digest();
                let Some(staleness) = resolved.freshness.staleness else {
                    assert_eq!(fence.max_staleness, Some(MaxStaleness::Any), "unknown age passes only `any`");
                    return;
                };
                if let Some(MaxStaleness::Within(bound)) = fence.max_staleness {
                    assert!(staleness <= bound || staleness <= took, "{staleness:?} passes {bound:?}");
                }
                let all = self.record.get(name).into_iter().chain(self.lost.get(name)).flatten();
                let honest = all.filter(|acked| acked.raw == Some(raw)).any(|acked| match acked.ended {
                    None => true,
                    // It was still current at the moment up to which it is said to be proven.
                    Some(ended) => arrival.saturating_sub(ended) <= staleness,
                });
                assert!(
                    honest,
                    "revision {} of {name} is said to be {staleness:?} old",
                    resolved.agent.revision
                );
                answers.fresh += 1;
            }
            Err(refusal) => match refusal.reason() {
                Reason::TooStale | Reason::FreshnessUnverifiable => answers.refused_stale += 1,
                Reason::AgentNotFound => {
                    assert!(self.record.get(name).is_none_or(Vec::is_empty), "{name} is there");
                }
                Reason::AgentRetired => {
                    let current = self.record.get(name).and_then(|all| all.last());
                    assert!(current.is_some_and(|acked| acked.raw.is_none()), "{name} is not retired");
                }
                Reason::VersionBelowFloor => {
                    let current = self.record.get(name).and_then(|all| all.last()).unwrap();
                    assert!(String::from_utf8_lossy(&current.bytes).contains(r#""version":"0""#));
                }
                other => panic!("{other}: {refusal}"),
            },
        }
    }

    /// A standby that lost the last entries takes the ledger's place.
    async fn fail_over(&mut self, dice: &mut Dice, answers: &mut Answers) {
        if self.unreachable {
            return;
        }
        let head = self.memory.entries(1, usize::MAX).await.unwrap().len() as u64;
        let keep = head.saturating_sub(dice.roll(3));
        let promoted = self.memory.forked_at(keep).await;
        self.memory.become_like(&promoted).await;
        let at = self.hands.boot();
        for (name, all) in &mut self.record {
            while all.last().is_some_and(|acked| acked.seq > keep) {
                let mut gone = all.pop().unwrap();
                gone.ended.get_or_insert(at);
                self.lost.entry(name).or_default().push(gone);
            }
            // What is current again was not between its end and now; for the record it is current from now on.
            if let Some(last) = all.last_mut() {
                last.ended = None;
            }
        }
        answers.failovers += 1;
        // The next write must not be judged before the view knows; a caller's would be rebased until it does.
        if let Err(refusal) = resolve(&self.writer.registry, "a/one", within(0), WAIT).await {
            assert!(matches!(refusal.reason(), Reason::AgentNotFound | Reason::AgentRetired), "{refusal}");
        }
    }

    async fn check(&self, seed: u64, step: usize) {
        if self.unreachable {
            return;
        }
        let entries = self.memory.entries(1, usize::MAX).await.unwrap();
        let mut verifier = Verifier::new(ID);
        for entry in &entries {
            let body = Some(entry.body.as_bytes());
            verifier
                .take(entry.seq, &entry.digest, &entry.body_digest, body)
                .unwrap_or_else(|broken| panic!("seed {seed}, step {step}: {broken}"));
        }
        let acked: usize = self.record.values().map(Vec::len).sum();
        assert_eq!(
            entries.len(),
            acked,
            "seed {seed}, step {step}: every entry was acknowledged, and none else"
        );
        for (name, all) in &self.record {
            for acked in all {
                let card = self.memory.card(&agent(name), acked.revision).await.unwrap();
                let kept = card.map(|bytes| Digest::of(&bytes));
                assert_eq!(
                    kept, acked.raw,
                    "seed {seed}, step {step}: revision {} of {name}",
                    acked.revision
                );
            }
        }
        if self.healthy() {
            for name in AGENTS {
                let current = self.record.get(name).and_then(|all| all.last());
                match (resolve(&self.node.registry, name, within(0), WAIT).await, current) {
                    (Ok(resolved), Some(acked)) => {
                        assert_eq!(
                            Some(resolved.card.raw_digest()),
                            acked.raw,
                            "seed {seed}, step {step}: {name}"
                        );
                        assert_eq!(resolved.agent.revision, acked.revision);
                    }
                    (Err(refusal), Some(Acked { raw: None, .. })) => {
                        assert_eq!(refusal.reason(), Reason::AgentRetired, "seed {seed}, step {step}");
                    }
                    (Err(refusal), None) => {
                        assert_eq!(refusal.reason(), Reason::AgentNotFound, "seed {seed}, step {step}");
                    }
                    (outcome, current) => panic!("seed {seed}, step {step}: {outcome:?} with {current:?}"),
                }
            }
        }
    }
}
