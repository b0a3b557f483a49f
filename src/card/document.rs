//! Bytes → a checked card, or every reason why not.
//!
//! Owns the order of the checks and what can still be said of a refused document. The bytes are sacred:
//! they are kept and never written again; all else is derived from them once, here.

use std::fmt;
use std::ops::RangeInclusive;

use bytes::Bytes;

use super::digest;
use super::finding::{Code, Findings, Violation, Warning};
use super::fingerprint;
use super::generation::{Generation, Shape};
use super::negotiation;
use super::node::{Node, Place};
use super::normal::Normal;
use super::offer::Offer;
use super::scan::{DEEPEST, scan};
use super::view::View;
use crate::terms::Digest;

/// How large a document may be. What a setting cannot change are the constants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Of the whole document.
    pub max_bytes: usize,
    /// Containers inside one another, the document itself included. At most [`Limits::DEPTHS`] in any case.
    pub max_depth: usize,
    pub max_skills: usize,
}

impl Limits {
    /// What `max_depth` may be. A v1.0 card with security has up to seven levels of its own; common JSON readers
    /// stop at 128, and answers put some of theirs around a card.
    pub const DEPTHS: RangeInclusive<usize> = 8..=DEEPEST;

    /// What `max_skills` may be.
    pub const SKILLS: RangeInclusive<usize> = 1..=100_000;

    /// For a card that was accepted once: it was within the limits of its day, and must still be readable.
    pub const KEPT: Self = Self { max_bytes: usize::MAX, max_depth: DEEPEST, max_skills: usize::MAX };

    /// Of the card's own version, which every answer repeats.
    pub const MAX_VERSION_BYTES: usize = 256;

    /// Of any other text that a fence reads: a skill's id, a mode, what names an interface, an extension or
    /// a security scheme, a scope. Answers, indexes and error messages repeat them.
    pub const MAX_TEXT_BYTES: usize = 4 * 1024;

    /// Modes in one list, of the card or of a skill.
    pub const MAX_MODES: usize = 1_000;
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_bytes: 256 * 1024, max_depth: 64, max_skills: 1_000 }
    }
}

/// A document that is a usable A2A Agent Card, and all that follows from its bytes.
pub struct Card {
    bytes: Bytes,
    raw_digest: Digest,
    content_digest: Digest,
    skill_fingerprint: Digest,
    negotiation_fingerprint: Digest,
    signatures: Option<Digest>,
    generation: Generation,
    normal: Normal,
    offer: Offer,
    warnings: Box<[Warning]>,
}

/// A document that is not a usable card: all reasons at once, and what else was odd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Never empty, in document order as far as they were found together.
    pub violations: Vec<Violation>,
    pub warnings: Vec<Warning>,
}

/// What can be said of a document, refused or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// None when it is not JSON or has no endpoint where a generation would put it.
    pub generation: Option<Generation>,
    pub spoken_versions: Vec<String>,
    pub raw_digest: Digest,
    /// None when the document means different things to different JSON readers.
    pub content_digest: Option<Digest>,
    /// None too when `skills` are such that the fingerprint is not defined.
    pub skill_fingerprint: Option<Digest>,
    /// None when there is any violation.
    pub negotiation_fingerprint: Option<Digest>,
    pub warnings: Vec<Warning>,
    pub violations: Vec<Violation>,
}

impl Card {
    /// Checks a document and derives its facts. One that is larger than `limits` is not read at all.
    ///
    /// # Errors
    /// Every violation found, each with its JSON Pointer.
    pub fn check(bytes: Bytes, limits: &Limits) -> Result<Self, Refused> {
        let mut findings = Findings::default();
        if too_large(&bytes, limits, &mut findings) {
            return Err(findings.into());
        }
        let Some(read) = Reading::of(&bytes, limits, &mut findings) else { return Err(findings.into()) };
        let Reading {
            generation,
            normal,
            signatures,
            content_digest,
            skill_fingerprint,
            negotiation_fingerprint,
        } = read;
        let facts = (generation, content_digest, skill_fingerprint, negotiation_fingerprint);
        let (Some(generation), Some(content_digest), Some(skill_fingerprint), Some(negotiation_fingerprint)) =
            facts
        else {
            return Err(findings.into());
        };
        let (_, warnings) = findings.into_parts();
        Ok(Self {
            raw_digest: Digest::of(&bytes),
            bytes,
            content_digest,
            skill_fingerprint,
            negotiation_fingerprint,
            signatures,
            generation,
            offer: Offer::of(&normal),
            normal,
            warnings: warnings.into(),
        })
    }

    /// The document exactly as it was received.
    pub const fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    pub const fn raw_digest(&self) -> Digest {
        self.raw_digest
    }

    pub const fn content_digest(&self) -> Digest {
        self.content_digest
    }

