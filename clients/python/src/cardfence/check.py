"""Judges what an agent answered against the card that was negotiated with (`clients/cases/README.md`).

Pure: no IO, no clock. The guard acts on what is found here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

from .card import Card
from .modes import accepted, is_text, normalise
from .response import UNREADABLE, Part, Reading, RemoteError, read


class Mode(Enum):
    """What counts when something cannot be verified: strict takes it for drift, lenient lets it pass."""

    STRICT = "strict"
    LENIENT = "lenient"


# Looked for as they stand, in texts whose words `_words` has separated.
PATTERNS = (
    "unknown skill",
    "unsupported skill",
    "no such skill",
    "skill not found",
    "skill not supported",
    "unsupported mode",
    "unsupported input mode",
    "unsupported output mode",
    "mode not supported",
    "unknown capability",
    "unsupported capability",
    "capability not supported",
)

_HUMP = re.compile(r"([a-z0-9])([A-Z])")
_GAP = re.compile(r"[\s_-]+", re.ASCII)
_TEXT_MAX = 64 * 1024

# Errors that a card in force would have prevented, whatever it promises.
_ALWAYS = frozenset({"INVALID_PARAMS", "METHOD_NOT_FOUND", "CONTENT_TYPE_NOT_SUPPORTED", "VERSION_NOT_SUPPORTED"})
_MOVED = frozenset({404, 405, 410})
_CREDENTIALS = frozenset({401, 403})


@dataclass(frozen=True, slots=True)
class Stale:
    """The card no longer holds: `evidence` is `state`, `error`, `error_text`, `http` or `skill_not_in_card`."""

    evidence: str
    state: str | None = None
    pattern: str | None = None
    error: str | None = None
    status: int | None = None

    def __str__(self) -> str:
        match self.evidence:
            case "state":
                return f"the task is {self.state} and says {self.pattern!r}"
            case "error":
                return f"the agent answered {self.error}"
            case "error_text":
                return f"the agent answered an error that says {self.pattern!r}"
            case "http":
                return f"the agent's interface answered {self.status}"
            case _:
                return "the negotiated card does not have the skill"


@dataclass(frozen=True, slots=True)
class Drift:
    """A part outside the skill's effective output modes; `verified` is False when it could not be told."""

    pointer: str
    found: str
    verified: bool
    allowed: tuple[str, ...]

    def __str__(self) -> str:
        why = "is none of" if self.verified else "cannot be verified against"
        return f"{self.pointer}: {self.found} {why} {', '.join(self.allowed) or 'no output modes'}"


@dataclass(frozen=True, slots=True)
class Unreadable:
    """No A2A answer at all."""

    def __str__(self) -> str:
        return "the answer is none that A2A defines"


@dataclass(frozen=True, slots=True)
class Checked:
    """An answer that shows nothing against the card. It may still be a failure of the agent's own."""

    kind: str
    state: str | None = None
    error: RemoteError | None = None
    task_id: str | None = None


Finding: TypeAlias = Stale | Drift | Unreadable | Checked


def judge(
    card: Card,
    skill_id: str,
    response: Any,
    *,
    mode: Mode = Mode.STRICT,
    http_status: int | None = None,
    patterns: tuple[str, ...] = PATTERNS,
    generation: str | None = None,
) -> Finding:
    """What `response` shows about `card`, of which `skill_id` was negotiated."""
    is_v0_1 = (generation or card.generation) == "v0.1"
    reading = read(response, http_status, is_v0_1)
    if reading is UNREADABLE:
        return Unreadable() if mode is Mode.STRICT else Checked("other")
    if reading.error is not None:
        stale = _error(card, reading.error, http_status, patterns, is_v0_1)
        return stale or Checked("error", error=reading.error)
    if reading.state in ("failed", "rejected"):
        pattern = found_pattern(reading.status_texts, patterns)
        if pattern is not None:
            return Stale("state", state=reading.state, pattern=pattern)
    if _delivers(reading):
        skill = card.skill(skill_id)
        if skill is None:
            return Stale("skill_not_in_card")
        drift = _drift(reading, skill.output_modes, mode)
        if drift is not None:
            return drift
    return Checked(reading.kind, reading.state, task_id=reading.task_id)


def _delivers(reading: Reading) -> bool:
    """Whether its parts are handed on: a completed task, a chunk of an artifact, a direct answer."""
    return reading.kind in ("artifact-update", "message") or (
        reading.kind == "task" and reading.state == "completed"
    )


def found_pattern(texts: tuple[str, ...], patterns: tuple[str, ...] = PATTERNS) -> str | None:
    """The first of `patterns` that one of the texts contains."""
    for one in texts:
        words = _words(one)
        for pattern in patterns:
            if pattern in words:
                return pattern
    return None


def _words(text: str) -> str:
    """Lower case; capitals inside a word, and runs of space, `_` and `-`, separate words."""
    return _GAP.sub(" ", _HUMP.sub(r"\1 \2", text[:_TEXT_MAX])).lower()


def _error(
    card: Card, error: RemoteError, http_status: int | None, patterns: tuple[str, ...], is_v0_1: bool
) -> Stale | None:
    if error.name is not None and _is_evidence(card, error.name, is_v0_1):
        return Stale("error", error=error.name)
    pattern = found_pattern(error.texts, patterns)
    if pattern is not None:
        return Stale("error_text", pattern=pattern)
    if error.name is not None:
        return None
    status = error.http_status if error.http_status is not None else http_status
    if status in _CREDENTIALS and not card.security:
        return Stale("http", status=status)
    # Within a body of A2A's own, 404 may be about a task.
    if status in _MOVED and error.code is None and error.http_status == http_status:
        return Stale("http", status=status)
    return None


def _is_evidence(card: Card, name: str, is_v0_1: bool) -> bool:
    if name in _ALWAYS:
        return True
    if name == "PUSH_NOTIFICATION_NOT_SUPPORTED":
        return card.push_notifications
    if name == "UNSUPPORTED_OPERATION":
        return card.streaming or card.extended_card
    if name == "STREAMING_NOT_SUPPORTED":
        return is_v0_1 and card.streaming
    if name == "EXTENDED_AGENT_CARD_NOT_CONFIGURED":
        return card.extended_card
    if name == "EXTENSION_SUPPORT_REQUIRED":
        return not any(card.extensions.values())
    return False


def _drift(reading: Reading, modes: tuple[str, ...], mode: Mode) -> Drift | None:
    unverified: Drift | None = None
    for part in reading.parts:
        found = normalise(part.media_type) if part.media_type is not None else part.kind
        bare_text = part.kind == "text" and part.media_type is None
        if reading.kind == "message" and bare_text:
            # This is how an agent talks; it may ask for something instead of delivering it.
            continue
        passes = _passes(part, found, modes)
        if passes or (mode is Mode.LENIENT and bare_text and any(is_text(m) for m in modes)):
            continue
        drift = Drift(part.pointer, found, verified=passes is False, allowed=modes)
        if drift.verified:
            return drift
        unverified = unverified or drift
    return None if mode is Mode.LENIENT else unverified


def _passes(part: Part, found: str, modes: tuple[str, ...]) -> bool | None:
    """Whether the modes accept the part; None when that cannot be told."""
    if not modes:
        return None
    if part.media_type is not None:
        return accepted(modes, found)
    if part.kind == "text":
        return accepted(modes, "text") or accepted(modes, "text/plain")
    if part.kind == "data":
        return accepted(modes, "data") or accepted(modes, "application/json")
    # Whatever its type is, `*/*` covers it.
    return True if part.kind == "file" and "*/*" in modes else None
