"""The official A2A SDK through the registry: its card resolver, and a real server called through the guard."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
import uvicorn
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.card_resolver import parse_agent_card
from a2a.client.errors import AgentCardResolutionError
from a2a.helpers import new_task_from_user_message, new_text_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import Role, SendMessageRequest
from starlette.applications import Starlette

from cardfence import (
    ArtifactSchemaDrift,
    AsyncGuard,
    AsyncResolver,
    CapabilityMismatch,
    Intent,
    Negotiated,
    StaleAgentCard,
)
from cardfence.a2a import error_as_json, guarded

from .cards import card, skill
from .conftest import Registry, eventually, free_port

GENERATIONS = {
    "v0.1": {
        "name": "A",
        "url": "https://a.example.com",
        "version": "1",
        "capabilities": {},
        "authentication": {"schemes": ["bearer"]},
        "skills": [{"id": "s", "name": "S"}],
    },
    "v0.2": {
        "name": "A",
        "description": "d",
        "url": "https://a.example.com",
        "version": "1",
        "capabilities": {"streaming": True},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "securitySchemes": {"k": {"type": "apiKey", "in": "header", "name": "X"}},
        "security": [{"k": []}],
        "skills": [{"id": "s", "name": "S", "description": "d", "tags": ["t"]}],
    },
    "v0.3": {
        "protocolVersion": "0.3.0",
        "name": "A",
        "description": "d",
        "url": "https://a.example.com/rpc",
        "preferredTransport": "JSONRPC",
        "additionalInterfaces": [{"url": "https://a.example.com/v1", "transport": "HTTP+JSON"}],
        "version": "1",
        "capabilities": {"pushNotifications": False},
        "supportsAuthenticatedExtendedCard": True,
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "s", "name": "S", "description": "d", "tags": ["t"]}],
    },
    "v1.0": card(skill("s")),
    "superset": {**card(skill("s")), "url": "https://a.example.com", "protocolVersion": "0.3"},
}


@pytest.mark.parametrize("generation", list(GENERATIONS))
async def test_the_sdks_resolver_reads_cards_of_each_generation(
    registry: Registry, agent: str, generation: str
) -> None:
    assert registry.put(agent, GENERATIONS[generation])["generation"] == generation
    etags: list[str] = []

    async def note(response: httpx.Response) -> None:
        etags.append(response.headers.get("ETag", ""))

    async with httpx.AsyncClient(event_hooks={"response": [note]}) as http:
        sdk = A2ACardResolver(http, f"{registry.url}/agents/{agent}")
        found = await sdk.get_agent_card()
        assert found.skills[0].id == "s" and found.supported_interfaces[0].url.startswith("https://")
        # The old path of v0.x leads to the same card.
        assert await sdk.get_agent_card("/.well-known/agent.json") == found
        # Revalidation: nothing is sent again, which the SDK tells as an error with the status.
        with pytest.raises(AgentCardResolutionError) as unchanged:
            await sdk.get_agent_card(http_kwargs={"headers": {"If-None-Match": etags[0]}})
        assert unchanged.value.status_code == 304
        registry.put(agent, {**GENERATIONS[generation], "version": "2"})
        fresh = {"headers": {"If-None-Match": etags[0], "Cache-Control": "no-cache"}}
        assert (await sdk.get_agent_card(http_kwargs=fresh)).version == "2"
        # A fence in the query: refused before the SDK sees a card.
        with pytest.raises(AgentCardResolutionError) as refused:
            await sdk.get_agent_card("/.well-known/agent-card.json?skill=gone")
        assert refused.value.status_code == 412


class Worker(AgentExecutor):
    """An agent that knows some skills, each with the type of what it delivers; the rest fail inside the task."""

    def __init__(self) -> None:
        self.skills = {"summarize-v2": "text/markdown"}
        self.calls: list[str] = []

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.message is not None and context.task_id and context.context_id
        wanted = dict(context.message.metadata)["skillId"]
        self.calls.append(wanted)
        if context.current_task is None:
            await event_queue.enqueue_event(new_task_from_user_message(context.message))
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        await updater.start_work()
        media_type = self.skills.get(wanted)
        if media_type is None:
            await updater.failed(updater.new_agent_message([new_text_part("unknown skill")]))
            return
        await updater.add_artifact([new_text_part("# done", media_type=media_type)])
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise NotImplementedError


class Deployment:
    """A real A2A server, built with the SDK."""

    def __init__(self) -> None:
        self.worker = Worker()
        self.port = free_port()
        self.card = self.card_of(self.worker.skills)
        parsed = parse_agent_card(json.loads(json.dumps(self.card)))
        handler = DefaultRequestHandler(self.worker, InMemoryTaskStore(), parsed)
        routes = [*create_agent_card_routes(parsed), *create_jsonrpc_routes(handler, "/rpc")]
        config = uvicorn.Config(Starlette(routes=routes), port=self.port, log_level="critical")
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        eventually("the agent listens", lambda: self.server.started)

    def card_of(self, skills: dict[str, str], streaming: bool = True) -> Any:
        offered = [skill(name, (media_type,)) for name, media_type in skills.items()]
        url = f"http://127.0.0.1:{self.port}/rpc"
        return card(*offered, url=url, streaming=streaming)

    def redeploy(self, **skills: str) -> Any:
        """The same version, other skills; returns the new card, which nobody has registered yet."""
        self.worker.skills = {name.replace("_", "-"): media_type for name, media_type in skills.items()}
        return self.card_of(self.worker.skills)

    def stop(self) -> None:
        self.server.should_exit = True
        self.server.force_exit = True
        self.thread.join(10)


@pytest.fixture
def deployed() -> Iterator[Deployment]:
    running = Deployment()
    yield running
    running.stop()


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient() as client:
        yield client


async def call(guard: AsyncGuard, negotiated: Negotiated, http: httpx.AsyncClient, streaming: bool) -> list[Any]:
    """One task through the SDK's client, made from the card that was negotiated with."""
    factory = ClientFactory(ClientConfig(httpx_client=http, streaming=streaming))
    client = factory.create(parse_agent_card(json.loads(json.dumps(negotiated.card.document))))
    message = new_text_message("Summarize this.", role=Role.ROLE_USER)
    message.metadata["skillId"] = negotiated.skill
    events = client.send_message(SendMessageRequest(message=message))
    return [event async for event in guarded(guard, negotiated, events)]


