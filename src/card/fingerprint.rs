//! The skill fingerprint: did what a client negotiates with move, as the clients themselves compute it?
//!
//! Defined by a Python program that callers already run: the document's own members, then
//! `json.dumps(sort_keys=True, separators=(",", ":"))` with its ASCII escapes, sorted by code point. It sees
//! no default modes, no endpoint, no security; [`negotiation`](super::negotiation) sees them. Ignores
//! `version` and every text. Aliases are not followed.

use std::fmt::Write;

use super::node::Node;
use super::view::View;
use crate::terms::Digest;

/// The skill fingerprint of a document, or none where the program that defines it would fail.
pub(super) fn skill(root: &View<'_, '_>) -> Option<Digest> {
    skill_material(root).map(|material| Digest::of(material.as_bytes()))
}

/// The text under the skill fingerprint.
fn skill_material(root: &View<'_, '_>) -> Option<String> {
    let own = |name: &str| root.members.iter().find(|(key, _)| key == name).map(|(_, value)| value);
    let capability = |name: &str| match own("capabilities") {
        None | Some(Node::Null) => Some(false),
        Some(Node::Object(members)) => Some(members.iter().any(|(key, value)| key == name && truthy(value))),
        Some(_) => None,
    };
    let mut skills: Vec<(&str, Vec<&str>, Vec<&str>)> = match own("skills") {
        None | Some(Node::Null) => Vec::new(),
        Some(skills) => skills.as_array()?.iter().map(skill_of).collect::<Option<_>>()?,
    };
    skills.sort_by_key(|(id, ..)| *id);
    let mut text = String::with_capacity(256);
    text.push_str("{\"pushNotifications\":");
    text.push_str(if capability("pushNotifications")? { "true" } else { "false" });
    text.push_str(",\"skills\":[");
    for (n, (id, input, output)) in skills.iter().enumerate() {
        text.push_str(if n == 0 { "{\"id\":" } else { ",{\"id\":" });
        push_ascii(&mut text, id);
        for (name, modes) in [("inputModes", input), ("outputModes", output)] {
            text.push_str(",\"");
            text.push_str(name);
            text.push_str("\":[");
            for (n, mode) in modes.iter().enumerate() {
                if n > 0 {
                    text.push(',');
                }
                push_ascii(&mut text, mode);
            }
            text.push(']');
        }
        text.push('}');
    }
    text.push_str("],\"streaming\":");
    text.push_str(if capability("streaming")? { "true}" } else { "false}" });
    Some(text)
}

fn skill_of<'n>(skill: &'n Node<'_>) -> Option<(&'n str, Vec<&'n str>, Vec<&'n str>)> {
    skill.as_object()?;
    let modes = |name: &str| match skill.member(name) {
        None | Some(Node::Null) => Some(Vec::new()),
        Some(list) => {
            let mut modes: Vec<_> = list.as_array()?.iter().map(Node::as_text).collect::<Option<_>>()?;
            modes.sort_unstable();
            Some(modes)
        }
    };
    let id = skill.member("id").map_or(Some(""), Node::as_text)?;
    Some((id, modes("inputModes")?, modes("outputModes")?))
}

/// Python's `bool()`.
fn truthy(value: &Node<'_>) -> bool {
    match value {
        Node::Null => false,
        Node::Bool(flag) => *flag,
        Node::Number(number) => *number != 0.0,
        Node::Text(text) => !text.is_empty(),
        Node::Array(items) => !items.is_empty(),
        Node::Object(members) => !members.is_empty(),
    }
}

/// Appends a JSON string as Python's `json` writes it: printable ASCII as it is, all else escaped.
fn push_ascii(out: &mut String, text: &str) {
    push_string(out, text, |c| matches!(c, ' '..='~'));
}

/// Appends a JSON string: the short escapes, then `plain` characters as they are, all others as `\u` escapes.
pub(super) fn push_string(out: &mut String, text: &str, plain: fn(char) -> bool) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            _ if plain(c) => out.push(c),
            _ => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    // Writing to a String cannot fail.
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::super::finding::Findings;
    use super::super::node::Place;
    use super::super::scan::scan;
    use super::*;

    /// `then` sees the document as the fingerprints see it.
    fn with<T>(text: &str, then: impl FnOnce(&View<'_, '_>) -> T) -> T {
        let Some(Node::Object(members)) = scan(text.as_bytes(), 64, &mut Findings::default()) else {
            panic!("not an object: {text}")
        };
        then(&View { members: &members, at: Place::ROOT })
    }

    #[test]
    fn skill_fingerprints_are_those_of_the_vectors() {
        let vectors = include_str!("../../tests/fixtures/fingerprints.jsonl");
        for line in vectors.lines() {
            let vector: serde_json::Value = serde_json::from_str(line).unwrap();
            let (case, card) = (&vector["case"], vector["card"].to_string());
            with(&card, |root| {
                assert_eq!(
                    skill_material(root).as_deref(),
                    vector["skill_fingerprint_material"].as_str(),
                    "{case}"
                );
                assert_eq!(
                    skill(root).map(|digest| digest.hex()).as_deref(),
                    vector["skill_fingerprint"].as_str()
                );
                let content = super::super::digest::content(root).map(|digest| digest.hex());
                assert_eq!(content.as_deref(), vector["content_digest"].as_str(), "{case}");
            });
        }
        assert_eq!(vectors.lines().count(), 25);
    }

    #[test]
    fn where_the_defining_program_fails_there_is_no_fingerprint() {
        for text in [
            r#"{"skills":"all"}"#,
            r#"{"skills":["s"]}"#,
            r#"{"skills":[{"id":1}]}"#,
            r#"{"skills":[{"id":"s","inputModes":[1]}]}"#,
            r#"{"capabilities":[]}"#,
        ] {
            assert_eq!(with(text, skill), None, "{text}");
        }
    }

    #[test]
    fn aliases_are_not_followed_and_capabilities_are_truth_values() {
        let plain = with("{}", skill_material);
        for text in [
            r#"{"capabilities":{"push_notifications":true,"streaming":0}}"#,
            r#"{"capabilities":null,"skills":null}"#,
            r#"{"capabilities":{"streaming":"","pushNotifications":[]}}"#,
        ] {
            assert_eq!(with(text, skill_material), plain, "{text}");
        }
        let on = with(r#"{"capabilities":{"streaming":"no"}}"#, skill_material);
        assert_eq!(on.as_deref(), Some(r#"{"pushNotifications":false,"skills":[],"streaming":true}"#));
    }
}
