//! Who waits for which changes: the one task that looks at every change once and wakes those it concerns.
//!
//! A subscriber holds a cursor into the log of the state, not a queue of its own: what it costs is its seat, a few
//! words. The hub follows what the view publishes and keeps its own pointer to it, *scanned*. Under one lock over
//! the lists (all, by namespace, by agent) it notes for each new change, at the seats it concerns, from where to
//! where there is something to read; then it stores *scanned*; then, outside the lock, it wakes those seats.
//!
//! Two things follow. Whoever has loaded *scanned* and finds nothing noted at its seat up to that position has
//! everything up to there and may move its cursor there for nothing: a commit elsewhere wakes no idle subscriber,
//! and a hundred thousand of them do not make it slow. And a seat is taken under the same lock together with the
//! state it begins at, so nothing lies between the two.
//!
//! A new generation wakes all, at once: what they were told may be of a lost history. (A broadcast channel was the
//! rejected alternative: it wakes everybody for everything, and drops silently what a slow one has not read.)

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::View;
use super::freshness::Served;
use super::state::{Agent, State};
use crate::telemetry::Metrics;
use crate::terms::{AgentName, SetDigest};

/// Which agents a subscriber wants. An agent that is named and lies in a selected namespace counts once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    all: bool,
    namespaces: BTreeSet<Arc<str>>,
    /// Those that no selected namespace holds.
    agents: BTreeSet<AgentName>,
}

impl Selection {
    pub fn all() -> Self {
        Self { all: true, ..Self::default() }
    }

    /// These agents, and all of these namespaces.
    pub fn of(agents: Vec<AgentName>, namespaces: Vec<String>) -> Self {
        let namespaces: BTreeSet<Arc<str>> = namespaces.into_iter().map(Arc::from).collect();
        let named = agents.into_iter().filter(|agent| !namespaces.contains(agent.namespace()));
        Self { all: false, agents: named.collect(), namespaces }
    }

    pub fn matches(&self, agent: &AgentName) -> bool {
        self.all || self.namespaces.contains(agent.namespace()) || self.agents.contains(agent)
    }

    /// Whether it can be read from a state without looking at more than the agents it names.
    pub fn is_small(&self) -> bool {
        !self.all && self.namespaces.is_empty()
    }

