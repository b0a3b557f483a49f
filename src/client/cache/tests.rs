//! A cache over a stream that a test writes: what it answers from, what it waits for, and when it gives up.

use futures::StreamExt;
use futures::future::{BoxFuture, join_all};
use futures::stream::unfold;

use super::super::follow::Subscription;
use super::super::session::{Confirmed, Event as Sent};
use super::*;
use crate::card::{Card, Limits};
use crate::client::Revision;
use crate::clock::{Clock, Hands};
use crate::fence::SkillWanted;
use crate::terms::{MaxStaleness, SetDigest, Tag, Timestamp};

const WITHIN: Duration = Duration::from_secs(20);

fn agent(n: u64) -> AgentName {
    format!("acme/agent-{n}").parse().unwrap()
}

fn at(seq: u64) -> Position {
    Position { seq, tag: Tag(seq + 1_000) }
}

fn revision(n: u64, number: u64, seq: u64) -> Arc<Revision> {
    let text =
        format!(r#"{{"name":"A","url":"https://a.example","version":"{number}","skills":[{{"id":"s"}}]}}"#);
    Arc::new(Revision {
        agent: agent(n),
        number,
        position: at(seq),
        card: Arc::new(Card::check(text.into(), &Limits::default()).unwrap()),
        registered_at: Timestamp::from_micros(0),
        registered_by: "anonymous".into(),
        immutable_versions: None,
    })
}

/// The registry's end of one stream.
struct Stream {
    from: Option<Position>,
    events: mpsc::Sender<Result<Sent, Error>>,
    nonces: mpsc::Receiver<String>,
}

impl Stream {
    async fn say(&self, event: Sent) {
        self.events.send(Ok(event)).await.unwrap();
    }

    /// A snapshot of these agents at `seq`.
    async fn snapshot(&self, seq: u64, agents: &[Arc<Revision>]) {
        self.say(Sent::Reset { position: at(seq), diverged: false }).await;
        for revision in agents {
            self.say(Sent::Upsert(Arc::clone(revision))).await;
        }
        self.say(Sent::Synced { position: at(seq) }).await;
    }

    /// Answers the next confirmation.
    async fn confirm(&mut self, seq: u64, agents: &[Arc<Revision>]) {
        let nonce = tokio::time::timeout(WITHIN, self.nonces.recv()).await.unwrap().unwrap();
        self.say(checkpoint(seq, agents, Some(Confirmed { nonce, staleness: Some(Duration::ZERO) }))).await;
    }
}

fn checkpoint(seq: u64, agents: &[Arc<Revision>], answer: Option<Confirmed>) -> Sent {
    let share = |one: &Arc<Revision>| SetDigest::of(&one.agent, one.number, &one.card.raw_digest());
    let sum = agents.iter().map(share).fold(SetDigest::default(), SetDigest::plus);
    Sent::Checkpoint { position: at(seq), set_digest: sum.to_string(), answer }
}

/// Hands every stream that is opened to the test.
struct Script(mpsc::Sender<Stream>);

impl Source for Script {
    fn open(&self, _: &Selection, from: Option<Position>) -> BoxFuture<'static, Result<Subscription, Error>> {
        let streams = self.0.clone();
        Box::pin(async move {
            let (events, said) = mpsc::channel(100);
            let (confirms, nonces) = mpsc::channel(4);
            let open = streams.send(Stream { from, events, nonces }).await;
            open.map_err(|_| Error::Unreachable("it is off".to_owned()))?;
            let events =
                unfold(said, |mut said: mpsc::Receiver<_>| async { Some((said.recv().await?, said)) });
            Ok(Subscription { confirms, events: events.boxed() })
        })
    }
}

struct Setting {
    cache: Cache,
    streams: mpsc::Receiver<Stream>,
    hands: Arc<Hands>,
}

impl Setting {
    fn new() -> Self {
        let hands = Arc::new(Hands::default());
        let (opened, streams) = mpsc::channel(1);
        let settings = Settings {
            clock: Clock::Manual(Arc::clone(&hands)),
            default_wait: WITHIN,
            confirm_within: WITHIN,
            silence: WITHIN,
            retry: Retry { first: Duration::from_millis(1), ..Retry::default() },
            selection: Selection::Of { agents: Vec::new(), namespaces: vec!["acme".to_owned()] },
            ..Settings::default()
        };
        Self { cache: Cache::over(Script(opened), None, settings), streams, hands }
    }

    async fn stream(&mut self) -> Stream {
        tokio::time::timeout(WITHIN, self.streams.recv()).await.unwrap().unwrap()
    }

