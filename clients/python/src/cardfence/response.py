"""Reads what an agent answered, in any A2A generation, without judging it.

Taken are v0.1, v0.2/v0.3 and v1.0 answers: tasks, messages, status and artifact updates; in a JSON-RPC
envelope, as a REST answer, or bare; JSON-RPC errors, REST errors (AIP-193) and problem details.
`clients/cases/README.md` lists the shapes and the order in which they are tried.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .card import member, snake, text

# google.rpc.ErrorInfo and problem types name errors like this; JSON-RPC numbers them.
_NAMES = {
    -32001: "TASK_NOT_FOUND",
    -32002: "TASK_NOT_CANCELABLE",
    -32003: "PUSH_NOTIFICATION_NOT_SUPPORTED",
    -32004: "UNSUPPORTED_OPERATION",
    -32005: "CONTENT_TYPE_NOT_SUPPORTED",
    -32006: "INVALID_AGENT_RESPONSE",
    -32007: "EXTENDED_AGENT_CARD_NOT_CONFIGURED",
    -32008: "EXTENSION_SUPPORT_REQUIRED",
    -32009: "VERSION_NOT_SUPPORTED",
    -32601: "METHOD_NOT_FOUND",
    -32602: "INVALID_PARAMS",
}
# These codes meant something else in v0.1, or nothing.
_NAMES_V0_1 = {
    -32006: "STREAMING_NOT_SUPPORTED",
    -32007: "AUTHENTICATION_REQUIRED",
    -32008: "CODE_-32008",
    -32009: "CODE_-32009",
}
_STATUS_NAMES = {"INVALID_ARGUMENT": "INVALID_PARAMS", "UNIMPLEMENTED": "METHOD_NOT_FOUND"}
_DOMAIN = "a2a-protocol.org"
_PROBLEMS = "a2a-protocol.org/errors/"
# The order of the protobuf enum: ProtoJSON may write a state as its number.
_STATES = "unknown submitted working completed failed canceled input-required rejected auth-required".split()

# Of the strings in a data part or in metadata only so many are looked at, and only so deep.
_LEAVES_MAX = 256
_DEPTH_MAX = 16


@dataclass(frozen=True, slots=True)
class Part:
    """One part of an artifact or message. `media_type` is its own; `kind` is what it is without one."""

    pointer: str
    kind: str
    media_type: str | None


@dataclass(frozen=True, slots=True)
class RemoteError:
    """An error as the agent told it. `name` is None when A2A does not define it."""

    name: str | None
    code: int | None
    texts: tuple[str, ...]
    http_status: int | None


@dataclass(frozen=True, slots=True)
class Reading:
    """What an answer is: its kind, and what a check needs of it."""

    kind: str
    state: str | None = None
    status_texts: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()
    error: RemoteError | None = None
    task_id: str | None = None
    pointer: str = field(default="", repr=False)


UNREADABLE = Reading("other")


def read(response: Any, http_status: int | None, is_v0_1: bool) -> Reading:
    """Reads an answer: parsed JSON, or JSON as text or bytes. None stands for no JSON body."""
    if isinstance(response, (str, bytes, bytearray)):
        try:
            response = json.loads(response)
        except (ValueError, RecursionError):
            response = None
    failed = http_status is not None and http_status >= 400
    reading = _whole(response, is_v0_1)
    if reading is UNREADABLE and failed:
        texts = tuple(_leaves(response))
        return Reading("error", error=RemoteError(None, None, texts, http_status))
    return reading


def _whole(response: Any, is_v0_1: bool) -> Reading:
    if not isinstance(response, Mapping):
        return UNREADABLE
    error = response.get("error")
    if isinstance(error, Mapping):
        return Reading("error", error=_error(error, is_v0_1))
    if "jsonrpc" in response or "result" in response:
        return _payload(response.get("result"), "/result")
    if type(response.get("code")) is int and isinstance(response.get("message"), str):
        return Reading("error", error=_error(response, is_v0_1))
    if isinstance(response.get("title"), str) or text(response, "type").startswith(("http", "about:", "urn:")):
        return Reading("error", error=_problem(response))
    return _payload(response, "")


def _payload(value: Any, at: str) -> Reading:
    if not isinstance(value, Mapping):
        return UNREADABLE
    for name, reader in (
        ("task", _task),
        ("message", _message),
        ("statusUpdate", _status_update),
        ("artifactUpdate", _artifact_update),
    ):
        inner = member(value, name)
        if isinstance(inner, Mapping):
            used = name if value.get(name) is not None else snake(name)
            return reader(inner, f"{at}/{used}")
    kind = value.get("kind")
    if kind == "status-update" or ("final" in value and isinstance(value.get("status"), Mapping)):
        return _status_update(value, at)
    if kind == "artifact-update" or isinstance(value.get("artifact"), Mapping):
        return _artifact_update(value, at)
    if kind == "message" or (isinstance(value.get("parts"), list) and "role" in value):
        return _message(value, at)
    if kind == "task" or isinstance(value.get("status"), Mapping):
        return _task(value, at)
    return UNREADABLE


def _task(task: Mapping[str, Any], at: str) -> Reading:
    state, texts = _status(task.get("status"))
    parts: list[Part] = []
    artifacts = task.get("artifacts")
    if isinstance(artifacts, list):
        for n, artifact in enumerate(artifacts):
            parts += _parts(artifact, f"{at}/artifacts/{n}")
    elif artifacts is not None:
        parts.append(Part(f"{at}/artifacts", "unknown", None))
    return Reading("task", state, texts, tuple(parts), task_id=text(task, "id") or None)


def _status_update(update: Mapping[str, Any], at: str) -> Reading:
    state, texts = _status(update.get("status"))
    return Reading("status-update", state, texts, task_id=text(update, "taskId") or text(update, "id") or None)


def _artifact_update(update: Mapping[str, Any], at: str) -> Reading:
    parts = tuple(_parts(update.get("artifact"), f"{at}/artifact"))
    return Reading("artifact-update", parts=parts, task_id=text(update, "taskId") or text(update, "id") or None)


def _message(message: Mapping[str, Any], at: str) -> Reading:
    return Reading("message", parts=tuple(_parts(message, at)), task_id=text(message, "taskId") or None)


def _status(status: Any) -> tuple[str, tuple[str, ...]]:
    state = member(status, "state")
    if type(state) is int and 0 <= state < len(_STATES):
        state = _STATES[state]
    state = state if isinstance(state, str) else "unknown"
    state = state.removeprefix("TASK_STATE_").lower().replace("_", "-")
    state = {"cancelled": "canceled", "unspecified": "unknown"}.get(state, state)
    message = member(status, "message")
    if isinstance(message, str):
        return state, (message,)
    texts: list[str] = []
    parts = member(message, "parts")
    for part in parts if isinstance(parts, list) else []:
        content = text(part, "text")
        texts += [content] if content else []
        texts += _leaves(member(part, "data"))
    texts += _leaves(member(message, "metadata"))
    return state, tuple(texts)


def _parts(holder: Any, at: str) -> Iterator[Part]:
    if not isinstance(holder, Mapping):
        yield Part(at, "unknown", None)
        return
    parts = holder.get("parts")
    if parts is None:
        return
    if not isinstance(parts, list):
        yield Part(f"{at}/parts", "unknown", None)
        return
    for n, part in enumerate(parts):
        yield _part(part, f"{at}/parts/{n}")


def _part(part: Any, at: str) -> Part:
    if not isinstance(part, Mapping):
        return Part(at, "unknown", None)
    kind = part.get("kind") if part.get("kind") is not None else part.get("type")
    file = part.get("file")
    for holder in (part, file):
        for name in ("mediaType", "mimeType"):
            media_type = member(holder, name)
            if isinstance(media_type, str) and media_type.strip():
                return Part(at, _kind(part, kind), media_type)
            if media_type is not None and media_type != "":
                return Part(at, "unknown", None)
    if isinstance(kind, str) and "/" in kind:
        return Part(at, "text", kind)
    return Part(at, _kind(part, kind), None)


def _kind(part: Mapping[str, Any], kind: Any) -> str:
    if kind is not None:
        return kind if kind in ("text", "data", "file") else "unknown"
    # `data` may hold any JSON value, null included; the others are absent when null.
    present = {name for name in ("text", "raw", "url", "file") if part.get(name) is not None}
    present |= {"data"} if "data" in part and (part["data"] is not None or not present) else set()
    if len(present) != 1:
        return "unknown"
    only = present.pop()
    return only if only in ("text", "data") else "file"


def _error(error: Mapping[str, Any], is_v0_1: bool) -> RemoteError:
    code = error["code"] if type(error.get("code")) is int else None
    details = [item for name in ("data", "details") for item in _as_list(error.get(name))]
    name = next((reason for item in details if (reason := _reason(item))), None)
    http_status = code if code is not None and 100 <= code < 600 else None
    if name is None and code is not None and http_status is None:
        name = (_NAMES_V0_1.get(code) if is_v0_1 else None) or _NAMES.get(code)
    if name is None and any(isinstance(member(item, "fieldViolations"), list) for item in details):
        name = "INVALID_PARAMS"
    if name is None:
        name = _STATUS_NAMES.get(text(error, "status"))
    texts = [text(error, "message"), *_leaves(error.get("data")), *_leaves(error.get("details"))]
    return RemoteError(name, code, tuple(texts), http_status)


def _problem(problem: Mapping[str, Any]) -> RemoteError:
    _, found, name = text(problem, "type").partition(_PROBLEMS)
    status = problem["status"] if type(problem.get("status")) is int else None
    texts = (text(problem, "title"), text(problem, "detail"))
    return RemoteError(name.upper().replace("-", "_") if found else None, None, texts, status)


def _reason(detail: Any) -> str | None:
    if isinstance(detail, Mapping) and detail.get("domain") == _DOMAIN:
        return text(detail, "reason") or None
    return None


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _leaves(value: Any) -> list[str]:
    """The strings in a JSON value, in order, bounded: what an agent sends is not trusted."""
    found: list[str] = []
    # The nearest first, so that depth and width are both bounded without recursion.
    pending: list[tuple[int, Any]] = [(0, value)]
    looked = 0
    while pending and looked < _LEAVES_MAX:
        depth, item = pending.pop(0)
        looked += 1
        if isinstance(item, str):
            found.append(item)
        elif depth < _DEPTH_MAX and isinstance(item, (Mapping, list)):
            inner = item.values() if isinstance(item, Mapping) else item
            pending += [(depth + 1, one) for one, _ in zip(inner, range(_LEAVES_MAX), strict=False)]
    return found
