//! The two fingerprints: did what decides a negotiation move?
//!
//! Owns their material. The *skill fingerprint* is defined by the Python program that callers already run:
//! the document's own members, `json.dumps(sort_keys=True, separators=(",", ":"))` with its ASCII escapes,
//! sorting by code point. It sees no default modes, no endpoint, no security. The *negotiation fingerprint*
//! is made from the normal form and sees all that. Both ignore `version` and every text.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

use super::digest::canonical;
use super::node::Node;
use super::normal::Normal;
use super::security::{Requirement, Scheme};
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
            ' '..='~' => out.push(c),
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

/// The negotiation fingerprint of a normal form.
pub(super) fn negotiation(normal: &Normal) -> Option<Digest> {
    canonical(&Material::of(normal))
}

/// What decides a negotiation, in the order and the names of its canonical JSON.
#[derive(Serialize)]
struct Material<'n> {
    extended: bool,
    extensions: Vec<MaterialExtension<'n>>,
    interfaces: Vec<MaterialInterface<'n>>,
    push: bool,
    schemes: BTreeMap<&'n str, MaterialScheme<'n>>,
    security: Vec<MaterialRequirement<'n>>,
    skills: Vec<MaterialSkill<'n>>,
    streaming: bool,
    v: u8,
}

#[derive(Serialize)]
struct MaterialExtension<'n> {
    required: bool,
    uri: &'n str,
}

#[derive(Serialize)]
struct MaterialInterface<'n> {
    binding: &'n str,
    tenant: &'n str,
    url: &'n str,
    version: &'n str,
}

#[derive(Serialize)]
struct MaterialSkill<'n> {
    id: &'n str,
    r#in: Vec<&'n str>,
    out: Vec<&'n str>,
    security: Vec<MaterialRequirement<'n>>,
}

#[derive(Serialize)]
struct MaterialRequirement<'n> {
    schemes: BTreeMap<&'n str, Scopes<'n>>,
}

#[derive(Serialize)]
struct Scopes<'n> {
    list: &'n [Box<str>],
}

#[derive(Serialize)]
#[serde(rename_all_fields = "camelCase")]
enum MaterialScheme<'n> {
    #[serde(rename = "apiKeySecurityScheme")]
    ApiKey { location: &'n str, name: &'n str },
    #[serde(rename = "httpAuthSecurityScheme")]
    HttpAuth { bearer_format: &'n str, scheme: &'n str },
    #[serde(rename = "mtlsSecurityScheme")]
    MutualTls {},
    #[serde(rename = "oauth2SecurityScheme")]
    OAuth2 { flows: BTreeMap<&'n str, MaterialFlow<'n>>, oauth2_metadata_url: &'n str },
    #[serde(rename = "openIdConnectSecurityScheme")]
    OpenIdConnect { open_id_connect_url: &'n str },
    #[serde(rename = "other")]
    Other { body: &'n str },
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct MaterialFlow<'n> {
    authorization_url: &'n str,
    device_authorization_url: &'n str,
    pkce_required: bool,
    refresh_url: &'n str,
    scopes: &'n [Box<str>],
    token_url: &'n str,
}

impl<'n> Material<'n> {
    fn of(normal: &'n Normal) -> Self {
        Self {
            extended: normal.capabilities.extended_card,
            extensions: normal
                .extensions
                .iter()
                .map(|extension| MaterialExtension { required: extension.required, uri: &extension.uri })
                .collect(),
            interfaces: normal
                .interfaces
                .iter()
                .map(|interface| {
                    let (url, binding, version, tenant) = interface.key();
                    MaterialInterface { binding, tenant, url, version }
                })
                .collect(),
            push: normal.capabilities.push_notifications,
            schemes: normal.schemes.iter().map(|(name, scheme)| (name.as_ref(), scheme.into())).collect(),
            security: normal.security.iter().map(Into::into).collect(),
            skills: normal
                .skills_by_id()
                .map(|(_, skill)| MaterialSkill {
                    id: &skill.id,
                    r#in: sorted(&skill.effective_input),
                    out: sorted(&skill.effective_output),
                    security: skill.security.iter().map(Into::into).collect(),
                })
                .collect(),
            streaming: normal.capabilities.streaming,
            v: 1,
        }
    }
}

fn sorted(modes: &[Box<str>]) -> Vec<&str> {
    let mut modes: Vec<&str> = modes.iter().map(AsRef::as_ref).collect();
    modes.sort_unstable();
    modes
}

impl<'n> From<&'n Requirement> for MaterialRequirement<'n> {
    fn from(requirement: &'n Requirement) -> Self {
        let schemes = requirement.schemes.iter();
        Self { schemes: schemes.map(|(name, scopes)| (name.as_ref(), Scopes { list: scopes })).collect() }
    }
}

impl<'n> From<&'n Scheme> for MaterialScheme<'n> {
    fn from(scheme: &'n Scheme) -> Self {
        match scheme {
            Scheme::ApiKey { location, name } => Self::ApiKey { location, name },
            Scheme::HttpAuth { scheme, bearer_format } => Self::HttpAuth { bearer_format, scheme },
            Scheme::OAuth2 { flows, metadata_url } => Self::OAuth2 {
                flows: flows
                    .iter()
                    .map(|flow| {
                        let material = MaterialFlow {
                            authorization_url: &flow.authorization_url,
                            device_authorization_url: &flow.device_authorization_url,
                            pkce_required: flow.pkce_required,
                            refresh_url: &flow.refresh_url,
                            scopes: &flow.scopes,
                            token_url: &flow.token_url,
                        };
                        (flow.kind.as_ref(), material)
                    })
                    .collect(),
                oauth2_metadata_url: metadata_url,
            },
            Scheme::OpenIdConnect { url } => Self::OpenIdConnect { open_id_connect_url: url },
            Scheme::MutualTls => Self::MutualTls {},
            Scheme::Other { body } => Self::Other { body },
        }
    }
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
