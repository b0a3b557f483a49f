//! The report of a refusal: each condition that was set, in words.
//!
//! Names are those of the HTTP query. What was wanted and found is text for people and logs; programs read
//! the reason and the outcome.

use std::time::Duration;

use super::condition::{Condition, Outcome, freshness};
use super::{Facts, Fence, Placed, SkillWanted, Standing};
use crate::card::{Skill, modes, version};
use crate::terms::{Digest, MaxStaleness, Reason, ceil_millis, display_duration};

const NOTHING: &str = "none";
/// Bytes that one condition shows of what was found. A card is large, and a batch asks of it thousands of times.
const FOUND_MAX: usize = 1_024;

pub(super) fn conditions(
    fence: &Fence,
    standing: &Standing,
    default: Duration,
    facts: Option<&Facts<'_>>,
) -> Vec<Condition> {
    let mut all = Vec::new();
    if let Some(position) = &fence.at_least {
        all.push(Condition {
            condition: "at_least",
            outcome: placed(standing.placed),
            wanted: position.to_string(),
            found: place_name(standing.placed).to_owned(),
        });
    }
    if let MaxStaleness::Within(bound) = fence.tolerance(default) {
        all.push(staleness(bound, standing));
    }
    if let Some(facts) = facts {
        content(fence, standing, facts, &mut all);
    }
    all
}

fn placed(placed: Placed) -> Outcome {
    match placed {
        Placed::Reached => Outcome::Passed,
        Placed::Unverifiable => Outcome::Unverifiable,
        Placed::Diverged | Placed::InFuture | Placed::NotReached => Outcome::Failed,
    }
}

fn place_name(placed: Placed) -> &'static str {
    match placed {
        Placed::Reached => "applied",
        Placed::Diverged => "another history",
        Placed::InFuture => "beyond the authority's head",
        Placed::NotReached => "not applied in time",
        Placed::Unverifiable => "the authority could not be asked",
    }
}

fn staleness(bound: Duration, standing: &Standing) -> Condition {
    let outcome = match freshness(MaxStaleness::Within(bound), standing) {
        None => Outcome::Passed,
        Some(Reason::TooStale) => Outcome::Failed,
        Some(_) => Outcome::Unverifiable,
    };
    let found = match standing.staleness {
        Some(staleness) => format!("{}ms", ceil_millis(staleness)),
        None => "unknown".to_owned(),
    };
    Condition { condition: "max_staleness", outcome, wanted: display_duration(bound), found }
}

fn content(fence: &Fence, standing: &Standing, facts: &Facts<'_>, all: &mut Vec<Condition>) {
    if let Some(floor) = &fence.min_revision {
        let outcome = match placed(standing.placed) {
            Outcome::Passed => Outcome::passed_if(facts.revision >= floor.number),
            other if floor.seen_at.is_some() => other,
            _ => Outcome::passed_if(facts.revision >= floor.number),
        };
        let found = facts.revision.to_string();
        all.push(Condition { condition: "min_revision", outcome, wanted: floor.to_string(), found });
    }
    pin("pin", fence.pin, facts.card.content_digest(), Digest::tagged, all);
    pin("pin_skills", fence.pin_skills, facts.card.skill_fingerprint(), Digest::hex, all);
    pin("pin_negotiation", fence.pin_negotiation, facts.card.negotiation_fingerprint(), Digest::hex, all);
    if let Some(floor) = &fence.min_version {
        let found = facts.card.version().unwrap_or("");
        let outcome = match version::compare(found, floor) {
            None => Outcome::Unverifiable,
            Some(order) => Outcome::passed_if(order.is_ge()),
        };
        let found = if found.is_empty() { NOTHING.to_owned() } else { joined("", [found]) };
        all.push(Condition { condition: "min_version", outcome, wanted: floor.clone(), found });
    }
    for wanted in &fence.skills {
        all.push(skill(wanted, facts));
    }
    capabilities(fence, facts, all);
    if let Some(wanted) = fence.max_origin_age {
        let age = facts.origin_age();
        all.push(Condition {
            condition: "max_origin_age",
            outcome: age.map_or(Outcome::Unverifiable, |age| Outcome::passed_if(age <= wanted)),
            wanted: display_duration(wanted),
            found: age.map_or_else(|| "unknown".to_owned(), |age| format!("{}ms", ceil_millis(age))),
        });
    }
}

