//! The query of a request, read by rules of our own.
//!
//! Pieces are split on `&`, and the modes of a skill on `;`, while the text is still encoded; only then is
//! each part percent-decoded, as UTF-8. (axum's `Query` decodes first, so an encoded `;` in a skill's id
//! would split it, and it takes `+` for a space and keeps the last of two values.) `+` is a plus. Nothing is
//! guessed: an unknown parameter, a second value, an empty one and a bad escape are refused, because a
//! misspelt fence must not pass.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use super::parameter::{Kind, Parameter};
use crate::registry::Refusal;
use crate::wire::Skill;

/// Bytes of a query. A note of 4,096 bytes fits, encoded.
const QUERY_MAX: usize = 16 * 1024;
/// Parameters of a query.
const PARAMETERS_MAX: usize = 128;
/// Characters of a caller's text that a refusal shows.
const SHOWN_MAX: usize = 60;

/// The parameters of one request: only names that its route takes, single ones once.
#[derive(Debug, Default)]
pub(super) struct Params(Vec<(&'static Parameter, Value)>);

#[derive(Debug)]
enum Value {
    Text(String),
    Skill(Skill),
}

impl Params {
    /// Reads `query` by what the route allows.
    ///
    /// # Errors
    /// `invalid_argument`, which names the parameter and what is allowed.
    pub(super) fn parse(query: &str, allowed: &[&'static [Parameter]]) -> Result<Self, Refusal> {
        if query.len() > QUERY_MAX {
            let detail = format!("a query of {} bytes is too long: at most {QUERY_MAX}", query.len());
            return Err(Refusal::invalid(detail));
        }
        let mut all: Vec<(&'static Parameter, Value)> = Vec::new();
        for piece in query.split('&').filter(|piece| !piece.is_empty()) {
            if all.len() == PARAMETERS_MAX {
                return Err(Refusal::invalid(format!("too many parameters: at most {PARAMETERS_MAX}")));
            }
            let (name, raw) = piece.split_once('=').unwrap_or((piece, ""));
            let name = decode("the name of a parameter", name)?;
            let mut known = allowed.iter().copied().flatten();
            let parameter =
                known.find(|parameter| parameter.name == name).ok_or_else(|| unknown(&name, allowed))?;
            if !parameter.kind.repeats() && all.iter().any(|(given, _)| given.name == parameter.name) {
                return Err(Refusal::invalid(format!("{name} is given more than once")));
            }
            let value = match parameter.kind {
                Kind::Skill => Value::Skill(skill(parameter.name, raw)?),
                _ => Value::Text(plain(parameter.name, raw)?),
            };
            all.push((parameter, value));
        }
        Ok(Self(all))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first parameter given that is in none of `these`.
    pub(super) fn other_than(&self, these: &[&[Parameter]]) -> Option<&'static str> {
        let names = self.0.iter().map(|(parameter, _)| parameter.name);
        names.into_iter().find(|name| !these.iter().copied().flatten().any(|p| p.name == *name))
    }

    /// The text of a parameter that is given at most once.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.texts(name).next()
    }

    /// The texts of a parameter, in the order given.
    pub(super) fn texts(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(parameter, _)| parameter.name == name).filter_map(
            |(_, value)| match value {
                Value::Text(text) => Some(text.as_str()),
                Value::Skill(_) => None,
            },
        )
    }

    /// The skills that a fence names.
    pub(super) fn skills(&self) -> impl Iterator<Item = &Skill> {
        self.0.iter().filter_map(|(_, value)| match value {
            Value::Skill(skill) => Some(skill),
            Value::Text(_) => None,
        })
    }

    pub(super) fn owned(&self, name: &str) -> Option<String> {
        self.text(name).map(str::to_owned)
    }

    /// # Errors
    /// `invalid_argument` unless it is `true` or `false`.
    pub(super) fn flag(&self, name: &str) -> Result<bool, Refusal> {
        match self.text(name) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(other) => {
                Err(Refusal::invalid(format!("{name}: `{}` is neither `true` nor `false`", shown(other))))
            }
        }
    }

    /// # Errors
    /// `invalid_argument` unless it is a whole number.
    pub(super) fn count(&self, name: &str) -> Result<Option<u64>, Refusal> {
        self.text(name).map(|text| whole_number(name, text)).transpose()
    }

    /// As [`Self::count`], for what is cut anyway when it is large.
    ///
    /// # Errors
    /// `invalid_argument` unless it is a whole number.
    pub(super) fn size(&self, name: &str) -> Result<Option<u32>, Refusal> {
        Ok(self.count(name)?.map(|count| u32::try_from(count).unwrap_or(u32::MAX)))
    }
}

/// Reads a whole number: digits, without sign or leading zeros.
///
/// # Errors
/// `invalid_argument`, which names `what`.
pub(super) fn whole_number(what: &str, text: &str) -> Result<u64, Refusal> {
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    let number = if plain { text.parse().ok() } else { None };
    number.ok_or_else(|| Refusal::invalid(format!("{what}: `{}` is not a whole number", shown(text))))
}

/// The beginning of a caller's text, safe to show.
pub(super) fn shown(text: &str) -> String {
    text.chars().take(SHOWN_MAX).collect::<String>().escape_debug().to_string()
}

fn unknown(name: &str, allowed: &[&'static [Parameter]]) -> Refusal {
    let names: Vec<&str> = allowed.iter().copied().flatten().map(|parameter| parameter.name).collect();
    let taken = if names.is_empty() {
        "this route takes no parameters".to_owned()
    } else {
        format!("allowed are {}", names.join(", "))
    };
    Refusal::invalid(format!("`{}` is not a parameter here: {taken}", shown(name)))
}

/// A value without structure. A raw `;` may be meant as a separator or as text, so it is neither.
fn plain(name: &str, raw: &str) -> Result<String, Refusal> {
    if raw.contains(';') {
        return Err(Refusal::invalid(format!("{name}: a `;` in the value must be written as %3B")));
    }
    filled(name, raw)
}

fn skill(name: &str, raw: &str) -> Result<Skill, Refusal> {
    let mut parts = raw.split(';');
    let id = filled(name, parts.next().unwrap_or(""))?;
    let mut skill = Skill { id, ..Skill::default() };
    for part in parts {
        let (side, mode) = part.split_once('=').unwrap_or((part, ""));
        let modes = match side {
            "in" => &mut skill.input_modes,
            "out" => &mut skill.output_modes,
            _ => {
                let detail = format!(
                    "{name}: `;{}` is not known: `;in=<mode>` and `;out=<mode>` are, and a `;` in an id is written as %3B",
                    shown(side)
                );
                return Err(Refusal::invalid(detail));
            }
        };
        modes.push(filled(&format!("{name};{side}"), mode)?);
    }
    Ok(skill)
}

fn filled(name: &str, raw: &str) -> Result<String, Refusal> {
    let text = decode(name, raw)?;
    if text.is_empty() {
        return Err(Refusal::invalid(format!("{name} must not be empty")));
    }
    Ok(text.into_owned())
}

/// Percent-decodes `raw` as UTF-8. The decoder alone would let a bad escape through as it stands.
fn decode<'r>(what: &str, raw: &'r str) -> Result<Cow<'r, str>, Refusal> {
    let bytes = raw.as_bytes();
    for (at, _) in bytes.iter().enumerate().filter(|(_, b)| **b == b'%') {
        let is_hex = |offset: usize| bytes.get(at + offset).is_some_and(u8::is_ascii_hexdigit);
        if !is_hex(1) || !is_hex(2) {
            let detail = format!("{what}: `{}` has a `%` without two hex digits after it", shown(raw));
            return Err(Refusal::invalid(detail));
        }
    }
    percent_decode_str(raw)
        .decode_utf8()
        .map_err(|_| Refusal::invalid(format!("{what}: `{}` is not UTF-8 once decoded", shown(raw))))
}
