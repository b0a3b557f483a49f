//! The three incidents of the source documents, played against real nodes over the real wire.
//!
//! Each does what the fleet in the document did, asks as a careful caller asks, and checks every answer
//! before it is told.

use std::time::Duration;

use http::Method;

use super::super::arguments::agent_path;
use super::super::client::{Answer, Client, Request};
use super::super::failure::{Failure, Refused, failed};
use super::super::printer::Style;
use super::super::query::{Query, parse_skill};
use super::super::watch::events::{Event, Events};
use super::super::words;
use super::fleet::{MOVED, Member, REPLACED, REPORTER, REUSED, SUMMARIZER, WORKER};
use super::narrator::Narrator;
use super::stage::Stage;
use crate::card::{Card, Limits};
use crate::clock::Clock;
use crate::terms::{AgentName, RequestId};
use crate::wire::{AgentEvent, Change, Diff, Envelope, Registered};

/// What a caller tolerates of the replica, and how long it waits for the proof.
const TOLERATED: Duration = Duration::from_millis(300);
const WAIT: &str = "200ms";

/// How long anything in the play may take to come about.
const COMES_WITHIN: Duration = Duration::from_secs(5);
const ASK_EVERY: Duration = Duration::from_millis(10);

/// Registers a card, as a deploy does.
pub(super) async fn deploy(
    node: &Client,
    member: &Member,
    told: &mut Narrator<'_>,
) -> Result<Registered, Failure> {
    let path = agent_path(&name(member.agent)?);
    let request = Request::new(Method::PUT, &path, &Query::default()).json(member.card());
    node.write(request, &RequestId::random(), told.printer()).await?.read()
}

/// Skills replaced without a version bump: whoever keys a cache on the version sees nothing.
pub(super) async fn replaced(stage: &Stage, told: &mut Narrator<'_>) -> Result<(), Failure> {
    let registry = &stage.primary;
    told.incident(1, "The skills were replaced, the version was not")?;
    let before = resolved(registry, SUMMARIZER, &Query::default()).await?;
    let mut subscriber = subscribed(registry, SUMMARIZER).await?;
    told.act("subscriber", format_args!("watch {SUMMARIZER} --class breaking"))?;
    let written = deploy(registry, &REPLACED, told).await?;
    let deployed_at = Clock::System.now();
    let same_version = written.card_version == before.card_version;
    told.claim(
        "deploy",
        Style::Quiet,
        same_version,
        format_args!(
            "{SUMMARIZER} has translate-v1 instead of summarize-v2 and still says version {}",
            version(&before)
        ),
    )?;
    told.diff(&diff(registry, SUMMARIZER).await?.unified)?;
    silent(&written, told)?;
    let pushed = next_change(&mut subscriber).await?;
    told.claim(
        "pushed",
        Style::Good,
        pushed.silent
            && pushed.class.as_deref() == Some("breaking")
            && written.position.as_ref() == Some(&pushed.position),
        format_args!(
            "the subscriber is told of revision {}, breaking and silent, within {}",
            pushed.revision,
            words::duration(Clock::System.now().since(&deployed_at))
        ),
    )?;

    let mut by_skill = Query::default();
    by_skill.skill(&skill("summarize-v2")?);
    told.act("caller", format_args!("resolve {SUMMARIZER} --skill summarize-v2"))?;
    let refused = refusal(registry, SUMMARIZER, &by_skill).await?;
    told.claim("refused", Style::Good, is(&refused, "skill_missing"), detail(&refused))?;

    let mut pinned = Query::default();
    pinned.set("pin_skills", &before.skill_fingerprint);
    told.act(
        "caller",
        format_args!("resolve {SUMMARIZER} --pin-skills {}", words::short(&before.skill_fingerprint)),
    )?;
    let refused = refusal(registry, SUMMARIZER, &pinned).await?;
    told.claim(
        "refused",
        Style::Good,
        is(&refused, "pin_mismatch") && written.skill_fingerprint.as_ref() != Some(&before.skill_fingerprint),
        format_args!(
            "pin_mismatch: the skill fingerprint is {} now",
            words::short(written.skill_fingerprint.as_deref().unwrap_or("unknown"))
        ),
    )
}