    /// A cache whose copy of `agents` at position 9 was just proven.
    async fn proven(agents: &[Arc<Revision>]) -> (Self, Stream) {
        let mut setting = Self::new();
        let mut stream = setting.stream().await;
        stream.snapshot(9, agents).await;
        let (agent, fence) = (agent(1), Fence::default());
        let (found, ()) = futures::join!(setting.cache.resolve(&agent, &fence), stream.confirm(9, agents));
        assert_eq!(found.unwrap().revision.number, agents[0].number);
        (setting, stream)
    }

    /// Waits for an event that is so.
    async fn until(
        &self,
        events: &mut (impl futures::Stream<Item = Observed<Event>> + Unpin),
        so: fn(&Event) -> bool,
    ) {
        loop {
            let told = tokio::time::timeout(WITHIN, events.next()).await.unwrap();
            if matches!(told.unwrap(), Observed::Event(event) if so(&event)) {
                return;
            }
        }
    }
}

fn within(bound: Duration) -> Fence {
    Fence { max_staleness: Some(MaxStaleness::Within(bound)), ..Fence::default() }
}

/// A question that waits only so long as a test wants to see it fail.
fn brief<'a>(agent: &'a AgentName, fence: &'a Fence) -> Ask<'a> {
    Ask { wait: Some(Duration::from_millis(30)), ..Ask::new(agent, fence) }
}

#[tokio::test]
async fn a_proven_copy_answers_with_its_bound_until_it_is_too_old() {
    let agents = [revision(1, 3, 5), revision(2, 1, 9)];
    let (setting, mut stream) = Setting::proven(&agents).await;
    setting.hands.advance(Duration::from_secs(2));
    let found = setting.cache.peek(&agent(1), &Fence::default()).unwrap().unwrap();
    assert_eq!(found.freshness.staleness.unwrap().as_secs(), 2);
    assert_eq!((found.freshness.position, found.revision.position), (at(9), at(5)));
    assert!(setting.cache.peek(&agent(1), &within(Duration::from_secs(1))).is_none(), "it must be confirmed");
    // Nobody was asked for any of this.
    assert!(stream.nonces.try_recv().is_err());
    // Changes come with the stream, and ask for no proof.
    let mut events = setting.cache.events();
    let newer = revision(1, 4, 10);
    stream.say(Sent::Upsert(Arc::clone(&newer))).await;
    setting
        .until(&mut events, |event| matches!(event, Event::Changed { revision: 4, retired: false, .. }))
        .await;
    let (agent, fence) = (agent(1), Fence::default());
    let found = setting.cache.resolve(&agent, &fence).await.unwrap();
    assert_eq!((found.revision.number, found.freshness.position), (4, at(10)));
}

#[tokio::test]
async fn a_thousand_linearizable_reads_share_at_most_two_confirmations() {
    let agents = [revision(1, 3, 5)];
    let (setting, mut stream) = Setting::proven(&agents).await;
    let (agent, fence) = (agent(1), within(Duration::ZERO));
    let reads = join_all((0..1_000).map(|_| setting.cache.resolve(&agent, &fence)));
    let serve = async {
        let mut confirmed = 0;
        while let Ok(Some(nonce)) =
            tokio::time::timeout(Duration::from_millis(500), stream.nonces.recv()).await
        {
            confirmed += 1;
            let answer = Confirmed { nonce, staleness: Some(Duration::ZERO) };
            stream.say(checkpoint(9, &agents, Some(answer))).await;
        }
        confirmed
    };
    let (reads, confirmed) = futures::join!(reads, serve);
    assert!(reads.into_iter().all(|read| read.is_ok()));
    assert!((1..=2).contains(&confirmed), "{confirmed}");
}

#[tokio::test]
async fn a_frozen_stream_fails_closed_after_the_bound_and_a_cut_one_too() {
    let agents = [revision(1, 3, 5)];
    let (mut setting, stream) = Setting::proven(&agents).await;
    setting.hands.advance(Duration::from_secs(4));
    let (agent, fence) = (agent(1), Fence::default());
    setting.cache.ask(&brief(&agent, &fence)).await.unwrap();
    setting.hands.advance(Duration::from_secs(2));
    // The stream is there, and nothing comes.
    let error = setting.cache.ask(&brief(&agent, &fence)).await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::FreshnessUnverifiable), "{error}");
    let any = Fence { max_staleness: Some(MaxStaleness::Any), ..Fence::default() };
    assert!(
        setting.cache.ask(&brief(&agent, &any)).await.is_ok(),
        "whoever takes any age gets it, with its age"
    );
    let mut events = setting.cache.events();
    drop(stream);
    setting.until(&mut events, |event| matches!(event, Event::Lost { .. })).await;
    let reopened = setting.stream().await;
    assert_eq!(reopened.from, Some(at(9)), "it goes on where the copy is");
    drop(reopened);
    setting.streams.close();
    setting
        .until(&mut events, |event| matches!(event, Event::Lost { why } if why.contains("it is off")))
        .await;
    let error = setting.cache.ask(&brief(&agent, &fence)).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable(_)), "{error}");
}

