//! What an agent asks of its callers, in v1.0's form.
//!
//! Owns the two ways of writing a scheme (a `type` in v0.x, a wrapper in v1.0) and of writing a requirement
//! (bare names, or names under `schemes`), in any mixture: both forms of one statement read as one value.
//! Texts are left out. What no release of A2A defines is kept whole, so that a change to it shows.

use super::document::Limits;
use super::finding::{Findings, Oddity};
use super::generation::{Generation, Shape};
use super::node::{Node, Object, Place};
use super::view::{View, name_within, strings, unexpected_type, within, wrong_type};

/// A security scheme. Absent texts are empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scheme {
    ApiKey {
        location: Box<str>,
        name: Box<str>,
    },
    HttpAuth {
        scheme: Box<str>,
        bearer_format: Box<str>,
    },
    OAuth2 {
        /// By kind.
        flows: Vec<Flow>,
        metadata_url: Box<str>,
    },
    OpenIdConnect {
        url: Box<str>,
    },
    MutualTls,
    /// No kind that A2A defines: all of it but its description, as canonical JSON.
    Other {
        body: Box<str>,
    },
}

/// One OAuth 2 flow. Absent texts are empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flow {
    /// `authorizationCode`, `clientCredentials`, `deviceCode`, `implicit`, `password`.
    pub kind: Box<str>,
    pub authorization_url: Box<str>,
    pub device_authorization_url: Box<str>,
    pub token_url: Box<str>,
    pub refresh_url: Box<str>,
    pub pkce_required: bool,
    /// Sorted.
    pub scopes: Vec<Box<str>>,
}

/// One alternative: all of these schemes together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// By name, each with its scopes sorted.
    pub schemes: Vec<(Box<str>, Vec<Box<str>>)>,
}

/// `type` in v0.x, wrapper in v1.0.
const KINDS: [(&str, &str); 5] = [
    ("apiKey", "apiKeySecurityScheme"),
    ("http", "httpAuthSecurityScheme"),
    ("oauth2", "oauth2SecurityScheme"),
    ("openIdConnect", "openIdConnectSecurityScheme"),
    ("mutualTLS", "mtlsSecurityScheme"),
];

const FLOWS: [&str; 5] = ["authorizationCode", "clientCredentials", "deviceCode", "implicit", "password"];

/// The schemes of a document, by name. In v0.1 they are the bare names below `authentication`.
pub(super) fn schemes(
    root: &View<'_, '_>,
    generation: Option<Generation>,
    findings: &mut Findings,
) -> Vec<(Box<str>, Scheme)> {
    let mut schemes = match generation {
        Some(Generation::V0_1) => authentication(root, findings),
        _ => Vec::new(),
    };
    let found = root.find("securitySchemes");
    if let Some(view) = found.and_then(|found| View::of(found.value, root.at.key(found.key), findings)) {
        let shape = generation.map_or(Shape::V0, Generation::shape);
        for (name, node) in view.members {
            name_within(name, view.at, findings);
            let Some(scheme) = View::of(node, view.at.key(name), findings) else { continue };
            schemes.push((name.as_ref().into(), scheme_of(&scheme, shape, findings)));
        }
    }
    schemes.sort_by(|(a, _), (b, _)| a.cmp(b));
    schemes.dedup_by(|(next, _), (kept, _)| next == kept);
    schemes
}

/// v0.1 states the names of HTTP authentication schemes. Objects were seen in their place; they are kept whole.
fn authentication(root: &View<'_, '_>, findings: &mut Findings) -> Vec<(Box<str>, Scheme)> {
    let Some(found) = root.find("authentication") else { return Vec::new() };
    let Some(Node::Array(items)) = found.value.member("schemes") else { return Vec::new() };
    let (above, mut schemes) = (root.at.key(found.key), Vec::with_capacity(items.len()));
    let list = above.key("schemes");
    for (n, item) in items.iter().enumerate() {
        match item {
            Node::Text(name) => {
                within(name, Limits::MAX_TEXT_BYTES, list.index(n), findings);
                let scheme = Scheme::HttpAuth { scheme: name.as_ref().into(), bearer_format: Box::default() };
                schemes.push((name.as_ref().into(), scheme));
            }
            Node::Object(members) => {
                let scheme = other(&View { members, at: list.index(n) }, findings);
                schemes.push((n.to_string().into(), scheme));
            }
            _ => unexpected_type(list.index(n), item, "the name of a scheme", findings),
        }
    }
    schemes
}

