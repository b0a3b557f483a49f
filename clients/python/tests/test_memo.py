"""When the card in hand may start a task without asking (C1 and C2), and what clears a suspect."""

from __future__ import annotations

from typing import Any

import pytest

from cardfence import Fence, Intent, StaleAgentCard
from cardfence.clock import Instant

from .cards import card, task
from .conftest import Clients
from .test_resolver import Script, envelope


class Hands:
    """A clock that only moves when it is told to."""

    def __init__(self) -> None:
        self.at = 1000.0

    def now(self) -> Instant:
        return Instant(self.at, self.at)


def asked(clients: Clients, step: float, intent: Intent, freshness: dict[str, Any], **more: Any) -> int:
    """How many requests two starts make, the second `step` seconds after the first."""
    clock, script = Hands(), Script(envelope(card=card(), freshness=freshness, **more))
    guard = clients.guard(clients.resolver("http://r.example.com", script.transport, clock=clock))
    guard.start_task(intent)
    clock.at += step
    again = guard.start_task(intent)
    assert again.from_memo is (len(script.asked) == 1)
    return len(script.asked)


@pytest.mark.parametrize(
    ("step", "expected_duration", "revalidate_after_ms", "requests"),
    [
        (60, 2400, 120_000, 1),
        (119, 2400, 120_000, 1),
        # Not confirmed within twice the redeploy interval.
        (121, 2400, 120_000, 2),
        # Older than the task's expected duration.
        (60, 30, 120_000, 2),
        # An unknown interval, or an unknown duration: nothing says that the copy is young enough.
        (0, 2400, None, 2),
        (0, None, 120_000, 2),
    ],
)
def test_the_memo_serves_within_the_task_and_twice_the_redeploy_interval(
    clients: Clients, step: float, expected_duration: float | None, revalidate_after_ms: int | None, requests: int
) -> None:
    intent = Intent("acme/w", "summarize-v2", expected_duration=expected_duration)
    assert asked(clients, step, intent, {"revalidate_after_ms": revalidate_after_ms}) == requests


def test_immutable_versions_let_the_memo_serve_a_task_of_any_length(clients: Clients) -> None:
    intent, fresh = Intent("acme/w", "summarize-v2"), {"revalidate_after_ms": 120_000}
    immutable = {"policies": {"immutable_versions": True}}
    assert asked(clients, 60, intent, fresh, **immutable) == 1
    # The version itself is no longer confirmed.
    assert asked(clients, 121, intent, fresh, **immutable) == 2


def test_a_fence_that_only_the_registry_can_judge_is_always_asked(clients: Clients) -> None:
    fresh = {"revalidate_after_ms": 120_000, "staleness_ms": 0}
    for fence, requests in (
        (Fence(max_staleness=90), 1),
        (Fence(max_staleness=30), 2),
        (Fence(max_staleness=0), 2),
        (Fence(pin="sha256:c"), 1),
        (Fence(min_revision=1), 2),
        (Fence(min_version="1"), 2),
        (Fence(max_origin_age=1e6), 2),
    ):
        intent = Intent("acme/w", "summarize-v2", expected_duration=3600, fence=fence)
        assert asked(clients, 60, intent, fresh) == requests, fence


def test_only_a_confirmation_after_the_evidence_clears_a_suspect(clients: Clients) -> None:
    def told(confirmed: str, proven: str) -> Any:
        times = {
            "origin_confirmed_at": f"2026-11-30T{confirmed}.000000Z",
            "proven_at": f"2026-11-30T{proven}.000000Z",
        }
        return envelope(card=card(), freshness={**times, "staleness_ms": 0})

    script = Script(
        told("10:00:00", "12:00:00"),
        # The re-fetch after the evidence: proven at 12:00:01.
        told("10:00:00", "12:00:01"),
        # This one takes the report.
        told("10:00:00", "12:00:01"),
        # A confirmation that a replica had not heard of is still from before the evidence.
        told("11:00:00", "12:00:02"),
        told("12:00:00", "12:00:03"),
        told("12:00:05", "12:00:06"),
    )
    guard = clients.guard(clients.resolver("http://r.example.com", script.transport))
    negotiated = guard.start_task(Intent("acme/w", "summarize-v2"))
    with pytest.raises(StaleAgentCard):
        guard.check(negotiated, task("failed", message="unknown skill"))
    for _ in range(2):
        with pytest.raises(StaleAgentCard) as found:
            guard.start_task(Intent("acme/w", "summarize-v2"))
        assert found.value.reason == "registry_behind_origin"
    assert script.params(4)["max_staleness"] == "0"
    assert guard.start_task(Intent("acme/w", "summarize-v2")).revision == 1


def test_a_suspect_that_got_into_the_memo_is_not_served_from_it() -> None:
    # A start that was under way when the evidence came may keep the card a moment after it was dropped.
    clients = Clients("sync")
    script = Script(envelope(card=card(), freshness={"revalidate_after_ms": 120_000, "staleness_ms": 0}))
    guard = clients.guard(clients.resolver("http://r.example.com", script.transport))
    intent = Intent("acme/w", "summarize-v2", expected_duration=2400)
    negotiated = guard.start_task(intent)
    with pytest.raises(StaleAgentCard):
        guard.check(negotiated, task("failed", message="unknown skill"))
    guard._core.memos.keep(negotiated.resolved, guard._core.exchange.history)
    asked_before = len(script.asked)
    with pytest.raises(StaleAgentCard) as refused:
        guard.start_task(intent)
    assert refused.value.reason == "registry_behind_origin" and len(script.asked) == asked_before + 1
    clients.close()
