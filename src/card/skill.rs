//! What an agent offers: its skills and the media types they take and give.
//!
//! Owns the difference between *declared* and *effective* modes: a skill without modes takes the card's
//! defaults, and an empty list is no modes, since A2A's serialisers write "absent" that way too.

use std::collections::HashSet;

use super::document::Limits;
use super::finding::{Code, Findings, shown};
use super::generation::Shape;
use super::node::{Node, Place};
use super::normal::{Modes, normal_modes};
use super::security::{self, Requirement};
use super::view::{View, strings, unexpected_type};

#[derive(Debug, Clone)]
pub struct Skill {
    pub id: Box<str>,
    /// Empty when absent.
    pub name: Box<str>,
    /// Empty when absent.
    pub description: Box<str>,
    pub tags: Vec<Box<str>>,
    /// The skill's own modes, or none.
    pub declared_input: Option<Modes>,
    /// The skill's own modes, or none.
    pub declared_output: Option<Modes>,
    /// The declared modes, or the card's defaults; may be empty.
    pub effective_input: Modes,
    /// The declared modes, or the card's defaults; may be empty.
    pub effective_output: Modes,
    /// Requirements of this skill alone; any one of them suffices.
    pub security: Vec<Requirement>,
}

/// The card's default modes.
pub(super) struct Defaults {
    pub(super) input: Modes,
    pub(super) output: Modes,
}

impl Defaults {
    pub(super) fn read(root: &View<'_, '_>, findings: &mut Findings) -> Self {
        Self {
            input: modes(root, "defaultInputModes", findings),
            output: modes(root, "defaultOutputModes", findings),
        }
    }
}

fn modes(view: &View<'_, '_>, name: &str, findings: &mut Findings) -> Modes {
    let Some((key, items)) = view.array(name, findings) else { return Modes::default() };
    let (at, most) = (view.at.key(key), Limits::MAX_MODES);
    if items.len() > most {
        findings.refuse(
            Code::TooManyModes,
            || at.to_string(),
            || format!("{} modes; at most {most} are allowed", items.len()),
        );
        return Modes::default();
    }
    normal_modes(&strings(items, at, findings))
}

/// All skills, in order.
pub(super) fn read(
    root: &View<'_, '_>,
    shape: Shape,
    defaults: &Defaults,
    max_skills: usize,
    findings: &mut Findings,
) -> Vec<Skill> {
    let Some((key, items)) = root.array("skills", findings) else { return Vec::new() };
    let list = root.at.key(key);
    if items.len() > max_skills {
        findings.refuse(
            Code::TooManySkills,
            || list.to_string(),
            || format!("{} skills; at most {max_skills} are allowed", items.len()),
        );
        return Vec::new();
    }
    let mut ids = HashSet::with_capacity(items.len());
    let mut skills = Vec::with_capacity(items.len());
    for (n, item) in items.iter().enumerate() {
        let Some(skill) = one(item, list.index(n), shape, defaults, findings) else { continue };
        if let Some(id) = item.member("id").and_then(Node::as_text).filter(|id| !ids.insert(*id)) {
            findings.refuse(
                Code::SkillIdDuplicate,
                || list.index(n).key("id").to_string(),
                || format!("another skill has the id {}; each id is allowed once", shown(id)),
            );
        }
        skills.push(skill);
    }
    skills
}

fn one(
    item: &Node<'_>,
    at: Place<'_>,
    shape: Shape,
    defaults: &Defaults,
    findings: &mut Findings,
) -> Option<Skill> {
    let view = View::of(item, at, findings)?;
    view.tolerate(&KNOWN, findings);
    let id = view.text("id", findings);
    if id.is_none_or(str::is_empty) && view.find("id").is_none_or(|found| found.value.as_text().is_some()) {
        findings.refuse(
            Code::SkillIdMissing,
            || at.to_string(),
            || "a skill without an id; each skill has an `id` that is not empty".to_owned(),
        );
    }
    let declared = |modes: Modes| (!modes.is_empty()).then_some(modes);
    let declared_input = declared(modes(&view, "inputModes", findings));
    let declared_output = declared(modes(&view, "outputModes", findings));
    Some(Skill {
        id: id?.into(),
        name: view.prose("name", findings).unwrap_or_default().into(),
        description: view.prose("description", findings).unwrap_or_default().into(),
        tags: tags(&view, findings),
        effective_input: declared_input.clone().unwrap_or_else(|| defaults.input.clone()),
        effective_output: declared_output.clone().unwrap_or_else(|| defaults.output.clone()),
        declared_input,
        declared_output,
        security: security::requirements(&view, shape, findings),
    })
}

fn tags(view: &View<'_, '_>, findings: &mut Findings) -> Vec<Box<str>> {
    let Some(found) = view.find("tags") else { return Vec::new() };
    let at = view.at.key(found.key);
    let Some(items) = found.value.as_array() else {
        unexpected_type(at, found.value, "an array of strings", findings);
        return Vec::new();
    };
    let mut tags = Vec::with_capacity(items.len());
    for (n, item) in items.iter().enumerate() {
        match item.as_text() {
            Some(tag) => tags.push(tag.into()),
            None => unexpected_type(at.index(n), item, "a string", findings),
        }
    }
    tags
}

const KNOWN: [&str; 9] = [
    "id",
    "name",
    "description",
    "tags",
    "examples",
    "inputModes",
    "outputModes",
    "security",
    "securityRequirements",
];
