//! Streams of events over gRPC.

use std::time::Duration;

use cardfence::proto::v1 as pb;
use pb::watch_event::Event;
use tokio::sync::mpsc;
use tonic::{Code, Status, Streaming};

use super::support::{Served, card, said};

const PATIENCE: Duration = Duration::from_secs(10);

/// A stream, and what is said on it.
struct Watching {
    says: mpsc::UnboundedSender<pb::WatchRequest>,
    events: Streaming<pb::WatchEvent>,
}

impl Watching {
    async fn start(served: &Served, start: pb::WatchStart) -> Result<Self, Status> {
        Self::say_first(served, pb::watch_request::Request::Start(start)).await
    }

    async fn say_first(served: &Served, first: pb::watch_request::Request) -> Result<Self, Status> {
        let (says, mut said) = mpsc::unbounded_channel();
        says.send(pb::WatchRequest { request: Some(first) }).unwrap();
        let requests = futures::stream::poll_fn(move |cx| said.poll_recv(cx));
        let events = served.watch().watch(requests).await?.into_inner();
        Ok(Self { says, events })
    }

    fn say(&self, request: pb::watch_request::Request) {
        self.says.send(pb::WatchRequest { request: Some(request) }).unwrap();
    }

    async fn next(&mut self) -> Result<Option<pb::WatchEvent>, Status> {
        tokio::time::timeout(PATIENCE, self.events.message()).await.expect("no event in time")
    }

    async fn event(&mut self) -> (Event, String) {
        let told = self.next().await.unwrap().expect("the stream has ended");
        (told.event.unwrap(), told.id)
    }

    async fn until_checkpoint(&mut self) -> pb::WatchCheckpoint {
        loop {
            if let (Event::Checkpoint(checkpoint), _) = self.event().await {
                return checkpoint;
            }
        }
    }
}

fn all() -> pb::WatchStart {
    pb::WatchStart { all: true, ..Default::default() }
}

#[tokio::test]
async fn stream_tells_a_snapshot_and_then_what_happens() {
    let served = Served::start().await;
    let first = served.register("acme/a", card("1", "x", 0)).await.position.unwrap();
    let mut watching = Watching::start(&served, all()).await.unwrap();
    let (Event::Reset(reset), id) = watching.event().await else { panic!() };
    assert_eq!((reset.position.as_str(), reset.reason.as_str(), id.as_str()), (&*first, "start", ""));
    let (Event::Upsert(upsert), id) = watching.event().await else { panic!() };
    assert_eq!((upsert.position.as_str(), id.as_str()), (&*first, ""));
    assert_eq!(upsert.card.unwrap(), card("1", "x", 0), "byte for byte");
    let (Event::Synced(_), id) = watching.event().await else { panic!() };
    assert_eq!(id, first);
    let checkpoint = watching.until_checkpoint().await;
    assert_eq!((checkpoint.set_digest.len(), checkpoint.staleness_ms), (64, None));

    let second = served.register("acme/a", card("1", "y", 100_000)).await.position.unwrap();
    let (Event::Upsert(upsert), id) = watching.event().await else { panic!() };
    assert_eq!((upsert.revision, upsert.position.clone(), id), (2, second.clone(), second));
    assert_eq!((upsert.class(), upsert.silent), (pb::ChangeClass::Breaking, true));
    assert_eq!(upsert.card.unwrap(), card("1", "y", 100_000));
    let retire = pb::RetireRequest { agent: "acme/a".to_owned(), ..Default::default() };
    served.registry.clone().retire(retire).await.unwrap();
    let (Event::Retired(retired), _) = watching.event().await else { panic!() };
    assert_eq!((retired.revision, retired.raw_digest, retired.card), (3, None, None));
}

#[tokio::test]
async fn proof_comes_on_the_stream_with_its_nonce() {
    let served = Served::start().await;
    let agents = vec!["acme/a".to_owned()];
    let mut watching =
        Watching::start(&served, pb::WatchStart { agents, ..Default::default() }).await.unwrap();
    watching.until_checkpoint().await;
    for n in 0..20 {
        let last = served.register("other/b", card(&n.to_string(), "x", 0)).await.position.unwrap();
        watching.say(pb::watch_request::Request::Confirm(pb::WatchConfirm { nonce: n.to_string() }));
        let checkpoint = loop {
            let checkpoint = watching.until_checkpoint().await;
            if checkpoint.nonce.is_some() {
                break checkpoint;
            }
        };
        assert_eq!((checkpoint.nonce.unwrap(), checkpoint.staleness_ms), (n.to_string(), Some(0)));
        assert_eq!(checkpoint.position, last);
    }
}

