//! Random commands and faults, with the invariants after every step.
//!
//! The commands of a run are a function of its seed; how tasks interleave is not. The world is a ledger in memory, a node that writes to it, a node that is
//! read from and follows it through a valve, clocks that only the run moves, and a plain record of what was
//! acknowledged when. Faults: the valve shuts (questions and answers alike are held until it opens), the
//! ledger becomes unreachable, the ledger is replaced by one that lost its last entries (a fail-over), time
//! passes on both clocks or on one. The node that is read from follows the ledger itself, or a standby of it that
//! replays when it is told to, may show a commit before the ledger does, and keeps what a fail-over lost until it is
//! rebuilt.

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
use cardfence::terms::{Digest, MaxStaleness, Position, Reason};

use crate::support::*;

const ID: &str = "00000000-0000-4000-8000-000000000003";
const AGENTS: [&str; 3] = ["a/one", "a/two", "b/one"];
const STEPS: usize = 120;

/// Seeds that failed once.
const PAST: &[u64] = &[];
const PAST_OF_STANDBYS: &[u64] = &[];

#[tokio::test]
async fn invariants_hold_after_every_step() {
    let mut answers = Answers::default();
    for seed in PAST.iter().copied().chain(1..=60) {
        run(seed, Kind::Node, &mut answers).await;
    }
    // The run must have been about something.
    assert!(answers.fresh > 500, "{answers:?}");
    assert!(answers.refused_stale > 100, "{answers:?}");
    assert!(answers.written > 500, "{answers:?}");
    assert!(answers.failovers > 20, "{answers:?}");
}

#[tokio::test]
async fn invariants_hold_after_every_step_of_a_standby_node() {
    let mut answers = Answers::default();
    for seed in PAST_OF_STANDBYS.iter().copied().chain(1..=40) {
        run(seed, Kind::Standby, &mut answers).await;
    }
    assert!(answers.fresh > 200, "{answers:?}");
    assert!(answers.refused_stale > 100, "{answers:?}");
    assert!(answers.written > 500, "{answers:?}");
    assert!(answers.failovers > 20, "{answers:?}");
    assert!(answers.early > 50, "{answers:?}");
    assert!(answers.behind > 100, "{answers:?}");
}

/// What the node that is read from follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Node,
    Standby,
}

#[derive(Debug, Default)]
struct Answers {
    fresh: usize,
    refused_stale: usize,
    written: usize,
    failovers: usize,
    /// Commits that a standby showed before the ledger did.
    early: usize,
    /// Steps after which the standby was behind.
    behind: usize,
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
    position: Position,
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
    standby: Option<Standby>,
}

/// What the node that is read from follows instead of the ledger.
struct Standby {
    memory: Memory,
    valve: Valve,
    shut: bool,
    /// A commit that the standby has and the ledger does not show yet.
    early: Option<Early>,
}

struct Early {
    name: &'static str,
    bytes: Bytes,
    written: Written,
    /// The ledger with it.
    ledger: Memory,
}

async fn run(seed: u64, kind: Kind, answers: &mut Answers) {
    let hands = Arc::new(Hands::default());
    hands.advance(Duration::from_secs(1_000_000));
    let clock = Clock::Manual(Arc::clone(&hands));
    let memory = Memory::new(ID, clock.clone());
    let valve = Valve::open();
    let standby = (kind == Kind::Standby).then(|| Standby {
        memory: Memory::new(ID, clock.clone()),
        valve: Valve::open(),
        shut: false,
        early: None,
    });
    let node = match &standby {
        None => node(&memory, &valve, clock.clone()),
        Some(standby) => standby_node((&standby.memory, &standby.valve), (&memory, &valve), clock.clone()),
    };
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
        standby,
    };
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    for step in 0..STEPS {
        world.step(&mut dice, answers).await;
        world.move_standby(&mut dice, answers).await;
        world.check(seed, step, answers).await;
    }
    world.valve.set_open(true);
    if let Some(standby) = &world.standby {
        standby.valve.set_open(true);
    }
    world.memory.set_reachable(true);
    world.node.stop().await;
    world.writer.stop().await;
}