fn scheme_of(view: &View<'_, '_>, shape: Shape, findings: &mut Findings) -> Scheme {
    view.tolerate(&KINDS.map(|(_, wrapper)| wrapper), findings);
    let mut wrappers = KINDS.iter().filter_map(|(kind, wrapper)| Some((*kind, view.find(wrapper)?)));
    match (wrappers.next(), wrappers.next(), view.find("type").is_some()) {
        (Some((kind, found)), None, false) => {
            mixed(shape == Shape::V0, view.at, "a v1.0 security scheme in a v0.x card", findings);
            match View::of(found.value, view.at.key(found.key), findings) {
                Some(inner) => {
                    mixed(inner.has("in"), inner.place("in"), "`in` of v0.x in a v1.0 scheme", findings);
                    members(kind, &inner, findings)
                }
                None => other(view, findings),
            }
        }
        (None, None, true) => {
            mixed(shape == Shape::V1, view.at, "a v0.x security scheme in a v1.0 card", findings);
            let kind = view.text("type", findings).unwrap_or_default();
            match KINDS.iter().find(|(known, _)| *known == kind) {
                Some((kind, _)) => {
                    mixed(
                        view.has("location"),
                        view.place("location"),
                        "`location` of v1.0 in a v0.x scheme",
                        findings,
                    );
                    members(kind, view, findings)
                }
                None => other(view, findings),
            }
        }
        _ => other(view, findings),
    }
}

fn other(view: &View<'_, '_>, findings: &mut Findings) -> Scheme {
    findings.warn(
        Oddity::SchemeUnknown,
        || view.at.to_string(),
        || "not one security scheme of a kind that A2A defines; kept whole".to_owned(),
    );
    let body = serde_json_canonicalizer::to_string(&Object(view.members, "description"));
    Scheme::Other { body: body.unwrap_or_default().into() }
}

fn members(kind: &str, view: &View<'_, '_>, findings: &mut Findings) -> Scheme {
    view.tolerate(&SCHEME_MEMBERS, findings);
    match kind {
        "apiKey" => {
            let location = text(view, "location", findings);
            let location = if location.is_empty() { text(view, "in", findings) } else { location };
            Scheme::ApiKey { location, name: text(view, "name", findings) }
        }
        "http" => Scheme::HttpAuth {
            scheme: text(view, "scheme", findings),
            bearer_format: text(view, "bearerFormat", findings),
        },
        "oauth2" => Scheme::OAuth2 {
            flows: flows(view, findings),
            metadata_url: text(view, "oauth2MetadataUrl", findings),
        },
        "openIdConnect" => Scheme::OpenIdConnect { url: text(view, "openIdConnectUrl", findings) },
        _ => Scheme::MutualTls,
    }
}

fn text(view: &View<'_, '_>, name: &str, findings: &mut Findings) -> Box<str> {
    view.text(name, findings).unwrap_or_default().into()
}

fn flows(scheme: &View<'_, '_>, findings: &mut Findings) -> Vec<Flow> {
    let found = scheme.find("flows");
    let Some(view) = found.and_then(|found| View::of(found.value, scheme.at.key(found.key), findings)) else {
        return Vec::new();
    };
    view.tolerate(&FLOWS, findings);
    let mut flows = Vec::new();
    for kind in FLOWS {
        let Some(found) = view.find(kind) else { continue };
        let Some(flow) = View::of(found.value, view.at.key(found.key), findings) else { continue };
        flow.tolerate(&FLOW_MEMBERS, findings);
        flows.push(Flow {
            kind: kind.into(),
            authorization_url: text(&flow, "authorizationUrl", findings),
            device_authorization_url: text(&flow, "deviceAuthorizationUrl", findings),
            token_url: text(&flow, "tokenUrl", findings),
            refresh_url: text(&flow, "refreshUrl", findings),
            pkce_required: flow.flag("pkceRequired", findings).unwrap_or_default(),
            scopes: flow_scopes(&flow, findings),
        });
    }
    flows
}

/// The scopes of a flow are the names in a map to texts.
fn flow_scopes(flow: &View<'_, '_>, findings: &mut Findings) -> Vec<Box<str>> {
    let found = flow.find("scopes");
    let view = found.and_then(|found| View::of(found.value, flow.at.key(found.key), findings));
    let Some(view) = view else { return Vec::new() };
    for (name, _) in view.members {
        name_within(name, view.at, findings);
    }
    sorted(view.members.iter().map(|(name, _)| name.as_ref()))
}

