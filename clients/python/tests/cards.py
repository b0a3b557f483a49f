"""Cards and answers that several tests use."""

from __future__ import annotations

from typing import Any


def skill(
    skill_id: str, out: tuple[str, ...] = ("text/markdown",), into: tuple[str, ...] = ("text/plain",)
) -> Any:
    texts = {"id": skill_id, "name": skill_id, "description": "d", "tags": ["t"]}
    return {**texts, "inputModes": list(into), "outputModes": list(out)}


def card(
    *skills: Any, url: str = "https://worker.example.com/rpc", version: str = "1.0.0", **capabilities: Any
) -> Any:
    """A v1.0 card. Without skills it has `summarize-v2`."""
    return {
        "name": "Worker",
        "description": "d",
        "supportedInterfaces": [{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        "version": version,
        "capabilities": capabilities or {"streaming": True, "pushNotifications": True},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": list(skills) or [skill("summarize-v2")],
    }


def task(state: str, *artifact_parts: Any, message: str | None = None) -> Any:
    """A v1.0 task as JSON-RPC delivers it."""
    status: dict[str, Any] = {"state": f"TASK_STATE_{state.upper()}"}
    if message is not None:
        status["message"] = {"messageId": "m1", "role": "ROLE_AGENT", "parts": [{"text": message}]}
    body: dict[str, Any] = {"id": "t1", "contextId": "c1", "status": status}
    if artifact_parts:
        body["artifacts"] = [{"artifactId": "a1", "parts": list(artifact_parts)}]
    return {"jsonrpc": "2.0", "id": 1, "result": {"task": body}}
