//! Cutting a problem to the room there is, so that it says what it left out instead of not arriving.
//!
//! The card goes first, then long texts are cut, then violations, conditions (passed ones first) and items of the
//! change are left out from the end. What was left out is counted in the message. The rest of a problem is small
//! by construction: names, positions and a text of bounded length.

use prost::Message;

use super::convert::cut;
use crate::proto::v1 as pb;

/// Lengths that long texts are cut to, one after the other until the problem fits.
const TEXTS: [usize; 2] = [256, 64];

/// Cuts `problem` to at most `room` bytes.
pub(super) fn fit(problem: &mut pb::Problem, room: usize) {
    if problem.encoded_len() <= room {
        return;
    }
    if problem.card.take().is_some() {
        problem.card_omitted = true;
    }
    for most in TEXTS {
        if problem.encoded_len() <= room {
            return;
        }
        cut_texts(problem, most);
    }
    if problem.encoded_len() > room {
        leave_out(problem, room);
    }
}

fn cut_texts(problem: &mut pb::Problem, most: usize) {
    for condition in &mut problem.conditions {
        let wanted = cut(&mut condition.wanted, most);
        condition.cut |= cut(&mut condition.found, most) | wanted;
    }
    for violation in &mut problem.violations {
        cut(&mut violation.message, most);
    }
    if let Some(freshness) = &mut problem.freshness {
        cut(&mut freshness.served_by, most);
    }
}

fn leave_out(problem: &mut pb::Problem, room: usize) {
    let violations = std::mem::take(&mut problem.violations);
    let mut conditions = std::mem::take(&mut problem.conditions);
    let mut change = problem.change.take();
    let items = change.as_mut().map(|change| std::mem::take(&mut change.items)).unwrap_or_default();
    // As if everything were left out, so that the counts have their room.
    problem.violations_omitted = count(violations.len());
    problem.conditions_omitted = count(conditions.len());
    // Some may have been left out before.
    let missing = change.as_ref().map_or(0, |change| change.items_omitted);
    if let Some(change) = &mut change {
        change.items_omitted = missing.saturating_add(count(items.len()));
    }
    problem.change = change;
    // Room for the length of the change, which grows with its items.
    let mut left = room.saturating_sub(problem.encoded_len() + 4);

    // Stable: the order of the fence within what passed and what did not.
    conditions.sort_by_key(|condition| condition.outcome() == pb::ConditionOutcome::Passed);
    (problem.violations, problem.violations_omitted) = prefix(violations, &mut left);
    (problem.conditions, problem.conditions_omitted) = prefix(conditions, &mut left);
    if let Some(change) = &mut problem.change {
        let (kept, omitted) = prefix(items, &mut left);
        (change.items, change.items_omitted) = (kept, missing.saturating_add(omitted));
    }
}

/// The first items that there is room for, and how many there was none for.
fn prefix<M: Message>(mut items: Vec<M>, left: &mut usize) -> (Vec<M>, u32) {
    let fits = |item: &M| {
        let len = item.encoded_len();
        let rest = left.checked_sub(1 + prost::length_delimiter_len(len) + len);
        *left = rest.unwrap_or(*left);
        rest.is_some()
    };
    let kept = items.iter().map(fits).take_while(|fits| *fits).count();
    let omitted = items.len() - kept;
    items.truncate(kept);
    (items, count(omitted))
}

fn count(many: usize) -> u32 {
    u32::try_from(many).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: usize = 3_000;

    fn condition(outcome: pb::ConditionOutcome, found: usize) -> pb::Condition {
        pb::Condition {
            condition: "skills".to_owned(),
            outcome: outcome.into(),
            wanted: "w".to_owned(),
            found: "f".repeat(found),
            cut: false,
        }
    }

    fn violation(at: usize) -> pb::Violation {
        pb::Violation { code: "c".to_owned(), pointer: format!("/skills/{at}"), message: "m".repeat(300) }
    }

    #[test]
    fn what_fits_is_left_alone() {
        let conditions = vec![condition(pb::ConditionOutcome::Passed, 500)];
        let mut problem = pb::Problem { card: Some("card".into()), conditions, ..Default::default() };
        let before = problem.clone();
        fit(&mut problem, ROOM);
        assert_eq!(problem, before);
    }

    #[test]
    fn the_card_is_the_first_to_go() {
        let conditions = vec![condition(pb::ConditionOutcome::Failed, 2_000)];
        let mut problem =
            pb::Problem { card: Some(vec![b'x'; 2_000].into()), conditions, ..Default::default() };
        fit(&mut problem, ROOM);
        assert!(problem.card.is_none() && problem.card_omitted);
        assert!(!problem.conditions[0].cut, "nothing else needs to go");
    }

    #[test]
    fn found_texts_are_cut_and_say_so() {
        let failed = condition(pb::ConditionOutcome::Failed, 50_000);
        let mut problem = pb::Problem { conditions: vec![failed; 3], ..Default::default() };
        fit(&mut problem, ROOM);
        assert!(problem.encoded_len() <= ROOM);
        assert_eq!((problem.conditions.len(), problem.conditions_omitted), (3, 0));
        assert!(problem.conditions.iter().all(|c| c.cut && c.found.ends_with('…') && c.found.len() == 256));
    }

    #[test]
    fn failed_conditions_outlive_passed_ones() {
        let mut conditions = vec![condition(pb::ConditionOutcome::Passed, 90); 1_000];
        conditions.push(condition(pb::ConditionOutcome::Failed, 90));
        let mut problem = pb::Problem { conditions, ..Default::default() };
        fit(&mut problem, ROOM);
        assert!(problem.encoded_len() <= ROOM);
        assert_eq!(problem.conditions[0].outcome(), pb::ConditionOutcome::Failed);
        assert_eq!(problem.conditions.len() + problem.conditions_omitted as usize, 1_001);
    }

    #[test]
    fn violations_and_items_are_counted_when_left_out() {
        let mut problem = pb::Problem { violations: (0..100).map(violation).collect(), ..Default::default() };
        fit(&mut problem, ROOM);
        assert!(problem.encoded_len() <= ROOM && problem.encoded_len() > ROOM - 200);
        assert_eq!(problem.violations.len() + problem.violations_omitted as usize, 100);
        assert_eq!(problem.violations[0].pointer, "/skills/0");

        let item = pb::ChangeItem { kind: "skill_removed".to_owned(), class: 3, ..Default::default() };
        let change = pb::Change { class: 3, silent: true, items: vec![item; 5_000], items_omitted: 7 };
        let mut problem = pb::Problem { change: Some(change), ..Default::default() };
        fit(&mut problem, ROOM);
        assert!(problem.encoded_len() <= ROOM);
        let change = problem.change.unwrap();
        assert!(change.silent && !change.items.is_empty());
        assert_eq!(change.items.len() + change.items_omitted as usize, 5_007);
    }

    #[test]
    fn every_size_of_room_is_kept() {
        let conditions = vec![condition(pb::ConditionOutcome::Failed, 300); 20];
        let violations = (0..20).map(violation).collect();
        let whole =
            pb::Problem { card: Some(vec![0; 500].into()), conditions, violations, ..Default::default() };
        for room in 32..16_000 {
            let mut problem = whole.clone();
            fit(&mut problem, room);
            assert!(problem.encoded_len() <= room, "{room}");
        }
    }
}
