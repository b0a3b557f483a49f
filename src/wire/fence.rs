//! A fence as text, and how it is read.
//!
//! Both ways in, the query of a resolve and the body of a batch, become this shape first, so a value is read
//! by one rule wherever it stands. Members are named like the query's parameters.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::object::{Shape, given, many};
use crate::fence;
use crate::terms::{MaxStaleness, Position, parse_duration};

/// The conditions of a resolve. Unknown members are refused.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Fence {
    /// A duration (`0`, or a whole number and `ms`, `s`, `m`, `h` or `d`), or `any`.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub max_staleness: Option<String>,
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub at_least: Option<String>,
    /// A number, or `<number>@<position>`.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub min_revision: Option<RevisionText>,
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub min_version: Option<String>,
    #[serde(deserialize_with = "many", skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<Skill>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub streaming: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub push_notifications: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub extended_card: bool,
    /// URIs of extensions that must be there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<String>,
    /// Content digest.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub pin: Option<String>,
    /// Skill fingerprint.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub pin_skills: Option<String>,
    /// Negotiation fingerprint.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub pin_negotiation: Option<String>,
    /// A duration.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub max_origin_age: Option<String>,
}

/// A skill that must be there, with these effective modes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Skill {
    pub id: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub input_modes: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub output_modes: Vec<String>,
}

impl Shape for Fence {
    const EXPECTED: &'static str = "an object of conditions";
}

impl Shape for Skill {
    const EXPECTED: &'static str = "an object with the id of a skill";
}

/// A reference to a revision: `7`, `"7"` or `"7@<position>"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected a number from 1, or `<number>@<position>`")]
pub enum RevisionText {
    Number(u64),
    Text(String),
}

/// A value that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{member}: {why}")]
pub struct Invalid {
    /// The member or parameter.
    pub member: &'static str,
    pub why: String,
}

/// No value of a fence that is read here is longer; a longer one is not shown to the caller again.
const TEXT_MAX: usize = 512;

