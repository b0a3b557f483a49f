//! Entity tags: `If-None-Match` is what a caller holds, `If-Match` what a writer expects.
//!
//! The tag of a card is its raw digest, `"sha256:<hex>"`; strong on the card itself, weak on the envelope,
//! which tells more than the card. Reads compare weakly, writes strongly (RFC 9110, 13.1).

use http::HeaderMap;
use http::header::{HeaderName, IF_MATCH, IF_NONE_MATCH};

use super::query::shown;
use crate::registry::Refusal;
use crate::terms::{Digest, Reason};

/// What the caller of a read holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Known {
    /// `*`: whatever is current.
    Anything,
    /// Empty: nothing.
    Digests(Vec<Digest>),
}

impl Known {
    /// From `known` in the query, which beats `If-None-Match`.
    ///
    /// # Errors
    /// `invalid_argument` when either is malformed.
    pub(super) fn of(known: Option<&str>, headers: &HeaderMap) -> Result<Self, Refusal> {
        if headers.contains_key(IF_MATCH) {
            return Err(Refusal::invalid(
                "If-Match is for writes; a read names the card it wants with `pin`",
            ));
        }
        let held = match tags(headers, &IF_NONE_MATCH)? {
            None => Self::Digests(Vec::new()),
            Some(Tags::Any) => Self::Anything,
            // A tag that this registry cannot have given is held of something else.
            Some(Tags::Listed(tags)) => {
                Self::Digests(tags.iter().filter_map(|tag| digest(&tag.opaque)).collect())
            }
        };
        match known {
            None => Ok(held),
            Some(text) if text.len() <= 71 => text
                .parse()
                .map(|digest| Self::Digests(vec![digest]))
                .map_err(|error| Refusal::invalid(format!("known: {error}"))),
            Some(text) => {
                let detail = format!("known: `{}` is not a SHA-256 digest", shown(text));
                Err(Refusal::invalid(detail))
            }
        }
    }

    pub(super) fn holds(&self, digest: &Digest) -> bool {
        match self {
            Self::Anything => true,
            Self::Digests(held) => held.contains(digest),
        }
    }

    pub(super) fn digests(&self) -> Vec<Digest> {
        match self {
            Self::Anything => Vec::new(),
            Self::Digests(held) => held.clone(),
        }
    }
}

/// What a writer expects by its headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expected {
    Nothing,
    Absent,
    Digest(Digest),
}

impl Expected {
    /// `may_create`: whether `If-None-Match: *` makes sense for the write.
    ///
    /// # Errors
    /// `invalid_argument`; `revision_conflict` for a weak tag, which matches nothing strongly.
    pub(super) fn of(headers: &HeaderMap, may_create: bool) -> Result<Self, Refusal> {
        let absent = match tags(headers, &IF_NONE_MATCH)? {
            None => false,
            Some(Tags::Any) if may_create => true,
            Some(_) if may_create => {
                return Err(Refusal::invalid("If-None-Match: only `*` is allowed on a register"));
            }
            Some(_) => return Err(Refusal::invalid("If-None-Match is for reads and registers")),
        };
        let tags = match tags(headers, &IF_MATCH)? {
            None => return Ok(if absent { Self::Absent } else { Self::Nothing }),
            Some(_) if absent => {
                return Err(Refusal::invalid("If-Match and If-None-Match contradict each other"));
            }
            Some(Tags::Any) => {
                return Err(Refusal::invalid(
                    "If-Match: `*` is not allowed; name the digest that is expected",
                ));
            }
            Some(Tags::Listed(tags)) => tags,
        };
        let [tag] = tags.as_slice() else {
            return Err(Refusal::invalid("If-Match: exactly one entity tag is allowed"));
        };
        if tag.weak {
            let shown = shown_tag(&tag.opaque);
            let detail = format!(
                "If-Match compares strongly, and W/\"{shown}\" is weak; the strong tag is \"{shown}\""
            );
            return Err(Refusal::new(Reason::RevisionConflict, detail));
        }
        digest(&tag.opaque).map(Self::Digest).ok_or_else(|| {
            let detail = format!(
                "If-Match: \"{}\" is not the tag of a card, which is \"sha256:<64 hex digits>\"",
                shown_tag(&tag.opaque)
            );
            Refusal::invalid(detail)
        })
    }
}

/// The entity tags of one header.
#[derive(Debug, PartialEq, Eq)]
enum Tags {
    Any,
    Listed(Vec<Tag>),
}

#[derive(Debug, PartialEq, Eq)]
struct Tag {
    weak: bool,
    opaque: String,
}

fn digest(opaque: &str) -> Option<Digest> {
    opaque.strip_prefix("sha256:")?.parse().ok().filter(|_| opaque.len() == 71)
}

fn shown_tag(opaque: &str) -> String {
    opaque.chars().take(80).collect::<String>().escape_debug().to_string()
}

/// Reads `*`, or a list of entity tags; several lines of a header are one list.
fn tags(headers: &HeaderMap, name: &HeaderName) -> Result<Option<Tags>, Refusal> {
    let malformed = |why: &str| {
        let label = if name == IF_MATCH { "If-Match" } else { "If-None-Match" };
        Refusal::invalid(format!("{label}: {why}; `*`, or tags such as \"sha256:…\" are allowed"))
    };
    let mut listed = Vec::new();
    let (mut given, mut any) = (false, false);
    for value in headers.get_all(name) {
        given = true;
        let text = value.to_str().map_err(|_| malformed("only visible ASCII is allowed"))?;
        if text.trim() == "*" {
            any = true;
            continue;
        }
        let mut rest = text;
        loop {
            rest = rest.trim_start_matches([' ', '\t', ',']);
            if rest.is_empty() {
                break;
            }
            let (weak, quoted) = match rest.strip_prefix("W/") {
                Some(quoted) => (true, quoted),
                None => (false, rest),
            };
            let tag = quoted.strip_prefix('"').and_then(|tag| tag.split_once('"'));
            let (opaque, after) = tag.ok_or_else(|| malformed("an entity tag stands in quotes"))?;
            listed.push(Tag { weak, opaque: opaque.to_owned() });
            rest = after.trim_start_matches([' ', '\t']);
            if !rest.is_empty() && !rest.starts_with(',') {
                return Err(malformed("entity tags are separated by commas"));
            }
        }
    }
    match (given, any, listed.is_empty()) {
        (false, ..) => Ok(None),
        (true, true, true) => Ok(Some(Tags::Any)),
        (true, false, false) => Ok(Some(Tags::Listed(listed))),
        (true, true, false) => Err(malformed("`*` stands alone")),
        (true, false, true) => Err(malformed("it is empty")),
    }
}
