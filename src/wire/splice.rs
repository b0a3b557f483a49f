//! Puts bytes that are JSON already into a JSON text, unchanged.
//!
//! A card was checked when it was accepted and is served byte for byte, so it is neither parsed nor written
//! again. (`serde_json`'s `RawValue` would do the same at the price of validating every card in every
//! answer.) What is spliced in must be one JSON value; nothing here checks it.

use serde::Serialize;

/// A JSON object under construction: written by serde up to its last brace, then continued by hand.
#[derive(Debug)]
pub struct Spliced {
    text: Vec<u8>,
    empty: bool,
}

impl Spliced {
    /// Begins with the members of `head`, which must serialise as an object.
    ///
    /// # Errors
    /// When `head` cannot be serialised.
    pub fn begin(head: &impl Serialize) -> Result<Self, serde_json::Error> {
        let mut text = serde_json::to_vec(head)?;
        if text.pop() != Some(b'}') {
            return Err(serde::ser::Error::custom("only an object can be continued"));
        }
        let empty = text.last() == Some(&b'{');
        Ok(Self { text, empty })
    }

    /// Adds a member whose value is `raw`. `name` needs no escaping.
    #[must_use]
    pub fn member(mut self, name: &str, raw: &[u8]) -> Self {
        if !self.empty {
            self.text.push(b',');
        }
        self.empty = false;
        self.text.reserve(name.len() + raw.len() + 4);
        self.text.push(b'"');
        self.text.extend_from_slice(name.as_bytes());
        self.text.extend_from_slice(b"\":");
        self.text.extend_from_slice(raw);
        self
    }

    /// Bytes written so far.
    #[expect(clippy::len_without_is_empty, reason = "it is never empty: the object has begun")]
    pub fn len(&self) -> usize {
        self.text.len()
    }

    /// The finished text.
    pub fn end(mut self) -> Vec<u8> {
        self.text.push(b'}');
        self.text
    }
}

/// The object `head` with one more member, whose value is `raw` where there is one.
///
/// # Errors
/// When `head` cannot be serialised.
pub fn splice(head: &impl Serialize, name: &str, raw: Option<&[u8]>) -> Result<Vec<u8>, serde_json::Error> {
    let begun = Spliced::begin(head)?;
    Ok(match raw {
        Some(raw) => begun.member(name, raw).end(),
        None => begun.end(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Head {
        a: u8,
    }

    #[derive(Serialize)]
    struct Nothing {}

    #[test]
    fn bytes_go_in_as_they_are() {
        let raw = b"{ \"b\":1e0,\n\"b2\":\"\\u00e9\" }\n";
        let text = splice(&Head { a: 1 }, "card", Some(raw)).unwrap();
        assert_eq!(text, b"{\"a\":1,\"card\":{ \"b\":1e0,\n\"b2\":\"\\u00e9\" }\n}");
        let read: serde_json::Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(read["card"]["b2"], "é");
        assert_eq!(splice(&Head { a: 1 }, "card", None).unwrap(), b"{\"a\":1}");
        assert_eq!(splice(&Nothing {}, "card", Some(b"2")).unwrap(), b"{\"card\":2}");
    }

    #[test]
    fn only_objects_are_continued() {
        assert!(splice(&[1], "card", None).is_err());
    }
}
