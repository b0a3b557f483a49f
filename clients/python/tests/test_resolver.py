"""The resolver against a real registry, and against answers that only a broken network gives."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from cardfence import (
    AgentRetired,
    CapabilityMissing,
    Fence,
    FreshnessUnverifiable,
    HistoryDiverged,
    InvalidAnswer,
    InvalidArgument,
    Limits,
    ModeMissing,
    PinMismatch,
    Position,
    PositionNotReached,
    Retry,
    RevisionBelowFloor,
    SkillMissing,
    SkillWanted,
    TooStale,
    Unreachable,
    VersionBelowFloor,
    VersionIncomparable,
)
from cardfence.clock import Instant, SystemClock, elapsed
from cardfence.reasons import RETRY, retry_of

from .cards import card, skill
from .conftest import ROOT, Clients, Registry


def test_every_condition_is_sent_and_judged(clients: Clients, registry: Registry, agent: str) -> None:
    extended = card(streaming=True, pushNotifications=True, extendedAgentCard=True)
    extended["capabilities"]["extensions"] = [{"uri": "https://e.example.com/x?a=1&b=2;c"}]
    registered = registry.put(agent, extended)
    resolver = clients.resolver(registry.url)
    position = Position.parse(registered["position"])
    fence = Fence(
        max_staleness=0,
        at_least=position,
        min_revision=f"1@{position}",
        min_version="v1",
        skills=(SkillWanted("summarize-v2", ("text/plain; charset=utf-8",), ("text/markdown",)),),
        streaming=True,
        push_notifications=True,
        extended_card=True,
        extensions=("https://e.example.com/x?a=1&b=2;c",),
        pin=registered["content_digest"],
        pin_skills=registered["skill_fingerprint"],
        pin_negotiation=registered["negotiation_fingerprint"],
        max_origin_age=3600,
        wait=2.5,
    )
    resolved = resolver.resolve(agent, fence)
    assert (resolved.agent, resolved.revision, resolved.generation) == (agent, 1, "v1.0")
    assert resolved.card.document == extended
    assert resolved.raw_digest == registered["raw_digest"] and resolved.position == position
    assert resolved.freshness.basis == "authority" and resolved.freshness.origin_confirmed_at


def test_each_refusal_has_a_type_with_conditions_and_the_card(
    clients: Clients, registry: Registry, agent: str
) -> None:
    registry.put(agent, card(streaming=True))
    resolver = clients.resolver(registry.url)
    for fence, kind, reason in (
        (Fence(skills=(SkillWanted("gone"),)), SkillMissing, "skill_missing"),
        (Fence(skills=(SkillWanted("summarize-v2", (), ("text/html",)),)), ModeMissing, "mode_missing"),
        (Fence(push_notifications=True), CapabilityMissing, "capability_missing"),
        (Fence(extensions=("https://x.example.com",)), CapabilityMissing, "capability_missing"),
        (Fence(min_revision=2), RevisionBelowFloor, "revision_below_floor"),
        (Fence(min_version="2"), VersionBelowFloor, "version_below_floor"),
        (Fence(min_version="soon"), VersionIncomparable, "version_incomparable"),
        (Fence(pin="sha256:" + "0" * 64), PinMismatch, "pin_mismatch"),
    ):
        with pytest.raises(kind) as found:
            resolver.resolve(agent, fence)
        error = found.value
        assert (error.reason, error.status, error.agent, error.revision) == (reason, 412, agent, 1)
        assert error.retry is Retry.AFTER_CHANGE and error.card["name"] == "Worker"
        assert len([c for c in error.conditions if c.outcome != "passed"]) == 1
        assert error.freshness.staleness is not None
    registry.retire(agent)
    with pytest.raises(AgentRetired):
        resolver.resolve(agent)


@pytest.mark.parametrize("skill_id", ["a;b", "a&b=c", "100%", "a+b", "ü 漢字/#?"])
def test_a_skill_of_any_name_can_be_demanded(registry: Registry, agent: str, skill_id: str) -> None:
    registry.put(agent, card(skill(skill_id, ("application/vnd.x+json",))))
    clients = Clients("sync")
    resolver = clients.resolver(registry.url)
    wanted = SkillWanted(skill_id, output_modes=("application/vnd.x+json",))
    assert resolver.resolve(agent, Fence(skills=(wanted,))).revision == 1
    with pytest.raises(SkillMissing):
        resolver.resolve(agent, Fence(skills=(SkillWanted(skill_id + "!"),)))
    clients.close()


def test_a_known_card_comes_back_with_a_new_proof(clients: Clients, registry: Registry, agent: str) -> None:
    registry.put(agent, card())
    resolver = clients.resolver(registry.url)
    first = resolver.resolve(agent)
    again = resolver.resolve(agent, known=first)
    assert again.not_modified and again.card is first.card
    assert again.freshness.sent.boot > first.freshness.sent.boot and again.freshness.staleness is not None
    registry.put(agent, card(version="2"))
    moved = resolver.resolve(agent, Fence(max_staleness=0), known=again)
    assert not moved.not_modified and moved.revision == 2
    # The first bytes again, but as the third revision: what is known of the first is not passed off as it.
    registry.put(agent, card())
    back = resolver.resolve(agent, Fence(max_staleness=0), known=first)
    assert (back.revision, back.not_modified) == (3, False)


def test_the_highest_position_is_asked_for_again(clients: Clients, registry: Registry, agent: str) -> None:
    position = Position.parse(registry.put(agent, card())["position"])
    resolver = clients.resolver(registry.url)
    assert resolver.position is None
    resolver.resolve(agent, Fence(max_staleness=0))
    assert resolver.position.seq >= position.seq
    with pytest.raises(HistoryDiverged):
        # The caller's own position is the caller's own matter.
        resolver.resolve(agent, Fence(at_least=Position(position.seq, "0" * 16)))


def test_a_malformed_fence_is_refused_before_it_is_sent() -> None:
    for make in (
        lambda: Fence(max_staleness="soon"),  # type: ignore[arg-type]
        lambda: Fence(max_staleness=-1),
        lambda: Fence(max_staleness=float("nan")),
        lambda: Fence(min_revision=0),
        lambda: Fence(min_revision="7@x"),
        lambda: Fence(wait=11),
        lambda: Fence(pin=""),
        lambda: Fence(extensions="https://x.example.com"),  # type: ignore[arg-type]
        lambda: Fence(extensions=("",)),
        lambda: Fence(skills=(SkillWanted("s", ("",)),)),
        lambda: Fence(skills=(SkillWanted(""),)),
        lambda: SkillWanted("s", "text/plain"),  # type: ignore[arg-type]
    ):
        with pytest.raises(ValueError):
            make()
    assert Fence(max_staleness=0.0004).query() == "max_staleness=1ms"
    assert Fence(max_staleness=2.0009, wait=0).query() == "max_staleness=2000ms&wait=0"


ENVELOPE = {
    "agent": "acme/w",
    "revision": 1,
    "position": "1.50e1ff9bc08ec7f7",
    "card_version": "1",
    "generation": "v1.0",
    "content_digest": "sha256:c",
    "raw_digest": "sha256:r",
    "skill_fingerprint": "s",
    "negotiation_fingerprint": "n",
    "registered_at": "2026-11-30T22:57:49.911729Z",
    "registered_by": "anonymous",
    "freshness": {"position": "5.50e1ff9bc08ec7f7", "staleness_ms": 20, "basis": "authority", "served_by": "a"},
    "card": {"name": "W"},
}


class Script:
    """Answers one after the other, the last for ever, and keeps what was asked."""

    def __init__(self, *answers: Callable[[httpx.Request], httpx.Response]) -> None:
        self.answers = list(answers)
        self.asked: list[httpx.Request] = []
        self.transport = httpx.MockTransport(self.handle)

    def handle(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return answer(request)

    def params(self, n: int) -> dict[str, str]:
        return dict(self.asked[n].url.params)


def envelope(echo: bool = True, **changes: Any) -> Callable[[httpx.Request], httpx.Response]:
    freshness = {**ENVELOPE["freshness"], **changes.pop("freshness", {})}  # type: ignore[dict-item]

    def answer(request: httpx.Request) -> httpx.Response:
        nonce = request.headers.get("Cardfence-Nonce", "") if echo else "another"
        return httpx.Response(
            200, json={**ENVELOPE, "freshness": freshness, **changes}, headers={"Cardfence-Nonce": nonce}
        )

    return answer


def problem(status: int, reason: str, **more: Any) -> Callable[[httpx.Request], httpx.Response]:
    def answer(request: httpx.Request) -> httpx.Response:
        headers = {"Cardfence-Nonce": request.headers["Cardfence-Nonce"]}
        body = {"reason": reason, "detail": "why", "status": status, "retry_after_ms": 1, **more}
        return httpx.Response(status, content=json.dumps(body), headers=headers)

    return answer


def fails(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("refused", request=request)


def test_an_answer_that_does_not_echo_the_nonce_proves_nothing(clients: Clients) -> None:
    script = Script(envelope(echo=False))
    resolver = clients.resolver("http://r.example.com", script.transport)
    for fence in (Fence(), Fence(max_staleness=3600), Fence(pin="sha256:c", max_staleness=5)):
        with pytest.raises(FreshnessUnverifiable) as found:
            resolver.resolve("acme/w", fence)
        assert found.value.card == {"name": "W"}
    # Whoever accepts an unknown age, or pinned the card, gets it, told as what it is.
    for fence in (Fence(max_staleness="any"), Fence(pin="sha256:c")):
        resolved = resolver.resolve("acme/w", fence)
        assert resolved.freshness.staleness is None and resolved.freshness.basis == "unproven"
    assert resolver.position is None
    nonces = [request.headers["Cardfence-Nonce"] for request in script.asked]
    assert len(set(nonces)) == len(nonces)


class SlowClock:
    """Each look at it is a second after the one before."""

    def __init__(self, step: float = 1.0) -> None:
        self.at, self.step = 1000.0, step

    def now(self) -> Instant:
        self.at += self.step
        return Instant(self.at, self.at)


def test_the_round_trip_is_added_to_the_age(clients: Clients) -> None:
    script = Script(envelope())
    clock = SlowClock()
    resolver = clients.resolver(
        "http://r.example.com", script.transport, clock=clock, limits=Limits(timeout=60, attempt_timeout=60)
    )
    resolved = resolver.resolve("acme/w", Fence(max_staleness=5))
    age = resolved.freshness.age(clock.now())
    assert age is not None and age >= 1.02
    with pytest.raises(TooStale):
        # 20 ms are within it, the round trip is not.
        resolver.resolve("acme/w", Fence(max_staleness=0.5))
    assert resolver.resolve("acme/w", Fence(max_staleness=0)).revision == 1


def test_a_linearizable_answer_is_younger_than_its_request(clients: Clients) -> None:
    script = Script(envelope(freshness={"staleness_ms": 60_000}))
    resolver = clients.resolver("http://r.example.com", script.transport)
    with pytest.raises(FreshnessUnverifiable):
        resolver.resolve("acme/w", Fence(max_staleness=0))


def test_the_clock_counts_suspend() -> None:
    start = Instant(boot=10.0, wall=1000.0)
    assert elapsed(start, Instant(boot=15.0, wall=1001.0)) == 5.0
    assert elapsed(start, Instant(boot=11.0, wall=1900.0)) == 900.0
    assert elapsed(start, Instant(boot=9.0, wall=10.0)) == 0.0
    one, two = SystemClock().now(), SystemClock().now()
    assert elapsed(one, two) >= 0.0


def test_only_what_the_table_says_is_retried(clients: Clients) -> None:
    for reason, retry in RETRY.items():
        script = Script(problem(503, reason), envelope())
        resolver = clients.resolver("http://r.example.com", script.transport)
        if retry in (Retry.YES, Retry.LATER):
            assert resolver.resolve("acme/w").revision == 1, reason
            assert len(script.asked) == 2
        else:
            with pytest.raises(Exception) as found:
                resolver.resolve("acme/w")
            assert found.value.reason == reason and len(script.asked) == 1, reason
    assert retry_of("something_new") is Retry.NO


def test_the_table_is_that_of_the_registry() -> None:
    source = (ROOT / "src/terms/reason.rs").read_text()
    theirs = {}
    for line in source.splitlines():
        name, _, rest = line.strip().partition(' = "')
        slug, quote, kind = rest.partition('", ')
        if name.isalnum() and quote and kind.endswith(";"):
            theirs[slug] = kind[:-1]
    assert len(theirs) > 30
    for slug, kind in theirs.items():
        assert retry_of(slug).name.replace("_", "") == kind.upper(), slug


def test_a_network_that_fails_is_tried_again_within_the_limits(clients: Clients) -> None:
    script = Script(fails, fails, envelope())
    resolver = clients.resolver("http://r.example.com", script.transport)
    assert resolver.resolve("acme/w").revision == 1
    assert resolver.counts["request_failed"] == 2
    script = Script(fails)
    resolver = clients.resolver("http://r.example.com", script.transport, limits=Limits(attempts=3))
    with pytest.raises(Unreachable) as found:
        resolver.resolve("acme/w")
    assert isinstance(found.value.__cause__, httpx.ConnectError) and len(script.asked) == 3
    with pytest.raises(Unreachable):
        resolver.resolve("acme/w", timeout=0)


def test_a_pause_longer_than_the_time_left_is_not_waited_for(clients: Clients) -> None:
    script = Script(problem(503, "overloaded", retry_after_ms=60_000))
    resolver = clients.resolver("http://r.example.com", script.transport)
    with pytest.raises(Exception) as found:
        resolver.resolve("acme/w")
    assert found.value.reason == "overloaded" and found.value.retry_after == 60.0 and len(script.asked) == 1


def test_own_positions_are_dropped_when_the_history_diverged(clients: Clients) -> None:
    new = {"position": "3.00000000000000aa"}
    script = Script(envelope(), problem(409, "history_diverged"), envelope(freshness=new))
    resolver = clients.resolver("http://r.example.com", script.transport)
    resolver.resolve("acme/w")
    assert str(resolver.position) == "5.50e1ff9bc08ec7f7" and "at_least" not in script.params(0)
    resolver.resolve("acme/w")
    assert script.params(1)["at_least"] == "5.50e1ff9bc08ec7f7" and "at_least" not in script.params(2)
    assert str(resolver.position) == "3.00000000000000aa" and resolver.counts["history_diverged"] == 1


def test_an_answer_from_before_what_was_seen_is_not_taken(clients: Clients) -> None:
    older = {"position": "4.00000000000000aa"}
    script = Script(envelope(), envelope(freshness=older))
    resolver = clients.resolver("http://r.example.com", script.transport)
    resolver.resolve("acme/w")
    with pytest.raises(PositionNotReached):
        resolver.resolve("acme/w", Fence(at_least=Position.parse("2.00000000000000aa")))
    # First the caller's own position was asked for, then ours.
    assert script.params(1)["at_least"] == "2.00000000000000aa"
    assert script.params(2)["at_least"] == "5.50e1ff9bc08ec7f7"


def test_what_is_no_registry_is_told_as_that(clients: Clients) -> None:
    def html(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, text="<html>")

    def teapot(request: httpx.Request) -> httpx.Response:
        return httpx.Response(418, text="no")

    def unasked(request: httpx.Request) -> httpx.Response:
        return httpx.Response(304)

    def endless(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=b" " * (5 * 1024 * 1024))

    for answer in (html, teapot, unasked, endless, envelope(agent="acme/other"), envelope(position=7)):
        resolver = clients.resolver("http://r.example.com", Script(answer).transport)
        with pytest.raises(InvalidAnswer):
            resolver.resolve("acme/w")

    def balancer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(503, text="no healthy upstream")

    script = Script(balancer, envelope())
    assert clients.resolver("http://r.example.com", script.transport).resolve("acme/w").revision == 1


def test_bad_names_and_addresses_are_refused_at_once(clients: Clients, registry: Registry) -> None:
    resolver = clients.resolver(registry.url)
    for bad in ("acme", "acme/", "Acme/w", "acme/w/x", "acme/-w", "acme/" + "w" * 65):
        with pytest.raises(ValueError):
            resolver.resolve(bad)
    with pytest.raises(ValueError):
        clients.resolver("localhost:7878")
    with pytest.raises(InvalidArgument):
        resolver.resolve("acme/w", Fence(pin="sha256:short"))