    /// The agents of a state that are selected, retired ones included, by namespace and name.
    pub fn agents(&self, state: &State) -> Vec<Arc<Agent>> {
        use std::ops::Bound;
        if self.all {
            return state.agents_from(Bound::Unbounded).cloned().collect();
        }
        let mut found: Vec<Arc<Agent>> =
            self.agents.iter().filter_map(|name| state.agent(name).cloned()).collect();
        for namespace in &self.namespaces {
            // The least name that a namespace can hold.
            let Ok(least) = AgentName::new(namespace, "0") else { continue };
            let held = state.agents_from(Bound::Included(&least));
            found.extend(held.take_while(|agent| agent.name.namespace() == &**namespace).cloned());
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        found
    }

    /// The set digest of the selected agents of a state that are live.
    pub fn sum(&self, state: &State) -> SetDigest {
        if self.all {
            return state.sum();
        }
        let namespaces = self.namespaces.iter().map(|namespace| state.sum_of(namespace));
        let agents = self.agents.iter().filter_map(|name| Some(state.agent(name)?.sum()));
        namespaces.chain(agents).fold(SetDigest::default(), SetDigest::plus)
    }
}

/// The part of the hub that is shared: where subscribers take their seats.
#[derive(Debug)]
pub struct Hub {
    scanned: ArcSwap<Served>,
    lists: Mutex<Lists>,
    /// Where `scanned` is, for those who wait for it.
    reached: watch::Sender<Reached>,
    passes: AtomicU64,
}

#[derive(Debug, Clone, Copy)]
struct Reached {
    generation: u64,
    /// `None`: nothing is loaded in this generation.
    seq: Option<u64>,
}

impl Reached {
    fn by(served: &Served) -> Self {
        let stands = served.loaded && !served.diverged;
        Self { generation: served.generation, seq: stands.then(|| served.state.head().seq) }
    }
}

type Seats = BTreeMap<u64, Arc<Place>>;

#[derive(Debug, Default)]
struct Lists {
    all: Seats,
    namespaces: HashMap<Arc<str>, Seats>,
    agents: HashMap<AgentName, Seats>,
    next: u64,
}

/// What the hub knows of one subscriber.
#[derive(Debug, Default)]
struct Place {
    noted: Mutex<Noted>,
    wake: Notify,
}

#[derive(Debug, Default, Clone, Copy)]
struct Noted {
    /// The first and the last sequence number that there is something at.
    range: Option<(u64, u64)>,
    /// The log did not reach back to what was scanned before: what lies below this is read from the ledger.
    torn: u64,
    /// The pass of the hub that noted last, so that one pass wakes a seat once.
    pass: u64,
}

/// A subscriber's seat. It is left when this is dropped.
#[derive(Debug)]
pub struct Seat {
    hub: Arc<Hub>,
    id: u64,
    place: Arc<Place>,
    selection: Selection,
}

/// What lies before a subscriber.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ahead {
    /// There is nothing before this sequence number.
    pub first: u64,
    /// The log was torn: it does not lead there.
    pub torn: bool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that holds one of these locks can leave its data half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Place {
    /// Notes something from `first` to `last`; whether this pass noted nothing here before.
    fn note(&self, pass: u64, first: u64, last: u64, torn: bool) -> bool {
        let mut noted = locked(&self.noted);
        noted.range = Some((noted.range.map_or(first, |(before, _)| before.min(first)), last));
        if torn {
            noted.torn = last;
        }
        std::mem::replace(&mut noted.pass, pass) != pass
    }
}

impl Hub {
    pub(super) fn new(served: Arc<Served>) -> Self {
        let reached = watch::Sender::new(Reached::by(&served));
        let passes = AtomicU64::new(0);
        Self { scanned: ArcSwap::new(served), lists: Mutex::default(), reached, passes }
    }

    /// What every seat was told of.
    pub fn scanned(&self) -> Arc<Served> {
        self.scanned.load_full()
    }

    /// Whether what is served is still of `generation`, and not contradicted.
    pub fn stands(&self, generation: u64) -> bool {
        let scanned = self.scanned.load();
        scanned.generation == generation && !scanned.diverged
    }

    /// Takes a seat, and gives the state that it begins at.
    pub fn seat(self: &Arc<Self>, selection: Selection) -> (Seat, Arc<Served>) {
        let place = Arc::new(Place::default());
        let mut lists = locked(&self.lists);
        lists.next += 1;
        let id = lists.next;
        if selection.all {
            lists.all.insert(id, Arc::clone(&place));
        }
        for namespace in &selection.namespaces {
            let seats = lists.namespaces.entry(Arc::clone(namespace)).or_default();
            seats.insert(id, Arc::clone(&place));
        }
        for agent in &selection.agents {
            lists.agents.entry(agent.clone()).or_default().insert(id, Arc::clone(&place));
        }
        let served = self.scanned.load_full();
        drop(lists);
        (Seat { hub: Arc::clone(self), id, place, selection }, served)
    }

    /// Waits until what was scanned is of `generation` and includes `seq`. False: not before `deadline`, or it is of
    /// a later generation.
    pub async fn reach(&self, generation: u64, seq: u64, deadline: Instant) -> bool {
        let mut reached = self.reached.subscribe();
        let there = |now: &Reached| {
            now.generation > generation
                || (now.generation == generation && now.seq.is_some_and(|at| at >= seq))
        };
        let found = tokio::time::timeout_at(deadline, reached.wait_for(there)).await;
        matches!(found, Ok(Ok(reached)) if reached.generation == generation)
    }

