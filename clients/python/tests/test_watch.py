"""The cache over the stream of a real registry."""

from __future__ import annotations

import signal
import time

import pytest

from cardfence import (
    AgentNotFound,
    AgentRetired,
    AsyncCache,
    AsyncResolver,
    Cache,
    Event,
    FreshnessUnverifiable,
    Selection,
)

from .cards import card, skill
from .conftest import Registry


async def test_a_linearizable_read_sees_every_write_before_it(registry: Registry, agent: str) -> None:
    events: list[Event] = []
    async with AsyncCache(registry.url, Selection(agents=(agent,)), on_event=events.append) as cache:
        with pytest.raises(AgentNotFound) as absent:
            await cache.get(agent, 0, wait=10)
        assert absent.value.freshness.staleness is not None
        for n in range(1, 9):
            registry.put(agent, card(version=str(n)))
            resolved = await cache.get(agent, 0, wait=10)
            assert (resolved.revision, resolved.card_version) == (n, str(n))
            assert resolved.card.document == card(version=str(n))
        registry.retire(agent)
        with pytest.raises(AgentRetired):
            await cache.get(agent, 0, wait=10)
        registry.put(agent, card())
        assert (await cache.get(agent, 0, wait=10)).revision == 10
        kinds = [event.kind for event in events]
        assert kinds.count("watch_upsert") == 9 and kinds.count("watch_retired") == 1
        assert "watch_distrusted" not in kinds and "cache_resolved" not in kinds
        # The same as a resolve says, but for the freshness.
        async with AsyncResolver(registry.url) as resolver:
            asked = await resolver.resolve(agent)
        for name in ("position", "raw_digest", "content_digest", "skill_fingerprint", "negotiation_fingerprint"):
            assert getattr(await cache.get(agent, 60), name) == getattr(asked, name), name


async def test_a_whole_namespace_is_proven_by_its_set_digest(registry: Registry) -> None:
    for n in range(20):
        registry.put(f"fleet/worker-{n}", card(version=str(n)))
    async with AsyncCache(registry.url, Selection(namespaces=("fleet",))) as cache:
        for n in range(20):
            assert (await cache.get(f"fleet/worker-{n}", 3600, wait=10)).card_version == str(n)
        assert cache.counts["watch_proven"] >= 1
        registry.retire("fleet/worker-3")
        with pytest.raises(AgentRetired):
            await cache.get("fleet/worker-3", 0, wait=10)
        assert (await cache.get("fleet/worker-4", 0, wait=10)).revision == 1


async def test_what_a_class_filter_leaves_out_is_resolved(registry: Registry, agent: str) -> None:
    registry.put(agent, card())
    selection = Selection(agents=(agent,), change_class="breaking")
    async with AsyncCache(registry.url, selection) as cache:
        assert (await cache.get(agent, 0, wait=10)).revision == 1
        registry.put(agent, card(skill("summarize-v2"), skill("more")))
        additive = await cache.get(agent, 0, wait=10)
        assert additive.revision == 2 and "more" in additive.card.skills
        assert cache.counts["watch_moved"] == 1 and cache.counts["cache_resolved"] == 1
        registry.put(agent, card(skill("other")))
        assert "other" in (await cache.get(agent, 0, wait=10)).card.skills
        assert cache.counts["cache_resolved"] == 1


def test_a_frozen_registry_is_fenced_off_after_the_bound(own_registry: Registry, agent: str) -> None:
    own_registry.put(agent, card())
    with Cache(own_registry.url) as cache:
        proven = cache.get(agent, 0, wait=10)
        own_registry.signal(signal.SIGSTOP)
        try:
            # Within the bound the copy serves; past it nothing does.
            assert cache.get(agent, 3600).revision == 1
            asked = time.monotonic()
            with pytest.raises(FreshnessUnverifiable) as refused:
                cache.get(agent, 0, wait=0.5)
            assert time.monotonic() - asked < 5
            assert refused.value.freshness.sent.boot >= proven.freshness.sent.boot
        finally:
            own_registry.signal(signal.SIGCONT)
        own_registry.put(agent, card(version="2"))
        assert cache.get(agent, 0, wait=20).revision == 2


def test_a_registry_that_comes_back_is_followed_from_where_it_was(own_registry: Registry, agent: str) -> None:
    own_registry.put(agent, card())
    with Cache(own_registry.url) as cache:
        assert cache.get(agent, 0, wait=10).revision == 1
        own_registry.stop()
        with pytest.raises(FreshnessUnverifiable):
            cache.get(agent, 0, wait=0.5)
        own_registry.start()
        own_registry.put(agent, card(version="2"))
        assert cache.get(agent, 0, wait=20).revision == 2
        # Resumed, not read anew: it had everything up to its position.
        assert cache.counts["watch_reset"] == 1 and cache.counts["stream_ended"] >= 1


def test_another_history_is_not_passed_off_as_the_old_one(own_registry: Registry, agent: str) -> None:
    own_registry.put(agent, card(version="old"))
    own_registry.put(agent, card(version="older"))
    with Cache(own_registry.url) as cache:
        assert cache.get(agent, 0, wait=10).revision == 2
        own_registry.stop()
        for left in own_registry.directory.glob("cardfence.db*"):
            left.unlink()
        own_registry.start()
        own_registry.put(agent, card(version="new"))
        assert cache.get(agent, 0, wait=20).card_version == "new"
        assert cache.counts["watch_reset"] >= 2
