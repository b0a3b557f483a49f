//! The report of a refusal: each condition that was set, in words.
//!
//! Names are those of the HTTP query. What was wanted and found is text for people and logs; programs read
//! the reason and the outcome. Where there is no card, what is asked of it is unverifiable.

use std::time::Duration;

use super::condition::{Condition, Outcome, freshness};
use super::{Facts, Fence, Placed, SkillWanted, Standing, has_modes};
use crate::card::{Capabilities, version};
use crate::terms::{Digest, MaxStaleness, Reason, ceil_millis, display_duration};

const NOTHING: &str = "none";
const NO_CARD: &str = "no card";
/// Bytes that one condition shows of what was found. A card is large, and a batch asks of it thousands of times.
const FOUND_MAX: usize = 1_024;

/// The facts of the card, if there is one.
type Held<'a> = Option<&'a Facts<'a>>;

pub(super) fn conditions(
    fence: &Fence,
    standing: &Standing,
    tolerance: MaxStaleness,
    facts: Held<'_>,
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
    if let MaxStaleness::Within(bound) = tolerance {
        all.push(staleness(bound, standing));
    }
    content(fence, standing, facts, &mut all);
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

fn content(fence: &Fence, standing: &Standing, facts: Held<'_>, all: &mut Vec<Condition>) {
    if let Some(floor) = &fence.min_revision {
        all.push(condition("min_revision", floor.to_string(), facts, |facts| {
            let reached = Outcome::passed_if(facts.revision >= floor.number);
            let outcome = match placed(standing.placed) {
                Outcome::Failed | Outcome::Unverifiable if floor.seen_at.is_some() => placed(standing.placed),
                _ => reached,
            };
            (outcome, facts.revision.to_string())
        }));
    }
    let mut pin =
        |name, wanted: Option<Digest>, text: fn(&Digest) -> String, of: fn(&Facts<'_>) -> Digest| {
            if let Some(wanted) = wanted {
                all.push(condition(name, text(&wanted), facts, |facts| {
                    let found = of(facts);
                    (Outcome::passed_if(wanted == found), text(&found))
                }));
            }
        };
    pin("pin", fence.pin, Digest::tagged, |facts| facts.card.content_digest());
    pin("pin_skills", fence.pin_skills, Digest::hex, |facts| facts.card.skill_fingerprint());
    pin("pin_negotiation", fence.pin_negotiation, Digest::hex, |facts| facts.card.negotiation_fingerprint());
    if let Some(floor) = &fence.min_version {
        all.push(condition("min_version", floor.clone(), facts, |facts| {
            let found = facts.card.version().unwrap_or("");
            let order = version::compare(found, floor);
            let outcome = order.map_or(Outcome::Unverifiable, |order| Outcome::passed_if(order.is_ge()));
            (outcome, listed([found]))
        }));
    }
    for wanted in &fence.skills {
        let (input, output) = (wanted.input_modes.iter(), wanted.output_modes.iter());
        let text = described(&wanted.id, input.map(String::as_str), output.map(String::as_str)).collect();
        all.push(condition("skills", text, facts, |facts| skill(wanted, facts)));
    }
    capabilities(fence, facts, all);
    if let Some(wanted) = fence.max_origin_age {
        all.push(condition("max_origin_age", display_duration(wanted), facts, |facts| {
            let age = facts.origin_age();
            let outcome = age.map_or(Outcome::Unverifiable, |age| Outcome::passed_if(age <= wanted));
            (outcome, age.map_or_else(|| "unknown".to_owned(), |age| format!("{}ms", ceil_millis(age))))
        }));
    }
}

fn condition(
    condition: &'static str,
    wanted: String,
    facts: Held<'_>,
    judge: impl FnOnce(&Facts<'_>) -> (Outcome, String),
) -> Condition {
    let (outcome, found) = facts.map_or_else(|| (Outcome::Unverifiable, NO_CARD.to_owned()), judge);
    Condition { condition, outcome, wanted, found }
}

/// A skill and its modes are one condition: what is missing shows in what was found.
fn skill(wanted: &SkillWanted, facts: &Facts<'_>) -> (Outcome, String) {
    match facts.card.offer().skill(&wanted.id) {
        Some(skill) => {
            let found = joined("", described(&wanted.id, skill.input(), skill.output()));
            (Outcome::passed_if(has_modes(skill, wanted)), found)
        }
        None => (Outcome::Failed, listed(facts.card.normal().skills.iter().map(|skill| &*skill.id))),
    }
}

fn described<'a>(
    id: &'a str,
    input: impl Iterator<Item = &'a str>,
    output: impl Iterator<Item = &'a str>,
) -> impl Iterator<Item = &'a str> {
    let input = input.flat_map(|mode| [";in=", mode]);
    let output = output.flat_map(|mode| [";out=", mode]);
    std::iter::once(id).chain(input).chain(output)
}

fn listed<'a>(items: impl IntoIterator<Item = &'a str>) -> String {
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

fn capabilities(fence: &Fence, facts: Held<'_>, all: &mut Vec<Condition>) {
    let wanted = &fence.capabilities;
    let mut switch = |name, wanted: bool, of: fn(&Capabilities) -> bool| {
        if wanted {
            all.push(condition(name, "true".to_owned(), facts, |facts| {
                let found = of(&facts.card.normal().capabilities);
                (Outcome::passed_if(found), found.to_string())
            }));
        }
    };
    switch("streaming", wanted.streaming, |there| there.streaming);
    switch("push_notifications", wanted.push_notifications, |there| there.push_notifications);
    switch("extended_card", wanted.extended_card, |there| there.extended_card);
    for uri in &wanted.extensions {
        all.push(condition("extension", uri.clone(), facts, |facts| {
            let normal = facts.card.normal();
            let found = listed(normal.extensions.iter().map(|extension| &*extension.uri));
            (Outcome::passed_if(normal.extension(uri).is_some()), found)
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_is_shown_in_bounded_length() {
        assert_eq!(joined(", ", ["a", "b"]), "a, b");
        assert_eq!(listed([]), NOTHING);
        let exact = "é".repeat(FOUND_MAX / 2);
        assert_eq!(joined("", [exact.as_str()]), exact);
        let long = joined(", ", std::iter::repeat_n("ü", 10_000));
        assert!(long.ends_with('…') && long.len() <= FOUND_MAX + ", …".len(), "{}", long.len());
        let wanted = described("id", ["a/b"].into_iter(), ["c/d"].into_iter()).collect::<String>();
        assert_eq!(wanted, "id;in=a/b;out=c/d");
    }
}
