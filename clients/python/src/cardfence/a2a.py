"""The guard around the official `a2a-sdk`, which is not needed to import this.

    async for event in guarded(guard, negotiated, client.send_message(request)):
        ...

What the SDK gives back as protobuf messages and exceptions is turned into the JSON that the guard checks.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from .guard import AsyncGuard
from .negotiated import Negotiated


def as_json(message: Any) -> Any:
    """A protobuf message of A2A (`StreamResponse`, `Task`, `Message`, …) as its JSON."""
    from google.protobuf.json_format import MessageToDict

    return MessageToDict(message)


def error_as_json(error: BaseException) -> tuple[Any, int | None]:
    """An exception of the SDK as the answer that it came from, and the HTTP status where that is known."""
    from a2a.utils.errors import JSON_RPC_ERROR_CODE_MAP

    code = JSON_RPC_ERROR_CODE_MAP.get(type(error))  # type: ignore[arg-type]
    if code is not None:
        data = getattr(error, "data", None)
        return {"jsonrpc": "2.0", "error": {"code": code, "message": str(error), "data": data}}, None
    cause: BaseException | None = error
    while cause is not None:
        status = getattr(getattr(cause, "response", None), "status_code", None)
        if isinstance(status, int):
            return None, status
        cause = cause.__cause__
    return None, None


async def guarded(guard: AsyncGuard, negotiated: Negotiated, events: AsyncIterator[Any]) -> AsyncIterator[Any]:
    """The events of a call, each checked before it is handed on.

    An error of the SDK is checked too: what it shows against the card is raised from it, else it is raised
    as it is.
    """
    try:
        async for event in events:
            await guard.check(negotiated, as_json(event))
            yield event
    except Exception as error:
        if type(error).__module__.startswith("a2a."):
            response, status = error_as_json(error)
            if response is not None or status is not None:
                await guard.check(negotiated, response, http_status=status)
        raise
