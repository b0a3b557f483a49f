//! The normal form: what a card says, whichever generation it says it in.
//!
//! Owns the types that everything which reasons about a card reads, and the reading of the top level.
//! Interfaces, security and skills have files of their own. Keeps no JSON: a registry holds a normal form
//! for every live agent, so it is made of short boxed texts, and lists that are often equal are shared.
//! Invariant: the normal form of an accepted card has a name, an interface, and skills with distinct ids.

use std::collections::HashSet;
use std::sync::Arc;

use super::document::Limits;
use super::finding::{Code, Findings, Oddity};
use super::generation::{Generation, Shape};
use super::interface::{self, Interface};
use super::modes;
use super::node::{Node, Place};
use super::security::{self, Requirement, Scheme, Undefined};
use super::skill::{self, Skill};
use super::view::{View, unexpected_type};

/// Media types in the card's order: lower case, without parameters, each once.
pub type Modes = Arc<[Box<str>]>;

/// What a card says, free of its generation.
#[derive(Debug, Clone)]
pub struct Normal {
    pub name: Box<str>,
    /// Empty when absent.
    pub description: Box<str>,
    /// The card's own version; an empty one is absent.
    pub version: Option<Box<str>>,
    /// In order of preference, equal ones once; never empty.
    pub interfaces: Vec<Interface>,
    /// In the card's order: the skill at index `n` is `/skills/n`.
    pub skills: Vec<Skill>,
    pub default_input: Modes,
    pub default_output: Modes,
    pub capabilities: Capabilities,
    /// By URI, each once.
    pub extensions: Vec<Extension>,
    /// By name.
    pub schemes: Vec<(Box<str>, Scheme)>,
    /// What it says of them that A2A does not define.
    pub undefined: Undefined,
    /// Any one of these suffices.
    pub security: Vec<Requirement>,
    /// Indices into `skills`, by id.
    by_id: Box<[u32]>,
}

/// What a server says that it can do. Absent is false.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Capabilities {
    pub streaming: bool,
    pub push_notifications: bool,
    pub extended_card: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extension {
    /// Empty when absent.
    pub uri: Box<str>,
    pub required: bool,
    /// Its first place in `/capabilities/extensions`.
    pub index: u32,
}

impl Normal {
    pub fn skill(&self, id: &str) -> Option<&Skill> {
        self.skills.get(self.skill_index(id)?)
    }

    /// The place of a skill in the document.
    pub(super) fn skill_index(&self, id: &str) -> Option<usize> {
        let place = self.by_id.binary_search_by(|&n| self.skills[n as usize].id.as_ref().cmp(id)).ok()?;
        Some(self.by_id[place] as usize)
    }

    pub fn scheme(&self, name: &str) -> Option<&Scheme> {
        let place = self.schemes.binary_search_by(|(other, _)| other.as_ref().cmp(name)).ok()?;
        self.schemes.get(place).map(|(_, scheme)| scheme)
    }

    /// The skills by id, each with its place in the document.
    pub fn skills_by_id(&self) -> impl Iterator<Item = (usize, &Skill)> {
        self.by_id.iter().map(|&n| (n as usize, &self.skills[n as usize]))
    }

    pub fn extension(&self, uri: &str) -> Option<&Extension> {
        let place = self.extensions.binary_search_by(|extension| extension.uri.as_ref().cmp(uri)).ok()?;
        self.extensions.get(place)
    }

    /// The protocol versions its interfaces speak, in order, each once. Unknown ones are left out.
    pub fn spoken_versions(&self) -> Vec<&str> {
        let mut seen = HashSet::new();
        let versions = self.interfaces.iter().map(|interface| interface.version.as_ref());
        versions.filter(|version| !version.is_empty() && seen.insert(*version)).collect()
    }