fn pin(
    condition: &'static str,
    wanted: Option<Digest>,
    found: Digest,
    text: fn(&Digest) -> String,
    all: &mut Vec<Condition>,
) {
    if let Some(wanted) = wanted {
        let outcome = Outcome::passed_if(wanted == found);
        all.push(Condition { condition, outcome, wanted: text(&wanted), found: text(&found) });
    }
}

/// A skill and its modes are one condition: what is missing shows in `found`.
fn skill(wanted: &SkillWanted, facts: &Facts<'_>) -> Condition {
    let (outcome, found) = match facts.card.normal().skill(&wanted.id) {
        Some(skill) => {
            let missing = missing_modes(skill, wanted);
            (
                Outcome::passed_if(missing.is_empty()),
                joined("", described(&skill.id, &skill.effective_input, &skill.effective_output)),
            )
        }
        None => (Outcome::Failed, listed(facts.card.normal().skills.iter().map(|skill| &*skill.id))),
    };
    Condition {
        condition: "skills",
        outcome,
        wanted: described(&wanted.id, &wanted.input_modes, &wanted.output_modes).collect(),
        found,
    }
}

fn missing_modes<'a>(skill: &Skill, wanted: &'a SkillWanted) -> Vec<&'a str> {
    let lacks =
        |there: &[Box<str>], wanted: &&'a String| !there.iter().any(|mode| modes::accepts(mode, wanted));
    let input = wanted.input_modes.iter().filter(|mode| lacks(&skill.effective_input, mode));
    let output = wanted.output_modes.iter().filter(|mode| lacks(&skill.effective_output, mode));
    input.chain(output).map(String::as_str).collect()
}

/// A skill as a fence names it, in pieces.
fn described<'a, M: AsRef<str>>(
    id: &'a str,
    input: &'a [M],
    output: &'a [M],
) -> impl Iterator<Item = &'a str> {
    let side = |name: &'a str, modes: &'a [M]| modes.iter().flat_map(move |mode| [name, mode.as_ref()]);
    std::iter::once(id).chain(side(";in=", input)).chain(side(";out=", output))
}

fn listed<'a>(items: impl Iterator<Item = &'a str>) -> String {
    let text = joined(", ", items);
    if text.is_empty() { NOTHING.to_owned() } else { text }
}

/// The pieces as one text, which ends early, and in an ellipsis, when it is long.
fn joined<'a>(between: &str, pieces: impl IntoIterator<Item = &'a str>) -> String {
    let mut text = String::new();
    for (at, piece) in pieces.into_iter().enumerate() {
        if at > 0 {
            text.push_str(between);
        }
        let room = FOUND_MAX.saturating_sub(text.len());
        if piece.len() > room {
            let fits = piece.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| *end <= room);
            text.push_str(&piece[..fits.last().unwrap_or(0)]);
            text.push('…');
            break;
        }
        text.push_str(piece);
    }
    text
}

fn capabilities(fence: &Fence, facts: &Facts<'_>, all: &mut Vec<Condition>) {
    let there = &facts.card.normal().capabilities;
    let switches = [
        ("streaming", fence.capabilities.streaming, there.streaming),
        ("push_notifications", fence.capabilities.push_notifications, there.push_notifications),
        ("extended_card", fence.capabilities.extended_card, there.extended_card),
    ];
    for (condition, wanted, found) in switches {
        if wanted {
            let outcome = Outcome::passed_if(found);
            all.push(Condition { condition, outcome, wanted: "true".to_owned(), found: found.to_string() });
        }
    }
    for uri in &fence.capabilities.extensions {
        let extensions = &facts.card.normal().extensions;
        let here = extensions.iter().any(|extension| *extension.uri == **uri);
        all.push(Condition {
            condition: "extension",
            outcome: Outcome::passed_if(here),
            wanted: uri.clone(),
            found: listed(extensions.iter().map(|extension| &*extension.uri)),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_is_shown_in_bounded_length() {
        assert_eq!(joined(", ", ["a", "b"]), "a, b");
        assert_eq!(listed(std::iter::empty()), NOTHING);
        let exact = "é".repeat(FOUND_MAX / 2);
        assert_eq!(joined("", [exact.as_str()]), exact);
        let long = joined(", ", std::iter::repeat_n("ü", 10_000));
        assert!(long.ends_with('…') && long.len() <= FOUND_MAX + '…'.len_utf8(), "{}", long.len());
        let wanted = described("id", &["a/b"], &["c/d"]).collect::<String>();
        assert_eq!(wanted, "id;in=a/b;out=c/d");
    }
}
