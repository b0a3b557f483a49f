"""An agent that was resolved, and how answers of the registry are read."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .card import Card
from .change import Change, between
from .clock import Instant
from .errors import Condition, InvalidAnswer, Refused, refusal
from .terms import Freshness, Position, position_or_none

NONCE = "Cardfence-Nonce"


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer, with the moments between which it was made."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    sent: Instant
    received: Instant


@dataclass(frozen=True, slots=True)
class Resolved:
    """One revision of an agent's card, with the proof of its freshness."""

    agent: str
    revision: int
    position: Position
    card_version: str | None
    generation: str
    content_digest: str
    raw_digest: str
    skill_fingerprint: str
    negotiation_fingerprint: str
    registered_at: str
    registered_by: str
    freshness: Freshness
    card: Card = field(repr=False)
    not_modified: bool = False
    # The namespace declares that a version, once used, never gets other content.
    immutable_versions: bool = False

    def change_since(self, before: Resolved) -> Change | None:
        """What changed since `before`; None when it is the same card."""
        if self.raw_digest == before.raw_digest:
            return None
        same = self.negotiation_fingerprint == before.negotiation_fingerprint
        return between(before.card, self.card, same_negotiation=same)


def read_freshness(answer: Answer, nonce: str, block: Any = None) -> Freshness | None:
    """The freshness of an answer. One that does not echo the nonce was not made for us: it proves nothing."""
    freshness = Freshness.of_json(block, answer.sent)
    if freshness is None:
        told = answer.headers.get("Cardfence-Staleness-Ms", "unknown")
        position = position_or_none(answer.headers.get("Cardfence-Position"))
        if position is None:
            return None
        staleness = int(told) / 1000 if told.isascii() and told.isdigit() and len(told) < 16 else None
        freshness = Freshness(position=position, staleness=staleness, sent=answer.sent)
    return freshness if answer.headers.get(NONCE) == nonce else freshness.unproven()


def read_envelope(answer: Answer, agent: str, nonce: str) -> Resolved:
    """Raises InvalidAnswer when it is no envelope of `agent`."""
    body = _object(answer)
    freshness = read_freshness(answer, nonce, body.get("freshness"))
    return of_envelope(body, body.get("card"), agent, freshness)


def of_envelope(body: Mapping[str, Any], card: Any, agent: str, freshness: Freshness | None) -> Resolved:
    """Raises InvalidAnswer when a member is missing, or it is of another agent."""
    position = position_or_none(body.get("position"))
    texts: dict[str, Any] = {name: body.get(name) for name in _TEXTS}
    wrong = [name for name, value in texts.items() if not isinstance(value, str)]
    if freshness is None or position is None or not isinstance(card, dict) or wrong:
        raise InvalidAnswer(f"the answer is no envelope: {', '.join(wrong) or 'freshness, position or card'}")
    if body.get("agent") != agent or type(body.get("revision")) is not int:
        raise InvalidAnswer(f"the answer is of {body.get('agent')!r} at {body.get('revision')!r}, not of {agent}")
    version = body.get("card_version")
    policies = body.get("policies")
    return Resolved(
        agent=agent,
        revision=body["revision"],
        position=position,
        card_version=version if isinstance(version, str) else None,
        freshness=freshness,
        card=Card(card),
        immutable_versions=isinstance(policies, dict) and policies.get("immutable_versions") is True,
        **texts,
    )


_TEXTS = (
    "generation",
    "content_digest",
    "raw_digest",
    "skill_fingerprint",
    "negotiation_fingerprint",
    "registered_at",
    "registered_by",
)


def read_not_modified(answer: Answer, known: Resolved, nonce: str) -> Resolved | None:
    """`known` with the proof of a 304; None when it is of another revision, so that it must be read in full."""
    freshness = read_freshness(answer, nonce)
    if freshness is None or answer.headers.get("Cardfence-Revision") != str(known.revision):
        return None
    # A 304 tells where the view stands and no facts about the origin: those stay as they were known.
    kept = replace(
        known.freshness,
        position=freshness.position,
        staleness=freshness.staleness,
        sent=freshness.sent,
        basis=known.freshness.basis if freshness.staleness is not None else "unproven",
        proven_at=None,
    )
    return replace(known, freshness=kept, not_modified=True)


def read_refusal(answer: Answer, nonce: str) -> Refused:
    """A problem as an error. What is no problem of ours is read by its status alone."""
    try:
        body = _object(answer)
    except InvalidAnswer:
        body = {}
    reason = body.get("reason")
    detail = body.get("detail")
    if not isinstance(reason, str):
        # A balancer in between says so when nothing behind it answers.
        between_us = {502: "store_unavailable", 503: "store_unavailable", 504: "deadline_exceeded"}
        reason = between_us.get(answer.status, "")
        if not reason:
            raise InvalidAnswer(f"HTTP {answer.status} without a reason")
        detail = f"HTTP {answer.status} from something in between"
    card = body.get("card")
    revision = body.get("revision")
    agent = body.get("agent")
    return refusal(
        reason,
        detail if isinstance(detail, str) else "",
        status=answer.status,
        conditions=tuple(_condition(item) for item in _dicts(body.get("conditions"))),
        violations=tuple(_dicts(body.get("violations"))),
        freshness=read_freshness(answer, nonce, body.get("freshness")),
        card=card if isinstance(card, dict) else None,
        agent=agent if isinstance(agent, str) else None,
        revision=revision if type(revision) is int else None,
        retry_after=_retry_after(answer, body.get("retry_after_ms")),
    )


def _object(answer: Answer) -> dict[str, Any]:
    try:
        body = json.loads(answer.body)
    except (ValueError, RecursionError) as error:
        raise InvalidAnswer(f"HTTP {answer.status} with a body that is not JSON") from error
    if not isinstance(body, dict):
        raise InvalidAnswer(f"HTTP {answer.status} with a body that is no JSON object")
    return body


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _condition(item: Mapping[str, Any]) -> Condition:
    return Condition(*(str(item.get(name, "")) for name in ("condition", "outcome", "wanted", "found")))


def _retry_after(answer: Answer, milliseconds: Any) -> float | None:
    if type(milliseconds) in (int, float) and math.isfinite(milliseconds) and milliseconds >= 0:
        return float(milliseconds) / 1000
    header = answer.headers.get("Retry-After", "")
    return float(header) if header.isascii() and header.isdigit() and len(header) < 8 else None
