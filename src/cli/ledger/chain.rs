//! Lines of a ledger, verified as they come.

use serde::Serialize;

use super::super::words;
use crate::ledger::chain::Verifier;
use crate::terms::{Digest, Position, Tag};
use crate::wire::LedgerEntry;

/// Where a chain is broken, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Broken {
    /// The line of the text, from 1.
    pub(super) line: u64,
    pub(super) why: String,
}

/// The lines so far.
#[derive(Debug)]
pub(super) struct Chain {
    /// `None`: the beginning is taken from the first line.
    verifier: Option<Verifier>,
    lines: u64,
    from: Option<u64>,
    hidden: u64,
    /// Positions that the chain must pass through, and whether it did.
    through: Vec<(Position, bool)>,
}

impl Chain {
    /// From the beginning of `ledger_id`, or from wherever the first line is.
    pub(super) fn new(ledger_id: Option<&str>, through: &[Position]) -> Self {
        let mut chain = Self {
            verifier: ledger_id.map(Verifier::new),
            lines: 0,
            from: None,
            hidden: 0,
            through: through.iter().map(|position| (*position, false)).collect(),
        };
        chain.pass();
        chain
    }

    /// Takes one line.
    pub(super) fn line(&mut self, text: &[u8]) -> Result<(), Broken> {
        self.lines += 1;
        let broken = |why: String| Broken { line: self.lines, why };
        let entry: LedgerEntry =
            serde_json::from_slice(text).map_err(|error| broken(format!("it is not an entry: {error}")))?;
        let digest = |text: &str| text.parse::<Digest>().map_err(|error| broken(error.to_string()));
        let (chained, of_body) = (digest(&entry.digest)?, digest(&entry.body_digest)?);
        let body = entry.body.as_ref().map(|body| body.get().as_bytes());
        if body.is_none() {
            self.hidden += 1;
        }
        match &mut self.verifier {
            Some(verifier) => verifier
                .take(entry.seq, &chained, &of_body, body)
                .map_err(|error| Broken { line: self.lines, why: error.to_string() })?,
            None => {
                if body.is_some_and(|body| Digest::of(body) != of_body) {
                    return Err(broken(crate::ledger::chain::Broken::Body { seq: entry.seq }.to_string()));
                }
                self.verifier = Some(Verifier::after(entry.seq, chained));
            }
        }
        self.from.get_or_insert(entry.seq);
        if let Some(why) = self.pass() {
            return Err(Broken { line: self.lines, why });
        }
        Ok(())
    }

    /// Holds the place reached against the positions that must be on the way.
    fn pass(&mut self) -> Option<String> {
        let verifier = self.verifier.as_ref()?;
        let here = Position::new(verifier.seq(), &verifier.digest());
        for (position, passed) in &mut self.through {
            if position.seq == here.seq {
                if position.tag != here.tag {
                    return Some(format!("the chain is at {here} where it must pass through {position}"));
                }
                *passed = true;
            }
        }
        None
    }

    /// The last entry; `None` before the first, when the beginning is not known either.
    pub(super) fn position(&self) -> Option<Position> {
        self.verifier.as_ref().map(|verifier| Position::new(verifier.seq(), &verifier.digest()))
    }

    pub(super) fn seq(&self) -> u64 {
        self.verifier.as_ref().map_or(0, Verifier::seq)
    }

    pub(super) fn digest(&self) -> Option<Digest> {
        self.verifier.as_ref().map(Verifier::digest)
    }

    /// What was verified, at the end of all lines.
    ///
    /// # Errors
    /// When the chain ended before it came to a position that it must pass through, or began behind it.
    pub(super) fn finish(&self) -> Result<Verified, Broken> {
        let missed = self.through.iter().find(|(_, passed)| !passed);
        if let Some((position, _)) = missed {
            let why = match self.position() {
                Some(end) => format!("the chain does not pass through {position}: it ends at {end}"),
                None => format!("there is no entry, so nothing passes through {position}"),
            };
            return Err(Broken { line: self.lines, why });
        }
        Ok(Verified {
            entries: self.lines,
            from: self.from,
            position: self.position(),
            without_body: self.hidden,
            through: self.through.iter().map(|(position, _)| position.to_string()).collect(),
        })
    }

