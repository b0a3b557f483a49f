//! What an agent asks of its callers, in v1.0's form.
//!
//! Owns the two ways of writing a scheme (a `type` in v0.x, a wrapper in v1.0) and of writing a requirement
//! (bare names, or names under `schemes`), in any mixture: both forms of one statement read as one value.
//! Texts are left out. What no release of A2A defines is kept whole, so that a change to it shows.

use std::borrow::Cow;

use super::document::Limits;
use super::finding::{Code, Findings, Oddity, shown};
use super::generation::{Generation, Shape};
use super::node::{Node, Object, Place};
use super::view::{View, name_within, strings, within, wrong_type};

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
    /// What is said of its schemes and is no scope: a canonical JSON object by their names, or empty.
    pub other: Box<str>,
}

/// Statements that A2A does not define, as canonical JSON by what they are about: `authentication`, or
/// `schemes/` and the name of a scheme. Sorted.
pub type Undefined = Vec<(Box<str>, Box<str>)>;

/// What a document says of its schemes.
#[derive(Default)]
pub(super) struct Schemes {
    /// By name.
    pub(super) schemes: Vec<(Box<str>, Scheme)>,
    pub(super) undefined: Undefined,
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

/// The schemes of a document. In v0.1 they are the bare names below `authentication`.
pub(super) fn schemes(
    root: &View<'_, '_>,
    generation: Option<Generation>,
    findings: &mut Findings,
) -> Schemes {
    let mut read = Schemes::default();
    let found = root.find("securitySchemes");
    if let Some(view) = found.and_then(|found| View::of(found.value, root.at.key(found.key), findings)) {
        let shape = generation.map_or(Shape::V0, Generation::shape);
        for (name, node) in view.members {
            name_within(name, view.at, findings);
            let Some(scheme) = View::of(node, view.at.key(name), findings) else { continue };
            let mut rest = Vec::new();
            read.schemes.push((name.as_ref().into(), scheme_of(&scheme, shape, &mut rest, findings)));
            if !rest.is_empty() {
                read.undefined.push((format!("schemes/{name}").into(), canonical(&rest, "")));
            }
        }
    }
    let mut whole = authentication(root, generation, &mut read.schemes, findings);
    // The sort is stable: what `securitySchemes` says of a name comes before what `authentication` says.
    read.schemes.sort_by(|(a, _), (b, _)| a.cmp(b));
    read.schemes.dedup_by(|(next, dropped), (kept, scheme)| {
        whole |= next == kept && dropped != scheme;
        next == kept
    });
    if let Some(found) = root.find("authentication").filter(|_| whole) {
        undefined(root.at.key(found.key), findings);
        let body = match found.value {
            Node::Object(members) => canonical(members, "description"),
            value => serde_json_canonicalizer::to_string(value).unwrap_or_default().into(),
        };
        read.undefined.push(("authentication".into(), body));
    }
    read.undefined.sort();
    read
}

/// v0.1 states the names of HTTP authentication schemes. Objects were seen in their place; they are kept
/// whole. Says whether there is more to it than that, or it is no card of v0.1.
fn authentication(
    root: &View<'_, '_>,
    generation: Option<Generation>,
    schemes: &mut Vec<(Box<str>, Scheme)>,
    findings: &mut Findings,
) -> bool {
    let Some(found) = root.find("authentication") else { return false };
    let (Some(Generation::V0_1), Node::Object(members)) = (generation, found.value) else { return true };
    let view = View { members, at: root.at.key(found.key) };
    let mut more = !view.undefined(&["schemes", "credentials", "description"]).is_empty();
    let Some(items) = view.find("schemes").map(|found| found.value) else { return more };
    let Node::Array(items) = items else { return true };
    let list = view.at.key("schemes");
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
            _ => more = true,
        }
    }
    more
}

/// Members that A2A does not define.
type Rest<'a> = Vec<(Cow<'a, str>, Node<'a>)>;

/// The members of `view` that A2A does not define there, each with a warning.
fn rest<'a>(view: &View<'_, 'a>, known: &[&str], findings: &mut Findings) -> Rest<'a> {
    let rest = view.undefined(known);
    for (name, _) in &rest {
        undefined(view.at.key(name), findings);
    }
    rest
}

fn undefined(at: Place<'_>, findings: &mut Findings) {
    let message = || "nothing that A2A defines here; kept whole".to_owned();
    findings.warn(Oddity::SecurityUndefined, || at.to_string(), message);
}

/// The canonical JSON of an object without one of its members.
fn canonical(members: &[(Cow<'_, str>, Node<'_>)], without: &'static str) -> Box<str> {
    serde_json_canonicalizer::to_string(&Object(members, without)).unwrap_or_default().into()
}

