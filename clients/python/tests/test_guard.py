"""The guard against a real registry: the incidents that it exists for."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from cardfence import (
    AgentNotFound,
    ArtifactSchemaDrift,
    CapabilityMismatch,
    DiscoveryDowngrade,
    DiscoveryUnavailable,
    Event,
    Fence,
    Intent,
    Limits,
    Mode,
    StaleAgentCard,
    TaskContinuationBlocked,
    UnreadableResponse,
)

from .cards import card, skill, task
from .conftest import Clients, Registry

SUMMARIZE = "summarize-v2"
QUICK = Limits(timeout=2.0, attempt_timeout=1.0, attempts=2)


def intent(agent: str, **needs: Any) -> Intent:
    needs.setdefault("skill", SUMMARIZE)
    return Intent(agent, output_modes=("text/markdown",), **needs)


def test_a_task_that_fails_with_unknown_skill_after_submitted_is_stale(
    clients: Clients, registry: Registry, agent: str
) -> None:
    registry.put(agent, card())
    events: list[Event] = []
    guard = clients.guard(clients.resolver(registry.url, on_event=events.append))
    negotiated = guard.start_task(intent(agent))
    assert guard.check(negotiated, task("submitted")).state == "submitted"
    # Redeployed with other skills; the version stays.
    registry.put(agent, card(skill("translate-v1", ("text/plain",))))
    with pytest.raises(StaleAgentCard) as found:
        guard.check(negotiated, task("failed", message="unknown skill"))
    error = found.value
    assert (error.reason, error.evidence.pattern) == ("evidence", "unknown skill")
    assert error.negotiated is negotiated and negotiated.revision == 1
    assert error.fresh.revision == 2 and "translate-v1" in error.fresh.card.skills
    assert error.change.change_class == "breaking" and error.change.silent
    assert ("skill_removed", SUMMARIZE) in [(item.kind, item.subject) for item in error.change.items]
    # Never with the stale card: the task as it was cannot start any more, another can.
    with pytest.raises(CapabilityMismatch) as refused:
        guard.start_task(intent(agent))
    assert [c.condition for c in refused.value.conditions if c.outcome == "failed"] == ["skills"]
    assert refused.value.card["skills"][0]["id"] == "translate-v1"
    assert guard.start_task(Intent(agent, "translate-v1")).revision == 2
    kinds = [event.kind for event in events]
    for kind in ("stale_card_evidence", "quarantined", "refetched", "drift_unsupported"):
        assert kinds.count(kind) == 1, kinds
    assert guard.counts["refetched"] == 1


def test_text_where_markdown_was_negotiated_is_drift(clients: Clients, registry: Registry, agent: str) -> None:
    registry.put(agent, card())
    guard = clients.guard(clients.resolver(registry.url))
    negotiated = guard.start_task(intent(agent))
    assert (
        guard.check(negotiated, task("completed", {"text": "# x", "mediaType": "text/markdown"})).state
        == "completed"
    )
    # The id is used again for something else.
    registry.put(agent, card(skill(SUMMARIZE, ("text/plain",))))
    with pytest.raises(ArtifactSchemaDrift) as found:
        guard.check(negotiated, task("completed", {"text": "x"}))
    error = found.value
    assert (error.drift.found, error.drift.allowed) == ("text", ("text/markdown",))
    assert error.fresh.revision == 2 and not error.registry_behind_origin
    kinds = {item.kind for item in error.change.items}
    assert kinds == {"output_mode_removed", "output_mode_added"}
    with pytest.raises(CapabilityMismatch):
        guard.start_task(intent(agent))


def test_lenient_lets_bare_text_pass(clients: Clients, registry: Registry, agent: str) -> None:
    registry.put(agent, card())
    guard = clients.guard(clients.resolver(registry.url), mode=Mode.LENIENT)
    negotiated = guard.start_task(intent(agent))
    assert guard.check(negotiated, task("completed", {"text": "x"})).state == "completed"
    assert guard.check(negotiated, {"hello": 1}).kind == "other"


def test_push_withdrawn_between_start_and_webhook_is_a_downgrade(
    clients: Clients, registry: Registry, agent: str
) -> None:
    registry.put(agent, card())
    guard = clients.guard(clients.resolver(registry.url))
    negotiated = guard.start_task(intent(agent, needs_push=True))
    assert guard.register_webhook(negotiated).revision == 1
    registry.put(agent, card(streaming=True, pushNotifications=False))
    with pytest.raises(DiscoveryDowngrade) as found:
        guard.register_webhook(negotiated)
    assert [item.kind for item in found.value.change.items] == ["push_notifications_withdrawn"]
    assert found.value.negotiated is negotiated
    assert found.value.card["capabilities"]["pushNotifications"] is False
    with pytest.raises(CapabilityMismatch):
        guard.start_task(intent(agent, needs_push=True))
    registry.retire(agent)
    with pytest.raises(DiscoveryDowngrade):
        guard.register_webhook(negotiated)


def test_a_held_task_whose_skill_is_withdrawn_is_blocked(clients: Clients, registry: Registry, agent: str) -> None:
    registry.put(agent, card())
    guard = clients.guard(clients.resolver(registry.url))
    negotiated = guard.start_task(intent(agent))
    going_on = guard.continue_task(negotiated)
    assert going_on.warning is None and going_on.change is None and going_on.fresh.revision == 1
    # Breaking elsewhere: it goes on, and is told.
    registry.put(agent, card(streaming=False))
    going_on = guard.continue_task(negotiated)
    assert going_on.change.change_class == "breaking"
    assert {item.kind for item in going_on.change.items} == {"streaming_withdrawn", "push_notifications_withdrawn"}
    # A mode that it needs is gone.
    registry.put(agent, card(skill(SUMMARIZE, ("text/plain",))))
    with pytest.raises(TaskContinuationBlocked) as found:
        guard.continue_task(negotiated)
    assert found.value.reason == "mode_missing"
    registry.put(agent, card(skill("translate-v1")))
    with pytest.raises(TaskContinuationBlocked) as found:
        guard.continue_task(negotiated)
    assert found.value.reason == "skill_missing"
    assert "skill_removed" in [item.kind for item in found.value.change.items]
    registry.retire(agent)
    with pytest.raises(TaskContinuationBlocked) as found:
        guard.continue_task(negotiated)
    assert found.value.reason == "agent_retired"
    assert [item.kind for item in found.value.change.items] == ["agent_retired"]


def test_an_unreachable_registry_refuses_a_start_and_lets_a_task_go_on(
    clients: Clients, own_registry: Registry, agent: str
) -> None:
    own_registry.put(agent, card())
    guard = clients.guard(clients.resolver(own_registry.url, limits=QUICK))
    negotiated = guard.start_task(intent(agent))
    own_registry.stop()
    with pytest.raises(DiscoveryUnavailable) as refused:
        guard.start_task(intent(agent))
    assert refused.value.negotiated.card is not None
    with pytest.raises(DiscoveryUnavailable):
        guard.register_webhook(negotiated)
    going_on = guard.continue_task(negotiated)
    assert isinstance(going_on.warning, DiscoveryUnavailable) and going_on.warning.negotiated is negotiated
    assert guard.counts["discovery_unavailable"] == 3
    # Evidence cannot be followed up now, and still quarantines.
    with pytest.raises(StaleAgentCard) as stale:
        guard.check(negotiated, task("failed", message="unknown skill"))
    assert stale.value.fresh is None and guard.counts["refetch_failed"] == 1
    own_registry.start()
    with pytest.raises(StaleAgentCard) as behind:
        guard.start_task(intent(agent))
    assert behind.value.reason == "registry_behind_origin"


def test_a_registry_behind_its_origin_is_refused_until_the_origin_is_confirmed(
    clients: Clients, registry: Registry, agent: str
) -> None:
    registry.put(agent, card())
    guard = clients.guard(clients.resolver(registry.url))
    negotiated = guard.start_task(intent(agent))
    with pytest.raises(StaleAgentCard) as found:
        guard.check(negotiated, task("failed", message="unknown skill"))
    assert found.value.reason == "registry_behind_origin" and found.value.registry_behind_origin
    assert found.value.change is None
    for _ in range(2):
        with pytest.raises(StaleAgentCard) as refused:
            guard.start_task(intent(agent))
        assert refused.value.reason == "registry_behind_origin"
    # The same bytes again: the agent says that it still lives by this card.
    assert registry.put(agent, card())["outcome"] == "unchanged"
    assert guard.start_task(intent(agent)).revision == 1
    # Evidence after that counts again.
    with pytest.raises(StaleAgentCard):
        guard.check(negotiated, task("failed", message="unknown skill"))
    with pytest.raises(StaleAgentCard):
        guard.start_task(intent(agent))
    registry.put(agent, card(version="2.0.0"))
    assert guard.start_task(intent(agent)).revision == 2


def test_many_failures_at_once_lead_to_one_refetch(registry: Registry, agent: str) -> None:
    clients = Clients("sync")
    registry.put(agent, card())
    guard = clients.guard(clients.resolver(registry.url))
    negotiated = guard.start_task(intent(agent))
    registry.put(agent, card(version="2.0.0"))
    gate, errors = threading.Barrier(16), []

    def fail() -> None:
        gate.wait(10)
        try:
            guard.check(negotiated, task("failed", message="unknown skill"))
        except StaleAgentCard as error:
            errors.append(error.fresh.revision)

    threads = [threading.Thread(target=fail) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert errors == [2] * 16
    assert guard.counts["refetched"] == 1 and guard.counts["quarantined"] == 1
    clients.close()


def test_an_unknown_agent_and_a_floor_are_told_as_what_they_are(
    clients: Clients, registry: Registry, agent: str
) -> None:
    guard = clients.guard(clients.resolver(registry.url))
    with pytest.raises(AgentNotFound) as absent:
        guard.start_task(intent(agent))
    assert absent.value.freshness.staleness is not None
    registry.put(agent, card())
    with pytest.raises(StaleAgentCard) as below:
        guard.start_task(intent(agent, fence=Fence(min_version="1.1")))
    assert below.value.reason == "version_below_floor"
    assert below.value.card["version"] == "1.0.0"


def test_strict_refuses_what_is_no_answer(clients: Clients, registry: Registry, agent: str) -> None:
    registry.put(agent, card())
    guard = clients.guard(clients.resolver(registry.url))
    negotiated = guard.start_task(intent(agent))
    with pytest.raises(UnreadableResponse):
        guard.check(negotiated, b"<html>")
    # It is no evidence either.
    assert guard.start_task(intent(agent)).revision == 1
