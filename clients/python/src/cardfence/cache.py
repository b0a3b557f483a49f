"""A watched copy of agents that answers without asking, as long as its proof is young enough.

`AsyncCache` follows one stream of server-sent events and feeds a `Session`; `Cache` is the same for threads,
run on a loop of its own. A read whose proof is too old has the copy confirmed on the stream; when that fails
within the wait, it is refused. Nothing is confirmed on a timer.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Literal, TypeVar

import httpx

from .clock import Clock, Instant, SystemClock
from .errors import AgentNotFound, AgentRetired, FreshnessUnverifiable, InvalidAnswer
from .fence import Fence
from .observe import Event, Observer
from .resolved import Answer, Resolved, of_envelope, read_refusal
from .resolver import AsyncResolver
from .session import Reconnect, Selection, Session
from .sse import SseParser

T = TypeVar("T")

# The registry sends a checkpoint every 5 s, so a stream that is silent for longer is dead.
_SILENCE_MAX = 15.0
_CONFIRM_TIMEOUT = 1.0
_PAUSE_FIRST, _PAUSE_MAX = 0.05, 1.0


class AsyncCache:
    """Follows the registry at `base_url`. Use it as an async context manager."""

    def __init__(
        self,
        base_url: str,
        selection: Selection | None = None,
        *,
        token: str | None = None,
        client: httpx.AsyncClient | None = None,
        clock: Clock | None = None,
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        self._base_url = base_url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._client = client or httpx.AsyncClient()
        self._owned = client is None
        self._clock = clock or SystemClock()
        self._resolver = AsyncResolver(base_url, token=token, client=self._client, clock=self._clock)
        self._session = Session(selection or Selection())
        self._observer = Observer(on_event)
        self._changed = asyncio.Event()
        self._confirming: tuple[str, Instant] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def counts(self) -> dict[str, int]:
        """How often each event happened (README, "Events")."""
        return self._observer.counts

    async def __aenter__(self) -> AsyncCache:
        self._spawn(self._follow(), "cardfence watch")
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._owned:
            await self._client.aclose()

    def peek(self, agent: str, max_staleness: float | Literal["any"] = 5.0) -> Resolved | None:
        """The agent from the copy; None when its proof is too old, or its card is not in the copy.

        Raises as `get` does where the copy knows the answer. Never waits.
        """
        proof = self._session.proof()
        if proof is None:
            return None
        if max_staleness != "any":
            age = proof.age(self._clock.now())
            if age is None or age > max_staleness:
                return None
        return self._answer(agent)

    async def get(self, agent: str, max_staleness: float | Literal["any"] = 5.0, wait: float = 1.0) -> Resolved:
        """The agent's current card, from a copy that is proven to be no older than `max_staleness` seconds.

        0 is linearizable: the copy is confirmed first. `wait` bounds the waiting. Raises AgentNotFound and
        AgentRetired, both proven, and FreshnessUnverifiable when nothing could be proven in time. A card that came
        without its text (`Selection.change_class`) is resolved, with whatever that raises.
        """
        if not self._session.selection.covers(agent):
            raise ValueError(f"{agent} is not among what is watched")
        started = self._clock.now()
        deadline = asyncio.get_running_loop().time() + wait
        while True:
            if self._is_proven(max_staleness, started):
                return self._answer(agent) or await self._resolve(agent, max_staleness, wait)
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                proof = self._session.proof()
                self._observer.tell("cache_unproven", agent)
                raise FreshnessUnverifiable(
                    "freshness_unverifiable",
                    f"the watched copy could not be proven to be within {max_staleness} s",
                    agent=agent,
                    freshness=proof,
                )
            self._changed.clear()
            self._confirm(started)
            try:
                await asyncio.wait_for(self._changed.wait(), min(left, _CONFIRM_TIMEOUT))
            except asyncio.TimeoutError:
                self._confirming = None

    def _is_proven(self, max_staleness: float | Literal["any"], started: Instant) -> bool:
        proof = self._session.proof()
        if proof is None or proof.staleness is None:
            return False
        if max_staleness == "any":
            return True
        if max_staleness == 0:
            # Proven for a moment after the read arrived.
            return proof.sent.boot - proof.staleness >= started.boot
        age = proof.age(self._clock.now())
        return age is not None and age <= max_staleness

    async def _resolve(self, agent: str, max_staleness: float | Literal["any"], wait: float) -> Resolved:
        """Asks for a card that the copy knows of without having it, at least as new as the copy."""
        self._observer.tell("cache_resolved", agent)
        fence = Fence(max_staleness=max_staleness, at_least=self._session.position, wait=min(wait, 10.0))
        return await self._resolver.resolve(agent, fence, timeout=wait + _CONFIRM_TIMEOUT)

    def _answer(self, agent: str) -> Resolved | None:
        held, proof = self._session.get(agent), self._session.proof()
        about: dict[str, Any] = {"agent": agent, "freshness": proof}
        if held is None:
            raise AgentNotFound("agent_not_found", f"{agent} is not registered", **about)
        if held.retired:
            raise AgentRetired("agent_retired", f"{agent} is retired", revision=held.revision, **about)
        if held.card is None:
            return None
        return of_envelope(held.envelope, held.card.document, agent, proof)

    def _confirm(self, arrived: Instant) -> None:
        """Has the copy confirmed, unless a confirmation that began after this read arrived is under way."""
        if not self._session.is_synced or self._session.stream is None:
            return
        if self._confirming is not None:
            nonce, _ = self._confirming
            if self._session.is_pending(nonce):
                # Whether it began before or after: when it is done, who needs another asks for it.
                return
        nonce = self._session.confirm(self._clock.now())
        self._confirming = (nonce, arrived)
        self._spawn(self._ask(self._session.stream, nonce), "cardfence confirm")

    async def _ask(self, stream: str, nonce: str) -> None:
        url = f"{self._base_url}/v1/watermark?stream={stream}&nonce={nonce}"
        try:
            response = await self._client.get(url, headers=self._headers, timeout=_CONFIRM_TIMEOUT)
            failed = response.status_code != 200
        except httpx.HTTPError:
            failed = True
        if failed:
            self._observer.tell("confirm_failed")
            if self._confirming is not None and self._confirming[0] == nonce:
                await asyncio.sleep(_PAUSE_FIRST)
                self._confirming = None
                self._changed.set()

    async def _follow(self) -> None:
        failures = 0
        while True:
            try:
                reason = await self._stream()
                failures = 0
            except Exception as error:
                # Whatever it is, it must not end the watching unseen: the proof grows old meanwhile.
                reason = repr(error)
                failures += 1
            self._session.closed()
            self._confirming = None
            self._observer.tell("stream_ended", reason=reason)
            pause = min(_PAUSE_FIRST * 2 ** min(failures, 8), _PAUSE_MAX)
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))

    async def _stream(self) -> str:
        """Follows one stream to its end, and says why it ended."""
        query = self._session.selection.query(self._session.resume_from)
        url = f"{self._base_url}/v1/watch" + (f"?{query}" if query else "")
        headers = {**self._headers, "Accept": "text/event-stream", "Cache-Control": "no-store"}
        timeout = httpx.Timeout(5.0, read=_SILENCE_MAX)
        async with self._client.stream("GET", url, headers=headers, timeout=timeout) as response:
            if response.status_code != 200:
                now = self._clock.now()
                body = await response.aread()
                refused = read_refusal(Answer(response.status_code, response.headers, body, now, now), "")
                if refused.reason in ("history_diverged", "position_in_future"):
                    self._session.drop()
                raise InvalidAnswer(str(refused))
            self._session.opened(response.headers.get("Cardfence-Stream"))
            parser = SseParser()
            async for chunk in response.aiter_bytes():
                for event in parser.feed(chunk):
                    for told in self._session.receive(event):
                        if isinstance(told, Reconnect):
                            self._changed.set()
                            return told.reason
                        self._observer.tell(f"watch_{told.kind}", told.agent, **told.about)
                    self._changed.set()
        return "the stream ended"

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class Cache:
    """As `AsyncCache`, for threads. Use it as a context manager."""

    def __init__(
        self,
        base_url: str,
        selection: Selection | None = None,
        *,
        token: str | None = None,
        clock: Clock | None = None,
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        def make() -> AsyncCache:
            return AsyncCache(base_url, selection, token=token, clock=clock, on_event=on_event)

        self._make = make
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="cardfence cache", daemon=True)
        self._inner: AsyncCache | None = None

    @property
    def counts(self) -> dict[str, int]:
        """How often each event happened (README, "Events")."""
        return self._inner.counts if self._inner else {}

    def __enter__(self) -> Cache:
        self._thread.start()
        self._inner = self._run(self._open(), 5.0)
        return self

    async def _open(self) -> AsyncCache:
        return await self._make().__aenter__()

    def __exit__(self, *_: object) -> None:
        if self._inner is not None:
            self._run(self._inner.__aexit__(), 5.0)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5.0)
        self._loop.close()

    def get(self, agent: str, max_staleness: float | Literal["any"] = 5.0, wait: float = 1.0) -> Resolved:
        """As `AsyncCache.get`."""
        if self._inner is None:
            raise RuntimeError("the cache is used outside of its `with` block")
        return self._run(self._inner.get(agent, max_staleness, wait), wait + 5.0)

    def _run(self, work: Coroutine[Any, Any, T], within: float) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(within)
