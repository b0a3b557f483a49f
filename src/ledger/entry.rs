//! Entries and their bodies: what one accepted change looks like in the ledger.
//!
//! A body is written once, as canonical JSON (RFC 8785), and that text is what is hashed, stored and shown.
//! Absent members are left out. The salt keeps a body's digest from being guessed from what it says.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::card::{Card, Class, Generation};
use crate::terms::{AgentName, Digest, Position, Principal, RequestId, Timestamp};

/// One entry of the ledger.
#[derive(Debug, Clone)]
pub struct Entry {
    pub seq: u64,
    /// The chain digest at `seq`.
    pub digest: Digest,
    pub body_digest: Digest,
    /// Canonical JSON.
    pub body: Arc<str>,
    /// The card that a `card.registered` brought, where it was asked for and still exists.
    pub card: Option<CardKept>,
}

/// A card as an entry carries it: read from a store, or checked already by the node that wrote it.
#[derive(Debug, Clone)]
pub enum CardKept {
    Bytes(Bytes),
    Checked(Arc<Card>),
}

impl Entry {
    pub fn position(&self) -> Position {
        Position::new(self.seq, &self.digest)
    }
}

/// What kind of change an entry is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    CardRegistered(Registered),
    /// The agent was retired; a tombstone with this revision number was made.
    CardRetired {
        revision: u64,
    },
    /// A kind that this version does not know. It stops a view unless the entry says `ignorable`.
    Unknown {
        name: String,
        ignorable: bool,
    },
}

/// What a `card.registered` says of the card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registered {
    pub revision: u64,
    pub raw_digest: Digest,
    pub content_digest: Digest,
    pub skill_fingerprint: Digest,
    pub negotiation_fingerprint: Digest,
    pub generation: Generation,
    /// The card's own `version`, where it has one.
    pub card_version: Option<String>,
    pub release: Option<String>,
    /// Against the card before; absent on the first.
    pub class: Option<Class>,
    pub silent: Option<bool>,
    /// Where the bytes came from when not from the caller, such as `rollback:3`.
    pub source: Option<String>,
}

/// The body of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Body {
    pub seq: u64,
    pub kind: Kind,
    /// What it is about: an agent's name, for the kinds known here.
    pub subject: String,
    pub principal: Principal,
    pub at: Timestamp,
    pub request_id: RequestId,
    pub note: Option<String>,
    /// 32 random hex digits.
    pub salt: String,
}

/// A body that this version cannot read.
#[derive(Debug, thiserror::Error)]
#[error("the body of an entry cannot be read: {0}")]
pub struct InvalidBody(String);

const REGISTERED: &str = "card.registered";
const RETIRED: &str = "card.retired";

/// A body as JSON has it. Member names are API: they are hashed.
#[derive(Serialize, Deserialize)]
struct Json {
    v: u32,
    seq: u64,
    kind: String,
    subject: String,
    principal: String,
    at: String,
    request_id: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    note: Option<String>,
    salt: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    revision: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    raw_digest: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    content_digest: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    skill_fingerprint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    negotiation_fingerprint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    generation: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    card_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    release: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    class: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    silent: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    source: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    ignorable: Option<bool>,
}

impl Body {
    /// The agent that the body is about.
    ///
    /// # Errors
    /// [`InvalidBody`] when the subject is no agent's name.
    pub fn agent(&self) -> Result<AgentName, InvalidBody> {
        self.subject.parse().map_err(|_| InvalidBody(format!("subject `{}` names no agent", self.subject)))
    }

    /// The body as canonical JSON.
    ///
    /// # Errors
    /// [`InvalidBody`] when it cannot be written, which no body made of these types can bring about.
    pub fn to_canonical(&self) -> Result<String, InvalidBody> {
        let mut json = Json {
            v: 1,
            seq: self.seq,
            kind: String::new(),
            subject: self.subject.clone(),
            principal: self.principal.as_str().to_owned(),
            at: self.at.to_string(),
            request_id: self.request_id.as_str().to_owned(),
            note: self.note.clone(),
            salt: self.salt.clone(),
            revision: None,
            raw_digest: None,
            content_digest: None,
            skill_fingerprint: None,
            negotiation_fingerprint: None,
            generation: None,
            card_version: None,
            release: None,
            class: None,
            silent: None,
            source: None,
            ignorable: None,
        };
        match &self.kind {
            Kind::CardRegistered(card) => {
                json.kind = REGISTERED.to_owned();
                json.revision = Some(card.revision);
                json.raw_digest = Some(card.raw_digest.tagged());
                json.content_digest = Some(card.content_digest.tagged());
                json.skill_fingerprint = Some(card.skill_fingerprint.hex());
                json.negotiation_fingerprint = Some(card.negotiation_fingerprint.hex());
                json.generation = Some(card.generation.as_str().to_owned());
                json.card_version.clone_from(&card.card_version);
                json.release.clone_from(&card.release);
                json.class = card.class.map(|class| class.as_str().to_owned());
                json.silent = card.silent;
                json.source.clone_from(&card.source);
            }
            Kind::CardRetired { revision } => {
                json.kind = RETIRED.to_owned();
                json.revision = Some(*revision);
            }
            Kind::Unknown { name, ignorable } => {
                json.kind.clone_from(name);
                json.ignorable = ignorable.then_some(true);
            }
        }
        serde_json_canonicalizer::to_string(&json).map_err(|error| InvalidBody(error.to_string()))
    }

