"""How the registry is asked, without IO: generators that yield what is to be done and are sent what came of it.

`Send` is answered with an `Answer` or a `Failure`, `Pause` with None. The sync and the async resolver run the
same generators, so what is retried, what is proven and what is remembered is decided once, here.
"""

from __future__ import annotations

import json
import random
import secrets
import threading
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from .clock import Clock, Instant, SystemClock, elapsed
from .errors import (
    CardfenceError,
    FreshnessUnverifiable,
    InvalidAnswer,
    PositionNotReached,
    Refused,
    TooStale,
    Unreachable,
)
from .fence import Fence
from .observe import Observer
from .reasons import Retry
from .resolved import NONCE, Answer, Resolved, read_envelope, read_not_modified, read_refusal
from .terms import Position, agent_parts

BODY_MAX = 4 * 1024 * 1024
_PAUSE_FIRST, _PAUSE_MAX = 0.05, 1.0


@dataclass(frozen=True, slots=True)
class Send:
    method: str
    path: str
    timeout: float
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float


@dataclass(frozen=True, slots=True)
class Failure:
    """No answer came: `cause` tells why. Whether the request arrived is unknown."""

    cause: Exception


Effect: TypeAlias = "Send | Pause | Share"
Steps: TypeAlias = "Generator[Effect, Any, Any]"


