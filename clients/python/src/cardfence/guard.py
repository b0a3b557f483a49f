"""The guard: from the first fence to the last artifact, with the card that was negotiated.

`_Core` holds the decisions as generators, like `exchange`; `Guard` and `AsyncGuard` run them. The one rule
above the others: after evidence against a card nothing is ever tried again with that card.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

from .card import Card
from .change import RETIREMENT, Change, between
from .check import PATTERNS, Checked, Drift, Mode, Stale, Unreadable, judge
from .errors import (
    ArtifactSchemaDrift,
    CapabilityMismatch,
    CardfenceError,
    DiscoveryDowngrade,
    DiscoveryUnavailable,
    InvalidAnswer,
    Refused,
    StaleAgentCard,
    TaskContinuationBlocked,
    Unreachable,
    UnreadableResponse,
)
from .exchange import Effect, Exchange, Share
from .fence import Fence
from .memo import Memos, serves
from .negotiated import Intent, Negotiated
from .reasons import Retry
from .resolved import Resolved
from .resolver import AsyncResolver, Resolver

_MISMATCH = frozenset({"skill_missing", "mode_missing", "capability_missing"})
_STALE = frozenset(
    {
        "too_stale",
        "freshness_unverifiable",
        "position_not_reached",
        "position_unverifiable",
        "history_diverged",
        "position_in_future",
        "revision_below_floor",
        "version_below_floor",
        "version_incomparable",
        "pin_mismatch",
        "origin_unconfirmed",
    }
)
_GONE = frozenset({"agent_not_found", "agent_retired"})


@dataclass(frozen=True, slots=True)
class Continue:
    """The task goes on. `warning` when the registry could not be asked, `change` when the card moved on."""

    fresh: Resolved | None = None
    change: Change | None = None
    warning: DiscoveryUnavailable | None = None


class _Core:
    def __init__(self, exchange: Exchange, mode: Mode, patterns: tuple[str, ...], reports_drift: bool) -> None:
        self.exchange = exchange
        self.observer = exchange.observer
        self.mode = mode
        self.patterns = patterns
        self.reports_drift = reports_drift
        self.memos = Memos()

    def start_task(self, intent: Intent) -> Generator[Effect, Any, Negotiated]:
        agent = intent.agent
        memo = self.memos.get(agent, self.exchange.history)
        if memo is not None and self.memos.is_suspect(agent, memo.content_digest):
            memo = None
        if memo is not None and serves(memo, intent, self.exchange.clock.now()):
            self.observer.tell("memo_served", agent, revision=memo.revision)
            return Negotiated(intent, memo, from_memo=True)
        known, fence = memo, intent.start_fence()
        if self.memos.has_suspects(agent):
            # A 304 tells nothing of the origin, and only a proof made from here on can clear a suspect.
            known, fence = None, replace(fence, max_staleness=0)
        try:
            resolved = yield from self.exchange.resolve(agent, fence, known)
        except (Refused, Unreachable, InvalidAnswer) as error:
            raise self._not_started(intent, memo, error) from error
        told = "revalidated" if resolved.not_modified else "resolved"
        self.observer.tell(told, agent, revision=resolved.revision)
        if not self.memos.cleared(resolved, is_linearizable=fence.max_staleness == 0):
            self.memos.drop(agent)
            self.observer.tell("quarantine_refused", agent, content_digest=resolved.content_digest)
            raise StaleAgentCard(
                "an answer spoke against this card, the registry still serves it, and the agent was not "
                "confirmed since",
                reason="registry_behind_origin",
                agent=agent,
                fresh=resolved,
            )
        self.memos.keep(resolved, self.exchange.history)
        return Negotiated(intent, resolved)

    def _not_started(self, intent: Intent, memo: Resolved | None, error: CardfenceError) -> CardfenceError:
        held = Negotiated(intent, memo) if memo else None
        about: dict[str, Any] = {"agent": intent.agent, "negotiated": held}
        if isinstance(error, Refused):
            about["refusal"] = error
            if error.reason in _GONE:
                self.memos.drop(intent.agent)
            if error.reason in _MISMATCH:
                self.memos.drop(intent.agent)
                self.observer.tell("capability_mismatch", intent.agent, reason=error.reason)
                return CapabilityMismatch(str(error), **about)
            if error.reason in _STALE:
                self.observer.tell("stale_card_refused", intent.agent, reason=error.reason)
                return StaleAgentCard(str(error), reason=error.reason, **about)
            if error.retry not in (Retry.YES, Retry.LATER):
                return error
        self.observer.tell("discovery_unavailable", intent.agent, at="start")
        return DiscoveryUnavailable(f"the task was not started: {error}", **about)

    def register_webhook(self, negotiated: Negotiated) -> Generator[Effect, Any, Resolved]:
        agent = negotiated.agent
        about: dict[str, Any] = {"agent": agent, "negotiated": negotiated}
        fence = Fence(max_staleness=0, push_notifications=True, wait=negotiated.intent.fence.wait)
        try:
            fresh = yield from self.exchange.resolve(agent, fence, None)
        except (Refused, Unreachable, InvalidAnswer) as error:
            if isinstance(error, Refused):
                about["refusal"] = error
                if error.reason in _GONE or error.reason == "capability_missing":
                    self.memos.drop(agent)
                    self.observer.tell("discovery_downgrade", agent, reason=error.reason)
                    about["change"] = self._change(negotiated, error)
                    detail = "push notifications were withdrawn, a webhook would never fire"
                    raise DiscoveryDowngrade(detail, **about) from error
                if not _is_unavailable(error):
                    raise
            self.observer.tell("discovery_unavailable", agent, at="webhook")
            raise DiscoveryUnavailable(f"the webhook was not registered: {error}", **about) from error
        self._adopt(fresh, is_linearizable=True)
        return fresh

    def continue_task(self, negotiated: Negotiated) -> Generator[Effect, Any, Continue]:
        agent = negotiated.agent
        about: dict[str, Any] = {"agent": agent, "negotiated": negotiated}
        try:
            fresh = yield from self.exchange.resolve(agent, negotiated.intent.held_fence(), None)
        except (Refused, Unreachable, InvalidAnswer) as error:
            if isinstance(error, Refused):
                about["refusal"] = error
                if error.reason in _GONE or error.reason in _MISMATCH:
                    self.memos.drop(agent)
                    self.observer.tell("continuation_blocked", agent, reason=error.reason)
                    about["change"] = self._change(negotiated, error)
                    raise TaskContinuationBlocked(str(error), reason=error.reason, **about) from error
                if not _is_unavailable(error):
                    raise
            self.observer.tell("discovery_unavailable", agent, at="continue")
            warning = DiscoveryUnavailable(f"the task goes on unconfirmed: {error}", **about)
            warning.__cause__ = error
            return Continue(warning=warning)
        self._adopt(fresh, is_linearizable=False)
        return Continue(fresh=fresh, change=fresh.change_since(negotiated.resolved))

    def _change(self, negotiated: Negotiated, refused: Refused) -> Change | None:
        if refused.reason in _GONE:
            return RETIREMENT
        return between(negotiated.card, Card(refused.card)) if refused.card is not None else None

    def _adopt(self, fresh: Resolved, is_linearizable: bool) -> None:
        """Keeps a card that was just read, unless it is suspect."""
        if self.memos.cleared(fresh, is_linearizable):
            self.memos.keep(fresh, self.exchange.history)

    def check(
        self, negotiated: Negotiated, response: Any, http_status: int | None
    ) -> Generator[Effect, Any, Checked]:
        finding = judge(
            negotiated.card,
            negotiated.skill,
            response,
            mode=self.mode,
            http_status=http_status,
            patterns=self.patterns,
            generation=negotiated.resolved.generation,
        )
        match finding:
            case Checked():
                return finding
            case Unreadable():
                self.observer.tell("unreadable_response", negotiated.agent)
                raise UnreadableResponse(str(finding), agent=negotiated.agent, negotiated=negotiated)
        kind = "stale_card_evidence" if isinstance(finding, Stale) else "artifact_drift"
        self.observer.tell(kind, negotiated.agent, finding=str(finding), revision=negotiated.revision)
        fresh = yield from self._evidence(negotiated, finding)
        about: dict[str, Any] = {"agent": negotiated.agent, "negotiated": negotiated, "fresh": fresh}
        about["change"] = fresh.change_since(negotiated.resolved) if fresh else None
        if isinstance(finding, Drift):
            raise ArtifactSchemaDrift(str(finding), drift=finding, **about)
        behind = fresh is not None and fresh.content_digest == negotiated.content_digest
        detail = f"{finding}; " + _advice(fresh, behind)
        reason = "registry_behind_origin" if behind else "evidence"
        raise StaleAgentCard(detail, reason=reason, evidence=finding, **about)

    def _evidence(self, negotiated: Negotiated, finding: Stale | Drift) -> Generator[Effect, Any, Resolved | None]:
        """Quarantines the card, reads the agent anew, reports; once for all who find the same at a time."""
        agent, digest = negotiated.agent, negotiated.content_digest
        held = self._found_out(agent, digest)
        if held is not None:
            self.observer.tell("evidence_known", agent)
            return held
        held = self.memos.get(agent, self.exchange.history)
        # Before anything that takes time: from here on no task starts with this card.
        if self.memos.suspect(agent, digest, self.exchange.clock.now()):
            self.observer.tell("quarantined", agent, content_digest=digest)
        if held is not None and held.content_digest == digest:
            self.memos.drop(agent)
        fresh: Resolved | None = yield Share(
            ("evidence", agent, digest), lambda: self._refetch(negotiated, finding)
        )
        return fresh

    def _found_out(self, agent: str, digest: str) -> Resolved | None:
        """The card in hand, if evidence had already led from `digest` to it."""
        held = self.memos.get(agent, self.exchange.history)
        has_moved = held is not None and held.content_digest != digest
        return held if has_moved and self.memos.is_suspect(agent, digest) else None

    def _refetch(self, negotiated: Negotiated, finding: Stale | Drift) -> Generator[Effect, Any, Resolved | None]:
        agent = negotiated.agent
        # Another may have done this between the look at the memo and here.
        fresh = self._found_out(agent, negotiated.content_digest)
        if fresh is not None:
            return fresh
        try:
            fresh = yield from self.exchange.resolve(agent, Fence(max_staleness=0), None)
            self._adopt(fresh, is_linearizable=True)
            self.observer.tell("refetched", agent, revision=fresh.revision)
        except (Refused, Unreachable, InvalidAnswer) as error:
            self.observer.tell("refetch_failed", agent, cause=str(error))
        if self.reports_drift:
            report = _report(negotiated, finding)
            outcome = yield from self.exchange.report_drift(agent, report)
            self.observer.tell(f"drift_{outcome}", agent)
        return fresh


def _is_unavailable(error: Refused) -> bool:
    """Whether a refusal says that nothing could be proven now, rather than what was found."""
    return error.retry in (Retry.YES, Retry.LATER, Retry.AFTER_RESYNC)


def _advice(fresh: Resolved | None, behind: bool) -> str:
    if fresh is None:
        return "the registry could not be asked for the current card"
    if behind:
        return "the registry still serves this card, so the agent must register or be confirmed first"
    return f"revision {fresh.revision} is current, negotiate anew"


def _report(negotiated: Negotiated, finding: Stale | Drift) -> dict[str, Any]:
    kind = finding.evidence if isinstance(finding, Stale) else "artifact"
    return {
        "content_digest": negotiated.content_digest,
        "revision": negotiated.revision,
        "skill": negotiated.skill,
        "kind": kind,
        "detail": str(finding)[:500],
    }


class Guard:
    """Carries the negotiated card through a task. Safe to use from several threads; one for a process is best.

    `mode` is how strictly answers are checked, `patterns` what a failed task's text is searched for.
    """

    def __init__(
        self,
        resolver: Resolver,
        *,
        mode: Mode = Mode.STRICT,
        patterns: tuple[str, ...] = PATTERNS,
        reports_drift: bool = True,
    ) -> None:
        self.resolver = resolver
        self._core = _Core(resolver.exchange, mode, patterns, reports_drift)

    @property
    def counts(self) -> dict[str, int]:
        """How often each event happened (README, "Events")."""
        return self.resolver.counts

    def start_task(self, intent: Intent) -> Negotiated:
        """Call before a task is created. Only what it returns may be negotiated with.

        Raises CapabilityMismatch, StaleAgentCard (`registry_behind_origin` included) or DiscoveryUnavailable;
        and the registry's own refusal where the agent is gone or the request is wrong.
        """
        return self.resolver.run(self._core.start_task(intent))

    def register_webhook(self, negotiated: Negotiated) -> Resolved:
        """Call before a webhook is registered; returns the fresh card, which has push notifications.

        Raises DiscoveryDowngrade when they were withdrawn, DiscoveryUnavailable when that is not known.
        """
        return self.resolver.run(self._core.register_webhook(negotiated))

    def continue_task(self, negotiated: Negotiated) -> Continue:
        """Call while a task is held. The registry being away is a warning in what it returns.

        Raises TaskContinuationBlocked when the agent, the skill or a mode that the task needs is gone.
        """
        return self.resolver.run(self._core.continue_task(negotiated))

    def check(self, negotiated: Negotiated, response: Any, *, http_status: int | None = None) -> Checked:
        """Call with every answer and every streaming event, before what it delivers is handed on.

        `response` is parsed JSON, or JSON as text or bytes; None where there was none. Raises StaleAgentCard or
        ArtifactSchemaDrift, after which the task must not be tried again with this card; UnreadableResponse in
        strict mode.
        """
        return self.resolver.run(self._core.check(negotiated, response, http_status))


class AsyncGuard:
    """As `Guard`, for one event loop."""

    def __init__(
        self,
        resolver: AsyncResolver,
        *,
        mode: Mode = Mode.STRICT,
        patterns: tuple[str, ...] = PATTERNS,
        reports_drift: bool = True,
    ) -> None:
        self.resolver = resolver
        self._core = _Core(resolver.exchange, mode, patterns, reports_drift)

    @property
    def counts(self) -> dict[str, int]:
        """How often each event happened (README, "Events")."""
        return self.resolver.counts

    async def start_task(self, intent: Intent) -> Negotiated:
        """As `Guard.start_task`."""
        return await self.resolver.run(self._core.start_task(intent))

    async def register_webhook(self, negotiated: Negotiated) -> Resolved:
        """As `Guard.register_webhook`."""
        return await self.resolver.run(self._core.register_webhook(negotiated))

    async def continue_task(self, negotiated: Negotiated) -> Continue:
        """As `Guard.continue_task`."""
        return await self.resolver.run(self._core.continue_task(negotiated))

    async def check(self, negotiated: Negotiated, response: Any, *, http_status: int | None = None) -> Checked:
        """As `Guard.check`."""
        return await self.resolver.run(self._core.check(negotiated, response, http_status))