#[tokio::test]
async fn after_a_reconnect_only_what_is_proven_is_served() {
    let agents = [revision(1, 3, 5)];
    let (mut setting, stream) = Setting::proven(&agents).await;
    drop(stream);
    let mut stream = setting.stream().await;
    // Another node, which does not know the position: a snapshot, of a later state.
    let newer = [revision(1, 4, 20)];
    let mut events = setting.cache.events();
    stream.snapshot(20, &newer).await;
    setting.until(&mut events, |event| matches!(event, Event::Synced(_))).await;
    let (agent, fence) = (agent(1), Fence::default());
    assert!(setting.cache.peek(&agent, &fence).is_none(), "not proven");
    assert_eq!(setting.cache.staleness(), None);
    let (found, ()) = futures::join!(setting.cache.resolve(&agent, &fence), stream.confirm(20, &newer));
    assert_eq!(found.unwrap().revision.number, 4);
}

#[tokio::test]
async fn a_copy_that_does_not_add_up_is_dropped_and_read_anew() {
    let agents = [revision(1, 3, 5)];
    let (mut setting, stream) = Setting::proven(&agents).await;
    let mut events = setting.cache.events();
    stream.say(checkpoint(9, &[], None)).await;
    setting
        .until(&mut events, |event| matches!(event, Event::Dropped { why } if why.contains("adds up")))
        .await;
    assert!(setting.cache.peek(&agent(1), &Fence::default()).is_none());
    assert_eq!((setting.cache.position(), setting.cache.history()), (None, 1));
    assert_eq!(setting.stream().await.from, None, "from the beginning");
}

#[tokio::test]
async fn refusals_by_content_are_proven_since_the_question_arrived() {
    let agents = [revision(1, 3, 5)];
    let (setting, mut stream) = Setting::proven(&agents).await;
    let (here, gone) = (agent(1), agent(2));
    let skill = SkillWanted { id: "other".to_owned(), ..SkillWanted::default() };
    let wanting = Fence { skills: vec![skill], ..Fence::default() };
    for (agent, fence, reason) in
        [(&gone, Fence::default(), Reason::AgentNotFound), (&here, wanting, Reason::SkillMissing)]
    {
        let (found, ()) = futures::join!(setting.cache.resolve(agent, &fence), stream.confirm(9, &agents));
        let error = found.unwrap_err();
        assert_eq!(error.reason(), Some(reason));
        let card = error.refusal().unwrap().card.as_ref();
        assert_eq!(card.is_some(), reason == Reason::SkillMissing);
        // Not asked for in time, it is said beside what could not be verified.
        let error = setting.cache.ask(&brief(agent, &fence)).await.unwrap_err();
        assert_eq!(error.reason(), Some(Reason::FreshnessUnverifiable));
        assert!(error.to_string().ends_with(&format!("it would be {reason}")), "{error}");
        // The brief question's confirmation is still under way.
        stream.confirm(9, &agents).await;
    }
}

#[tokio::test]
async fn what_the_copy_cannot_say_is_asked_elsewhere() {
    let agents = [revision(1, 3, 5)];
    let (setting, _stream) = Setting::proven(&agents).await;
    let (agent, other) = (agent(1), "elsewhere/x".parse().unwrap());
    let fences = [
        Fence { max_origin_age: Some(Duration::from_secs(1)), ..Fence::default() },
        Fence { at_least: Some(at(4)), ..Fence::default() },
    ];
    let mut asks: Vec<Ask<'_>> = fences.iter().map(|fence| brief(&agent, fence)).collect();
    let plain = Fence::default();
    asks.push(brief(&other, &plain));
    asks.push(Ask { origin: true, ..brief(&agent, &plain) });
    for ask in asks {
        let error = setting.cache.ask(&ask).await.unwrap_err();
        assert!(error.to_string().contains("nobody else is asked"), "{error}");
    }
    // A position that the copy was at is one that it can say something of.
    let known = Fence { at_least: Some(at(9)), ..Fence::default() };
    setting.cache.ask(&brief(&agent, &known)).await.unwrap();
}

#[tokio::test]
async fn the_task_ends_with_the_last_reader_or_when_it_is_told_to() {
    let (setting, stream) = Setting::proven(&[revision(1, 3, 5)]).await;
    let mut events = setting.cache.events();
    setting.cache.stop().await;
    setting.until(&mut events, |event| *event == Event::Ended).await;
    assert!(stream.events.is_closed());
    let (setting, stream) = Setting::proven(&[revision(1, 3, 5)]).await;
    drop(setting.cache);
    tokio::time::timeout(WITHIN, stream.events.closed()).await.unwrap();
}