    /// Reads a document whose generation is known. What it yields is only meaningful when nothing was refused.
    pub(super) fn read(
        root: &View<'_, '_>,
        generation: Option<Generation>,
        max_skills: usize,
        findings: &mut Findings,
    ) -> Self {
        root.tolerate(&TOP_LEVEL, findings);
        let shape = generation.map_or(Shape::V0, Generation::shape);
        match shape {
            Shape::V0 => root.note(&LATER, Oddity::LaterMember, "a member of v1.0 in a v0.x card", findings),
            Shape::V1 => {
                root.note(&LEGACY, Oddity::LegacyMember, "a member of v0.x in a v1.0 card", findings)
            }
            Shape::Superset => {}
        }
        let name = root.text_within("name", usize::MAX, findings).unwrap_or_default();
        if name.is_empty() && root.find("name").is_none_or(|found| found.value.as_text().is_some()) {
            findings.refuse(
                Code::NameMissing,
                || "/name".to_owned(),
                || "absent or empty; a card has a `name` that is not empty".to_owned(),
            );
        }
        let version = root
            .text_within("version", Limits::MAX_VERSION_BYTES, findings)
            .filter(|version| !version.is_empty());
        if version.is_none() && root.find("version").is_none_or(|found| found.value.as_text().is_some()) {
            findings.warn(
                Oddity::VersionMissing,
                || "/version".to_owned(),
                || "absent or empty; version floors are unverifiable".to_owned(),
            );
        }
        for prose in ["documentationUrl", "iconUrl"] {
            root.prose(prose, findings);
        }
        if let Some(found) = root.find("provider").filter(|found| found.value.as_object().is_none()) {
            unexpected_type(root.at.key(found.key), found.value, "an object", findings);
        }
        let interfaces = interface::read(root, generation, findings);
        let (capabilities, extensions) = capabilities(root, shape, findings);
        let defaults = skill::Defaults::read(root, findings);
        let skills = skill::read(root, shape, &defaults, max_skills, findings);
        let security::Schemes { schemes, undefined } = security::schemes(root, generation, findings);
        let mut security = security::requirements(root, shape, findings);
        if generation == Some(Generation::V0_1) && security.is_empty() {
            security = security::any_of(&schemes);
        }
        let mut by_id: Box<[u32]> = (0..).take(skills.len()).collect();
        by_id.sort_by(|&a, &b| skills[a as usize].id.cmp(&skills[b as usize].id));
        Self {
            name: name.into(),
            description: root.prose("description", findings).unwrap_or_default().into(),
            version: version.map(Into::into),
            interfaces,
            default_input: defaults.input,
            default_output: defaults.output,
            skills,
            capabilities,
            extensions,
            schemes,
            undefined,
            security,
            by_id,
        }
    }
}

/// The media types in `texts`, as everything here compares them.
pub(super) fn normal_modes(texts: &[&str]) -> Modes {
    let mut modes: Vec<Box<str>> = Vec::with_capacity(texts.len());
    let mut seen = HashSet::new();
    for mode in texts.iter().map(|text| modes::normalise(text)) {
        if !mode.is_empty() && seen.insert(mode.clone()) {
            modes.push(mode.into());
        }
    }
    modes.into()
}