fn read<T, E: fmt::Display>(
    member: &'static str,
    text: &str,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Result<T, Invalid> {
    if text.len() > TEXT_MAX {
        let why = format!("{} bytes are too long: at most {TEXT_MAX}", text.len());
        return Err(Invalid { member, why });
    }
    parse(text).map_err(|error| Invalid { member, why: error.to_string() })
}

/// Reads a duration.
///
/// # Errors
/// [`Invalid`], which names `member`.
pub fn duration(member: &'static str, text: &str) -> Result<Duration, Invalid> {
    read(member, text, parse_duration)
}

/// Reads a duration, or `any`.
///
/// # Errors
/// [`Invalid`], which names `member`.
pub fn max_staleness(member: &'static str, text: &str) -> Result<MaxStaleness, Invalid> {
    if text == "any" {
        return Ok(MaxStaleness::Any);
    }
    duration(member, text)
        .map(MaxStaleness::Within)
        .map_err(|error| Invalid { why: format!("{}; or `any`", error.why), ..error })
}

/// Reads a position.
///
/// # Errors
/// [`Invalid`], which names `member`.
pub fn position(member: &'static str, text: &str) -> Result<Position, Invalid> {
    read(member, text, str::parse)
}

fn optional<T>(
    text: Option<&String>,
    parse: impl FnOnce(&str) -> Result<T, Invalid>,
) -> Result<Option<T>, Invalid> {
    text.map(|text| parse(text)).transpose()
}

impl From<fence::Malformed> for Invalid {
    fn from(malformed: fence::Malformed) -> Self {
        Self { member: malformed.condition, why: malformed.why }
    }
}

impl TryFrom<Fence> for fence::Fence {
    type Error = Invalid;

    fn try_from(text: Fence) -> Result<Self, Invalid> {
        let min_revision = match &text.min_revision {
            None => None,
            Some(RevisionText::Number(number)) => {
                Some(read("min_revision", &number.to_string(), str::parse)?)
            }
            Some(RevisionText::Text(text)) => Some(read("min_revision", text, str::parse)?),
        };
        let digest = |member, value: &Option<String>| {
            optional(value.as_ref(), |value| read(member, value, str::parse))
        };
        let skills = text.skills.into_iter().map(|skill| fence::SkillWanted {
            id: skill.id,
            input_modes: skill.input_modes,
            output_modes: skill.output_modes,
        });
        let fence = Self {
            max_staleness: optional(text.max_staleness.as_ref(), |t| max_staleness("max_staleness", t))?,
            at_least: optional(text.at_least.as_ref(), |t| position("at_least", t))?,
            min_revision,
            min_version: text.min_version,
            skills: skills.collect(),
            capabilities: fence::Capabilities {
                streaming: text.streaming,
                push_notifications: text.push_notifications,
                extended_card: text.extended_card,
                extensions: text.extensions,
            },
            pin: digest("pin", &text.pin)?,
            pin_skills: digest("pin_skills", &text.pin_skills)?,
            pin_negotiation: digest("pin_negotiation", &text.pin_negotiation)?,
            max_origin_age: optional(text.max_origin_age.as_ref(), |t| duration("max_origin_age", t))?,
        };
        Ok(fence.checked()?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::object::Object;
    use super::*;

    fn parse(json: &str) -> Result<fence::Fence, String> {
        let Object(text): Object<Fence> = serde_json::from_str(json).map_err(|error| error.to_string())?;
        fence::Fence::try_from(text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_fence_is_read_whole() {
        let fence = parse(
            r#"{"max_staleness":"5s","min_revision":7,"min_version":"1.2","streaming":true,
                "skills":[{"id":"a","input_modes":["text/plain"]}],"extensions":["urn:x"],
                "max_origin_age":"1h"}"#,
        );
        let fence = fence.unwrap();
        assert_eq!(fence.count(), 7);
        assert_eq!(fence.max_staleness, Some(MaxStaleness::Within(Duration::from_secs(5))));
        assert_eq!(fence.min_revision.unwrap().number, 7);
        assert_eq!(parse("{}").unwrap(), fence::Fence::default());
        assert_eq!(parse(r#"{"max_staleness":"any"}"#).unwrap().max_staleness, Some(MaxStaleness::Any));
        let seen_at = parse(r#"{"min_revision":"7@1042.9f86d081884c7d65"}"#).unwrap();
        assert_eq!(seen_at.min_revision.unwrap().seen_at.unwrap().seq, 1042);
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let long = format!(r#"{{"pin":"{}"}}"#, "a".repeat(100_000));
        for (json, named) in [
            (r#"{"max_stalenes":"5s"}"#, "unknown field `max_stalenes`"),
            (r#"{"max_staleness":"5"}"#, "max_staleness: `5` is not a duration"),
            (r#"{"max_staleness":"5","max_staleness":"6"}"#, "duplicate field"),
            (r#"{"at_least":"01.9f86d081884c7d65"}"#, "at_least"),
            (r#"{"min_revision":0}"#, "min_revision"),
            (r#"{"min_revision":-1}"#, "min_revision: expected a number from 1"),
            (r#"{"min_version":""}"#, "min_version: must not be empty"),
            (r#"{"skills":[{"id":""}]}"#, "skills: must not be empty"),
            (r#"{"skills":[{"id":"a","in":["x"]}]}"#, "unknown field `in`"),
            (r#"{"skills":[{"id":"a","input_modes":[""]}]}"#, "input_modes: must not be empty"),
            (r#"{"extensions":[""]}"#, "extensions: must not be empty"),
            (r#"{"streaming":"true"}"#, "expected a boolean"),
            (r#"{"pin":"sha256:abc"}"#, "pin: `sha256:abc` is not a SHA-256 digest"),
            (r#"{"max_origin_age":"any"}"#, "max_origin_age"),
            ("[]", "expected an object of conditions"),
            (r#"["0"]"#, "expected an object of conditions"),
            ("null", "expected an object of conditions"),
            (r#"{"pin":null}"#, "pin: invalid type: null, expected a string"),
            (r#"{"max_staleness":null}"#, "max_staleness: invalid type: null"),
            (r#"{"min_revision":null}"#, "min_revision: expected a number from 1"),
            (r#"{"streaming":null}"#, "streaming: invalid type: null"),
            (r#"{"skills":null}"#, "skills: invalid type: null"),
            (r#"{"skills":[["a"]]}"#, "skills: invalid type: sequence, expected an object with the id"),
            (r#"{"skills":[{"id":null}]}"#, "skills: id: invalid type: null"),
            (&long, "pin: 100000 bytes are too long"),
        ] {
            let error = parse(json).unwrap_err();
            assert!(error.contains(named), "{json:.80}: {error:.200}");
        }
    }
}