    /// Reads a body.
    ///
    /// # Errors
    /// [`InvalidBody`] when a member that its kind needs is missing or of another type.
    pub fn parse(text: &str) -> Result<Self, InvalidBody> {
        let json: Json = serde_json::from_str(text).map_err(|error| InvalidBody(error.to_string()))?;
        let missing =
            |member: &str| InvalidBody(format!("entry {}: `{member}` is missing or malformed", json.seq));
        let digest = |text: &Option<String>, member: &str| {
            text.as_deref().and_then(|text| text.parse::<Digest>().ok()).ok_or_else(|| missing(member))
        };
        let kind = match json.kind.as_str() {
            REGISTERED => Kind::CardRegistered(Registered {
                revision: json.revision.ok_or_else(|| missing("revision"))?,
                raw_digest: digest(&json.raw_digest, "raw_digest")?,
                content_digest: digest(&json.content_digest, "content_digest")?,
                skill_fingerprint: digest(&json.skill_fingerprint, "skill_fingerprint")?,
                negotiation_fingerprint: digest(&json.negotiation_fingerprint, "negotiation_fingerprint")?,
                generation: json
                    .generation
                    .as_deref()
                    .and_then(|text| text.parse().ok())
                    .ok_or_else(|| missing("generation"))?,
                card_version: json.card_version.clone(),
                release: json.release.clone(),
                class: match json.class.as_deref() {
                    Some(text) => Some(text.parse().map_err(|_| missing("class"))?),
                    None => None,
                },
                silent: json.silent,
                source: json.source.clone(),
            }),
            RETIRED => Kind::CardRetired { revision: json.revision.ok_or_else(|| missing("revision"))? },
            other => Kind::Unknown { name: other.to_owned(), ignorable: json.ignorable == Some(true) },
        };
        Ok(Self {
            seq: json.seq,
            kind,
            principal: Principal::from(json.principal.as_str()),
            at: json.at.parse().map_err(|_| missing("at"))?,
            request_id: json.request_id.parse().map_err(|_| missing("request_id"))?,
            subject: json.subject,
            note: json.note,
            salt: json.salt,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(kind: Kind) -> Body {
        Body {
            seq: 7,
            kind,
            subject: "acme/worker".to_owned(),
            principal: Principal::anonymous(),
            at: Timestamp::from_micros(1_764_500_000_000_001),
            request_id: "r-1".parse().unwrap(),
            note: None,
            salt: "00112233445566778899aabbccddeeff".to_owned(),
        }
    }

    #[test]
    fn absent_members_are_left_out_and_the_text_is_canonical() {
        assert_eq!(
            body(Kind::CardRetired { revision: 3 }).to_canonical().unwrap(),
            r#"{"at":"2025-11-30T10:53:20.000001Z","kind":"card.retired","principal":"anonymous","request_id":"r-1","revision":3,"salt":"00112233445566778899aabbccddeeff","seq":7,"subject":"acme/worker","v":1}"#
        );
    }

    #[test]
    fn bodies_round_trip() {
        let registered = Registered {
            revision: 2,
            raw_digest: Digest::of(b"raw"),
            content_digest: Digest::of(b"content"),
            skill_fingerprint: Digest::of(b"skills"),
            negotiation_fingerprint: Digest::of(b"negotiation"),
            generation: Generation::V1_0,
            card_version: Some("1.0".to_owned()),
            release: Some("41".to_owned()),
            class: Some(Class::Breaking),
            silent: Some(true),
            source: None,
        };
        let kinds = [
            Kind::CardRegistered(registered),
            Kind::CardRetired { revision: 3 },
            Kind::Unknown { name: "moon.phase".to_owned(), ignorable: true },
            Kind::Unknown { name: "moon.phase".to_owned(), ignorable: false },
        ];
        for kind in kinds {
            let body = Body { note: Some("héllo \u{1}".to_owned()), ..body(kind) };
            let text = body.to_canonical().unwrap();
            assert_eq!(Body::parse(&text).unwrap(), body);
        }
    }

    #[test]
    fn a_body_without_what_its_kind_needs_is_refused() {
        for text in [
            "{}",
            r#"{"v":1}"#,
            "[]",
            r#"{"v":1,"seq":1,"kind":"card.retired","subject":"a/b","principal":"p","at":"2025-11-30T10:53:20Z","request_id":"r","salt":""}"#,
        ] {
            assert!(Body::parse(text).is_err(), "{text}");
        }
    }
}
