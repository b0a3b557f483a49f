//! What changed between two revisions of an agent: the typed change, and a unified diff for people.

use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;

use super::history::{Until, behind, bounded, same_history};
use super::{Call, Read, Refusal, Registry};
use crate::card::{Card, Change, Limits};
use crate::clock::Moment;
use crate::terms::{AgentName, Freshness, Reason};
use crate::view::Served;

/// How long a unified diff may look for the smallest set of lines.
const DIFF_TIME: Duration = Duration::from_millis(500);
/// Bytes of a unified diff that are shown. Written as JSON they are twice as many at most, so that both wires' 3 MiB
/// have room for the change beside it.
const UNIFIED_MAX: usize = 1_000_000;

/// The difference between two revisions.
#[derive(Debug)]
pub struct Diff {
    pub agent: AgentName,
    pub from: u64,
    pub to: u64,
    pub change: Change,
    /// A unified diff of the two cards, indented and with sorted members.
    pub unified: String,
    /// The unified diff was too long, and ends early.
    pub unified_cut: bool,
    pub freshness: Freshness,
}

impl Registry {
    /// Compares two revisions. `to`: the newest that has a card where not given; `from`: the newest before
    /// `to` that has one.
    ///
    /// # Errors
    /// `revision_not_found`, `invalid_argument` for a tombstone, and what any read may be refused with.
    #[tracing::instrument(level = "debug", skip_all, fields(agent = %agent))]
    pub async fn diff(
        &self,
        call: &Call,
        agent: &AgentName,
        from: Option<u64>,
        to: Option<u64>,
        read: &Read,
    ) -> Result<Diff, Refusal> {
        let (served, now) = self.stand(call, read, &[], Some((agent, to.max(from)))).await?;
        let until = Until::of(call, read, &self.settings)?;
        let freshness = self.about(&served, &now, agent);
        let refuse = |reason, detail| {
            Refusal::new(reason, detail).about(agent).with(|parts| parts.freshness = Some(freshness.clone()))
        };
        let missing =
            || refuse(Reason::RevisionNotFound, format!("{agent} has no earlier card to compare with"));
        let current = served.state.agent(agent).map_or(0, |held| held.revision);
        let place = (&*served, &now, until);
        let to = match to {
            Some(to) => to,
            None => self.card_below(place, agent, current + 1).await?.ok_or_else(missing)?,
        };
        let from = match from {
            Some(from) => from,
            None => self.card_below(place, agent, to).await?.ok_or_else(missing)?,
        };
        let mut cards = Vec::with_capacity(2);
        for number in [from, to] {
            let revision = bounded(until, self.history.revision(agent, number)).await?.ok_or_else(|| {
                refuse(Reason::RevisionNotFound, format!("{agent} has no revision {number}"))
            })?;
            same_history(&served, &now, &revision.position)?;
            let card = bounded(until, self.history.card(agent, number)).await?.ok_or_else(|| {
                let detail =
                    format!("revision {number} of {agent} is a tombstone: it has no card to compare");
                refuse(Reason::InvalidArgument, detail)
            })?;
            cards.push(card);
        }
        let (before, after) = (format!("{agent}@{from}"), format!("{agent}@{to}"));
        // Large cards take a while to compare, and other requests must not wait for it.
        let compared = tokio::task::spawn_blocking(move || {
            let [old, new] = cards.as_slice() else { return Err(Refusal::internal()) };
            let change = Change::between(&checked(old)?, &checked(new)?);
            let mut unified = unified(old, new, &before, &after)?;
            let unified_cut = cut(&mut unified);
            Ok((change, unified, unified_cut))
        });
        let (change, unified, unified_cut) = compared.await.map_err(|_| Refusal::internal())??;
        Ok(Diff { agent: agent.clone(), from, to, change, unified, unified_cut, freshness })
    }

    /// The newest revision below `number` that has a card: a tombstone is passed over.
    async fn card_below(
        &self,
        (served, now, until): (&Served, &Moment, Until),
        agent: &AgentName,
        number: u64,
    ) -> Result<Option<u64>, Refusal> {
        let seq = served.state.head().seq;
        // A tombstone follows a card, so of two revisions one has a card.
        let below = bounded(until, self.history.revisions(agent, Some(number), seq, 2)).await?;
        if below.first().map_or(0, |first| first.number) + 1 < number {
            return Err(behind(served, now));
        }
        Ok(below.iter().find(|revision| revision.facts.is_some()).map(|revision| revision.number))
    }
}

fn checked(bytes: &Bytes) -> Result<Card, Refusal> {
    Card::check(bytes.clone(), &Limits::KEPT).map_err(|error| {
        tracing::error!(%error, "a card that was accepted once is refused now");
        Refusal::internal()
    })
}

fn unified(before: &[u8], after: &[u8], from: &str, to: &str) -> Result<String, Refusal> {
    let (before, after) = (pretty(before)?, pretty(after)?);
    // Past the time the diff is coarser, and as right.
    let mut config = similar::TextDiff::configure();
    config.timeout(DIFF_TIME);
    let diff = config.diff_lines(before.as_str(), after.as_str());
    let mut text = String::new();
    write!(text, "{}", diff.unified_diff().context_radius(3).header(from, to))
        .map_err(|_| Refusal::internal())?;
    Ok(text)
}

/// Ends a text where there is no more room for it; true when it was longer.
fn cut(text: &mut String) -> bool {
    const ELLIPSIS: char = '…';
    if text.len() <= UNIFIED_MAX {
        return false;
    }
    let most = UNIFIED_MAX - ELLIPSIS.len_utf8();
    let end = (0..=most).rev().find(|&end| text.is_char_boundary(end)).unwrap_or_default();
    text.truncate(end);
    text.push(ELLIPSIS);
    true
}

fn pretty(card: &[u8]) -> Result<String, Refusal> {
    let value: serde_json::Value = serde_json::from_slice(card).map_err(|_| Refusal::internal())?;
    let mut text = serde_json::to_string_pretty(&value).map_err(|_| Refusal::internal())?;
    text.push('\n');
    Ok(text)
}
