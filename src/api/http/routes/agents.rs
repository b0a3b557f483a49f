//! `/v1/agents/{ns}/{name}`: register, resolve, retire, roll back.

use axum::response::Response;
use http::StatusCode;
use http::header::LOCATION;

use super::super::conditional::Known;
use super::super::parameter as p;
use super::super::problem::invalid;
use super::super::route::{Answering, Ask, Route, Sent, Shape, Verb, gives};
use super::super::{Http, answer, body, expect, fence, headers};
use crate::registry::{
    Call, Outcome, Refusal, Register, ReplicatedWait, Resolve, Resolved, Retire, Rollback, Written,
};
use crate::terms::Reason;
use crate::wire::{self, splice};

const PATH: &str = "/v1/agents/{ns}/{name}";

pub(super) const ROUTES: &[Route] = &[
    Route {
        verb: Verb::Put,
        path: PATH,
        operation: "register",
        about: "Registers a card. The body is the card, kept byte for byte.",
        parameters: &[p::WRITE, p::REGISTER],
        headers: &[p::WRITE_HEADERS, p::CREATE_HEADERS],
        body: Sent::Card,
        answers: &[
            gives(201, Shape::Registered, "The agent was not registered, or was retired"),
            gives(200, Shape::Registered, "A new revision, or the card that is current already"),
        ],
        run: |http, ask| -> Answering { Box::pin(register(http, ask)) },
    },
    Route {
        verb: Verb::Get,
        path: PATH,
        operation: "resolve",
        about: "Resolves an agent under a fence, or as it was at a position.",
        parameters: &[p::READ, p::CONDITIONS, p::PAST],
        headers: &[p::READ_HEADERS, p::KNOWN_HEADERS],
        body: Sent::Nothing,
        answers: &[
            gives(200, Shape::Envelope, "The agent passed the fence"),
            gives(304, Shape::Nothing, "It passed, and the caller holds its card"),
        ],
        run: |http, ask| -> Answering { Box::pin(resolve(http, ask)) },
    },
    Route {
        verb: Verb::Delete,
        path: PATH,
        operation: "retire",
        about: "Retires an agent: a tombstone stays.",
        parameters: &[p::WRITE],
        headers: &[p::WRITE_HEADERS],
        body: Sent::Nothing,
        answers: &[gives(200, Shape::Registered, "It is retired")],
        run: |http, ask| -> Answering { Box::pin(retire(http, ask)) },
    },
    Route {
        verb: Verb::Post,
        path: "/v1/agents/{ns}/{name}/rollback",
        operation: "rollback",
        about: "Registers the card of an earlier revision again.",
        parameters: &[p::ROLLBACK, p::WRITE],
        headers: &[p::WRITE_HEADERS],
        body: Sent::Nothing,
        answers: &[
            gives(201, Shape::Registered, "The agent was retired"),
            gives(200, Shape::Registered, "A new revision, or the card that is current already"),
        ],
        run: |http, ask| -> Answering { Box::pin(rollback(http, ask)) },
    },
];

async fn register(http: Http, ask: Ask) -> Result<Response, Refusal> {
    let agent = ask.agent()?;
    body::check_type(&ask.headers)?;
    let request_id = expect::request_id(&ask.headers)?;
    let dry_run = ask.params.flag(p::DRY_RUN)?;
    let wait = replicated_wait(&ask)?;
    let limit = http.registry.settings().card.max_bytes;
    let bytes = body::read(&ask.headers, ask.body, limit).await?;
    let call = Call { allowance: ask.allowance, ..http.registry.call(None) };
    let expect = expect::expectation(&http.registry, &call, &agent, &ask.params, &ask.headers, true).await?;
    let request = Register {
        agent,
        bytes,
        expect,
        request_id,
        release: ask.params.owned(p::RELEASE),
        note: ask.params.owned(p::NOTE),
        source: ask.params.owned(p::SOURCE),
        ttl: ask.params.text(p::TTL).map(|text| wire::duration(p::TTL, text)).transpose().map_err(invalid)?,
        dry_run,
    };
    let written = http.registry.register(&call, request).await?;
    told(&http, &call, written, wait).await
}

async fn retire(http: Http, ask: Ask) -> Result<Response, Refusal> {
    let agent = ask.agent()?;
    let request_id = expect::request_id(&ask.headers)?;
    let dry_run = ask.params.flag(p::DRY_RUN)?;
    let (call, wait) = waiting(&http, &ask)?;
    let expect = expect::expectation(&http.registry, &call, &agent, &ask.params, &ask.headers, false).await?;
    let request = Retire { agent, expect, request_id, note: ask.params.owned(p::NOTE), dry_run };
    let written = http.registry.retire(&call, request).await?;
    told(&http, &call, written, wait).await
}