    pub const fn skill_fingerprint(&self) -> Digest {
        self.skill_fingerprint
    }

    pub const fn negotiation_fingerprint(&self) -> Digest {
        self.negotiation_fingerprint
    }

    /// The digest of its signatures, if it has any.
    pub(super) const fn signatures(&self) -> Option<Digest> {
        self.signatures
    }

    pub const fn generation(&self) -> Generation {
        self.generation
    }

    pub const fn shape(&self) -> Shape {
        self.generation.shape()
    }

    /// The card's own version, which says nothing about its content.
    pub fn version(&self) -> Option<&str> {
        self.normal.version.as_deref()
    }

    pub const fn normal(&self) -> &Normal {
        &self.normal
    }

    /// What fences ask of the normal form, where it is quicker to find.
    pub const fn offer(&self) -> &Offer {
        &self.offer
    }

    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }
}

/// Names the card by its digest: its bytes have no place in a log.
impl fmt::Debug for Card {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Card")
            .field("raw_digest", &self.raw_digest)
            .field("generation", &self.generation)
            .field("version", &self.version())
            .field("bytes", &self.bytes.len())
            .finish_non_exhaustive()
    }
}

/// All that can be said of a document, whatever its size.
pub fn inspect(bytes: &[u8], limits: &Limits) -> Inspection {
    let mut findings = Findings::default();
    too_large(bytes, limits, &mut findings);
    let reading = Reading::of(bytes, limits, &mut findings);
    let spoken = |read: &Reading| read.normal.spoken_versions().into_iter().map(Into::into).collect();
    let (violations, warnings) = findings.into_parts();
    Inspection {
        generation: reading.as_ref().and_then(|read| read.generation),
        spoken_versions: reading.as_ref().map_or_else(Vec::new, spoken),
        raw_digest: Digest::of(bytes),
        content_digest: reading.as_ref().and_then(|read| read.content_digest),
        skill_fingerprint: reading.as_ref().and_then(|read| read.skill_fingerprint),
        negotiation_fingerprint: reading.as_ref().and_then(|read| read.negotiation_fingerprint),
        warnings,
        violations,
    }
}

/// What one pass over a document yields. A fact that is not defined for it is none.
struct Reading {
    generation: Option<Generation>,
    normal: Normal,
    signatures: Option<Digest>,
    content_digest: Option<Digest>,
    skill_fingerprint: Option<Digest>,
    negotiation_fingerprint: Option<Digest>,
}

impl Reading {
    fn of(bytes: &[u8], limits: &Limits, findings: &mut Findings) -> Option<Self> {
        let root = scan(bytes, limits.max_depth, findings)?;
        let Node::Object(members) = &root else {
            findings.refuse(Code::NotAnObject, String::new, || {
                format!("the document is {}; a card is an object", root.kind())
            });
            return None;
        };
        let one_meaning = usable(findings);
        let root = View { members, at: Place::ROOT };
        let generation = Generation::of(&root);
        let normal = Normal::read(&root, generation, limits.max_skills, findings);
        let foreign = root.find("capabilities").is_some_and(|found| found.value.as_array().is_some());
        Some(Self {
            // Much of what is served in a card's place has a `url`, and a list of words as capabilities.
            generation: generation.filter(|generation| !foreign || generation.shape() != Shape::V0),
            signatures: digest::signatures(&root),
            content_digest: one_meaning.then(|| digest::content(&root)).flatten(),
            skill_fingerprint: one_meaning.then(|| fingerprint::skill(&root)).flatten(),
            negotiation_fingerprint: usable(findings).then(|| negotiation::fingerprint(&normal)),
            normal,
        })
    }
}

/// Whether nothing but its size speaks against a document.
fn usable(findings: &Findings) -> bool {
    findings.violations().iter().all(|found| found.code == Code::TooLarge)
}

fn too_large(bytes: &[u8], limits: &Limits, findings: &mut Findings) -> bool {
    let (size, most) = (bytes.len(), limits.max_bytes);
    if size > most {
        findings.refuse(Code::TooLarge, String::new, || format!("{size} bytes; at most {most} are allowed"));
    }
    size > most
}

impl Refused {
    /// Whether it was refused for its size alone, unread.
    pub fn is_too_large(&self) -> bool {
        self.violations.iter().any(|violation| violation.code == Code::TooLarge)
    }
}

impl From<Findings> for Refused {
    fn from(findings: Findings) -> Self {
        let (violations, warnings) = findings.into_parts();
        Self { violations, warnings }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a usable agent card")?;
        for (n, Violation { code, pointer, message }) in self.violations.iter().enumerate() {
            write!(f, "{} {code} at `{pointer}`: {message}", if n == 0 { ":" } else { ";" })?;
        }
        Ok(())
    }
}

impl std::error::Error for Refused {}