fn sorted<'n>(names: impl Iterator<Item = &'n str>) -> Vec<Box<str>> {
    let mut names: Vec<Box<str>> = names.map(Into::into).collect();
    names.sort();
    names.dedup();
    names
}

/// The requirements of a document or a skill. Where both members state some, the one of the shape counts.
pub(super) fn requirements(view: &View<'_, '_>, shape: Shape, findings: &mut Findings) -> Vec<Requirement> {
    let legacy = list(view, "security", shape, findings);
    let later = list(view, "securityRequirements", shape, findings);
    let (own, foreign) = if shape == Shape::V0 { (legacy, later) } else { (later, legacy) };
    if let (Some(own), Some(foreign)) = (&own, &foreign)
        && own != foreign
    {
        let counts = if shape == Shape::V0 { "security" } else { "securityRequirements" };
        findings.warn(
            Oddity::SecurityDisagrees,
            || view.at.to_string(),
            || format!("`security` and `securityRequirements` disagree; `{counts}` counts"),
        );
    }
    own.or(foreign).unwrap_or_default()
}

/// What v0.1 requires: any one of the schemes it names.
pub(super) fn any_of(schemes: &[(Box<str>, Scheme)]) -> Vec<Requirement> {
    schemes.iter().map(|(name, _)| Requirement { schemes: vec![(name.clone(), Vec::new())] }).collect()
}

fn list(view: &View<'_, '_>, name: &str, shape: Shape, findings: &mut Findings) -> Option<Vec<Requirement>> {
    let (key, items) = view.array(name, findings)?;
    let at = view.at.key(key);
    let mut requirements = Vec::with_capacity(items.len());
    for (n, item) in items.iter().enumerate() {
        let Some(entry) = View::of(item, at.index(n), findings) else { continue };
        requirements.push(requirement(&entry, name == "securityRequirements", shape, findings));
    }
    Some(requirements)
}

fn requirement(entry: &View<'_, '_>, later: bool, shape: Shape, findings: &mut Findings) -> Requirement {
    // A wrapper's `schemes` is an object; a scheme that is called `schemes` has a list of scopes.
    let wrapped = entry.find("schemes").filter(|found| found.value.as_object().is_some());
    let wrong = match shape {
        Shape::V0 => wrapped.is_some(),
        Shape::V1 | Shape::Superset => wrapped.is_some() != later && !entry.members.is_empty(),
    };
    mixed(wrong, entry.at, "a requirement in the form of another generation", findings);
    let inner = match wrapped {
        Some(found) => View::of(found.value, entry.at.key(found.key), findings).unwrap_or(*entry),
        None => *entry,
    };
    for (name, _) in inner.members {
        name_within(name, inner.at, findings);
    }
    let mut schemes: Vec<_> = inner
        .members
        .iter()
        .filter(|(name, scopes)| name != "schemes" || *scopes != Node::Null)
        .map(|(name, scopes)| (Box::from(name.as_ref()), scopes_of(scopes, inner.at.key(name), findings)))
        .collect();
    schemes.sort();
    Requirement { schemes }
}

/// Scopes are a list, or a list under `list`; `null` and an empty object are none.
fn scopes_of(node: &Node<'_>, at: Place<'_>, findings: &mut Findings) -> Vec<Box<str>> {
    let (items, at) = match node {
        Node::Null => return Vec::new(),
        Node::Array(items) => (items, at),
        Node::Object(members) => match members.iter().find(|(key, _)| key == "list") {
            Some((_, Node::Array(items))) => {
                return sorted(strings(items, at.key("list"), findings).into_iter());
            }
            Some((_, Node::Null)) | None => return Vec::new(),
            Some((_, other)) => {
                wrong_type(at.key("list"), other, "an array of scopes", findings);
                return Vec::new();
            }
        },
        other => {
            wrong_type(at, other, "an array of scopes", findings);
            return Vec::new();
        }
    };
    sorted(strings(items, at, findings).into_iter())
}

fn mixed(wrong: bool, at: Place<'_>, what: &str, findings: &mut Findings) {
    if wrong {
        findings.warn(Oddity::MixedSecurityShape, || at.to_string(), || what.to_owned());
    }
}

const SCHEME_MEMBERS: [&str; 9] = [
    "description",
    "location",
    "name",
    "scheme",
    "bearerFormat",
    "flows",
    "oauth2MetadataUrl",
    "openIdConnectUrl",
    "in",
];

const FLOW_MEMBERS: [&str; 6] =
    ["authorizationUrl", "deviceAuthorizationUrl", "tokenUrl", "refreshUrl", "pkceRequired", "scopes"];
