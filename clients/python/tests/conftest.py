"""A real registry for the tests, and one face for the blocking and the asynchronous client."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from cardfence import AsyncGuard, AsyncResolver, Guard, Limits, Resolver

ROOT = Path(__file__).resolve().parents[3]
BINARY = Path(os.environ.get("CARDFENCE_BIN", ROOT / "target/debug/cardfence"))


def eventually(what: str, check: Callable[[], Any], within: float = 20.0) -> Any:
    """Asks until `check` is content; fails with what it said last."""
    deadline = time.monotonic() + within
    last: Any = None
    while time.monotonic() < deadline:
        try:
            last = check()
            if last:
                return last
        except Exception as error:
            last = error
        time.sleep(0.02)
    raise AssertionError(f"{what}: not within {within} s, last was {last!r}")


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


class Registry:
    """One server process over a SQLite file of its own."""

    def __init__(self, directory: Path) -> None:
        if not BINARY.exists():
            raise RuntimeError(
                f"there is no server at {BINARY}: build it with `cargo build`, or set CARDFENCE_BIN"
            )
        self.directory = directory
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        log = (self.directory / "server.log").open("ab")
        store = f"sqlite:{self.directory}/cardfence.db"
        command = [str(BINARY), "serve", "--listen", f"127.0.0.1:{self.port}", "--store", store]
        self._process = subprocess.Popen(command, stdout=log, stderr=log, env={"PATH": os.environ.get("PATH", "")})
        log.close()
        eventually("the registry is ready", lambda: httpx.get(f"{self.url}/readyz").status_code == 200)

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(10)
            self._process = None

    def put(self, agent: str, card: Any, **query: str) -> dict[str, Any]:
        body = card if isinstance(card, bytes) else json.dumps(card).encode()
        headers = {"Content-Type": "application/json"}
        answer = httpx.put(f"{self.url}/v1/agents/{agent}", content=body, headers=headers, params=query)
        assert answer.status_code in (200, 201), answer.text
        registered: dict[str, Any] = answer.json()
        return registered

    def retire(self, agent: str) -> None:
        assert httpx.delete(f"{self.url}/v1/agents/{agent}").status_code == 200


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """Shared by all tests that do not stop it: each uses an agent of its own."""
    running = Registry(tmp_path_factory.mktemp("registry"))
    yield running
    running.stop()


@pytest.fixture
def own_registry(tmp_path: Path) -> Iterator[Registry]:
    running = Registry(tmp_path)
    yield running
    running.stop()


_NUMBERS = itertools.count(1)


@pytest.fixture
def agent() -> str:
    return f"acme/worker-{next(_NUMBERS)}"


class Blocking:
    """Calls an asynchronous object as if it were a blocking one."""

    def __init__(self, inner: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.inner, self.loop = inner, loop

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.inner, name)
        if not inspect.iscoroutinefunction(value):
            return value
        return lambda *args, **named: self.loop.run_until_complete(value(*args, **named))


class Clients:
    """Makes resolvers and guards of one flavour, and closes them."""

    def __init__(self, flavour: str) -> None:
        self.flavour = flavour
        self.loop = asyncio.new_event_loop()
        self._made: list[Any] = []

    def resolver(self, url: str, transport: httpx.MockTransport | None = None, **options: Any) -> Any:
        options.setdefault("limits", Limits(timeout=8.0, attempt_timeout=4.0))
        if self.flavour == "sync":
            if transport is not None:
                options["client"] = httpx.Client(transport=transport)
            made: Any = Resolver(url, **options)
        else:
            if transport is not None:
                options["client"] = httpx.AsyncClient(transport=transport)
            made = Blocking(AsyncResolver(url, **options), self.loop)
        self._made.append(made)
        return made

    def guard(self, resolver: Any, **options: Any) -> Any:
        if self.flavour == "sync":
            return Guard(resolver, **options)
        return Blocking(AsyncGuard(resolver.inner, **options), self.loop)

    def close(self) -> None:
        for made in self._made:
            made.close()
        self.loop.close()


@pytest.fixture(params=["sync", "async"])
def clients(request: pytest.FixtureRequest) -> Iterator[Clients]:
    made = Clients(request.param)
    yield made
    made.close()
