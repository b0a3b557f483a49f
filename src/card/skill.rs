//! What an agent offers: its skills and the media types they take and give.
//!
//! Owns the difference between *declared* and *effective* modes: a skill without modes takes the card's
//! defaults, and an empty list is no modes, since A2A's serialisers write "absent" that way too.

use std::collections::HashSet;

use super::finding::{Code, Findings, shown};
use super::generation::Shape;
use super::node::{Node, Place};
use super::normal::{Modes, normal_modes};
use super::security::{self, Requirement};
use super::view::{View, unexpected_type};

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
    /// Whether the document calls them `input_modes` and `output_modes`.
    aliased: (bool, bool),
}

/// Which of a skill's two lists of modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Input,
    Output,
}

impl Skill {
    pub(super) fn effective(&self, side: Side) -> &Modes {
        match side {
            Side::Input => &self.effective_input,
            Side::Output => &self.effective_output,
        }
    }

    /// Where the effective modes of the skill `/skills/<index>` are written.
    pub(super) fn modes_pointer(&self, index: usize, side: Side) -> String {
        let (declared, aliased, names) = match side {
            Side::Input => (self.declared_input.is_some(), self.aliased.0, ["inputModes", "input_modes"]),
            Side::Output => (self.declared_output.is_some(), self.aliased.1, ["outputModes", "output_modes"]),
        };
        match declared {
            true => format!("/skills/{index}/{}", names[usize::from(aliased)]),
            false => format!("/skills/{index}"),
        }
    }
}

/// The modes that a list in the document states.
pub(super) struct Stated {
    pub(super) modes: Modes,
    aliased: bool,
}

impl Stated {
    fn read(view: &View<'_, '_>, name: &str, findings: &mut Findings) -> Self {
        let (key, texts) = view.texts(name, findings).unwrap_or((name, Vec::new()));
        Self { modes: normal_modes(&texts), aliased: key != name }
    }
}

/// The card's default modes.
pub(super) struct Defaults {
    pub(super) input: Stated,
    pub(super) output: Stated,
}

impl Defaults {
    pub(super) fn read(root: &View<'_, '_>, findings: &mut Findings) -> Self {
        Self {
            input: Stated::read(root, "defaultInputModes", findings),
            output: Stated::read(root, "defaultOutputModes", findings),
        }
    }
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
    let input = Stated::read(&view, "inputModes", findings);
    let output = Stated::read(&view, "outputModes", findings);
    let declared = |stated: &Stated| (!stated.modes.is_empty()).then(|| Modes::clone(&stated.modes));
    let (declared_input, declared_output) = (declared(&input), declared(&output));
    Some(Skill {
        id: id?.into(),
        name: view.prose("name", findings).unwrap_or_default().into(),
        description: view.prose("description", findings).unwrap_or_default().into(),
        tags: tags(&view, findings),
        effective_input: declared_input.clone().unwrap_or_else(|| Modes::clone(&defaults.input.modes)),
        effective_output: declared_output.clone().unwrap_or_else(|| Modes::clone(&defaults.output.modes)),
        declared_input,
        declared_output,
        security: security::requirements(&view, shape, findings),
        aliased: (input.aliased, output.aliased),
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