/// A moved endpoint behind a replica that no longer hears of anything.
pub(super) async fn moved(stage: &Stage, told: &mut Narrator<'_>) -> Result<(), Failure> {
    let (registry, replica) = (&stage.primary, &stage.replica);
    told.incident(2, "The endpoint moved, and a replica did not hear of it")?;
    let before = at_replica(stage, "0").await?;
    let old = endpoint(&before)?;
    told.claim(
        "replica",
        Style::Quiet,
        before.revision == 1,
        format_args!("a second node, {}, serves the same card: {old}", replica.base()),
    )?;
    stage.valve.set_open(false);
    told.act("fault", "nothing reaches the replica any more, and nobody is told")?;
    let written = deploy(registry, &MOVED, told).await?;
    let clock = Clock::System;
    let deployed_at = clock.now();
    let new = endpoint(&resolved(registry, WORKER, &Query::default()).await?)?;
    told.claim("deploy", Style::Quiet, new != old, format_args!("{WORKER} moves to {new}"))?;

    // Until the proof that the replica still has is older than the caller tolerates.
    let stale = within("the replica to fall behind", async || {
        let stale = at_replica(stage, "any").await?;
        let bound = stale.freshness.staleness_ms.map(Duration::from_millis);
        Ok(bound.is_none_or(|bound| bound > TOLERATED).then_some(stale))
    })
    .await?;
    told.act("caller", format_args!("resolve {WORKER} at the replica, --max-staleness any"))?;
    told.claim(
        "answer",
        Style::Bad,
        endpoint(&stale)? == old && stale.revision == 1,
        format_args!("{old}: the old endpoint, {}", words::freshness(&stale.freshness, Duration::ZERO)),
    )?;

    let mut bounded = at_most(&format!("{}ms", TOLERATED.as_millis()));
    bounded.set("wait", WAIT);
    told.act(
        "caller",
        format_args!("resolve {WORKER} at the replica, --max-staleness {}ms", TOLERATED.as_millis()),
    )?;
    let asked_after = clock.now().since(&deployed_at);
    let refused = refusal(replica, WORKER, &bounded).await?;
    told.claim(
        "refused",
        Style::Good,
        is(&refused, "freshness_unverifiable") || is(&refused, "too_stale"),
        detail(&refused),
    )?;
    let bound = refused.problem.freshness.as_ref().and_then(|freshness| freshness.staleness_ms);
    let bound = Duration::from_millis(bound.ok_or_else(|| failed("the replica named no bound"))?);
    told.claim(
        "bound",
        Style::Good,
        bound >= asked_after,
        format_args!(
            "it says at most {}; the deploy that it missed was {} before the question: the bound holds",
            words::duration(bound),
            words::duration(asked_after)
        ),
    )?;
    let attached = refused.problem.card.as_ref().map(|card| card.get().as_bytes());
    let attached = attached.map(endpoint_of).transpose()?;
    told.claim(
        "attached",
        Style::Good,
        attached.as_ref() == Some(&old),
        format_args!("the card it would not vouch for, revision {}", refused.problem.revision.unwrap_or(0)),
    )?;

    stage.valve.set_open(true);
    let fresh = at_replica_past(stage, &written).await?;
    told.claim(
        "healed",
        Style::Good,
        endpoint(&fresh)? == new && fresh.revision == written.revision,
        format_args!("the replica hears again, and the same fence passes: {new}"),
    )
}

/// A skill id reused for something else: the task would succeed, and its artifact be of the wrong type.
pub(super) async fn reused(stage: &Stage, told: &mut Narrator<'_>) -> Result<(), Failure> {
    let registry = &stage.primary;
    told.incident(3, "A skill kept its id and came to mean something else")?;
    let before = resolved(registry, REPORTER, &Query::default()).await?;
    let written = deploy(registry, &REUSED, told).await?;
    told.claim(
        "deploy",
        Style::Quiet,
        written.card_version == before.card_version,
        format_args!(
            "{REPORTER} keeps summarize-v2, which gives text/plain now; the version is {} still",
            version(&before)
        ),
    )?;
    told.diff(&diff(registry, REPORTER).await?.unified)?;
    silent(&written, told)?;
    let after = written.skill_fingerprint.as_deref().unwrap_or("unknown");
    told.claim(
        "moved",
        Style::Good,
        after != before.skill_fingerprint,
        format_args!(
            "skill fingerprint {} became {}",
            words::short(&before.skill_fingerprint),
            words::short(after)
        ),
    )?;

    let mut by_id = Query::default();
    by_id.skill(&skill("summarize-v2")?);
    let passes = resolved(registry, REPORTER, &by_id).await?;
    told.act("caller", format_args!("resolve {REPORTER} --skill summarize-v2"))?;
    told.claim(
        "answer",
        Style::Bad,
        passes.revision == written.revision,
        "it passes, for the id is there: a task would end well, and its artifact be of the wrong type",
    )?;
    let mut by_mode = Query::default();
    by_mode.skill(&skill("summarize-v2;out=text/markdown")?);
    told.act("caller", format_args!("resolve {REPORTER} --skill 'summarize-v2;out=text/markdown'"))?;
    let refused = refusal(registry, REPORTER, &by_mode).await?;
    told.claim("refused", Style::Good, is(&refused, "mode_missing"), detail(&refused))
}

