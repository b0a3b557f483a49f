"""A watched copy of a selection of agents, without IO: events in, facts and wishes out.

What is decided here:

- A stream alone proves nothing about age. Only a `checkpoint` that carries the nonce of a confirmation which
  this session asked for, on the same stream, proves: the copy is complete as of (asked at - staleness).
- A checkpoint's set digest must be that of the copy, else the copy is wrong: nothing is proven, and it is
  read anew from the beginning.
- A snapshot is built beside the old copy, which serves on until `synced`; after `history_diverged` the old
  copy goes at once. A new copy is unproven: it may come from a node that lags behind the old one.
- The proof outlives a lost stream, as the copy does: it only grows old. A nonce does not.
- Anything unexpected closes: an unknown event, an event out of order, a member that is missing.

`moved` and `redacted` leave an agent without its card here; the cache resolves it when it is asked for.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from .card import Card
from .clock import Instant, elapsed
from .sse import SseEvent
from .terms import Freshness, Position, agent_parts, position_or_none

NONCES_MAX = 64
_MODULUS = 1 << 256


@dataclass(frozen=True, slots=True)
class Selection:
    """What is watched: these agents and all in these namespaces; nothing named is everything.

    `change_class` (`breaking` or `additive`) thins what is told in full, not what is known: changes below it come
    as `moved`, without their card. So do all when `cards` is off.
    """

    agents: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    change_class: str | None = None
    cards: bool = True

    def query(self, resume_from: Position | None) -> str:
        pairs = [("agent", agent) for agent in self.agents]
        pairs += [("namespace", namespace) for namespace in self.namespaces]
        pairs += [("class", self.change_class)] if self.change_class else []
        pairs += [] if self.cards else [("cards", "false")]
        pairs += [("from", str(resume_from))] if resume_from else []
        return "&".join(f"{name}={quote(value, safe='')}" for name, value in pairs)

    def covers(self, agent: str) -> bool:
        """Whether the absence of `agent` from a proven copy means that it does not exist."""
        namespace, _ = agent_parts(agent)
        if not self.agents and not self.namespaces:
            return True
        return agent in self.agents or namespace in self.namespaces


@dataclass(frozen=True, slots=True)
class Held:
    """What the copy knows of an agent. `card` is None when only its revision came."""

    agent: str
    revision: int
    raw_digest: str | None
    content_digest: str | None
    card: Card | None
    retired: bool
    envelope: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Told:
    """Something for those who listen: the event's kind, and what it is about."""

    kind: str
    about: Mapping[str, Any]

    @property
    def agent(self) -> str | None:
        agent = self.about.get("agent")
        return agent if isinstance(agent, str) else None


@dataclass(frozen=True, slots=True)
class Reconnect:
    """The stream is of no more use. Open another, from `session.resume_from`."""

    reason: str


class ProtocolError(ValueError):
    """The stream said something that it may not say."""


def set_digest_of(agent: str, revision: int, raw_digest: str) -> int:
    """One agent's share in a set digest."""
    return int.from_bytes(hashlib.sha256(f"{agent}\0{revision}\0{raw_digest}".encode()).digest(), "big")


class _Copy:
    """Agents with the sum of their shares, kept as they change."""

    def __init__(self) -> None:
        self.agents: dict[str, Held] = {}
        self.sum = 0

    def put(self, held: Held) -> None:
        old = self.agents.get(held.agent)
        self.sum = (self.sum - _share(old) + _share(held)) % _MODULUS
        self.agents[held.agent] = held


def _share(held: Held | None) -> int:
    if held is None or held.retired or held.raw_digest is None:
        return 0
    return set_digest_of(held.agent, held.revision, held.raw_digest)