fn capabilities(
    root: &View<'_, '_>,
    shape: Shape,
    findings: &mut Findings,
) -> (Capabilities, Vec<Extension>) {
    let legacy = |findings: &mut Findings| {
        let released = root.flag("supportsAuthenticatedExtendedCard", findings);
        let dev_window = root.flag("supportsExtendedAgentCard", findings);
        if let (Some(released), Some(dev_window)) = (released, dev_window)
            && released != dev_window
        {
            findings.refuse(
                Code::Contradiction,
                || root.place("supportsExtendedAgentCard").to_string(),
                || format!("`{dev_window}`, but `supportsAuthenticatedExtendedCard` is `{released}`; equal ones or one of them is allowed"),
            );
        }
        released.or(dev_window)
    };
    let found = root.find("capabilities");
    let view = found.and_then(|found| View::of(found.value, root.at.key(found.key), findings));
    let Some(view) = view else {
        let extended_card = legacy(findings).unwrap_or_default();
        return (Capabilities { extended_card, ..Capabilities::default() }, Vec::new());
    };
    view.tolerate(&CAPABILITIES, findings);
    match shape {
        Shape::V0 => view.note(
            &["extendedAgentCard"],
            Oddity::LaterMember,
            "a member of v1.0 in a v0.x card",
            findings,
        ),
        Shape::V1 => view.note(
            &["stateTransitionHistory"],
            Oddity::LegacyMember,
            "a member of v0.x in a v1.0 card",
            findings,
        ),
        Shape::Superset => {}
    }
    let (own, old) = (view.flag("extendedAgentCard", findings), legacy(findings));
    if let (Some(own), Some(old)) = (own, old)
        && own != old
    {
        findings.refuse(
            Code::Contradiction,
            || view.place("extendedAgentCard").to_string(),
            || format!("`{own}`, but the legacy member at the top level is `{old}`; equal ones or one of them is allowed"),
        );
    }
    let capabilities = Capabilities {
        streaming: view.flag("streaming", findings).unwrap_or_default(),
        push_notifications: view.flag("pushNotifications", findings).unwrap_or_default(),
        extended_card: own.or(old).unwrap_or_default(),
    };
    let extensions = view
        .array("extensions", findings)
        .map_or_else(Vec::new, |(key, items)| extensions(items, view.at.key(key), findings));
    (capabilities, extensions)
}

fn extensions(items: &[Node<'_>], at: Place<'_>, findings: &mut Findings) -> Vec<Extension> {
    let mut extensions = Vec::with_capacity(items.len());
    for (n, (index, item)) in (0..).zip(items).enumerate() {
        let Some(view) = View::of(item, at.index(n), findings) else { continue };
        view.tolerate(&["uri", "description", "required", "params"], findings);
        let uri = view.text("uri", findings).unwrap_or_default();
        if uri.is_empty() {
            findings.warn(
                Oddity::ExtensionUriMissing,
                || view.at.to_string(),
                || "an extension without a `uri`, which no fence can name".to_owned(),
            );
        }
        let required = view.flag("required", findings).unwrap_or_default();
        extensions.push(Extension { uri: uri.into(), required, index });
    }
    extensions.sort_by(|a, b| a.uri.cmp(&b.uri));
    // Named twice, an extension is required if either says so.
    extensions.dedup_by(|next, kept| {
        let same = next.uri == kept.uri;
        kept.required |= same && next.required;
        same
    });
    extensions
}

/// Every member that a release of A2A has defined at the top level.
const TOP_LEVEL: [&str; 23] = [
    "name",
    "description",
    "url",
    "version",
    "protocolVersion",
    "protocolVersions",
    "preferredTransport",
    "additionalInterfaces",
    "supportedInterfaces",
    "provider",
    "documentationUrl",
    "iconUrl",
    "capabilities",
    "authentication",
    "securitySchemes",
    "security",
    "securityRequirements",
    "defaultInputModes",
    "defaultOutputModes",
    "skills",
    "signatures",
    "supportsAuthenticatedExtendedCard",
    "supportsExtendedAgentCard",
];

/// Top-level members of v0.x that v1.0 has no place for. The ones that name an endpoint make a superset.
const LEGACY: [&str; 5] = [
    "protocolVersion",
    "security",
    "authentication",
    "supportsAuthenticatedExtendedCard",
    "supportsExtendedAgentCard",
];

/// Top-level members of v1.0.
const LATER: [&str; 2] = ["supportedInterfaces", "securityRequirements"];

const CAPABILITIES: [&str; 5] =
    ["streaming", "pushNotifications", "extendedAgentCard", "stateTransitionHistory", "extensions"];