/// What the registry calls a change that came without a new version.
fn silent(written: &Registered, told: &mut Narrator<'_>) -> Result<(), Failure> {
    let change = written.change.as_ref();
    let items = |change: &Change| {
        let named = |item: &crate::wire::Item| format!("{} {}", item.kind.replace('_', " "), item.subject);
        let grave = change.items.iter().filter(|item| item.class != "cosmetic");
        grave.map(named).collect::<Vec<_>>().join(", ")
    };
    told.claim(
        "registry",
        Style::Good,
        change.is_some_and(|change| change.silent && change.class == "breaking"),
        format_args!(
            "takes it as revision {}, names it breaking and silent: {}",
            written.revision,
            change.map(items).unwrap_or_default()
        ),
    )
}

async fn resolved(node: &Client, agent: &str, query: &Query) -> Result<Envelope, Failure> {
    ask(node, agent, query).await?.read()
}

/// A stream that has told what there is.
async fn subscribed(node: &Client, agent: &str) -> Result<Events, Failure> {
    let mut query = Query::default();
    query.set("agent", agent);
    query.set("class", "breaking");
    let mut events = Events::open(node, &query, None).await?;
    while told_next(&mut events).await?.kind != "synced" {}
    Ok(events)
}

/// The next change that the subscriber is told of.
async fn next_change(events: &mut Events) -> Result<AgentEvent, Failure> {
    loop {
        let event = told_next(events).await?;
        if event.kind == "upsert" {
            return event.read();
        }
    }
}

async fn told_next(events: &mut Events) -> Result<Event, Failure> {
    let late = |_| failed(format!("waited {} for an event", words::duration(COMES_WITHIN)));
    let event = tokio::time::timeout(COMES_WITHIN, events.next()).await.map_err(late)??;
    event.ok_or_else(|| failed("the stream is over"))
}

async fn ask(node: &Client, agent: &str, query: &Query) -> Result<Answer, Failure> {
    node.read(Request::get(&agent_path(&name(agent)?), query)).await
}

/// The refusal that a resolve must meet.
async fn refusal(node: &Client, agent: &str, query: &Query) -> Result<Box<Refused>, Failure> {
    match ask(node, agent, query).await {
        Err(Failure::Refused(refused)) => Ok(refused),
        Err(failure) => Err(failure),
        Ok(_) => Err(failed(format!("{agent} was resolved although {query} should have refused it"))),
    }
}

async fn diff(node: &Client, agent: &str) -> Result<Diff, Failure> {
    let path = format!("{}/diff", agent_path(&name(agent)?));
    node.read(Request::get(&path, &Query::default())).await?.read()
}

async fn at_replica(stage: &Stage, max_staleness: &str) -> Result<Envelope, Failure> {
    resolved(&stage.replica, WORKER, &at_most(max_staleness)).await
}

/// The replica's answer to the same fence once it passes again.
async fn at_replica_past(stage: &Stage, written: &Registered) -> Result<Envelope, Failure> {
    let fence = format!("{}ms", TOLERATED.as_millis());
    within("the replica to come back", async || match at_replica(stage, &fence).await {
        // A bounded answer may still be the one of before: it is as old as it says, and no older.
        Ok(envelope) => Ok(Some(envelope).filter(|envelope| envelope.revision >= written.revision)),
        Err(Failure::Refused(_)) => Ok(None),
        Err(failure) => Err(failure),
    })
    .await
}

/// Asks until there is an answer.
async fn within<T>(what: &str, ask: impl AsyncFn() -> Result<Option<T>, Failure>) -> Result<T, Failure> {
    let asking = async {
        loop {
            if let Some(answer) = ask().await? {
                return Ok(answer);
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
    };
    let late = |_| failed(format!("waited {} for {what}", words::duration(COMES_WITHIN)));
    tokio::time::timeout(COMES_WITHIN, asking).await.map_err(late)?
}

fn at_most(max_staleness: &str) -> Query {
    let mut query = Query::default();
    query.set("max_staleness", max_staleness);
    query
}

fn name(agent: &str) -> Result<AgentName, Failure> {
    agent.parse().map_err(|error: crate::terms::InvalidName| failed(error.to_string()))
}

fn skill(text: &str) -> Result<crate::wire::Skill, Failure> {
    parse_skill(text).map_err(failed)
}

fn is(refused: &Refused, reason: &str) -> bool {
    refused.problem.reason == reason
}

fn detail(refused: &Refused) -> String {
    format!("{}: {}", refused.problem.reason, refused.problem.detail)
}

fn version(envelope: &Envelope) -> &str {
    envelope.card_version.as_deref().unwrap_or("unknown")
}

/// The first endpoint of the card in an answer.
fn endpoint(envelope: &Envelope) -> Result<String, Failure> {
    let card = envelope.card.as_ref().ok_or_else(|| failed("the answer holds no card"))?;
    endpoint_of(card.get().as_bytes())
}

fn endpoint_of(card: &[u8]) -> Result<String, Failure> {
    let card = Card::check(bytes::Bytes::copy_from_slice(card), &Limits::default());
    let card = card.map_err(|refused| failed(refused.to_string()))?;
    let first = card.normal().interfaces.first().map(|interface| interface.url.to_string());
    first.ok_or_else(|| failed("the card has no endpoint"))
}