@dataclass(frozen=True, slots=True)
class Share:
    """Work under a key that several callers need at once: it runs once, and all get what came of it."""

    key: tuple[str, ...]
    work: Callable[[], Steps]


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds for a whole resolve and for one attempt, and how many attempts there are."""

    timeout: float = 10.0
    attempt_timeout: float = 5.0
    attempts: int = 4


class Exchange:
    """What a resolver remembers: the highest position it saw, which it asks for again (monotonic reads)."""

    def __init__(
        self, limits: Limits | None = None, clock: Clock | None = None, observer: Observer | None = None
    ) -> None:
        self.limits = limits or Limits()
        self.clock = clock or SystemClock()
        self.observer = observer or Observer()
        self._lock = threading.Lock()
        self._position: Position | None = None
        self._history = 0

    @property
    def position(self) -> Position | None:
        return self._position

    @property
    def history(self) -> int:
        """Counts up when the registry's history turned out to be another one: what is held is of the old."""
        return self._history

    def _saw(self, position: Position | None) -> None:
        with self._lock:
            if position and (self._position is None or position.seq > self._position.seq):
                self._position = position

    def _drop(self, position: Position) -> None:
        with self._lock:
            # Another caller may have dropped it, and seen the new history since.
            if self._position == position:
                self._position = None
                self._history += 1

    def resolve(
        self, agent: str, fence: Fence, known: Resolved | None, timeout: float | None = None
    ) -> Generator[Effect, Any, Resolved]:
        """Asks until there is an answer, a refusal that no retry helps, or no time left."""
        namespace, name = agent_parts(agent)
        path = f"/v1/agents/{namespace}/{name}"
        started = self.clock.now()
        total = self.limits.timeout if timeout is None else timeout
        resynced, own = False, None
        attempt = 0
        failure: CardfenceError | None = None
        # After an answer that satisfied the caller's own position and not ours, ours is asked for.
        ask_own = fence.at_least is None
        while True:
            left = total - elapsed(started, self.clock.now())
            if attempt >= self.limits.attempts or left <= 0:
                raise _last(failure, agent)
            attempt += 1
            own = self._position if ask_own else None
            nonce = secrets.token_hex(16)
            query = fence.query(own, known.raw_digest if known else None)
            wait = 1.0 if fence.wait is None else fence.wait
            answer = yield Send(
                "GET",
                f"{path}?{query}" if query else path,
                min(left, wait + self.limits.attempt_timeout),
                {NONCE: nonce, "Accept": "application/json"},
            )
            if isinstance(answer, Failure):
                if isinstance(answer.cause, InvalidAnswer):
                    raise answer.cause
                failure = Unreachable(f"the registry did not answer: {answer.cause}")
                failure.__cause__ = answer.cause
                self.observer.tell("request_failed", agent, cause=repr(answer.cause))
            else:
                try:
                    resolved = self._read(answer, agent, known, nonce)
                    if resolved is None:
                        known = None
                        continue
                    self._judge(resolved, fence, answer.received)
                    self._saw(resolved.freshness.position)
                    behind = self._behind(resolved)
                    if behind is None:
                        return resolved
                    ask_own, failure = True, behind
                    continue
                except Refused as refused:
                    failure = refused
            pause = None
            if isinstance(failure, Refused):
                if failure.retry is Retry.AFTER_RESYNC and own is not None and not resynced:
                    # The position that we added is of a history that is no more.
                    self._drop(own)
                    self.observer.tell("history_diverged", agent, reason=failure.reason, position=str(own))
                    resynced = True
                    attempt -= 1
                    continue
                if failure.retry not in (Retry.YES, Retry.LATER):
                    raise failure
                pause = failure.retry_after
                self.observer.tell("refused_for_now", agent, reason=failure.reason)
            pause = self._pause(attempt) if pause is None else pause
            if attempt >= self.limits.attempts or pause >= total - elapsed(started, self.clock.now()):
                raise failure
            yield Pause(pause)

    def _read(self, answer: Answer, agent: str, known: Resolved | None, nonce: str) -> Resolved | None:
        if answer.status == 200:
            return read_envelope(answer, agent, nonce)
        if answer.status == 304:
            if known is None:
                raise InvalidAnswer("HTTP 304 to a request that named no known card")
            return read_not_modified(answer, known, nonce)
        refused = read_refusal(answer, nonce)
        if refused.freshness is not None and refused.freshness.staleness is not None:
            self._saw(refused.freshness.position)
        raise refused

    def _judge(self, resolved: Resolved, fence: Fence, received: Instant) -> None:
        """Holds the answer against the bound that was asked for, the round trip included."""
        if fence.max_staleness == "any":
            return
        freshness = resolved.freshness
        about: dict[str, Any] = {"freshness": freshness, "card": resolved.card.document, "agent": resolved.agent}
        if freshness.staleness is None:
            if fence.pin is not None and fence.max_staleness is None:
                return
            raise FreshnessUnverifiable(
                "freshness_unverifiable", "the answer proves no age for this request", **about
            )
        if fence.max_staleness is None:
            return
        if fence.max_staleness == 0:
            # Linearizable: the proof is younger than the request. The wire rounds up to milliseconds.
            if freshness.staleness > elapsed(freshness.sent, received) + 0.001:
                detail = "the answer was proven before the request was sent"
                raise FreshnessUnverifiable("freshness_unverifiable", detail, **about)
            return
        age = freshness.age(received)
        if age is not None and age > float(fence.max_staleness):
            detail = f"with its round trip the answer may be {age:.3f} s old, {fence.max_staleness} s is allowed"
            raise TooStale("too_stale", detail, **about)

    def _behind(self, resolved: Resolved) -> Refused | None:
        ours, theirs = self._position, resolved.freshness.position
        if ours is None or theirs is None or theirs.seq >= ours.seq:
            return None
        detail = f"the answer is of {theirs}, and {ours} was seen before"
        return PositionNotReached("position_not_reached", detail, freshness=resolved.freshness)

    def _pause(self, attempt: int) -> float:
        return float(min(_PAUSE_FIRST * 2**attempt, _PAUSE_MAX) * random.uniform(0.5, 1.0))

    def report_drift(self, agent: str, report: Mapping[str, Any]) -> Generator[Effect, Any, str]:
        """Sends one report, once: `reported`, `unsupported` by this registry, or `failed`."""
        namespace, name = agent_parts(agent)
        body = json.dumps(report).encode()
        answer = yield Send(
            "POST",
            f"/v1/agents/{namespace}/{name}/drift",
            min(2.0, self.limits.attempt_timeout),
            {"Content-Type": "application/json"},
            body,
        )
        if isinstance(answer, Failure):
            return "failed"
        if 200 <= answer.status < 300:
            return "reported"
        try:
            return "unsupported" if read_refusal(answer, "").reason == "no_such_route" else "failed"
        except InvalidAnswer:
            return "failed"


def _last(failure: CardfenceError | None, agent: str) -> CardfenceError:
    return failure or Unreachable(f"{agent}: there was no time to ask the registry")
