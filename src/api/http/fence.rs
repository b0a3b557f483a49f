//! What a request demands: its query and its `Cache-Control` become a fence, or a read.
//!
//! The query beats the header.

use std::time::Duration;

use http::HeaderMap;

use super::cache_control::Directives;
use super::parameter as p;
use super::problem::invalid;
use super::query::Params;
use crate::fence::Fence;
use crate::registry::{Read, Refusal};
use crate::wire;

/// A fence as it was asked for.
#[derive(Debug)]
pub(super) struct Demanded {
    pub(super) fence: Fence,
    pub(super) wait: Option<Duration>,
    /// Anything was demanded at all: the answer is for this caller alone.
    pub(super) is_fenced: bool,
}

/// The fence of a resolve.
///
/// # Errors
/// `invalid_argument`, which names the parameter or directive.
pub(super) fn demanded(params: &Params, headers: &HeaderMap) -> Result<Demanded, Refusal> {
    let directives = Directives::of(headers)?;
    let mut fence: Fence = text(params)?.try_into().map_err(invalid)?;
    fence.max_staleness = fence.max_staleness.or(directives.max_staleness());
    Ok(Demanded {
        fence,
        wait: wait(params)?.or(directives.wait()),
        is_fenced: !params.is_empty() || directives.is_fence(),
    })
}

/// What a read that is no resolve demands.
///
/// # Errors
/// As [`demanded`].
pub(super) fn read(params: &Params, headers: &HeaderMap) -> Result<Read, Refusal> {
    let directives = Directives::of(headers)?;
    let max_staleness = params.text(p::MAX_STALENESS).map(|t| wire::max_staleness(p::MAX_STALENESS, t));
    let at_least = params.text(p::AT_LEAST).map(|t| wire::position(p::AT_LEAST, t));
    Ok(Read {
        max_staleness: max_staleness.transpose().map_err(invalid)?.or(directives.max_staleness()),
        at_least: at_least.transpose().map_err(invalid)?,
        wait: wait(params)?.or(directives.wait()),
    })
}

fn wait(params: &Params) -> Result<Option<Duration>, Refusal> {
    duration(params, p::WAIT)
}

/// The duration that a parameter says.
///
/// # Errors
/// `invalid_argument`.
pub(super) fn duration(params: &Params, name: &'static str) -> Result<Option<Duration>, Refusal> {
    params.text(name).map(|text| wire::duration(name, text)).transpose().map_err(invalid)
}

fn text(params: &Params) -> Result<wire::Fence, Refusal> {
    let mut skills: Vec<wire::Skill> = params.skills().cloned().collect();
    for (name, is_input) in [(p::INPUT_MODE, true), (p::OUTPUT_MODE, false)] {
        for mode in params.texts(name) {
            if skills.is_empty() {
                return Err(Refusal::invalid(format!("{name} needs a skill that it applies to")));
            }
            for skill in &mut skills {
                let modes = if is_input { &mut skill.input_modes } else { &mut skill.output_modes };
                modes.push(mode.to_owned());
            }
        }
    }
    Ok(wire::Fence {
        max_staleness: params.owned(p::MAX_STALENESS),
        at_least: params.owned(p::AT_LEAST),
        min_revision: params.owned(p::MIN_REVISION).map(wire::RevisionText::Text),
        min_version: params.owned(p::MIN_VERSION),
        skills,
        streaming: params.flag(p::STREAMING)?,
        push_notifications: params.flag(p::PUSH_NOTIFICATIONS)?,
        extended_card: params.flag(p::EXTENDED_CARD)?,
        extensions: params.texts(p::EXTENSION).map(str::to_owned).collect(),
        pin: params.owned(p::PIN),
        pin_skills: params.owned(p::PIN_SKILLS),
        pin_negotiation: params.owned(p::PIN_NEGOTIATION),
        max_origin_age: params.owned(p::MAX_ORIGIN_AGE),
    })
}
