//! A stream of server-sent events as a caller reads it: bytes in, events out, and where to go on when it breaks.

use bytes::{Bytes, BytesMut};
use http::{HeaderName, HeaderValue};
use serde::de::DeserializeOwned;

use super::super::client::{Client, Endless, Request};
use super::super::failure::{Failure, failed};
use super::super::query::Query;

/// The largest event that is read: no card is nearly as large.
const EVENT_MAX: usize = 64 * 1024 * 1024;
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in super::super) struct Event {
    /// The position to resume from; none within a snapshot.
    pub(in super::super) id: Option<String>,
    pub(in super::super) kind: String,
    /// JSON on one line.
    pub(in super::super) data: String,
}

impl Event {
    pub(in super::super) fn read<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_str(&self.data)
            .map_err(|error| failed(format!("an event `{}` cannot be read: {error}", self.kind)))
    }
}

/// Reads lines until an event is whole.
#[derive(Debug, Default)]
pub(super) struct Reader {
    buffer: BytesMut,
    event: Event,
    /// Whether any field of the event has come.
    begun: bool,
}

impl Reader {
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() + self.event.data.len() > EVENT_MAX {
            return Err(failed(format!("an event of more than {EVENT_MAX} bytes is no event of a registry")));
        }
        Ok(())
    }

    /// The next event that is whole.
    pub(super) fn next(&mut self) -> Option<Event> {
        while let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
            let line = self.buffer.split_to(end + 1);
            let line = String::from_utf8_lossy(line.trim_ascii_end()).into_owned();
            if line.is_empty() {
                if std::mem::take(&mut self.begun) {
                    return Some(std::mem::take(&mut self.event));
                }
                continue;
            }
            let (field, value) = line.split_once(':').unwrap_or((&line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "id" => self.event.id = Some(value.to_owned()),
                "event" => value.clone_into(&mut self.event.kind),
                "data" if self.event.data.is_empty() => value.clone_into(&mut self.event.data),
                "data" => {
                    self.event.data.push('\n');
                    self.event.data.push_str(value);
                }
                // A comment, or a field of tomorrow.
                _ => continue,
            }
            self.begun = true;
        }
        None
    }
}

/// A stream that is open.
#[derive(Debug)]
pub(in super::super) struct Events {
    body: Endless,
    reader: Reader,
}

impl Events {
    /// Opens a stream that goes on after `last`.
    pub(in super::super) async fn open(
        client: &Client,
        query: &Query,
        last: Option<&str>,
    ) -> Result<Self, Failure> {
        let mut request = Request::get("/v1/watch", query);
        if let Some(value) = last.and_then(|last| HeaderValue::from_str(last).ok()) {
            request = request.header(LAST_EVENT_ID, value);
        }
        Ok(Self { body: client.open(request).await?, reader: Reader::default() })
    }

    /// The next event; `None` when the stream is over.
    pub(in super::super) async fn next(&mut self) -> Result<Option<Event>, Failure> {
        loop {
            if let Some(event) = self.reader.next() {
                return Ok(Some(event));
            }
            let Some(bytes): Option<Bytes> = self.body.chunk().await? else { return Ok(None) };
            self.reader.push(&bytes)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(id: Option<&str>, kind: &str, data: &str) -> Event {
        Event { id: id.map(str::to_owned), kind: kind.to_owned(), data: data.to_owned() }
    }

    #[test]
    fn events_are_whole_however_they_are_cut() {
        let text = ": hello\n\nid: 7.a\nevent: upsert\ndata: {\"a\":\"é\"}\n\nevent:end\ndata:{}\r\n\r\n";
        let expected = [event(Some("7.a"), "upsert", "{\"a\":\"é\"}"), event(None, "end", "{}")];
        for size in 1..text.len() {
            let mut reader = Reader::default();
            let mut found = Vec::new();
            for part in text.as_bytes().chunks(size) {
                reader.push(part).unwrap();
                found.extend(std::iter::from_fn(|| reader.next()));
            }
            assert_eq!(found, expected, "in parts of {size}");
        }
    }

    #[test]
    fn an_event_without_an_end_is_not_told_and_not_kept_for_ever() {
        let mut reader = Reader::default();
        reader.push(b"event: upsert\ndata: {}\n").unwrap();
        assert_eq!(reader.next(), None);
        let part = vec![b'x'; 1 << 20];
        assert!((0..100).any(|_| reader.push(&part).is_err()));
    }
}
