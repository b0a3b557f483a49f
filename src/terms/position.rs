//! Places in the ledger, and references to revisions.
//!
//! A position is `<seq>.<first 16 hex digits of the chain digest there>`. The digits make a position of
//! another history recognisable: after a failover that lost entries the same number names another entry.

use std::fmt;
use std::str::FromStr;

use super::Digest;

/// The first eight bytes of the chain digest at a sequence number: what tells histories apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tag(pub u64);

impl From<&Digest> for Tag {
    fn from(digest: &Digest) -> Self {
        let mut first = [0; 8];
        first.copy_from_slice(&digest.as_bytes()[..8]);
        Self(u64::from_be_bytes(first))
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A place in the ledger. Two positions are comparable only when they are of one history, so there is no `Ord`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Position {
    pub seq: u64,
    pub tag: Tag,
}

impl Position {
    pub fn new(seq: u64, digest: &Digest) -> Self {
        Self { seq, tag: digest.into() }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:016x}", self.seq, self.tag.0)
    }
}

impl fmt::Debug for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is no position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not a position: a sequence number without leading zeros, a dot, 16 lower-case hex digits", .0.escape_debug())]
pub struct InvalidPosition(pub String);

impl FromStr for Position {
    type Err = InvalidPosition;

    fn from_str(text: &str) -> Result<Self, InvalidPosition> {
        let invalid = || InvalidPosition(text.chars().take(80).collect());
        let (seq, tag) = text.split_once('.').ok_or_else(invalid)?;
        let seq = parse_count(seq).ok_or_else(invalid)?;
        let lower = tag.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if tag.len() != 16 || !lower {
            return Err(invalid());
        }
        let tag = u64::from_str_radix(tag, 16).map_err(|_| invalid())?;
        Ok(Self { seq, tag: Tag(tag) })
    }
}

/// Decimal digits without sign or leading zeros.
pub(crate) fn parse_count(text: &str) -> Option<u64> {
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if plain { text.parse().ok() } else { None }
}

/// A revision of an agent: a number, and the history it was read in where that is known (`7@<position>`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RevisionRef {
    pub number: u64,
    pub seen_at: Option<Position>,
}

impl fmt::Display for RevisionRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.seen_at {
            Some(position) => write!(f, "{}@{position}", self.number),
            None => write!(f, "{}", self.number),
        }
    }
}

/// A text that is no revision reference.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not a revision: a number from 1, or `<number>@<position>`", .0.escape_debug())]
pub struct InvalidRevision(pub String);

impl FromStr for RevisionRef {
    type Err = InvalidRevision;

    fn from_str(text: &str) -> Result<Self, InvalidRevision> {
        let invalid = || InvalidRevision(text.chars().take(120).collect());
        let (number, seen_at) = match text.split_once('@') {
            Some((number, position)) => (number, Some(position.parse().map_err(|_| invalid())?)),
            None => (text, None),
        };
        match parse_count(number) {
            Some(number) if number > 0 => Ok(Self { number, seen_at }),
            _ => Err(invalid()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_round_trip_and_have_one_spelling() {
        let position: Position = "1042.9f86d081884c7d65".parse().unwrap();
        assert_eq!(position.seq, 1042);
        assert_eq!(position.to_string(), "1042.9f86d081884c7d65");
        assert_eq!("0.00000000000000aa".parse::<Position>().unwrap().to_string(), "0.00000000000000aa");
        for bad in [
            "",
            ".",
            "1042",
            "01.9f86d081884c7d65",
            "1042.9F86D081884C7D65",
            "1042.9f86d081884c7d6",
            "+1.9f86d081884c7d65",
            "1042.9f86d081884c7d655",
            "-1.9f86d081884c7d65",
            "1.+f86d081884c7d65",
            "18446744073709551616.9f86d081884c7d65",
            " 1.9f86d081884c7d65",
        ] {
            assert!(bad.parse::<Position>().is_err(), "{bad}");
        }
    }

    #[test]
    fn revision_references_carry_their_history() {
        let plain: RevisionRef = "7".parse().unwrap();
        assert_eq!((plain.number, plain.seen_at), (7, None));
        let full: RevisionRef = "7@1042.9f86d081884c7d65".parse().unwrap();
        assert_eq!(full.to_string(), "7@1042.9f86d081884c7d65");
        for bad in ["", "0", "07", "7@", "@1.9f86d081884c7d65", "7@1", "x"] {
            assert!(bad.parse::<RevisionRef>().is_err(), "{bad}");
        }
    }
}
