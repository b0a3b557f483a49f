"""What a caller demands of a resolve, and how the query says it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote

from .terms import Position, duration_text

_REVISION = re.compile(r"[1-9][0-9]*(?:@(?:0|[1-9][0-9]*)\.[0-9a-f]{16})?\Z")


@dataclass(frozen=True, slots=True)
class SkillWanted:
    """A skill by its id, with modes that it must take and give."""

    id: str
    input_modes: tuple[str, ...] = ()
    output_modes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _listed("input_modes", self.input_modes)
        _listed("output_modes", self.output_modes)

    def _query(self) -> str:
        modes = [f";in={_value(mode)}" for mode in self.input_modes]
        modes += [f";out={_value(mode)}" for mode in self.output_modes]
        return _value(self.id) + "".join(modes)


@dataclass(frozen=True, slots=True)
class Fence:
    """Conditions that must be proven, or the resolve is refused. Durations are in seconds.

    `max_staleness`: None leaves the registry's default, 0 is linearizable, "any" accepts unknown.
    `pin` takes the place of the default `max_staleness`; an explicit one still counts.
    `wait`: how long the registry may wait for a proof; None leaves its default, 0 judges now.
    """

    max_staleness: float | Literal["any"] | None = None
    at_least: Position | None = None
    min_revision: int | str | None = None
    min_version: str | None = None
    skills: tuple[SkillWanted, ...] = ()
    streaming: bool = False
    push_notifications: bool = False
    extended_card: bool = False
    extensions: tuple[str, ...] = ()
    pin: str | None = None
    pin_skills: str | None = None
    pin_negotiation: str | None = None
    max_origin_age: float | None = None
    wait: float | None = None

    def __post_init__(self) -> None:
        # A demand that is quietly empty would pass everything.
        if isinstance(self.max_staleness, str) and self.max_staleness != "any":
            raise ValueError(f"max_staleness: {self.max_staleness!r} is neither seconds nor 'any'")
        if self.min_revision is not None and not _REVISION.match(str(self.min_revision)):
            raise ValueError(f"min_revision: {self.min_revision!r} is not a number from 1, or `7@<position>`")
        if self.wait is not None and self.wait > 10:
            raise ValueError(f"wait: {self.wait} is more than 10 seconds")
        _listed("extensions", self.extensions)
        for name in ("min_version", "pin", "pin_skills", "pin_negotiation"):
            if getattr(self, name) == "":
                raise ValueError(f"{name} must not be empty")
        self.query()

    def query(self, at_least: Position | None = None, known: str | None = None) -> str:
        """The query, percent-encoded. `at_least` stands in for a fence without one."""
        pairs: list[tuple[str, str]] = []
        if self.max_staleness is not None:
            any_age = self.max_staleness == "any"
            pairs.append(("max_staleness", "any" if any_age else duration_text(float(self.max_staleness))))
        position = at_least or self.at_least
        if position is not None:
            pairs.append(("at_least", str(position)))
        if self.min_revision is not None:
            pairs.append(("min_revision", _value(str(self.min_revision))))
        if self.min_version is not None:
            pairs.append(("min_version", _value(self.min_version)))
        pairs += [("skill", skill._query()) for skill in self.skills]
        flags = ("streaming", "push_notifications", "extended_card")
        pairs += [(name, "true") for name in flags if getattr(self, name)]
        pairs += [("extension", _value(uri)) for uri in self.extensions]
        for name in ("pin", "pin_skills", "pin_negotiation"):
            if getattr(self, name) is not None:
                pairs.append((name, _value(getattr(self, name))))
        if self.max_origin_age is not None:
            pairs.append(("max_origin_age", duration_text(self.max_origin_age)))
        if self.wait is not None:
            pairs.append(("wait", duration_text(self.wait)))
        if known is not None:
            pairs.append(("known", _value(known)))
        return "&".join(f"{name}={value}" for name, value in pairs)


def _listed(name: str, values: tuple[str, ...]) -> None:
    if isinstance(values, str) or not all(isinstance(value, str) and value for value in values):
        raise ValueError(f"{name}: {values!r} is not a list of texts that are not empty")


def _value(text: str) -> str:
    if not text:
        raise ValueError("an empty text is no demand")
    return quote(text, safe="")
