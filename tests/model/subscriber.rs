//! A subscriber as the contract describes one: a copy that is folded from events, and checks each of them.

use std::collections::BTreeMap;
use std::time::Duration;

use cardfence::registry::watch::Kind;
use cardfence::registry::{Because, Checkpoint, Event, Refusal, Registry, Subscription, Watch};
use cardfence::terms::{AgentName, Digest, Position, Reason, SetDigest};

use crate::support::call;

const PATIENCE: Duration = Duration::from_secs(20);

/// What a subscriber holds of each live agent.
pub(crate) type Held = BTreeMap<AgentName, (u64, Digest)>;

#[derive(Debug, Default)]
pub(crate) struct Copy {
    pub(crate) held: Held,
    /// The last id that came: where to resume from.
    pub(crate) last: Option<Position>,
    /// A snapshot that is not complete yet; the copy stays what it was until it is.
    staged: Option<Held>,
    pub(crate) resets: Vec<Because>,
    pub(crate) events: u64,
}

impl Copy {
    pub(crate) fn sum(&self) -> SetDigest {
        let all = self.held.iter().map(|(name, (revision, raw))| SetDigest::of(name, *revision, raw));
        all.fold(SetDigest::default(), SetDigest::plus)
    }

    fn advance(&mut self, to: Position, strictly: bool) {
        let last = self.last.map_or(0, |last| last.seq);
        assert!(to.seq > last || (!strictly && to.seq == last), "{to} came after {:?}", self.last);
        self.last = Some(to);
    }

    /// Folds an event, and fails when it cannot follow.
    pub(crate) fn take(&mut self, event: &Event) {
        self.events += 1;
        match event {
            Event::Reset { because, .. } => {
                let expected = self.last.map_or(Because::Start, |_| Because::HistoryDiverged);
                assert_eq!(*because, expected, "who was synced is not reset without need");
                self.resets.push(*because);
                self.staged = Some(Held::new());
            }
            Event::Agent(told) => {
                match (told.id(), &self.staged) {
                    (None, Some(_)) => {}
                    (Some(id), None) => {
                        assert_eq!(id, told.agent.position);
                        self.advance(id, true);
                    }
                    (id, staged) => panic!("{id:?} with a snapshot begun: {}", staged.is_some()),
                }
                let held = self.staged.as_mut().unwrap_or(&mut self.held);
                let name = told.agent.name.clone();
                match told.agent.card() {
                    Some(card) => {
                        assert_ne!(told.kind, Kind::Retired);
                        held.insert(name, (told.agent.revision, card.raw_digest()));
                    }
                    None => {
                        assert_eq!(told.kind, Kind::Retired);
                        held.remove(&name);
                    }
                }
            }
            Event::Synced { position } => {
                if let Some(held) = self.staged.take() {
                    self.held = held;
                    self.last = Some(*position);
                }
                self.advance(*position, false);
            }
            Event::Checkpoint(checkpoint) => {
                assert!(self.staged.is_none(), "a checkpoint in a snapshot");
                self.advance(checkpoint.position, false);
                assert_eq!(checkpoint.set_digest, self.sum(), "at {}", checkpoint.position);
            }
            Event::End { .. } => {}
        }
    }

    /// The same request, from where this copy is. What a snapshot brought that was cut is dropped.
    pub(crate) fn resumed(&mut self, watch: &Watch) -> Watch {
        self.staged = None;
        Watch { from: self.last, ..watch.clone() }
    }
}

pub(crate) async fn subscribe(registry: &Registry, watch: Watch) -> Result<Subscription, Refusal> {
    registry.watch(&call(registry), watch).await
}

pub(crate) async fn next(stream: &mut Subscription) -> Event {
    let event = tokio::time::timeout(PATIENCE, stream.next()).await.expect("no event in time");
    event.expect("the stream is over")
}

/// Takes events until one is wanted, and gives that.
pub(crate) async fn until(
    stream: &mut Subscription,
    copy: &mut Copy,
    wanted: impl Fn(&Event) -> bool,
) -> Event {
    loop {
        let event = next(stream).await;
        copy.take(&event);
        if wanted(&event) {
            return event;
        }
        if let Event::End { reason } = event {
            panic!("the stream ended: {reason}");
        }
    }
}

pub(crate) async fn until_synced(stream: &mut Subscription, copy: &mut Copy) {
    until(stream, copy, |event| matches!(event, Event::Synced { .. })).await;
}

/// Takes events until the copy is at `seq` or beyond.
pub(crate) async fn until_at(stream: &mut Subscription, copy: &mut Copy, seq: u64) {
    while copy.last.is_none_or(|last| last.seq < seq) {
        let event = next(stream).await;
        assert!(!matches!(event, Event::End { .. }), "{event:?}");
        copy.take(&event);
    }
}

/// Asks for a proof on the stream, and takes events until it comes.
pub(crate) async fn confirmed(
    registry: &Registry,
    stream: &mut Subscription,
    copy: &mut Copy,
    nonce: &str,
) -> Checkpoint {
    stream.confirm(nonce, call(registry).arrival).unwrap();
    let answers = |event: &Event| matches!(event, Event::Checkpoint(c) if c.nonce.as_deref() == Some(nonce));
    match until(stream, copy, answers).await {
        Event::Checkpoint(checkpoint) => *checkpoint,
        other => panic!("{other:?}"),
    }
}

/// Takes events until the stream is over.
pub(crate) async fn ended(stream: &mut Subscription, copy: &mut Copy) -> Reason {
    loop {
        let event = next(stream).await;
        copy.take(&event);
        if let Event::End { reason } = event {
            assert!(stream.next().await.is_none(), "nothing comes after the end");
            return reason;
        }
    }
}

pub(crate) fn all() -> Watch {
    Watch { all: true, ..Watch::default() }
}

pub(crate) fn agents(names: &[&str]) -> Watch {
    Watch { agents: names.iter().map(|name| name.parse().unwrap()).collect(), ..Watch::default() }
}

pub(crate) fn namespaces(names: &[&str]) -> Watch {
    Watch { namespaces: names.iter().map(|name| (*name).to_owned()).collect(), ..Watch::default() }
}
