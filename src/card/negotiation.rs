//! The negotiation fingerprint: did anything move that decides whether two agents come to terms?
//!
//! Owns its material, written from the normal form as canonical JSON (RFC 8785). It is written here and not
//! by the canonicaliser because every skill repeats the effective modes: a thousand skills with ten thousand
//! default modes make seventy megabytes of material out of a small card. So the defaults are rendered
//! once, and the material goes into the hash as it is made. A test holds it to the canonicaliser.

use sha2::{Digest as _, Sha256};

use super::fingerprint::push_string;
use super::normal::{Modes, Normal};
use super::security::{Flow, Requirement, Scheme};
use crate::terms::Digest;

/// The fingerprint of what `normal` says.
pub(super) fn fingerprint(normal: &Normal) -> Digest {
    let mut hasher = Sha256::new();
    material(normal, &mut |text| hasher.update(text.as_bytes()));
    Digest::from_bytes(hasher.finalize().into())
}

/// Writes the material, piece by piece. Members come in the order of their names, as canonical JSON has them.
fn material(normal: &Normal, sink: &mut dyn FnMut(&str)) {
    let mut out = String::with_capacity(1024);
    let capabilities = normal.capabilities;
    flag(&mut out, "{\"extended\":", capabilities.extended_card);
    out.push_str(",\"extensions\":");
    list(&mut out, &normal.extensions, |out, extension| {
        flag(out, "{\"required\":", extension.required);
        member(out, ",\"uri\":", &extension.uri);
        out.push('}');
    });
    out.push_str(",\"interfaces\":");
    list(&mut out, &normal.interfaces, |out, interface| {
        member(out, "{\"binding\":", &interface.binding);
        member(out, ",\"tenant\":", &interface.tenant);
        member(out, ",\"url\":", &interface.url);
        member(out, ",\"version\":", &interface.version);
        out.push('}');
    });
    flag(&mut out, ",\"push\":", capabilities.push_notifications);
    out.push_str(",\"schemes\":");
    map(&mut out, &normal.schemes, scheme);
    out.push_str(",\"security\":");
    list(&mut out, &normal.security, requirement);
    out.push_str(",\"skills\":[");
    let defaults = (rendered(&normal.default_input), rendered(&normal.default_output));
    for (n, (_, skill)) in normal.skills_by_id().enumerate() {
        member(&mut out, if n == 0 { "{\"id\":" } else { ",{\"id\":" }, &skill.id);
        for (name, declared, default) in [
            (",\"in\":", &skill.declared_input, &defaults.0),
            (",\"out\":", &skill.declared_output, &defaults.1),
        ] {
            out.push_str(name);
            sink(&out);
            out.clear();
            match declared {
                Some(modes) => out.push_str(&rendered(modes)),
                None => sink(default),
            }
        }
        out.push_str(",\"security\":");
        list(&mut out, &skill.security, requirement);
        out.push('}');
    }
    flag(&mut out, "],\"streaming\":", capabilities.streaming);
    // Nearly no card has it, and those keep the material that they had before it was read.
    if !normal.undefined.is_empty() {
        out.push_str(",\"undefined\":");
        map(&mut out, &normal.undefined, |out, body| string(out, body));
    }
    out.push_str(",\"v\":1}");
    sink(&out);
}

/// A list of modes, sorted.
fn rendered(modes: &Modes) -> String {
    let mut sorted: Vec<&str> = modes.iter().map(AsRef::as_ref).collect();
    sorted.sort_unstable();
    let mut out = String::new();
    list(&mut out, &sorted, |out, mode| string(out, mode));
    out
}

fn scheme(out: &mut String, scheme: &Scheme) {
    match scheme {
        Scheme::ApiKey { location, name } => {
            member(out, "{\"apiKeySecurityScheme\":{\"location\":", location);
            member(out, ",\"name\":", name);
        }
        Scheme::HttpAuth { scheme, bearer_format } => {
            member(out, "{\"httpAuthSecurityScheme\":{\"bearerFormat\":", bearer_format);
            member(out, ",\"scheme\":", scheme);
        }
        Scheme::MutualTls => out.push_str("{\"mtlsSecurityScheme\":{"),
        Scheme::OAuth2 { flows, metadata_url } => {
            out.push_str("{\"oauth2SecurityScheme\":{\"flows\":{");
            for (n, each) in flows.iter().enumerate() {
                member(out, if n == 0 { "" } else { "," }, &each.kind);
                flow(out, each);
            }
            member(out, "},\"oauth2MetadataUrl\":", metadata_url);
        }
        Scheme::OpenIdConnect { url } => {
            member(out, "{\"openIdConnectSecurityScheme\":{\"openIdConnectUrl\":", url);
        }
        Scheme::Other { body } => member(out, "{\"other\":{\"body\":", body),
    }
    out.push_str("}}");
}

