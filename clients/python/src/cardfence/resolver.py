"""The two resolvers: the same exchange, run on a blocking and on an asynchronous HTTP client."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import Callable, Generator
from typing import Any, TypeVar

import httpx

from .clock import Clock, SystemClock, elapsed
from .errors import InvalidAnswer, Unreachable
from .exchange import BODY_MAX, Effect, Exchange, Failure, Limits, Pause, Send, Share
from .fence import Fence
from .observe import Event, Observer
from .resolved import Answer, Resolved
from .terms import Position

T = TypeVar("T")


class _Base:
    def __init__(
        self,
        base_url: str,
        *,
        token: str | None,
        limits: Limits | None,
        clock: Clock | None,
        on_event: Callable[[Event], None] | None,
    ) -> None:
        self._base_url = base_url.rstrip("/")
        if not self._base_url.startswith(("http://", "https://")):
            raise ValueError(f"{base_url!r} is not the address of a registry: http:// or https:// is allowed")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._clock = clock or SystemClock()
        self.observer = Observer(on_event)
        self.exchange = Exchange(limits, self._clock, self.observer)

    @property
    def position(self) -> Position | None:
        """The highest position seen; every later answer is at least of this one."""
        return self.exchange.position

    @property
    def counts(self) -> dict[str, int]:
        """How often each event happened (README, "Events")."""
        return self.observer.counts

    def _request(self, send: Send) -> dict[str, Any]:
        return {
            "method": send.method,
            "url": self._base_url + send.path,
            "headers": {**self._headers, **send.headers},
            "content": send.body,
            "timeout": send.timeout,
        }


class Resolver(_Base):
    """Resolves agents through fences. Safe to use from several threads.

    `base_url` is the registry's address, `token` a bearer token. A `client` that is passed in is not closed.
    """

    def __init__(
        self,
        base_url: str,
        *,
        token: str | None = None,
        limits: Limits | None = None,
        client: httpx.Client | None = None,
        clock: Clock | None = None,
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        super().__init__(base_url, token=token, limits=limits, clock=clock, on_event=on_event)
        self._client = client or httpx.Client()
        self._owned = client is None
        self._shared: dict[tuple[str, ...], concurrent.futures.Future[Any]] = {}
        self._lock = threading.Lock()

    def resolve(
        self,
        agent: str,
        fence: Fence | None = None,
        *,
        known: Resolved | None = None,
        timeout: float | None = None,
    ) -> Resolved:
        """The agent's current card, if it passes the fence.

        `known` is a card in hand: when it is still current, it comes back with a new proof. `timeout` bounds
        all attempts, in seconds. Raises Refused (one class for each reason), Unreachable or InvalidAnswer.
        """
        return self.run(self.exchange.resolve(agent, fence or Fence(), known, timeout))

    def run(self, steps: Generator[Effect, Any, T]) -> T:
        """Does what the steps ask for until they return."""
        result: Any = None
        while True:
            try:
                effect = steps.send(result)
            except StopIteration as done:
                value: T = done.value
                return value
            match effect:
                case Send():
                    result = self._send(effect)
                case Pause():
                    time.sleep(effect.seconds)
                    result = None
                case Share():
                    result = self._share(effect)

    def _send(self, send: Send) -> Answer | Failure:
        sent = self._clock.now()
        try:
            with self._client.stream(**self._request(send)) as response:
                body = bytearray()
                for chunk in response.iter_bytes():
                    body += chunk
                    _check(len(body), elapsed(sent, self._clock.now()), send)
                received = self._clock.now()
                return Answer(response.status_code, response.headers, bytes(body), sent, received)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, InvalidAnswer) as error:
            return Failure(error)

    def _share(self, share: Share) -> Any:
        with self._lock:
            shared = self._shared.get(share.key)
            is_first = shared is None
            if shared is None:
                shared = self._shared[share.key] = concurrent.futures.Future()
        if is_first:
            try:
                shared.set_result(self.run(share.work()))
            except Exception as error:
                shared.set_exception(error)
            except BaseException:
                # Whoever ends this thread does not end those who wait for it.
                shared.set_exception(Unreachable("the caller that asked for all was ended"))
                raise
            finally:
                with self._lock:
                    del self._shared[share.key]
        return shared.result()

    def close(self) -> None:
        if self._owned:
            self._client.close()

    def __enter__(self) -> Resolver:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncResolver(_Base):
    """As `Resolver`, for one event loop."""

    def __init__(
        self,
        base_url: str,
        *,
        token: str | None = None,
        limits: Limits | None = None,
        client: httpx.AsyncClient | None = None,
        clock: Clock | None = None,
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        super().__init__(base_url, token=token, limits=limits, clock=clock, on_event=on_event)
        self._client = client or httpx.AsyncClient()
        self._owned = client is None
        self._shared: dict[tuple[str, ...], asyncio.Task[Any]] = {}

    async def resolve(
        self,
        agent: str,
        fence: Fence | None = None,
        *,
        known: Resolved | None = None,
        timeout: float | None = None,
    ) -> Resolved:
        """As `Resolver.resolve`."""
        return await self.run(self.exchange.resolve(agent, fence or Fence(), known, timeout))

    async def run(self, steps: Generator[Effect, Any, T]) -> T:
        """Does what the steps ask for until they return."""
        result: Any = None
        while True:
            try:
                effect = steps.send(result)
            except StopIteration as done:
                value: T = done.value
                return value
            match effect:
                case Send():
                    result = await self._send(effect)
                case Pause():
                    await asyncio.sleep(effect.seconds)
                    result = None
                case Share():
                    result = await self._share(effect)

    async def _send(self, send: Send) -> Answer | Failure:
        sent = self._clock.now()
        try:
            async with self._client.stream(**self._request(send)) as response:
                body = bytearray()
                async for chunk in response.aiter_bytes():
                    body += chunk
                    _check(len(body), elapsed(sent, self._clock.now()), send)
                received = self._clock.now()
                return Answer(response.status_code, response.headers, bytes(body), sent, received)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, InvalidAnswer) as error:
            return Failure(error)

    async def _share(self, share: Share) -> Any:
        task = self._shared.get(share.key)
        if task is None:
            task = asyncio.ensure_future(self.run(share.work()))
            task.set_name("cardfence " + " ".join(share.key))
            self._shared[share.key] = task
            task.add_done_callback(lambda _: self._shared.pop(share.key, None))
        # A caller that is cancelled leaves the work to the others who wait for it.
        return await asyncio.shield(task)

    async def close(self) -> None:
        if self._owned:
            await self._client.aclose()

    async def __aenter__(self) -> AsyncResolver:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _check(size: int, took: float, send: Send) -> None:
    """The HTTP client bounds each read; this bounds the whole answer."""
    if size > BODY_MAX:
        raise InvalidAnswer(f"an answer of more than {BODY_MAX} bytes")
    if took > send.timeout:
        raise TimeoutError(f"the answer did not end within {send.timeout:.1f} s")
