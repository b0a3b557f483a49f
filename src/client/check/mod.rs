//! Judges what an agent answered against the card that was negotiated with. Pure: no IO, no clock.
//!
//! An agent whose card moved under a caller seldom says so. It fails the task with a text, answers an error that a
//! card in force would have prevented, or completes with something of another type. This module knows those signs,
//! in every A2A generation (`response` reads them); the [guard](super::guard) acts on what is found.
//!
//! Invariant: an answer is never called good because nothing could be read of it. What cannot be verified is drift,
//! unless the caller asked for leniency. The table that every client of cardfence is held to lies in
//! `clients/cases`.

mod response;
#[cfg(test)]
mod tests;

use std::fmt;

use serde_json::Value;

use self::response::{Part, PartKind, Reading};
use crate::card::{Card, Generation, modes};

pub use self::response::{Kind, RemoteError};

/// What counts when something cannot be verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Strictness {
    /// It is drift; and bare text does not pass for `text/markdown`.
    #[default]
    Strict,
    /// It passes; and bare text passes for any type of text.
    Lenient,
}

/// What an answer shows about the negotiated card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// The card no longer holds.
    Stale(Evidence),
    /// A part is outside the skill's effective output modes.
    Drift(Drift),
    /// Nothing that A2A defines. Lenient checking lets it pass.
    Unreadable,
    /// Nothing against the card. It may still be a failure of the agent's own.
    Checked(Checked),
}

/// An answer that shows nothing against the card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    pub kind: Kind,
    /// The task's state in the words of A2A v0.3, such as `input-required`; `None` where the answer has none.
    pub state: Option<String>,
    /// The agent's own error, where it answered one.
    pub error: Option<RemoteError>,
}

/// Why a card counts as stale.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Evidence {
    /// The task failed or was rejected, and its message says why.
    State { state: String, pattern: &'static str },
    /// An error that a card in force would have prevented, by A2A's name for it.
    Error { name: String },
    /// Another error, whose text says it.
    ErrorText { pattern: &'static str },
    /// The interface is not what the card says: the HTTP status.
    Http { status: u16 },
    /// The negotiated card itself does not have the skill.
    SkillNotInCard,
}

impl Evidence {
    /// One word for it: `state`, `error`, `error_text`, `http` or `skill_not_in_card`.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::State { .. } => "state",
            Self::Error { .. } => "error",
            Self::ErrorText { .. } => "error_text",
            Self::Http { .. } => "http",
            Self::SkillNotInCard => "skill_not_in_card",
        }
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::State { state, pattern } => write!(f, "the task is {state} and says `{pattern}`"),
            Self::Error { name } => write!(f, "the agent answered {}", name.escape_debug()),
            Self::ErrorText { pattern } => write!(f, "the agent answered an error that says `{pattern}`"),
            Self::Http { status } => write!(f, "the agent's interface answered {status}"),
            Self::SkillNotInCard => f.write_str("the negotiated card does not have the skill"),
        }
    }
}

/// A part that the negotiated skill does not give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drift {
    /// A JSON Pointer into the answer.
    pub pointer: String,
    /// The part's type: a media type, or its kind.
    pub found: String,
    /// False when it could not be told whether the modes allow it.
    pub verified: bool,
    /// The skill's effective output modes.
    pub allowed: Vec<String>,
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = if self.verified { "is none of" } else { "cannot be verified against" };
        let allowed =
            if self.allowed.is_empty() { "no output modes".to_owned() } else { self.allowed.join(", ") };
        write!(f, "{}: `{}` {why} {allowed}", self.pointer, self.found.escape_debug())
    }
}

/// Looked for in texts whose words [`words`] has separated, as they stand.
const PATTERNS: [&str; 12] = [
    "unknown skill",
    "unsupported skill",
    "no such skill",
    "skill not found",
    "skill not supported",
    "unsupported mode",
    "unsupported input mode",
    "unsupported output mode",
    "mode not supported",
    "unknown capability",
    "unsupported capability",
    "capability not supported",
];

/// Bytes of one text that are searched.
const TEXT_MAX: usize = 64 * 1024;

/// What `body` shows about `card`, of which `skill` was negotiated. `http_status` is that of the answer where there
/// is one; `Value::Null` stands for an answer without a JSON body.
///
/// ```
/// use cardfence::card::{Card, Limits};
/// use cardfence::client::check::{Evidence, Finding, Strictness, judge};
/// use serde_json::json;
///
/// let card = br#"{"name":"A","url":"https://a.example.com","version":"1","defaultOutputModes":["text/markdown"],
///     "skills":[{"id":"summarize-v2","name":"S"}]}"#;
/// let card = Card::check(card.as_slice().into(), &Limits::default()).expect("a card");
/// let answer = json!({"id": "t1", "status": {
///     "state": "failed",
///     "message": {"role": "agent", "parts": [{"type": "text", "text": "Unknown skill"}]}
/// }});
/// let found = judge(&card, "summarize-v2", &answer, None, Strictness::Strict);
/// assert!(matches!(found, Finding::Stale(Evidence::State { .. })));
/// ```
pub fn judge(
    card: &Card,
    skill: &str,
    body: &Value,
    http_status: Option<u16>,
    strictness: Strictness,
) -> Finding {
    let is_v0_1 = card.generation() == Generation::V0_1;
    let reading = response::read(body, http_status, is_v0_1);
    let Reading { kind, state, said, parts, error } = reading;
    if kind == Kind::Other && strictness == Strictness::Strict {
        return Finding::Unreadable;
    }
    if let Some(error) = error {
        return match of_error(card, &error, http_status, is_v0_1) {
            Some(evidence) => Finding::Stale(evidence),
            None => Finding::Checked(Checked { kind, state, error: Some(error) }),
        };
    }
    if let Some(state) = state.as_deref().filter(|state| ["failed", "rejected"].contains(state))
        && let Some(pattern) = said.iter().find_map(|text| pattern(text))
    {
        return Finding::Stale(Evidence::State { state: state.to_owned(), pattern });
    }
    // What is handed on: a completed task, a chunk of an artifact, a direct answer.
    let delivers = match kind {
        Kind::ArtifactUpdate | Kind::Message => true,
        Kind::Task => state.as_deref() == Some("completed"),
        _ => false,
    };
    if delivers {
        let Some(skill) = card.normal().skill(skill) else { return Finding::Stale(Evidence::SkillNotInCard) };
        if let Some(drift) = drift(kind, &parts, &skill.effective_output, strictness) {
            return Finding::Drift(drift);
        }
    }
    Finding::Checked(Checked { kind, state, error: None })
}

