//! Where an agent is reached, and in which protocol version.
//!
//! Owns the reading of endpoints of every generation into one ordered list. The first is the preferred one.
//! A superset's interfaces are those of `supportedInterfaces`, then the legacy ones not among them.

use std::collections::HashSet;

use super::document::Limits;
use super::finding::{Code, Findings, Oddity, shown};
use super::generation::{Generation, ProtocolVersion, Shape};
use super::node::{Node, Place};
use super::view::View;

/// The binding of a v0.x interface that names none.
const DEFAULT_BINDING: &str = "JSONRPC";

/// One way to reach an agent.
#[derive(Debug, Clone)]
pub struct Interface {
    pub url: Box<str>,
    /// `JSONRPC`, `GRPC`, `HTTP+JSON` or any other text; empty when absent.
    pub binding: Box<str>,
    /// `Major.Minor`; empty when unknown.
    pub version: Box<str>,
    /// Empty when absent.
    pub tenant: Box<str>,
    /// Where it lies in the document.
    pub pointer: Box<str>,
}

impl Interface {
    /// What makes two interfaces the same: all but the place.
    pub fn key(&self) -> (&str, &str, &str, &str) {
        (&self.url, &self.binding, &self.version, &self.tenant)
    }
}

/// All interfaces of a document, equal ones once. None at all is a violation.
pub(super) fn read(
    root: &View<'_, '_>,
    generation: Option<Generation>,
    findings: &mut Findings,
) -> Vec<Interface> {
    let mut interfaces = Vec::new();
    supported(root, &mut interfaces, findings);
    let shape = generation.map_or(Shape::V0, Generation::shape);
    if shape != Shape::V1 {
        let default = generation.map_or("0.3", Generation::default_version);
        legacy(root, default, &mut interfaces, findings);
    }
    if generation == Some(Generation::V0_3ClaimsV1) {
        findings.warn(
            Oddity::ClaimsLaterVersion,
            || "/protocolVersion".to_owned(),
            || "a v0.3 body that claims 1.x; read as v0.3 shape, spoken version as claimed".to_owned(),
        );
    }
    endpoint(root, shape, &interfaces, findings);
    let mut seen = HashSet::new();
    let fresh: Vec<bool> = interfaces.iter().map(|interface| seen.insert(interface.key())).collect();
    drop(seen);
    let mut fresh = fresh.into_iter();
    interfaces.retain(|_| fresh.next().unwrap_or_default());
    interfaces
}

/// Refuses a document without an endpoint. One that could not be read was refused for its type.
fn endpoint(root: &View<'_, '_>, shape: Shape, interfaces: &[Interface], findings: &mut Findings) {
    let url = root.find("url").map(|found| found.value);
    // A v0.x card is found by its `url`: without one its additional interfaces are additional to nothing.
    let unreachable =
        shape == Shape::V0 && url.and_then(Node::as_text).is_none_or(|url| url.trim().is_empty());
    let list = root.find("supportedInterfaces").map(|found| found.value);
    let unread =
        url.is_some_and(|url| url.as_text().is_none()) || list.is_some_and(|list| list.as_array().is_none());
    if unread || !unreachable && !interfaces.is_empty() {
        return;
    }
    let (pointer, allowed) = match shape {
        Shape::V0 => ("/url", "a `url` that is not empty, or `supportedInterfaces` that have one"),
        Shape::V1 | Shape::Superset => {
            ("/supportedInterfaces", "an interface with a `url` that is not empty")
        }
    };
    findings.refuse(
        Code::EndpointMissing,
        || pointer.to_owned(),
        || format!("no endpoint; a card has {allowed}"),
    );
}

fn supported(root: &View<'_, '_>, interfaces: &mut Vec<Interface>, findings: &mut Findings) {
    let Some((key, entries)) = root.array("supportedInterfaces", findings) else { return };
    let list = root.at.key(key);
    let mut of_document: Option<Option<String>> = None;
    for (n, entry) in entries.iter().enumerate() {
        let Some(view) = View::of(entry, list.index(n), findings) else { continue };
        view.tolerate(&["url", "protocolBinding", "tenant", "protocolVersion"], findings);
        let Some(url) = url_of(&view, findings) else { continue };
        view.note(&["transport"], Oddity::LegacyMember, "a member of v0.3 in an interface of v1.0", findings);
        let transport = view.text("transport", findings).filter(|binding| !binding.is_empty());
        let binding = view.text("protocolBinding", findings).filter(|binding| !binding.is_empty());
        if let (Some(binding), Some(transport)) = (binding, transport)
            && binding != transport
        {
            findings.refuse(
                Code::Contradiction,
                || view.place("transport").to_string(),
                || {
                    let (transport, binding) = (shown(transport), shown(binding));
                    format!("{transport}, but `protocolBinding` is {binding}; equal ones or one of them is allowed")
                },
            );
        }
        let binding = binding.or(transport);
        if binding.is_none() {
            findings.warn(
                Oddity::BindingMissing,
                || view.at.to_string(),
                || "an interface without a `protocolBinding`; its binding is unknown".to_owned(),
            );
        }
        let own = view.text("protocolVersion", findings).filter(|version| !version.is_empty());
        let version = match own {
            Some(version) => Some(version_of(version, view.place("protocolVersion"), findings)),
            None => of_document.get_or_insert_with(|| document_version(root, findings)).clone(),
        };
        if version.is_none() {
            findings.warn(
                Oddity::ProtocolVersionMissing,
                || view.at.to_string(),
                || "an interface without a `protocolVersion`; what it speaks is unknown".to_owned(),
            );
        }
        let tenant = view.text("tenant", findings).unwrap_or_default();
        interfaces.push(interface(
            url,
            binding.unwrap_or_default(),
            version.unwrap_or_default(),
            tenant,
            view.at,
            findings,
        ));
    }
}