fn flow(out: &mut String, flow: &Flow) {
    member(out, ":{\"authorizationUrl\":", &flow.authorization_url);
    member(out, ",\"deviceAuthorizationUrl\":", &flow.device_authorization_url);
    flag(out, ",\"pkceRequired\":", flow.pkce_required);
    member(out, ",\"refreshUrl\":", &flow.refresh_url);
    out.push_str(",\"scopes\":");
    list(out, &flow.scopes, |out, scope| string(out, scope));
    member(out, ",\"tokenUrl\":", &flow.token_url);
    out.push('}');
}

fn requirement(out: &mut String, requirement: &Requirement) {
    out.push('{');
    if !requirement.other.is_empty() {
        member(out, "\"other\":", &requirement.other);
        out.push(',');
    }
    out.push_str("\"schemes\":");
    map(out, &requirement.schemes, |out, scopes| {
        out.push_str("{\"list\":");
        list(out, scopes, |out, scope| string(out, scope));
        out.push('}');
    });
    out.push('}');
}

fn list<T>(out: &mut String, items: &[T], each: impl Fn(&mut String, &T)) {
    out.push('[');
    for (n, item) in items.iter().enumerate() {
        if n > 0 {
            out.push(',');
        }
        each(out, item);
    }
    out.push(']');
}

/// Canonical JSON sorts names by UTF-16 unit, which is not the order of their code points.
fn map<T>(out: &mut String, members: &[(Box<str>, T)], value: impl Fn(&mut String, &T)) {
    let mut sorted: Vec<_> = members.iter().collect();
    sorted.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
    out.push('{');
    for (n, (name, item)) in sorted.into_iter().enumerate() {
        member(out, if n == 0 { "" } else { "," }, name);
        out.push(':');
        value(out, item);
    }
    out.push('}');
}

fn flag(out: &mut String, before: &str, value: bool) {
    out.push_str(before);
    out.push_str(if value { "true" } else { "false" });
}

fn member(out: &mut String, before: &str, text: &str) {
    out.push_str(before);
    string(out, text);
}

fn string(out: &mut String, text: &str) {
    push_string(out, text, |c| c >= ' ');
}

#[cfg(test)]
mod tests {
    use super::super::{Card, Limits};
    use super::*;

    fn material_of(text: &'static str) -> String {
        let card = Card::check(text.as_bytes().into(), &Limits::default()).unwrap();
        let mut whole = String::new();
        material(card.normal(), &mut |piece| whole.push_str(piece));
        assert_eq!(card.negotiation_fingerprint(), Digest::of(whole.as_bytes()));
        whole
    }

    #[test]
    fn the_material_is_canonical_json() {
        for text in [
            r#"{"name":"A","url":"u"}"#,
            r#"{"name":"A","url":"\u0001\u007f\"\\/\b\f\n\r\t\u2028é🚀","skills":[{"id":"\uff5e"},{"id":"😀"},{"id":"z","inputModes":["b","a"]}],
                "defaultOutputModes":["x","w"],"security":[{"\ue000":["q","p"],"😀":{"note":"n"}},{}],"authentication":"x","securitySchemes":{
                "\ue000":{"type":"apiKey","in":"header","name":"X"},"😀":{"type":"http","scheme":"basic"},"a":{"type":"mutualTLS"},
                "b":{"type":"oauth2","flows":{"implicit":{"scopes":{"s":"","r":""}},"authorizationCode":{"pkceRequired":true}}},
                "c":{"type":"openIdConnect","openIdConnectUrl":"https://i","x":{"b":1,"a":"\ue000"}},"d":{"type":"x"},"\ue000x":{"type":"mutualTLS","y":2},"😀x":{"type":"mutualTLS","y":2}},
                "capabilities":{"streaming":true,"extensions":[{"uri":"f"},{"uri":"e","required":true}]}}"#,
        ] {
            let material = material_of(text);
            assert_eq!(serde_json_canonicalizer::pipe(&material).unwrap(), material);
        }
    }

    #[test]
    fn the_material_of_a_small_card() {
        assert_eq!(
            material_of(
                r#"{"name":"A","url":"u","defaultInputModes":["b","a"],"skills":[{"id":"s","outputModes":["c"]}]}"#
            ),
            r#"{"extended":false,"extensions":[],"interfaces":[{"binding":"JSONRPC","tenant":"","url":"u","version":"0.1"}],"push":false,"schemes":{},"security":[],"skills":[{"id":"s","in":["a","b"],"out":["c"],"security":[]}],"streaming":false,"v":1}"#
        );
    }
}