class Session:
    """The state of one watched copy over any number of streams. Not safe for threads by itself."""

    def __init__(self, selection: Selection) -> None:
        self.selection = selection
        self.stream: str | None = None
        self.position: Position | None = None
        self._copy = _Copy()
        self._snapshot: _Copy | None = None
        self._has_copy = False
        self._proven_at: Instant | None = None
        self._slack = 0.0
        self._nonces: OrderedDict[str, Instant] = OrderedDict()

    @property
    def resume_from(self) -> Position | None:
        """Where the next stream goes on; None asks for everything."""
        return self.position if self._has_copy else None

    @property
    def is_synced(self) -> bool:
        """Whether there is a whole copy, proven or not, and no snapshot is being read."""
        return self._has_copy and self._snapshot is None and self.stream is not None

    def opened(self, stream: str | None) -> None:
        """A stream was opened; `stream` is its id, from `Cardfence-Stream`."""
        self.stream = stream
        self._snapshot = None
        self._nonces.clear()

    def closed(self) -> None:
        """The stream is gone. The copy stays, and grows old."""
        self.stream = None
        self._snapshot = None
        self._nonces.clear()

    def confirm(self, now: Instant) -> str:
        """A nonce to have echoed on this stream. Call before it is sent: the proof's age counts from here."""
        nonce = secrets.token_hex(16)
        self._nonces[nonce] = now
        while len(self._nonces) > NONCES_MAX:
            self._nonces.popitem(last=False)
        return nonce

    def age(self, now: Instant) -> float | None:
        """Upper bound on how long ago the copy stopped being complete; None is unproven."""
        if self._proven_at is None or not self._has_copy:
            return None
        return self._slack + elapsed(self._proven_at, now)

    def proof(self) -> Freshness | None:
        """The copy's freshness, whose `age` grows; None is unproven."""
        if self._proven_at is None or not self._has_copy:
            return None
        return Freshness(self.position, self._slack, self._proven_at, basis="watched")

    def drop(self) -> None:
        """The registry refused to resume: what is held is of another history."""
        self._forget()

    def is_pending(self, nonce: str) -> bool:
        return nonce in self._nonces

    def get(self, agent: str) -> Held | None:
        return self._copy.agents.get(agent) if self._has_copy else None

    def agents(self) -> dict[str, Held]:
        return dict(self._copy.agents) if self._has_copy else {}

    def receive(self, event: SseEvent) -> list[Told | Reconnect]:
        """Takes one event. What it returns is to be done in order."""
        try:
            return self._receive(event)
        except ProtocolError as error:
            return self._distrust(str(error))

    def _distrust(self, why: str) -> list[Told | Reconnect]:
        """Nothing that came is believed any more: fails closed, and starts from the beginning."""
        self._forget()
        return [Told("distrusted", {"why": why}), Reconnect(why)]

    def _forget(self) -> None:
        self._copy, self._snapshot, self._has_copy = _Copy(), None, False
        self.position, self._proven_at = None, None
        self._nonces.clear()

    def _receive(self, event: SseEvent) -> list[Told | Reconnect]:
        body = _parse(event)
        match event.event:
            case "reset":
                if body.get("reason") == "history_diverged":
                    self._forget()
                self._snapshot = _Copy()
                return [Told("reset", body)]
            case "upsert" | "moved" | "retired" | "redacted":
                return self._change(event, body)
            case "synced":
                return self._synced(event, body)
            case "checkpoint":
                return self._checkpoint(event, body)
            case "suspect":
                return [Told("suspect", body)]
            case "end":
                reason = str(body.get("reason", ""))
                if reason == "history_diverged":
                    self._forget()
                return [Told("end", body), Reconnect(reason)]
            case _:
                raise ProtocolError(f"an event of the kind {event.event!r}, which is not known")

    def _change(self, event: SseEvent, body: Mapping[str, Any]) -> list[Told | Reconnect]:
        target = self._snapshot
        if target is None:
            if not self._has_copy:
                raise ProtocolError(f"{event.event} before any snapshot")
            self._advance(event)
            target = self._copy
        old = target.agents.get(_need(body, "agent", str))
        held = _held(event.event, body, old)
        if held is not None:
            target.put(held)
        return [Told(event.event, body)] if self._snapshot is None else []

    def _advance(self, event: SseEvent, may_stand: bool = False) -> None:
        position = position_or_none(event.id)
        if position is None:
            raise ProtocolError(f"{event.event} without a position as its id")
        if self.position is not None:
            steps = position.seq - self.position.seq
            if steps < 0 or (steps == 0 and not (may_stand and position == self.position)):
                raise ProtocolError(f"{event.event} of {position} after {self.position}")
        self.position = position

    def _synced(self, event: SseEvent, body: Mapping[str, Any]) -> list[Told | Reconnect]:
        if self._snapshot is not None:
            position = position_or_none(event.id)
            if position is None:
                raise ProtocolError("synced without a position as its id")
            self._copy, self._snapshot, self._has_copy = self._snapshot, None, True
            self.position, self._proven_at = position, None
        elif self._has_copy:
            self._advance(event, may_stand=True)
        else:
            raise ProtocolError("synced before any snapshot")
        return [Told("synced", body)]

    def _checkpoint(self, event: SseEvent, body: Mapping[str, Any]) -> list[Told | Reconnect]:
        if self._snapshot is not None or not self._has_copy:
            raise ProtocolError("a checkpoint within a snapshot")
        position = position_or_none(body.get("position") or event.id)
        if position is None:
            raise ProtocolError("a checkpoint without a position")
        if self.position is not None and (
            position.seq < self.position.seq or (position.seq == self.position.seq and position != self.position)
        ):
            raise ProtocolError(f"a checkpoint of {position} after {self.position}")
        digest = _need(body, "set_digest", str)
        if digest != f"{self._copy.sum:064x}":
            raise ProtocolError(f"the copy at {position} is not what the registry has")
        self.position = position
        asked_at = self._nonces.pop(str(body.get("nonce", "")), None)
        staleness = body.get("staleness_ms")
        if asked_at is not None and type(staleness) is int and staleness >= 0:
            slack = staleness / 1000
            is_younger = self._proven_at is None or (elapsed(self._proven_at, asked_at) + self._slack >= slack)
            if is_younger:
                self._proven_at, self._slack = asked_at, slack
            return [Told("proven", body)]
        return [Told("checkpoint", body)]