/// The URL of an entry in a list of interfaces. One without is left out.
fn url_of<'n>(view: &View<'n, '_>, findings: &mut Findings) -> Option<&'n str> {
    let url = view.text("url", findings).filter(|url| !url.trim().is_empty());
    if url.is_none() {
        findings.warn(
            Oddity::UrlMissing,
            || view.at.to_string(),
            || "an interface without a `url`, left out".to_owned(),
        );
    }
    url
}

/// The version that a v1.0 body states for all its interfaces, as the shapes before v1.0 did.
fn document_version(root: &View<'_, '_>, findings: &mut Findings) -> Option<String> {
    let versions = root.texts("protocolVersions", findings);
    if let Some(version) = versions.first().filter(|version| !version.is_empty()) {
        return Some(version_of(version, root.place("protocolVersions").index(0), findings));
    }
    let version = root.text("protocolVersion", findings).filter(|version| !version.is_empty())?;
    Some(version_of(version, root.place("protocolVersion"), findings))
}

fn legacy(root: &View<'_, '_>, default: &str, interfaces: &mut Vec<Interface>, findings: &mut Findings) {
    let version = match root.text("protocolVersion", findings).filter(|version| !version.is_empty()) {
        Some(version) => version_of(version, root.place("protocolVersion"), findings),
        None => default.to_owned(),
    };
    let transport = root.text("preferredTransport", findings).filter(|binding| !binding.is_empty());
    let url = root.text("url", findings).filter(|url| !url.trim().is_empty());
    if let Some(url) = url {
        let binding = transport.unwrap_or(DEFAULT_BINDING);
        interfaces.push(interface(url, binding, version.clone(), "", root.at.key("url"), findings));
    }
    let Some((key, entries)) = root.array("additionalInterfaces", findings) else { return };
    let list = root.at.key(key);
    for (n, entry) in entries.iter().enumerate() {
        let Some(view) = View::of(entry, list.index(n), findings) else { continue };
        view.tolerate(&["url", "transport"], findings);
        let Some(url) = url_of(&view, findings) else { continue };
        let binding = view.text("transport", findings).filter(|binding| !binding.is_empty());
        let binding = binding.unwrap_or(DEFAULT_BINDING);
        interfaces.push(interface(url, binding, version.clone(), "", view.at, findings));
    }
}

fn interface(
    url: &str,
    binding: &str,
    version: String,
    tenant: &str,
    at: Place<'_>,
    findings: &mut Findings,
) -> Interface {
    let lower = url.get(..8).unwrap_or(url).to_ascii_lowercase();
    let scheme = url.split(['/', '?', '#']).next().unwrap_or_default().contains(':');
    // gRPC endpoints are `host:port` by the specification.
    if !lower.starts_with("http://")
        && !lower.starts_with("https://")
        && !binding.eq_ignore_ascii_case("grpc")
    {
        let (oddity, reading) = match scheme {
            true => (Oddity::UrlNotHttp, "is neither http nor https"),
            false => (Oddity::UrlRelative, "is relative, to what the card does not say"),
        };
        findings.warn(oddity, || at.to_string(), || format!("the URL {} {reading}", shown(url)));
    }
    Interface {
        url: url.into(),
        binding: binding.into(),
        version: version.into(),
        tenant: tenant.into(),
        pointer: at.to_string().into(),
    }
}

/// `Major.Minor` of a protocol version. One that cannot be read stays as it is, with a warning.
fn version_of(text: &str, at: Place<'_>, findings: &mut Findings) -> String {
    if text.len() > Limits::MAX_TEXT_BYTES {
        // It was refused; what is said of a refused document does not repeat it.
        return String::new();
    }
    ProtocolVersion::parse(text).map_or_else(
        || {
            findings.warn(
                Oddity::ProtocolVersionUnreadable,
                || at.to_string(),
                || format!("the version {} is not `Major.Minor`; kept as it is", shown(text)),
            );
            text.to_owned()
        },
        ProtocolVersion::major_minor,
    )
}
