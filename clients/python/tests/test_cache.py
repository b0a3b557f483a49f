"""The cache over a stream that a scripted registry sends, which can lie and fall silent; `test_watch` has the real one."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from cardfence import AgentNotFound, AgentRetired, AsyncCache, Cache, FreshnessUnverifiable, Selection
from cardfence.session import set_digest_of

from .cards import card
from .conftest import eventually, free_port

DIGEST = "sha256:" + "0" * 63


class Fake:
    """A registry that only watches: agents, streams, and switches to break them."""

    def __init__(self) -> None:
        self.agents: dict[str, tuple[int, bool]] = {"acme/a": (1, False)}
        self.seq = 1
        self.streams: dict[str, asyncio.Queue[bytes]] = {}
        self.confirms = True
        self.confirmed = 0
        self.asked_from: list[str | None] = []
        self.lies = False
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        routes = [Route("/v1/watch", self.watch), Route("/v1/watermark", self.watermark)]
        config = uvicorn.Config(Starlette(routes=routes), port=self.port, log_level="critical", lifespan="off")
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()
        eventually("the scripted registry listens", lambda: self.server.started)

    def _serve(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.run_until_complete(self.server.serve())

    def position(self) -> str:
        return f"{self.seq}.{self.seq:016x}"

    def raw(self, revision: int) -> str:
        return f"{DIGEST}{revision % 10}"

    def line(self, kind: str, identified: bool = True, **data: Any) -> bytes:
        head = f"id: {self.position()}\n" if identified else ""
        return f"event: {kind}\n{head}data: {json.dumps(data)}\n\n".encode()

    def upsert(self, agent: str, identified: bool) -> bytes:
        revision, retired = self.agents[agent]
        envelope = {"agent": agent, "revision": revision, "position": self.position(), "card_version": "1"}
        if retired:
            return self.line("retired", identified, **envelope)
        texts = (
            "content_digest",
            "skill_fingerprint",
            "negotiation_fingerprint",
            "registered_at",
            "registered_by",
        )
        envelope |= {"raw_digest": self.raw(revision), "generation": "v1.0", **dict.fromkeys(texts, "x")}
        return self.line("upsert", identified, **envelope, card=card())

    async def watch(self, request: Request) -> Response:
        self.asked_from.append(request.query_params.get("from"))
        name, queue = f"s{len(self.asked_from)}", asyncio.Queue[bytes]()
        self.streams[name] = queue
        queue.put_nowait(self.line("reset", False))
        for agent in self.agents:
            queue.put_nowait(self.upsert(agent, False))
        queue.put_nowait(self.line("synced"))

        async def sent() -> AsyncIterator[bytes]:
            while chunk := await queue.get():
                yield chunk

        headers = {"Cardfence-Stream": name}
        return StreamingResponse(sent(), media_type="text/event-stream", headers=headers)

    async def watermark(self, request: Request) -> Response:
        queue = self.streams.get(request.query_params["stream"])
        if queue is None:
            return JSONResponse({"reason": "stream_not_here"}, 409)
        self.confirmed += 1
        if self.confirms:
            live = [(agent, revision) for agent, (revision, retired) in self.agents.items() if not retired]
            total = sum(set_digest_of(agent, revision, self.raw(revision)) for agent, revision in live)
            told = {"position": self.position(), "set_digest": f"{(total + self.lies) % (1 << 256):064x}"}
            queue.put_nowait(self.line("checkpoint", **told, nonce=request.query_params["nonce"], staleness_ms=0))
        return JSONResponse({"position": self.position()})

    def change(self, agent: str, revision: int, retired: bool = False) -> None:
        def apply() -> None:
            self.seq += 1
            self.agents[agent] = (revision, retired)
            for queue in self.streams.values():
                queue.put_nowait(self.upsert(agent, True))

        self.loop.call_soon_threadsafe(apply)

    def cut(self) -> None:
        def apply() -> None:
            for queue in self.streams.values():
                queue.put_nowait(b"")
            self.streams.clear()

        self.loop.call_soon_threadsafe(apply)

    def stop(self) -> None:
        self.cut()
        self.server.should_exit = True
        self.server.force_exit = True
        self.thread.join(10)


@pytest.fixture
def fake() -> Iterator[Fake]:
    running = Fake()
    yield running
    running.stop()


async def test_a_read_is_answered_from_a_copy_that_was_confirmed_for_it(fake: Fake) -> None:
    async with AsyncCache(fake.url) as cache:
        resolved = await cache.get("acme/a", 0, wait=10)
        assert (resolved.revision, fake.confirmed) == (1, 1)
        assert resolved.card.skill("summarize-v2") is not None
        assert resolved.freshness.basis == "watched" and resolved.freshness.staleness == 0.0
        # Young enough: nobody is asked.
        assert (await cache.get("acme/a", 3600)).revision == 1
        assert cache.peek("acme/a", 3600) is not None and fake.confirmed == 1
        fake.change("acme/a", 2)
        assert (await cache.get("acme/a", 0, wait=10)).revision == 2
        assert fake.confirmed >= 2


async def test_absent_and_retired_are_proven_as_well(fake: Fake) -> None:
    async with AsyncCache(fake.url, Selection(namespaces=("acme",))) as cache:
        with pytest.raises(AgentNotFound) as absent:
            await cache.get("acme/none", 0, wait=10)
        assert absent.value.freshness.staleness == 0.0
        fake.change("acme/a", 2, retired=True)
        with pytest.raises(AgentRetired):
            await cache.get("acme/a", 0, wait=10)
        with pytest.raises(ValueError):
            await cache.get("other/a")


async def test_a_thousand_reads_share_their_confirmations(fake: Fake) -> None:
    async with AsyncCache(fake.url) as cache:
        await cache.get("acme/a", 0, wait=10)
        before = fake.confirmed
        answers = await asyncio.gather(*(cache.get("acme/a", 0, wait=20) for _ in range(1000)))
        assert {answer.revision for answer in answers} == {1}
        assert fake.confirmed - before <= 3


async def test_it_fails_closed_when_nothing_is_confirmed(fake: Fake) -> None:
    async with AsyncCache(fake.url) as cache:
        await cache.get("acme/a", 0, wait=10)
        fake.confirms = False
        with pytest.raises(FreshnessUnverifiable):
            await cache.get("acme/a", 0, wait=0.3)
        with pytest.raises(FreshnessUnverifiable):
            await cache.get("acme/a", 0.05, wait=0.3)
        # What was proven stays so, as old as it is.
        assert (await cache.get("acme/a", 3600)).revision == 1
        fake.confirms = True
        assert (await cache.get("acme/a", 0, wait=10)).revision == 1


async def test_a_cut_stream_is_resumed_and_proven_anew(fake: Fake) -> None:
    async with AsyncCache(fake.url) as cache:
        await cache.get("acme/a", 0, wait=10)
        fake.cut()
        fake.change("acme/a", 7)
        assert (await cache.get("acme/a", 0, wait=10)).revision == 7
        assert fake.asked_from[0] is None and fake.asked_from[1] == "1.0000000000000001"
        assert cache.counts["stream_ended"] >= 1


async def test_a_copy_that_differs_is_never_served(fake: Fake) -> None:
    async with AsyncCache(fake.url) as cache:
        await cache.get("acme/a", 0, wait=10)
        fake.lies = True
        with pytest.raises(FreshnessUnverifiable):
            await cache.get("acme/a", 0, wait=0.5)
        assert cache.counts["watch_distrusted"] >= 1
        fake.lies = False
        assert (await cache.get("acme/a", 0, wait=10)).revision == 1


async def test_a_registry_that_does_not_watch_proves_nothing() -> None:
    async def absent(request: httpx.Request) -> httpx.Response:
        return httpx.Response(404, json={"reason": "no_such_route"})

    client = httpx.AsyncClient(transport=httpx.MockTransport(absent))
    async with AsyncCache("http://r.example.com", client=client) as cache:
        with pytest.raises(FreshnessUnverifiable):
            await cache.get("acme/a", wait=0.2)
    await client.aclose()


def test_threads_read_the_same_cache(fake: Fake) -> None:
    with Cache(fake.url) as cache:
        assert cache.get("acme/a", 0, wait=10).revision == 1
        fake.change("acme/a", 2)
        assert cache.get("acme/a", 0, wait=10).revision == 2
        with pytest.raises(AgentNotFound):
            cache.get("acme/b", 0, wait=10)
    with pytest.raises(RuntimeError):
        Cache(fake.url).get("acme/a")
