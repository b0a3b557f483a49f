//! A refusal as a typed message.

use super::answer::{change, freshness, millis};
use crate::fence::{Condition, Outcome};
use crate::proto::v1 as pb;
use crate::registry::Parts;

/// The longest text for people in a problem or a status message, in bytes.
const TEXT_MAX: usize = 512;

/// All that the refusal says; `fit` cuts it to the room there is.
pub(in super::super) fn problem(parts: Parts) -> pb::Problem {
    let violation = |violation: crate::card::Violation| pb::Violation {
        code: violation.code.to_string(),
        pointer: violation.pointer,
        message: violation.message,
    };
    let mut detail = parts.detail;
    cut(&mut detail, TEXT_MAX);
    pb::Problem {
        reason: parts.reason.slug().to_owned(),
        detail,
        conditions: parts.conditions.into_iter().map(condition).collect(),
        violations: parts.violations.into_iter().map(violation).collect(),
        freshness: parts.freshness.as_ref().map(freshness),
        card: parts.card.map(|card| card.bytes().clone()),
        agent: parts.agent.map(|agent| agent.to_string()),
        revision: parts.revision,
        change: parts.change.map(change),
        retry_after_ms: parts.retry_after.map(millis),
        card_omitted: false,
        conditions_omitted: 0,
        violations_omitted: 0,
    }
}

fn condition(condition: Condition) -> pb::Condition {
    let outcome = match condition.outcome {
        Outcome::Passed => pb::ConditionOutcome::Passed,
        Outcome::Failed => pb::ConditionOutcome::Failed,
        Outcome::Unverifiable => pb::ConditionOutcome::Unverifiable,
    };
    pb::Condition {
        condition: condition.condition.to_owned(),
        outcome: outcome.into(),
        wanted: condition.wanted,
        found: condition.found,
        cut: false,
    }
}

/// Cuts a text to at most `max` bytes, the ellipsis included; true when it was longer.
pub(in super::super) fn cut(text: &mut String, max: usize) -> bool {
    const ELLIPSIS: char = '…';
    if text.len() <= max {
        return false;
    }
    let mut end = max.saturating_sub(ELLIPSIS.len_utf8());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text.push(ELLIPSIS);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters_and_say_so() {
        let mut text = "aéé".to_owned();
        assert!(!cut(&mut text, 5));
        let mut text = "aéééé".to_owned();
        assert!(cut(&mut text, 7));
        assert_eq!(text, "aé…");
    }
}