/// Reads a scheme. What A2A does not define for its kind goes to `rest`.
fn scheme_of<'a>(view: &View<'_, 'a>, shape: Shape, rest: &mut Rest<'a>, findings: &mut Findings) -> Scheme {
    view.tolerate(&KINDS.map(|(_, wrapper)| wrapper), findings);
    let mut wrappers = KINDS.iter().filter_map(|(kind, wrapper)| Some((*kind, view.find(wrapper)?)));
    match (wrappers.next(), wrappers.next(), view.find("type").is_some()) {
        // What lies beside a wrapper belongs to no kind.
        (Some((kind, found)), None, false) if view.undefined(&[found.key, "description"]).is_empty() => {
            mixed(shape == Shape::V0, view.at, "a v1.0 security scheme in a v0.x card", findings);
            match View::of(found.value, view.at.key(found.key), findings) {
                Some(inner) => {
                    mixed(inner.has("in"), inner.place("in"), "`in` of v0.x in a v1.0 scheme", findings);
                    members(kind, &inner, &[], rest, findings)
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
                    members(kind, view, &["type"], rest, findings)
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
    Scheme::Other { body: canonical(view.members, "description") }
}

fn members<'a>(
    kind: &str,
    view: &View<'_, 'a>,
    outer: &[&str],
    undefined: &mut Rest<'a>,
    findings: &mut Findings,
) -> Scheme {
    view.tolerate(&SCHEME_MEMBERS, findings);
    let own: &[&str] = match kind {
        "apiKey" => &["location", "in", "name"],
        "http" => &["scheme", "bearerFormat"],
        "oauth2" => &["flows", "oauth2MetadataUrl"],
        "openIdConnect" => &["openIdConnectUrl"],
        _ => &[],
    };
    undefined.extend(rest(view, &[own, outer, &["description"]].concat(), findings));
    match kind {
        "apiKey" => {
            let (location, older) = (text(view, "location", findings), text(view, "in", findings));
            if !location.is_empty() && !older.is_empty() && location != older {
                findings.refuse(
                    Code::Contradiction,
                    || view.place("in").to_string(),
                    || {
                        format!(
                            "{}, but `location` is {}; equal ones or one of them is allowed",
                            shown(&older),
                            shown(&location)
                        )
                    },
                );
            }
            let location = if location.is_empty() { older } else { location };
            Scheme::ApiKey { location, name: text(view, "name", findings) }
        }
        "http" => Scheme::HttpAuth {
            scheme: text(view, "scheme", findings),
            bearer_format: text(view, "bearerFormat", findings),
        },
        "oauth2" => Scheme::OAuth2 {
            flows: flows(view, undefined, findings),
            metadata_url: text(view, "oauth2MetadataUrl", findings),
        },
        "openIdConnect" => Scheme::OpenIdConnect { url: text(view, "openIdConnectUrl", findings) },
        _ => Scheme::MutualTls,
    }
}

fn text(view: &View<'_, '_>, name: &str, findings: &mut Findings) -> Box<str> {
    view.text(name, findings).unwrap_or_default().into()
}

/// The flows of a scheme. What A2A does not define in them or beside them goes to `undefined`.
fn flows<'a>(scheme: &View<'_, 'a>, undefined: &mut Rest<'a>, findings: &mut Findings) -> Vec<Flow> {
    let found = scheme.find("flows");
    let Some(view) = found.and_then(|found| View::of(found.value, scheme.at.key(found.key), findings)) else {
        return Vec::new();
    };
    view.tolerate(&FLOWS, findings);
    let (mut flows, mut odd) = (Vec::new(), rest(&view, &FLOWS, findings));
    for kind in FLOWS {
        let Some(found) = view.find(kind) else { continue };
        let Some(flow) = View::of(found.value, view.at.key(found.key), findings) else { continue };
        flow.tolerate(&FLOW_MEMBERS, findings);
        let more = rest(&flow, &FLOW_MEMBERS, findings);
        if !more.is_empty() {
            odd.push((kind.into(), Node::Object(more)));
        }
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
    if !odd.is_empty() {
        undefined.push(("flows".into(), Node::Object(odd)));
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
    schemes
        .iter()
        .map(|(name, _)| Requirement { schemes: vec![(name.clone(), Vec::new())], other: Box::default() })
        .collect()
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
    if wrapped.is_some() {
        for (name, _) in entry.undefined(&["schemes"]) {
            findings.refuse(
                Code::Contradiction,
                || entry.at.key(&name).to_string(),
                || "beside `schemes`, where some read a scheme and others nothing; all names under `schemes`, or none, are allowed".to_owned(),
            );
        }
    }
    let inner = match wrapped {
        Some(found) => View::of(found.value, entry.at.key(found.key), findings).unwrap_or(*entry),
        None => *entry,
    };
    for (name, _) in inner.members {
        name_within(name, inner.at, findings);
    }
    let (mut schemes, mut other) = (Vec::with_capacity(inner.members.len()), Vec::new());
    for (name, scopes) in inner.members.iter().filter(|(name, it)| name != "schemes" || *it != Node::Null) {
        let at = inner.at.key(name);
        if let Node::Object(members) = scopes {
            let more = rest(&View { members, at }, &["list"], findings);
            if !more.is_empty() {
                other.push((name.clone(), Node::Object(more)));
            }
        }
        schemes.push((Box::from(name.as_ref()), scopes_of(scopes, at, findings)));
    }
    schemes.sort();
    let other = if other.is_empty() { Box::default() } else { canonical(&other, "") };
    Requirement { schemes, other }
}

/// Scopes are a list, or a list under `list`; `null` and an empty object are none.
fn scopes_of(node: &Node<'_>, at: Place<'_>, findings: &mut Findings) -> Vec<Box<str>> {
    let list = at.key("list");
    let (node, at) = match node {
        Node::Object(_) => (node.member("list").unwrap_or(&Node::Null), list),
        other => (other, at),
    };
    match node {
        Node::Null => Vec::new(),
        Node::Array(items) => sorted(strings(items, at, findings).into_iter()),
        other => {
            wrong_type(at, other, "an array of scopes", findings);
            Vec::new()
        }
    }
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