#[tokio::test]
async fn class_and_cards_say_what_is_sent() {
    let served = Served::start().await;
    let first = served.register("acme/a", card("1", "x", 0)).await.position;
    served.register("acme/a", card("2", "x", 0)).await;
    served.register("acme/a", card("2", "y", 0)).await;
    let namespaces = vec!["acme".to_owned()];
    let class = pb::ChangeClass::Additive.into();
    let start = pb::WatchStart { namespaces, class, cards: Some(false), from: first, ..Default::default() };
    let mut watching = Watching::start(&served, start).await.unwrap();
    let (Event::Moved(moved), _) = watching.event().await else { panic!() };
    assert_eq!((moved.revision, moved.class()), (2, pb::ChangeClass::Cosmetic));
    assert!(moved.card.is_none() && moved.raw_digest.is_some());
    let (Event::Upsert(upsert), _) = watching.event().await else { panic!() };
    assert!((upsert.revision, upsert.card.is_none(), upsert.card_omitted) == (3, true, false));
    assert!(matches!(watching.event().await.0, Event::Synced(_)));
}

#[tokio::test]
async fn stream_ends_with_an_event_and_a_status_of_the_same_reason() {
    let served = Served::start().await;
    served.register("acme/a", card("1", "x", 0)).await;
    let mut watching = Watching::start(&served, all()).await.unwrap();
    watching.until_checkpoint().await;
    let forked = served.memory.forked_at(0).await;
    served.memory.become_like(&forked).await;
    let end = loop {
        if let (Event::End(end), id) = watching.event().await {
            assert_eq!(id, "");
            break end;
        }
    };
    assert_eq!(end.reason, "history_diverged");
    let status = said(watching.next().await);
    assert_eq!((status.code, status.reason.as_str()), (Code::OutOfRange, "history_diverged"));

    let served = Served::start().await;
    let mut watching = Watching::start(&served, all()).await.unwrap();
    watching.until_checkpoint().await;
    served.node.registry.end_streams();
    assert!(matches!(watching.event().await.0, Event::End(end) if end.reason == "draining"));
    let status = said(watching.next().await);
    assert_eq!((status.code, status.reason.as_str()), (Code::Unavailable, "draining"));
    assert_eq!(status.pushback.as_deref(), Some("1000"));
    let refused = said(Watching::start(&served, all()).await.map(drop));
    assert_eq!(refused.reason, "draining");
}

#[tokio::test]
async fn what_is_said_out_of_place_is_refused() {
    use pb::watch_request::Request;
    let served = Served::start().await;
    let confirm = |nonce: &str| Request::Confirm(pb::WatchConfirm { nonce: nonce.to_owned() });
    let first = said(Watching::say_first(&served, confirm("n")).await.map(drop));
    assert_eq!((first.code, first.reason.as_str()), (Code::InvalidArgument, "invalid_argument"));
    for start in [
        pb::WatchStart::default(),
        pb::WatchStart { agents: vec!["acme".to_owned()], ..Default::default() },
        pb::WatchStart { class: 1, ..all() },
        pb::WatchStart { class: 99, ..all() },
        pb::WatchStart { from: Some("7".to_owned()), ..all() },
        pb::WatchStart { from: Some(String::new()), ..all() },
    ] {
        let refused = said(Watching::start(&served, start.clone()).await.map(drop));
        assert_eq!(refused.reason, "invalid_argument", "{start:?}");
    }
    for later in [Request::Start(all()), confirm(""), confirm("a b")] {
        let mut watching = Watching::start(&served, all()).await.unwrap();
        watching.until_checkpoint().await;
        watching.say(later);
        let ended = loop {
            match watching.next().await {
                Ok(Some(_)) => {}
                other => break said(other),
            }
        };
        assert_eq!(ended.reason, "invalid_argument");
    }
    // One who has nothing more to say is told on.
    let mut watching = Watching::start(&served, all()).await.unwrap();
    watching.until_checkpoint().await;
    watching.says = mpsc::unbounded_channel().0;
    served.register("acme/a", card("1", "x", 0)).await;
    assert!(matches!(watching.event().await.0, Event::Upsert(_)));
}