fn of_error(card: &Card, error: &RemoteError, http_status: Option<u16>, is_v0_1: bool) -> Option<Evidence> {
    if let Some(name) = error.name.as_deref().filter(|name| is_evidence(card, name, is_v0_1)) {
        return Some(Evidence::Error { name: name.to_owned() });
    }
    if let Some(pattern) = error.texts.iter().find_map(|text| pattern(text)) {
        return Some(Evidence::ErrorText { pattern });
    }
    if error.name.is_some() {
        return None;
    }
    let status = error.http_status.or(http_status)?;
    let unasked = matches!(status, 401 | 403) && card.normal().security.is_empty();
    // Within a body of A2A's own, 404 may be about a task.
    let moved = matches!(status, 404 | 405 | 410) && error.code.is_none() && error.http_status == http_status;
    (unasked || moved).then_some(Evidence::Http { status })
}

/// Whether a card in force would have prevented the error.
fn is_evidence(card: &Card, name: &str, is_v0_1: bool) -> bool {
    let normal = card.normal();
    let promised = normal.capabilities;
    match name {
        "INVALID_PARAMS" | "METHOD_NOT_FOUND" | "CONTENT_TYPE_NOT_SUPPORTED" | "VERSION_NOT_SUPPORTED" => {
            true
        }
        "PUSH_NOTIFICATION_NOT_SUPPORTED" => promised.push_notifications,
        "UNSUPPORTED_OPERATION" => promised.streaming || promised.extended_card,
        "STREAMING_NOT_SUPPORTED" => is_v0_1 && promised.streaming,
        "EXTENDED_AGENT_CARD_NOT_CONFIGURED" => promised.extended_card,
        "EXTENSION_SUPPORT_REQUIRED" => !normal.extensions.iter().any(|extension| extension.required),
        _ => false,
    }
}

/// The first pattern that the text contains.
fn pattern(text: &str) -> Option<&'static str> {
    let words = words(text);
    PATTERNS.into_iter().find(|pattern| words.contains(pattern))
}

/// Lower case; capitals inside a word, and runs of space, `_` and `-`, separate words.
fn words(text: &str) -> String {
    let mut end = text.len().min(TEXT_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let mut words = String::with_capacity(end + 8);
    let mut before = ' ';
    for c in text[..end].chars() {
        let gap = c.is_ascii_whitespace() || c == '\u{b}' || c == '_' || c == '-';
        let hump = c.is_ascii_uppercase() && (before.is_ascii_lowercase() || before.is_ascii_digit());
        if (gap || hump) && !words.ends_with(' ') {
            words.push(' ');
        }
        if !gap {
            words.extend(c.to_lowercase());
        }
        before = c;
    }
    words
}

/// The first part that is outside the modes; one that is proven to be before one that cannot be told.
fn drift(kind: Kind, parts: &[Part<'_>], allowed: &[Box<str>], strictness: Strictness) -> Option<Drift> {
    let mut unverified = None;
    for part in parts {
        let is_bare_text = part.kind == PartKind::Text && part.media_type.is_none();
        // This is how an agent talks: it may ask for something instead of delivering it.
        let is_talk = kind == Kind::Message && is_bare_text;
        let lenient = strictness == Strictness::Lenient;
        let passes = passes(part, allowed);
        if is_talk
            || passes == Some(true)
            || (lenient && is_bare_text && allowed.iter().any(|mode| is_text(mode)))
        {
            continue;
        }
        let drift = Drift {
            pointer: part.pointer.clone(),
            found: part.media_type.map_or_else(|| part.kind.as_str().to_owned(), modes::normalise),
            verified: passes.is_some(),
            allowed: allowed.iter().map(|mode| mode.to_string()).collect(),
        };
        if drift.verified {
            return Some(drift);
        }
        unverified.get_or_insert(drift);
    }
    unverified.filter(|_| strictness == Strictness::Strict)
}

/// Whether the modes allow the part; `None` when that cannot be told.
fn passes(part: &Part<'_>, allowed: &[Box<str>]) -> Option<bool> {
    let allows = |found: &str| allowed.iter().any(|mode| modes::accepts(mode, found));
    if allowed.is_empty() {
        return None;
    }
    match (part.media_type, part.kind) {
        (Some(media_type), _) => Some(allows(media_type)),
        (None, PartKind::Text) => Some(allows("text") || allows("text/plain")),
        (None, PartKind::Data) => Some(allows("data") || allows("application/json")),
        // Whatever its type is, `*/*` covers it.
        (None, PartKind::File) if allowed.iter().any(|mode| mode.as_ref() == "*/*") => Some(true),
        (None, PartKind::File | PartKind::Unknown) => None,
    }
}

/// Whether a card's mode is of text: what lenient checking lets bare text pass for.
fn is_text(mode: &str) -> bool {
    mode == "text" || mode == "*/*" || mode.starts_with("text/")
}