@pytest.mark.parametrize("streaming", [False, True], ids=["polling", "streaming"])
async def test_a_server_redeployed_with_other_skills_fails_once_and_right(
    registry: Registry, deployed: Deployment, http: httpx.AsyncClient, agent: str, streaming: bool
) -> None:
    registry.put(agent, deployed.card)
    async with AsyncResolver(registry.url) as resolver, AsyncResolver(registry.url) as other:
        guard, second = AsyncGuard(resolver), AsyncGuard(other)
        wanted = Intent(agent, "summarize-v2", output_modes=("text/markdown",), needs_streaming=streaming)
        negotiated = await guard.start_task(wanted)
        await second.start_task(wanted)
        assert await call(guard, negotiated, http, streaming)
        registry.put(agent, deployed.redeploy(translate_v1="text/plain"))
        with pytest.raises(StaleAgentCard) as stale:
            await call(guard, negotiated, http, streaming)
        assert stale.value.reason == "evidence" and stale.value.evidence.pattern == "unknown skill"
        assert stale.value.change.silent and stale.value.fresh.revision == 2
        calls = len(deployed.worker.calls)
        with pytest.raises(CapabilityMismatch):
            await guard.start_task(wanted)
        # Another client, which never met the failure, is told before it calls anybody.
        with pytest.raises(CapabilityMismatch):
            await second.start_task(wanted)
        assert len(deployed.worker.calls) == calls
        fresh = await guard.start_task(Intent(agent, "translate-v1", output_modes=("text/plain",)))
        assert fresh.revision == 2 and await call(guard, fresh, http, streaming)


async def test_a_server_redeployed_without_registering_is_refused_instead_of_retried(
    registry: Registry, deployed: Deployment, http: httpx.AsyncClient, agent: str
) -> None:
    registry.put(agent, deployed.card)
    async with AsyncResolver(registry.url) as resolver:
        guard = AsyncGuard(resolver)
        wanted = Intent(agent, "summarize-v2")
        negotiated = await guard.start_task(wanted)
        fresh_card = deployed.redeploy(translate_v1="text/plain")
        with pytest.raises(StaleAgentCard) as stale:
            await call(guard, negotiated, http, False)
        assert stale.value.reason == "registry_behind_origin"
        calls = len(deployed.worker.calls)
        for _ in range(3):
            with pytest.raises(StaleAgentCard) as refused:
                await guard.start_task(wanted)
            assert refused.value.reason == "registry_behind_origin"
        assert len(deployed.worker.calls) == calls
        registry.put(agent, fresh_card)
        assert await call(guard, await guard.start_task(Intent(agent, "translate-v1")), http, False)


@pytest.mark.parametrize("streaming", [False, True], ids=["polling", "streaming"])
async def test_an_id_used_again_for_another_type_is_drift_before_it_is_handed_on(
    registry: Registry, deployed: Deployment, http: httpx.AsyncClient, agent: str, streaming: bool
) -> None:
    registry.put(agent, deployed.card)
    async with AsyncResolver(registry.url) as resolver:
        guard = AsyncGuard(resolver)
        negotiated = await guard.start_task(Intent(agent, "summarize-v2"))
        deployed.redeploy(summarize_v2="text/plain")
        with pytest.raises(ArtifactSchemaDrift) as drift:
            await call(guard, negotiated, http, streaming)
        assert (drift.value.drift.found, drift.value.registry_behind_origin) == ("text/plain", True)


async def test_an_error_of_the_sdk_is_checked_like_the_answer_it_came_from(
    registry: Registry, deployed: Deployment, http: httpx.AsyncClient, agent: str
) -> None:
    # The interface in the card answers 404.
    registry.put(agent, deployed.card)
    async with AsyncResolver(registry.url) as resolver:
        guard = AsyncGuard(resolver)
        negotiated = await guard.start_task(Intent(agent, "summarize-v2"))
        moved = {**deployed.card, "supportedInterfaces": [dict(deployed.card["supportedInterfaces"][0])]}
        moved["supportedInterfaces"][0]["url"] += "-moved"
        registry.put(agent, moved)
        negotiated = await guard.start_task(Intent(agent, "summarize-v2"))
        with pytest.raises(StaleAgentCard) as stale:
            await call(guard, negotiated, http, False)
        assert (stale.value.evidence.evidence, stale.value.evidence.status) == ("http", 404)


def test_errors_of_the_sdk_become_the_codes_they_came_from() -> None:
    from a2a.utils.errors import InvalidParamsError, VersionNotSupportedError

    assert error_as_json(InvalidParamsError("x"))[0]["error"]["code"] == -32602
    assert error_as_json(VersionNotSupportedError())[0]["error"]["code"] == -32009
    assert error_as_json(ValueError()) == (None, None)
    assert asyncio.iscoroutinefunction(AsyncGuard.check)