impl World {
    async fn step(&mut self, dice: &mut Dice, answers: &mut Answers) {
        let what = dice.roll(20);
        if what <= 7 && !self.unreachable {
            // The lock is held until then.
            self.settle_early(answers).await;
        }
        match what {
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
    async fn healthy(&self, answers: &mut Answers) -> bool {
        if self.shut || self.unreachable {
            return false;
        }
        let Some(standby) = &self.standby else { return true };
        let caught_up = head(&self.memory).await == head(&standby.memory).await;
        answers.behind += usize::from(!caught_up);
        caught_up && !standby.shut
    }

    /// The standby replays all of it, or some, or nothing; or what comes from it is held.
    async fn move_standby(&mut self, dice: &mut Dice, answers: &mut Answers) {
        let Some(standby) = self.standby.as_mut().filter(|_| !self.unreachable) else { return };
        let all = self.memory.entries(1, usize::MAX).await.unwrap();
        match dice.roll(8) {
            0..=2 => self.replay(all.len() as u64).await,
            3 => {
                let shown = standby.memory.entries(1, usize::MAX).await.unwrap();
                let kept = all.iter().zip(&shown).take_while(|(a, b)| a.digest == b.digest).count() as u64;
                // One that went on from a lost history is rebuilt; another only goes forward.
                let least = if kept == shown.len() as u64 { kept } else { 0 };
                self.replay(least + dice.roll(all.len() as u64 - least + 1)).await;
            }
            4 => {
                standby.shut = !standby.shut && dice.roll(2) == 0;
                standby.valve.set_open(!standby.shut);
            }
            5 if standby.early.is_none() => self.show_early(dice, answers).await,
            _ => {}
        }
    }

    async fn replay(&mut self, to: u64) {
        // What it showed early it does not take back.
        if let Some(standby) = self.standby.as_mut().filter(|standby| standby.early.is_none()) {
            standby.memory.become_like(&self.memory.forked_at(to).await).await;
        }
    }

    /// A commit is on the standby, and the primary waits for somebody else before it shows it.
    async fn show_early(&mut self, dice: &mut Dice, answers: &mut Answers) {
        let name = *dice.pick(&AGENTS);
        let bytes = card(&dice.roll(3).to_string(), "early", "text/plain");
        let ledger = self.memory.forked_at(u64::MAX).await;
        let writer = node(&ledger, &Valve::open(), Clock::Manual(Arc::clone(&self.hands)));
        ready(&writer.registry).await;
        let written = register(&writer.registry, name, bytes.clone()).await.unwrap();
        writer.stop().await;
        let standby = self.standby.as_mut().unwrap();
        if written.outcome != Outcome::Unchanged {
            standby.memory.become_like(&ledger).await;
            standby.early = Some(Early { name, bytes, written, ledger });
            answers.early += 1;
        }
    }

    /// The primary shows what a standby showed before, and acknowledges it.
    async fn settle_early(&mut self, answers: &mut Answers) {
        let Some(early) = self.standby.as_mut().and_then(|standby| standby.early.take()) else { return };
        self.memory.become_like(&early.ledger).await;
        self.acked(early.name, &early.written, Some(Digest::of(&early.bytes)), early.bytes);
        answers.written += 1;
        // The next write is judged on it.
        resolve(&self.writer.registry, early.name, within(0), WAIT).await.unwrap();
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
        let position = written.position.unwrap();
        all.push(Acked { position, revision: written.revision, raw, bytes, ended: None });
    }

    async fn resolve(&mut self, dice: &mut Dice, answers: &mut Answers) {
        let name = *dice.pick(&AGENTS);
        let bound = *dice.pick(&[0, 100, 1_000, 5_000]);
        let wait = Duration::from_millis(*dice.pick(&[0, 15]));
        let fence = match dice.roll(5) {
            4 => {
                let all = self.record.values().chain(self.lost.values()).flatten();
                let mut positions: Vec<Position> = all.map(|acked| acked.position).collect();
                positions.sort_unstable_by_key(|position| (position.seq, position.tag.0));
                let at_least = (!positions.is_empty()).then(|| *dice.pick(&positions));
                Fence { at_least, ..within(0) }
            }
            0 => any(),
            1 => Fence { min_version: Some("1".to_owned()), ..within(bound) },
            _ => within(bound),
        };
        let arrival = self.hands.boot();
        let outcome = resolve(&self.node.registry, name, fence.clone(), wait).await;
        if let (Ok(resolved), Some(position)) = (&outcome, fence.at_least) {
            assert!(self.holds(position), "lost {position} passes at {}", resolved.freshness.position);
        }
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
                let early = self.standby.as_ref().and_then(|standby| standby.early.as_ref());
                if early.is_some_and(|early| early.written.position == Some(resolved.agent.position)) {
                    let linearizable = fence.max_staleness == Some(MaxStaleness::Within(Duration::ZERO));
                    assert!(!linearizable, "what the primary does not show yet is called linearizable");
                    return;
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
                Reason::TooStale | Reason::FreshnessUnverifiable | Reason::PositionNotReached => {
                    answers.refused_stale += 1;
                }
                reason @ (Reason::HistoryDiverged | Reason::PositionInFuture) => {
                    assert!(!self.holds(fence.at_least.unwrap()), "{reason} of what is there: {refusal}");
                }
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

    fn holds(&self, position: Position) -> bool {
        self.record.values().flatten().any(|acked| acked.position == position)
    }

    /// A standby that lost the last entries takes the ledger's place.
    async fn fail_over(&mut self, dice: &mut Dice, answers: &mut Answers) {
        if self.unreachable {
            return;
        }
        if let Some(standby) = &mut self.standby {
            standby.early = None;
        }
        let head = self.memory.entries(1, usize::MAX).await.unwrap().len() as u64;
        let keep = head.saturating_sub(dice.roll(3));
        let promoted = self.memory.forked_at(keep).await;
        self.memory.become_like(&promoted).await;
        let at = self.hands.boot();
        for (name, all) in &mut self.record {
            while all.last().is_some_and(|acked| acked.position.seq > keep) {
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

    /// A linearizable read of a node that can be proven. One that holds what its authority lacks asks again for two
    /// seconds, which pass here.
    async fn resolve_in_time(&self, name: &str) -> Result<Resolved, Refusal> {
        let registry = &self.node.registry;
        let resolved = resolve(registry, name, within(0), Duration::from_millis(200)).await;
        match resolved {
            Err(refusal) if refusal.reason() == Reason::FreshnessUnverifiable && self.standby.is_some() => {
                self.hands.advance(Duration::from_secs(2));
                resolve(registry, name, within(0), WAIT).await
            }
            resolved => resolved,
        }
    }

    async fn check(&self, seed: u64, step: usize, answers: &mut Answers) {
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
        if self.healthy(answers).await {
            for name in AGENTS {
                let current = self.record.get(name).and_then(|all| all.last());
                match (self.resolve_in_time(name).await, current) {
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

async fn head(memory: &Memory) -> Option<Digest> {
    memory.entries(1, usize::MAX).await.unwrap().last().map(|entry| entry.digest)
}
