"""What can go wrong, each thing with a type of its own.

`Refused` and its kin are the registry's refusals, one class for each reason that a resolve can have. The
guard's errors (`Discovery`) speak of a task: they carry the card that was negotiated with, the fresh one
where it is known, and the change between them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .reasons import Retry, retry_of
from .terms import Freshness

if TYPE_CHECKING:
    from .change import Change
    from .check import Drift, Stale
    from .negotiated import Negotiated
    from .resolved import Resolved


class CardfenceError(Exception):
    """The root of all errors here."""


class Unreachable(CardfenceError):
    """The registry could not be asked, or did not answer in time. `__cause__` tells the last failure."""


class InvalidAnswer(CardfenceError):
    """What answered is no cardfence registry, or speaks otherwise."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition of a fence: `outcome` is `passed`, `failed` or `unverifiable`."""

    condition: str
    outcome: str
    wanted: str
    found: str


class Refused(CardfenceError):
    """The registry refused, and said why."""

    def __init__(
        self,
        reason: str,
        detail: str,
        *,
        status: int = 0,
        conditions: tuple[Condition, ...] = (),
        violations: tuple[Mapping[str, Any], ...] = (),
        freshness: Freshness | None = None,
        card: Mapping[str, Any] | None = None,
        agent: str | None = None,
        revision: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
        self.status = status
        self.conditions = conditions
        self.violations = violations
        self.freshness = freshness
        self.card = card
        self.agent = agent
        self.revision = revision
        self.retry_after = retry_after

    @property
    def retry(self) -> Retry:
        return retry_of(self.reason)


class InvalidArgument(Refused): ...


class Unauthenticated(Refused): ...


class Forbidden(Refused): ...


class AgentNotFound(Refused): ...


class AgentRetired(Refused): ...


class CardRedacted(Refused): ...


class TooStale(Refused): ...


class FreshnessUnverifiable(Refused): ...


class PositionNotReached(Refused): ...


class PositionUnverifiable(Refused): ...


class RevisionBelowFloor(Refused): ...


class VersionBelowFloor(Refused): ...


class VersionIncomparable(Refused): ...


class SkillMissing(Refused): ...


class ModeMissing(Refused): ...


class CapabilityMissing(Refused): ...


class PinMismatch(Refused): ...


class OriginUnconfirmed(Refused): ...


class HistoryDiverged(Refused): ...


class PositionInFuture(Refused): ...


class NoSuchRoute(Refused): ...


class RateLimited(Refused): ...


class Overloaded(Refused): ...


class StoreUnavailable(Refused): ...


class Draining(Refused): ...


class DeadlineExceeded(Refused): ...


def _slug(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


_KINDS: dict[str, type[Refused]] = {_slug(kind.__name__): kind for kind in Refused.__subclasses__()}


def refusal(reason: str, detail: str, **about: Any) -> Refused:
    """The refusal of that reason; one that has no class of its own is a plain `Refused`."""
    return _KINDS.get(reason, Refused)(reason, detail, **about)


class Discovery(CardfenceError):
    """An error of discovery, told where it belongs: before a task is queued, or at the answer that shows it."""

    def __init__(
        self,
        detail: str,
        *,
        agent: str,
        negotiated: Negotiated | None = None,
        fresh: Resolved | None = None,
        change: Change | None = None,
        refusal: Refused | None = None,
    ) -> None:
        super().__init__(f"{agent}: {detail}" + (f" ({change})" if change else ""))
        self.detail = detail
        self.agent = agent
        self.negotiated = negotiated
        self.fresh = fresh
        self.change = change
        self.refusal = refusal

    @property
    def conditions(self) -> tuple[Condition, ...]:
        return self.refusal.conditions if self.refusal else ()

    @property
    def registry_behind_origin(self) -> bool:
        """Whether the registry still served the card that the agent no longer lives by."""
        if self.fresh is None or self.negotiated is None:
            return False
        return self.fresh.content_digest == self.negotiated.content_digest

    @property
    def card(self) -> Mapping[str, Any] | None:
        """The newest card that is known: the fresh one, else the one that was refused."""
        if self.fresh is not None:
            return self.fresh.card.document
        return self.refusal.card if self.refusal else None


class StaleAgentCard(Discovery):
    """The card in hand is not, or cannot be proven to be, the one that the agent lives by.

    `reason` is `evidence` (an answer showed it), `registry_behind_origin` (it did, and the registry still
    serves that card), or the registry's reason. After evidence the task must not be tried again with this
    card: negotiate anew.
    """

    def __init__(self, detail: str, *, reason: str, evidence: Stale | None = None, **about: Any) -> None:
        super().__init__(detail, **about)
        self.reason = reason
        self.evidence = evidence


class CapabilityMismatch(Discovery):
    """The current card does not cover what the task needs."""


class ArtifactSchemaDrift(Discovery):
    """The agent delivered a part outside the output modes of the card that was negotiated with."""

    def __init__(self, detail: str, *, drift: Drift, **about: Any) -> None:
        super().__init__(detail, **about)
        self.drift = drift


class TaskContinuationBlocked(Discovery):
    """The task's agent, its skill, or a mode that it needs is gone. `reason` is the registry's."""

    def __init__(self, detail: str, *, reason: str, **about: Any) -> None:
        super().__init__(detail, **about)
        self.reason = reason


class DiscoveryDowngrade(Discovery):
    """Push notifications were withdrawn: a webhook registered now would never fire."""


class DiscoveryUnavailable(Discovery):
    """The registry could not be asked, or could not prove its answer. As a warning it does not stop a task."""


class UnreadableResponse(Discovery):
    """Strict checking only: the answer is none that A2A defines, so nothing about it can be verified."""