    /// Whether the chain is where `position` says.
    pub(super) fn is_at(&self, seq: u64, tag: Tag) -> bool {
        self.position().is_some_and(|here| (here.seq, here.tag) == (seq, tag))
    }
}

/// What was verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Verified {
    pub(crate) entries: u64,
    /// The sequence number of the first entry.
    pub(super) from: Option<u64>,
    pub(crate) position: Option<Position>,
    /// Entries whose body is not shown: their body digests are taken as they are.
    pub(super) without_body: u64,
    pub(super) through: Vec<String>,
}

impl Verified {
    pub(super) fn sentence(&self, ledger_id: Option<&str>) -> String {
        let entries = words::count(self.entries, "entry", "entries");
        let of = ledger_id.map(|id| format!(" of ledger {id}")).unwrap_or_default();
        let end = self.position.map(|end| format!(", up to position {end}")).unwrap_or_default();
        format!("verified: {entries}{of}{end}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::chain::{link, origin};

    const ID: &str = "5f1b6f0e-8a0c-4a0a-9d5c-0e1f2a3b4c5d";

    fn lines(count: u64) -> Vec<String> {
        let mut before = origin(ID);
        let mut lines = Vec::new();
        for seq in 1..=count {
            let body = format!(r#"{{"seq":{seq}}}"#);
            let body_digest = Digest::of(body.as_bytes());
            before = link(&before, &body_digest);
            lines.push(format!(
                r#"{{"seq":{seq},"digest":"{before}","body_digest":"{body_digest}","body":{body}}}"#
            ));
        }
        lines
    }

    fn taken(lines: &[String], id: Option<&str>, through: &[Position]) -> Result<Verified, Broken> {
        let mut chain = Chain::new(id, through);
        for line in lines {
            chain.line(line.as_bytes())?;
        }
        chain.finish()
    }

    #[test]
    fn a_chain_verifies_from_its_ledger_or_from_its_first_line() {
        let all = lines(4);
        let whole = taken(&all, Some(ID), &[]).unwrap();
        assert_eq!((whole.entries, whole.from), (4, Some(1)));
        let part = taken(&all[2..], None, &[]).unwrap();
        assert_eq!((part.entries, part.from, part.position), (2, Some(3), whole.position));
        assert!(whole.sentence(Some(ID)).starts_with("verified: 4 entries of ledger 5f1b6f0e"));
        assert_eq!(taken(&all[2..], Some(ID), &[]).unwrap_err().line, 1, "it does not begin there");
        assert_eq!(taken(&all, Some("another"), &[]).unwrap_err().line, 1);
        assert_eq!(taken(&[], Some(ID), &[]).unwrap().position.map(|end| end.seq), Some(0));
    }

    #[test]
    fn every_change_is_found_at_its_line() {
        let all = lines(4);
        let broken = |change: fn(&mut Vec<String>)| {
            let mut lines = all.clone();
            change(&mut lines);
            (taken(&lines, Some(ID), &[]).unwrap_err().line, taken(&lines, None, &[]).unwrap_err().line)
        };
        assert_eq!(broken(|lines| lines[2] = lines[2].replace(r#"{"seq":3}"#, r#"{"seq":5}"#)), (3, 3));
        assert_eq!(broken(|lines| drop(lines.remove(1))), (2, 2));
        assert_eq!(broken(|lines| lines.swap(1, 2)), (2, 2));
        assert_eq!(broken(|lines| lines[3] = "{}".to_owned()), (4, 4));
        assert_eq!(broken(|lines| lines[1] = lines[1].replace(r#""digest":""#, r#""digest":"0"#)), (2, 2));
    }

    #[test]
    fn a_position_that_was_kept_must_be_on_the_way() {
        let all = lines(4);
        let second = taken(&all[..2], Some(ID), &[]).unwrap().position.unwrap();
        assert!(taken(&all, Some(ID), &[second]).is_ok());
        assert!(taken(&all, None, &[second]).is_ok());
        let foreign = Position { tag: Tag(second.tag.0 ^ 1), ..second };
        assert_eq!(taken(&all, Some(ID), &[foreign]).unwrap_err().line, 2);
        let beyond = Position { seq: 9, ..second };
        assert!(taken(&all, Some(ID), &[beyond]).unwrap_err().why.contains("does not pass through"));
        assert!(taken(&all[2..], None, &[second]).is_err(), "it begins behind it");
    }
}