    /// Takes what the view published. Gives the seats that are to be woken.
    fn take(&self, served: Arc<Served>) -> Vec<Arc<Place>> {
        let pass = self.passes.fetch_add(1, Ordering::AcqRel) + 1;
        let reached = Reached::by(&served);
        let head = served.state.head().seq;
        let mut woken: Vec<Arc<Place>> = Vec::new();
        let lists = locked(&self.lists);
        let before = self.scanned.load();
        let mut note = |seats: &Seats, first: u64, last: u64, torn: bool| {
            let fresh = seats.values().filter(|place| place.note(pass, first, last, torn));
            woken.extend(fresh.cloned());
        };
        let seq = before.state.head().seq;
        if served.generation != before.generation || served.diverged != before.diverged {
            // Where it goes on from does not matter: these streams end.
            lists.each(|seats| note(seats, 0, head, false));
        } else if head > seq {
            match served.state.log().since(seq) {
                Some(changes) => {
                    for change in changes {
                        let Some(agent) = &change.agent else { continue };
                        let (name, n) = (&agent.name, change.seq());
                        if let Some(seats) = lists.namespaces.get(name.namespace()) {
                            note(seats, n, n, false);
                        }
                        if let Some(seats) = lists.agents.get(name) {
                            note(seats, n, n, false);
                        }
                    }
                    // They take everything, so it is enough to say from where to where.
                    note(&lists.all, seq + 1, head, false);
                }
                None => lists.each(|seats| note(seats, seq + 1, head, true)),
            }
        }
        drop(before);
        self.scanned.store(served);
        drop(lists);
        self.reached.send_replace(reached);
        woken
    }
}

impl Lists {
    fn each(&self, mut visit: impl FnMut(&Seats)) {
        visit(&self.all);
        self.namespaces.values().for_each(&mut visit);
        self.agents.values().for_each(&mut visit);
    }
}

impl Seat {
    pub fn hub(&self) -> &Hub {
        &self.hub
    }

    pub fn selection(&self) -> &Selection {
        &self.selection
    }

    /// Waits until something was noted here since the last time.
    pub async fn woken(&self) {
        self.place.wake.notified().await;
    }

    /// What lies before the subscriber up to `head`, which it must have loaded before it asks. `None`: nothing, so
    /// that it has everything up to `head`.
    pub fn ahead(&self, head: u64) -> Option<Ahead> {
        let noted = *locked(&self.place.noted);
        let (first, _) = noted.range.filter(|(first, _)| *first <= head)?;
        Some(Ahead { first, torn: noted.torn > 0 })
    }

    /// The subscriber has read everything up to `seq`.
    pub fn done(&self, seq: u64) {
        let mut noted = locked(&self.place.noted);
        noted.range =
            noted.range.filter(|(_, last)| *last > seq).map(|(first, last)| (first.max(seq + 1), last));
        if noted.torn <= seq {
            noted.torn = 0;
        }
    }

    /// The subscriber begins after `seq`, although its seat was taken at `head`.
    pub fn begin(&self, seq: u64, head: u64) {
        if seq < head {
            let mut noted = locked(&self.place.noted);
            noted.range = Some((seq + 1, noted.range.map_or(head, |(_, last)| last.max(head))));
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut lists = locked(&self.hub.lists);
        lists.all.remove(&self.id);
        for namespace in &self.selection.namespaces {
            if let Some(seats) = lists.namespaces.get_mut(namespace) {
                seats.remove(&self.id);
                if seats.is_empty() {
                    lists.namespaces.remove(namespace);
                }
            }
        }
        for agent in &self.selection.agents {
            if let Some(seats) = lists.agents.get_mut(agent) {
                seats.remove(&self.id);
                if seats.is_empty() {
                    lists.agents.remove(agent);
                }
            }
        }
    }
}

/// Follows what `view` publishes until `stop`.
pub async fn run(view: View, metrics: Metrics, stop: CancellationToken) {
    let mut progress = view.progress.clone();
    loop {
        progress.borrow_and_update();
        let woken = view.hub().take(view.load_full());
        metrics.subscriber_wakes.inc_by(woken.len() as u64);
        for (n, place) in woken.iter().enumerate() {
            place.wake.notify_one();
            // Waking very many must not keep a whole thread from those who are awake.
            if n % 1_024 == 1_023 {
                tokio::task::yield_now().await;
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            changed = progress.changed() => if changed.is_err() {
                // The feed has ended; the node ends with it, and says which of its tasks was first.
                return stop.cancelled().await;
            },
        }
    }
}

#[cfg(test)]
#[path = "hub/tests.rs"]
mod tests;