def _parse(event: SseEvent) -> Mapping[str, Any]:
    try:
        body = json.loads(event.data)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"{event.event} with data that is not JSON") from error
    if not isinstance(body, dict):
        raise ProtocolError(f"{event.event} with data that is no object")
    return body


def _need(body: Mapping[str, Any], name: str, kind: type) -> Any:
    value = body.get(name)
    if type(value) is not kind:
        raise ProtocolError(f"{name} is missing or no {kind.__name__}")
    return value


def _held(kind: str, body: Mapping[str, Any], old: Held | None) -> Held | None:
    agent, revision = _need(body, "agent", str), _need(body, "revision", int)
    if kind == "redacted":
        # The bytes of one revision were erased, maybe not of the one in hand; the entry itself stays.
        if old is None or old.revision != revision:
            return None
        return Held(agent, revision, old.raw_digest, old.content_digest, None, old.retired, old.envelope)
    if old is not None and revision <= old.revision:
        raise ProtocolError(f"{kind} of {agent} at {revision} after {old.revision}")
    if kind == "retired":
        return Held(agent, revision, None, None, None, True, body)
    card = body.get("card") if kind == "upsert" else None
    content = body.get("content_digest")
    return Held(
        agent=agent,
        revision=revision,
        raw_digest=_need(body, "raw_digest", str),
        content_digest=content if isinstance(content, str) else None,
        card=Card(card) if isinstance(card, dict) else None,
        retired=False,
        envelope={name: value for name, value in body.items() if name != "card"},
    )
