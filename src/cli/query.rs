//! The query of a request, written so that the registry reads back exactly what was meant.
//!
//! Its parser splits on `&` and `;` before it decodes, and `+` is a plus: so everything but unreserved
//! characters is percent-encoded, and only a skill's own `;` and `=` stand as they are.

use std::fmt::{Display, Write as _};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::wire;

const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A query under construction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Query(String);

impl Query {
    /// Adds a parameter.
    pub(super) fn set(&mut self, name: &str, value: impl Display) {
        let value = value.to_string();
        self.raw(name, &utf8_percent_encode(&value, ENCODED).to_string());
    }

    /// Adds a parameter where there is a value.
    pub(super) fn set_some(&mut self, name: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.set(name, value);
        }
    }

    /// Adds a parameter that is `true`, where it is.
    pub(super) fn set_if(&mut self, name: &str, value: bool) {
        if value {
            self.raw(name, "true");
        }
    }

    /// Adds a skill with its modes.
    pub(super) fn skill(&mut self, skill: &wire::Skill) {
        let encode = |text: &str| utf8_percent_encode(text, ENCODED).to_string();
        let mut value = encode(&skill.id);
        for (side, modes) in [("in", &skill.input_modes), ("out", &skill.output_modes)] {
            for mode in modes {
                let _ = write!(value, ";{side}={}", encode(mode));
            }
        }
        self.raw("skill", &value);
    }

    fn raw(&mut self, name: &str, value: &str) {
        let separator = if self.0.is_empty() { '?' } else { '&' };
        let _ = write!(self.0, "{separator}{name}={value}");
    }
}

impl Display for Query {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Reads `id[;in=MODE]…[;out=MODE]…`. A `;` or `%` that belongs to an id or a mode is written `%3B` or `%25`.
pub(super) fn parse_skill(text: &str) -> Result<wire::Skill, String> {
    let decode = |part: &str| -> Result<String, String> {
        let broken = || format!("`{part}` holds a `%` that encodes nothing; a percent sign is written %25");
        let digits = |rest: &str| rest.len() >= 2 && rest.bytes().take(2).all(|b| b.is_ascii_hexdigit());
        if part.split('%').skip(1).any(|rest| !digits(rest)) {
            return Err(broken());
        }
        let decoded = percent_decode_str(part).decode_utf8().map_err(|_| broken())?;
        if decoded.is_empty() {
            Err("an empty skill or mode cannot be wanted".to_owned())
        } else {
            Ok(decoded.into_owned())
        }
    };
    let mut parts = text.split(';');
    let mut skill = wire::Skill { id: decode(parts.next().unwrap_or_default())?, ..wire::Skill::default() };
    for part in parts {
        match part.split_once('=') {
            Some(("in", mode)) => skill.input_modes.push(decode(mode)?),
            Some(("out", mode)) => skill.output_modes.push(decode(mode)?),
            _ => return Err(format!("`{part}` is neither in=MODE nor out=MODE")),
        }
    }
    Ok(skill)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_encoded_and_skills_keep_their_seams() {
        let mut query = Query::default();
        assert_eq!(query.to_string(), "");
        query.set("note", "a b+c&d=é");
        query.set_some("at", None::<&str>);
        query.set_if("streaming", true);
        query.set_if("extended_card", false);
        query.skill(&parse_skill("sum;in=image/svg+xml;out=text/plain;out=a%3Bb").unwrap());
        assert_eq!(
            query.to_string(),
            "?note=a%20b%2Bc%26d%3D%C3%A9&streaming=true&skill=sum;in=image%2Fsvg%2Bxml;out=text%2Fplain;out=a%3Bb"
        );
    }

    #[test]
    fn skills_are_read_or_refused() {
        let skill = parse_skill("été 1%25;out=text/markdown").unwrap();
        assert_eq!((skill.id.as_str(), skill.output_modes), ("été 1%", vec!["text/markdown".to_owned()]));
        for bad in ["", ";in=text/plain", "a;text/plain", "a;in=", "100%", "a;mode=x", "a;", "%ff"] {
            assert!(parse_skill(bad).is_err(), "{bad}");
        }
    }
}