async fn rollback(http: Http, ask: Ask) -> Result<Response, Refusal> {
    let agent = ask.agent()?;
    let request_id = expect::request_id(&ask.headers)?;
    let dry_run = ask.params.flag(p::DRY_RUN)?;
    let to =
        ask.params.count(p::TO)?.ok_or_else(|| invalid("`to` is missing: the revision to go back to"))?;
    let to = Refusal::unless_revision(p::TO, to)?;
    let (call, wait) = waiting(&http, &ask)?;
    let expect = expect::expectation(&http.registry, &call, &agent, &ask.params, &ask.headers, false).await?;
    let request = Rollback { agent, to, expect, request_id, note: ask.params.owned(p::NOTE), dry_run };
    let written = http.registry.rollback(&call, request).await?;
    told(&http, &call, written, wait).await
}

/// The call of a write, and how long it is to be waited for once it is done.
fn waiting(http: &Http, ask: &Ask) -> Result<(Call, Option<ReplicatedWait>), Refusal> {
    let wait = replicated_wait(ask)?;
    Ok((Call { allowance: ask.allowance.clone(), ..http.registry.call(None) }, wait))
}

fn replicated_wait(ask: &Ask) -> Result<Option<ReplicatedWait>, Refusal> {
    fence::duration(&ask.params, p::WAIT_REPLICATED)?.map(ReplicatedWait::new).transpose()
}

async fn told(
    http: &Http,
    call: &Call,
    written: Written,
    wait: Option<ReplicatedWait>,
) -> Result<Response, Refusal> {
    self::written(http, &http.registry.wait_replicated(call, written, wait).await)
}

/// The answer to a write. The headers tell where this node's view stands after it.
fn written(http: &Http, written: &Written) -> Result<Response, Refusal> {
    let created = written.outcome == Outcome::Created && !written.dry_run;
    let status = if created { StatusCode::CREATED } else { StatusCode::OK };
    let mut response = answer::json(status, &wire::Registered::from(written))?;
    let all = response.headers_mut();
    let watermark = http.registry.watermark();
    headers::standing(all, &watermark.position, watermark.staleness);
    let fingerprint = written.card.as_ref().map(|card| card.skill_fingerprint());
    headers::revision(all, written.revision, fingerprint.as_ref());
    if created {
        headers::set(all, LOCATION, &format!("/v1/agents/{}", written.agent));
    }
    Ok(response)
}

async fn resolve(http: Http, ask: Ask) -> Result<Response, Refusal> {
    let call = http.registry.call(None);
    let agent = ask.agent()?;
    let known = Known::of(ask.params.text(p::KNOWN), &ask.headers)?;
    if let Some(at) = ask.params.text(p::AT) {
        if let Some(other) = ask.params.other_than(&[p::READ, p::PAST]) {
            return Err(invalid(format!("{other} cannot be combined with `at`: the past is not fenced")));
        }
        let at = wire::position(p::AT, at).map_err(invalid)?;
        let past = http.registry.resolve_at(&call, &agent, &at, &ask.read()?).await?;
        return resolved_at(&past, &known);
    }
    let demanded = fence::demanded(&ask.params, &ask.headers)?;
    let request = Resolve { agent, fence: demanded.fence, known: known.digests(), wait: demanded.wait };
    let resolved = http.registry.resolve(&call, &request).await?;
    let mut response = if resolved.not_modified || known == Known::Anything {
        answer::not_modified()
    } else {
        let card = Some(resolved.card.bytes().as_ref());
        answer::written(StatusCode::OK, splice(&wire::Envelope::from(&resolved), "card", card))?
    };
    tell(&mut response, &resolved);
    headers::weak_tag(response.headers_mut(), &resolved.card.raw_digest());
    Ok(response)
}

/// The headers of an agent that was resolved, but for its tag.
pub(super) fn tell(response: &mut Response, resolved: &Resolved) {
    let all = response.headers_mut();
    headers::freshness(all, &resolved.freshness);
    headers::revision(all, resolved.agent.revision, Some(&resolved.card.skill_fingerprint()));
}

fn resolved_at(past: &crate::registry::Past, known: &Known) -> Result<Response, Refusal> {
    let (Some(envelope), Some(facts)) = (wire::Envelope::of_past(past), past.revision.facts.as_ref()) else {
        return Err(Refusal::internal());
    };
    let Some(card) = &past.card else {
        return Err(Refusal::new(Reason::CardRedacted, "the card of this revision was erased")
            .about(&past.revision.agent)
            .with(|parts| parts.freshness = Some(past.freshness.clone())));
    };
    let mut response = if known.holds(&facts.raw_digest) {
        answer::not_modified()
    } else {
        answer::written(StatusCode::OK, splice(&envelope, "card", Some(card)))?
    };
    let all = response.headers_mut();
    headers::freshness(all, &past.freshness);
    headers::revision(all, past.revision.number, Some(&facts.skill_fingerprint));
    headers::weak_tag(all, &facts.raw_digest);
    Ok(response)
}
