//! Events as `text/event-stream`: `id` is the position to resume from, `event` the kind, `data` one line of JSON.
//!
//! The frame of an event about an agent is written once and handed to every subscriber as the same bytes.

use std::borrow::Cow;
use std::convert::Infallible;

use axum::body::Body;
use bytes::Bytes;
use futures::{Stream, stream};
use serde::Serialize;

use crate::registry::{Event, Subscription, Told};
use crate::wire::{self, Spliced};

pub(super) const EVENT_STREAM: &str = "text/event-stream";

/// The number of this wire among those that write events.
const WIRE: usize = 1;

/// The body of a stream. When it is dropped, the subscription ends.
pub(super) fn body(subscription: Subscription) -> Body {
    Body::from_stream(frames(subscription))
}

fn frames(subscription: Subscription) -> impl Stream<Item = Result<Bytes, Infallible>> {
    stream::unfold(subscription, |mut subscription| async move {
        let event = subscription.next().await?;
        let frame = frame(&event, subscription.id());
        Some((Ok(frame), subscription))
    })
}

fn frame(event: &Event, stream: &str) -> Bytes {
    match event {
        Event::Agent(told) => told.form(WIRE, || agent(told)),
        Event::Reset { position, because } => {
            let reason = because.as_str().to_owned();
            json(None, "reset", &wire::WatchReset { position: position.to_string(), reason })
        }
        Event::Synced { position } => {
            let position = position.to_string();
            let synced = wire::WatchSynced { position: position.clone(), stream: stream.to_owned() };
            json(Some(&position), "synced", &synced)
        }
        Event::Checkpoint(checkpoint) => {
            let checkpoint = wire::WatchCheckpoint::from(&**checkpoint);
            json(Some(&checkpoint.position), "checkpoint", &checkpoint)
        }
        Event::End { reason } => json(None, "end", &wire::WatchEnd { reason: reason.slug().to_owned() }),
    }
}

fn agent(told: &Told) -> Bytes {
    let id = told.id().map(|id| id.to_string());
    let data = Spliced::begin(&wire::AgentEvent::from(told)).map(|begun| {
        let card = told.agent.card().filter(|_| told.with_card);
        match card {
            Some(card) => begun.member("card", &one_line(card.bytes())).end(),
            None => begun.end(),
        }
    });
    written(id.as_deref(), told.kind.as_str(), data)
}

/// A line break can stand only between the members of a JSON document, where a space says the same.
fn one_line(card: &[u8]) -> Cow<'_, [u8]> {
    let breaks = |byte: &u8| matches!(byte, b'\n' | b'\r');
    if !card.iter().any(breaks) {
        return Cow::Borrowed(card);
    }
    card.iter().map(|byte| if breaks(byte) { b' ' } else { *byte }).collect()
}

fn json(id: Option<&str>, kind: &str, value: &impl Serialize) -> Bytes {
    written(id, kind, serde_json::to_vec(value))
}

fn written(id: Option<&str>, kind: &str, data: serde_json::Result<Vec<u8>>) -> Bytes {
    // No shape of `wire` can fail to be written; an empty object would show that one did.
    let data = data.unwrap_or_else(|error| {
        tracing::error!(%error, kind, "an event could not be written");
        b"{}".to_vec()
    });
    let mut frame = Vec::with_capacity(data.len() + 96);
    if let Some(id) = id {
        frame.extend_from_slice(b"id: ");
        frame.extend_from_slice(id.as_bytes());
        frame.push(b'\n');
    }
    frame.extend_from_slice(b"event: ");
    frame.extend_from_slice(kind.as_bytes());
    frame.extend_from_slice(b"\ndata: ");
    frame.extend_from_slice(&data);
    frame.extend_from_slice(b"\n\n");
    frame.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_whatever_the_card_looks_like() {
        assert_eq!(&*one_line(b"{\r\n  \"a\": \"b\\n\"\n}"), b"{    \"a\": \"b\\n\" }");
        assert!(matches!(one_line(b"{}"), Cow::Borrowed(_)));
        let frame = json(Some("7.00000000000000aa"), "end", &wire::WatchEnd { reason: "max_age".to_owned() });
        let text = "id: 7.00000000000000aa\nevent: end\ndata: {\"reason\":\"max_age\"}\n\n";
        assert_eq!(frame, text);
    }
}
