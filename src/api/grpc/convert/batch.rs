//! A batch's answer: one item for each agent, cards as long as there is room.

use prost::Message;

use super::super::fit::fit;
use super::answer::{RESERVED, freshness, nested_len, resolved};
use super::problem::problem;
use crate::proto::{MESSAGE_MAX, v1 as pb};
use crate::registry::BatchItem;
use crate::terms::Freshness;

/// The largest problem of one item, in bytes.
const PROBLEM_MAX: usize = 64 * 1024;

/// Items are never left out; their cards are, once the message would pass its bound without.
pub(in super::super) fn batch(items: Vec<BatchItem>, fresh: &Freshness) -> pb::BatchResolveResponse {
    let problem_room = (MESSAGE_MAX / 2 / items.len().max(1)).min(PROBLEM_MAX);
    let mut cards = Vec::with_capacity(items.len());
    let mut answer = pb::BatchResolveResponse {
        items: Vec::with_capacity(items.len()),
        freshness: Some(freshness(fresh)),
    };
    for item in items {
        use pb::batch_item::Outcome;
        let (outcome, card) = match item.outcome {
            Ok(found) => {
                let mut found = resolved(&found);
                let card = found.card.take();
                (Outcome::Resolved(found), card)
            }
            Err(refusal) => {
                let mut problem = problem(refusal.into_parts());
                let card = problem.card.take();
                fit(&mut problem, problem_room);
                (Outcome::Problem(problem), card)
            }
        };
        answer.items.push(pb::BatchItem { agent: item.agent.to_string(), outcome: Some(outcome) });
        cards.push(card);
    }
    let mut room = MESSAGE_MAX.saturating_sub(answer.encoded_len() + RESERVED);
    for (item, card) in answer.items.iter_mut().zip(cards) {
        let Some(card) = card else { continue };
        let bare = nested_len(item);
        let put = |item: &mut pb::BatchItem, card, omitted| match &mut item.outcome {
            Some(pb::batch_item::Outcome::Resolved(found)) => {
                (found.card, found.card_omitted) = (card, omitted);
            }
            Some(pb::batch_item::Outcome::Problem(problem)) => {
                (problem.card, problem.card_omitted) = (card, omitted);
            }
            None => {}
        };
        put(item, Some(card), false);
        match room.checked_sub(nested_len(item).saturating_sub(bare)) {
            Some(left) => room = left,
            None => put(item, None, true),
        }
    }
    answer
}
