"""What things are called: agents, positions, durations, freshness."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Any

from .clock import Instant, elapsed

_PART = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?\Z")
_POSITION = re.compile(r"(0|[1-9][0-9]{0,19})\.([0-9a-f]{16})\Z")


def agent_parts(agent: str) -> tuple[str, str]:
    """The namespace and the name of `namespace/name`.

    Raises ValueError unless each is `[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?`.
    """
    namespace, _, name = agent.partition("/")
    if not (_PART.match(namespace) and _PART.match(name)):
        raise ValueError(
            f"{agent!r} is not an agent's name: `namespace/name`, "
            "each of up to 64 lower-case letters, digits, `.`, `_`, `-`"
        )
    return namespace, name


@dataclass(frozen=True, slots=True)
class Position:
    """A place in the ledger. Only positions of one history can be compared, so there is no order."""

    seq: int
    tag: str

    @classmethod
    def parse(cls, text: str) -> Position:
        found = _POSITION.match(text)
        if not found or int(found[1]) >= 1 << 64:
            raise ValueError(
                f"{text!r} is not a position: a sequence number without leading zeros, a dot, 16 hex digits"
            )
        return cls(seq=int(found[1]), tag=found[2])

    def __str__(self) -> str:
        return f"{self.seq}.{self.tag}"


def duration_text(seconds: float) -> str:
    """A duration as the wire writes it, in whole milliseconds, rounded down: a demand must not soften."""
    if not math.isfinite(seconds) or seconds < 0:
        raise ValueError(f"{seconds} is not a duration: a finite number of seconds from 0 is allowed")
    milliseconds = math.floor(seconds * 1000 + 1e-6)
    if milliseconds == 0 and seconds > 0:
        # 0 would mean another thing: linearizable.
        milliseconds = 1
    return f"{milliseconds}ms" if milliseconds else "0"


@dataclass(frozen=True, slots=True)
class Freshness:
    """How old an answer can be, at most, and how that is known.

    `staleness` is what the registry said, in seconds; None is unknown. `age` adds the time since the request
    was sent, so it includes the round trip.
    """

    position: Position | None
    staleness: float | None
    sent: Instant
    basis: str = "unproven"
    served_by: str = ""
    hops: int = 0
    proven_at: str | None = None
    origin_confirmed_at: str | None = None
    observed_redeploy_interval: float | None = None
    revalidate_after: float | None = None

    def age(self, now: Instant) -> float | None:
        """Upper bound, in seconds, on how long ago the answer stopped being current; None is unknown."""
        return None if self.staleness is None else self.staleness + elapsed(self.sent, now)

    def unproven(self) -> Freshness:
        """The same without a proof: the answer was not made for the request."""
        return replace(self, position=None, staleness=None, basis="unproven")

    @classmethod
    def of_json(cls, block: Any, sent: Instant) -> Freshness | None:
        """Reads a freshness block; what is missing or odd is unknown, never guessed."""
        if not isinstance(block, dict):
            return None
        return cls(
            position=position_or_none(block.get("position")),
            staleness=_seconds(block.get("staleness_ms")),
            sent=sent,
            basis=_text(block.get("basis")) or "unproven",
            served_by=_text(block.get("served_by")) or "",
            hops=block["hops"] if type(block.get("hops")) is int else 0,
            proven_at=_text(block.get("proven_at")),
            origin_confirmed_at=_text(block.get("origin_confirmed_at")),
            observed_redeploy_interval=_seconds(block.get("observed_redeploy_interval_ms")),
            revalidate_after=_seconds(block.get("revalidate_after_ms")),
        )


def position_or_none(text: Any) -> Position | None:
    try:
        return Position.parse(text) if isinstance(text, str) else None
    except ValueError:
        return None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _seconds(milliseconds: Any) -> float | None:
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, (int, float)):
        return None
    return milliseconds / 1000 if math.isfinite(milliseconds) and milliseconds >= 0 else None
