//! What a task needs of an agent, and the card that it was agreed under.

use std::sync::Arc;
use std::time::Duration;

use crate::card::{Card, Skill, modes};
use crate::client::answer::{Resolved, Revision};
use crate::fence::{Fence, SkillWanted};
use crate::terms::AgentName;

/// What a caller is about to ask of an agent.
///
/// ```
/// use std::time::Duration;
///
/// use cardfence::client::Intent;
///
/// let intent = Intent {
///     output_modes: vec!["text/markdown".to_owned()],
///     expected_duration: Some(Duration::from_secs(40 * 60)),
///     needs_push: true,
///     ..Intent::skill("summarize-v2")
/// };
/// assert_eq!(intent.start_fence().count(), 2);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Intent {
    /// The skill's id.
    pub skill: String,
    /// Media types that the task will send.
    pub input_modes: Vec<String>,
    /// Media types that the task must be able to get.
    pub output_modes: Vec<String>,
    /// How long the task will take; `None`: nobody knows, and then no card in hand is young enough.
    pub expected_duration: Option<Duration>,
    pub needs_push: bool,
    pub needs_streaming: bool,
    /// Further conditions: a staleness, a floor, a pin. Its skills are wanted beside `skill`.
    pub fence: Fence,
    /// How long a start may wait for freshness, at most 10 s; `None`: the registry's default.
    pub wait: Option<Duration>,
}

impl Intent {
    /// An intent that needs this skill and nothing else.
    pub fn skill(id: impl Into<String>) -> Self {
        Self { skill: id.into(), ..Self::default() }
    }

    /// All that must hold when the task starts.
    pub fn start_fence(&self) -> Fence {
        let mut fence = self.fence.clone();
        fence.skills.insert(0, self.wanted());
        fence.capabilities.streaming |= self.needs_streaming;
        fence.capabilities.push_notifications |= self.needs_push;
        fence
    }

    /// What must hold for as long as the task is held: the skill and the modes that it needs.
    pub fn held_fence(&self) -> Fence {
        Fence { skills: vec![self.wanted()], ..Fence::default() }
    }

    fn wanted(&self) -> SkillWanted {
        SkillWanted {
            id: self.skill.clone(),
            input_modes: self.input_modes.clone(),
            output_modes: self.output_modes.clone(),
        }
    }

    /// Whether a held task can go on under `card`.
    pub(super) fn is_held_by(&self, card: &Card) -> bool {
        let covered = |there: &[Box<str>], wanted: &[String]| {
            wanted.iter().all(|wanted| there.iter().any(|mode| modes::accepts(mode, wanted)))
        };
        card.normal().skill(&self.skill).is_some_and(|skill: &Skill| {
            covered(&skill.effective_input, &self.input_modes)
                && covered(&skill.effective_output, &self.output_modes)
        })
    }
}

/// A task's card: carried from the first fence to the last artifact, whatever becomes current meanwhile.
///
/// Cheap to clone. While a clone lives the task counts as held; drop it when the task has ended.
#[derive(Debug, Clone)]
pub struct Negotiated(pub(super) Arc<Agreement>);

#[derive(Debug)]
pub(super) struct Agreement {
    pub(super) resolved: Resolved,
    pub(super) intent: Intent,
    pub(super) from_memo: bool,
}

impl Negotiated {
    pub fn agent(&self) -> &AgentName {
        &self.revision().agent
    }

    pub fn revision(&self) -> &Arc<Revision> {
        &self.0.resolved.revision
    }

    pub fn card(&self) -> &Arc<Card> {
        self.0.resolved.card()
    }

    /// What was found, with the freshness it had then.
    pub fn resolved(&self) -> &Resolved {
        &self.0.resolved
    }

    pub fn intent(&self) -> &Intent {
        &self.0.intent
    }

    /// Whether a card in hand served, so that nobody was asked for this task.
    pub fn from_memo(&self) -> bool {
        self.0.from_memo
    }
}
