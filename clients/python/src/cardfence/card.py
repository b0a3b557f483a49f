"""What a card says, whichever A2A generation it says it in.

Reads a document that the registry accepted, so it is lenient: a snake_case alias is its camelCase name, null
is absent, and what is of the wrong type is absent too. Only what a caller's decisions rest on is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from .modes import normalise


def snake(name: str) -> str:
    """The protobuf name behind a camelCase one, which ProtoJSON readers accept."""
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name)


def member(of: Any, name: str) -> Any:
    """The member `name` of an object, by that name or its alias; None when it is absent or null."""
    if not isinstance(of, Mapping):
        return None
    value = of.get(name)
    return of.get(snake(name)) if value is None else value


def text(of: Any, name: str) -> str:
    value = member(of, name)
    return value if isinstance(value, str) else ""


def objects(of: Any, name: str) -> Iterator[Mapping[str, Any]]:
    value = member(of, name)
    return (item for item in value if isinstance(item, Mapping)) if isinstance(value, list) else iter(())


def _modes(of: Any, name: str) -> tuple[str, ...]:
    value = member(of, name)
    texts = [normalise(mode) for mode in value if isinstance(mode, str)] if isinstance(value, list) else []
    return tuple(dict.fromkeys(mode for mode in texts if mode))


@dataclass(frozen=True, slots=True)
class Interface:
    url: str
    binding: str
    version: str
    tenant: str = ""


@dataclass(frozen=True, slots=True)
class Skill:
    """A skill with its effective modes: its own, else the card's defaults; they may be empty."""

    id: str
    input_modes: tuple[str, ...]
    output_modes: tuple[str, ...]
    security: Any = None


class Card:
    """A read card. `document` is what was registered; it must not be changed."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document

    @property
    def version(self) -> str | None:
        return text(self.document, "version") or None

    @cached_property
    def generation(self) -> str:
        """By the rules that the registry tells generations apart; the answer's own word is to be preferred."""
        d = self.document
        if next(objects(d, "supportedInterfaces"), None) is not None:
            if any(member(d, name) for name in ("url", "preferredTransport", "additionalInterfaces")):
                return "superset"
            return "v1.0-dev" if member(d, "protocolVersions") else "v1.0"
        version = text(d, "protocolVersion")
        if version:
            major, _, rest = version.partition(".")
            if major == "0" and rest.split(".")[0] in ("1", "2"):
                released = rest not in ("2.7", "2.8", "2.9") and not member(d, "signatures")
                return "v0.2" if released else "v0.3"
            return "v0.3" if major == "0" else "v0.3-shape-claims-1.x"
        if member(member(d, "authentication"), "schemes") is not None:
            return "v0.1"
        if member(d, "signatures"):
            return "v0.3"
        later = ("securitySchemes", "security", "preferredTransport", "additionalInterfaces", "iconUrl")
        if any(member(d, name) is not None for name in (*later, "supportsAuthenticatedExtendedCard")):
            return "v0.2"
        both = member(d, "description") is not None and member(d, "defaultInputModes") is not None
        return "v0.2" if both else "v0.1"

    @cached_property
    def shape(self) -> str:
        if self.generation == "superset":
            return "superset"
        return "v1.0" if self.generation.startswith("v1.0") else "v0.x"

    @cached_property
    def interfaces(self) -> tuple[Interface, ...]:
        d = self.document
        listed = [
            Interface(
                url=text(item, "url"),
                binding=text(item, "protocolBinding") or text(item, "transport"),
                version=_major_minor(text(item, "protocolVersion")),
                tenant=text(item, "tenant"),
            )
            for item in objects(d, "supportedInterfaces")
        ]
        url, version = text(d, "url"), _major_minor(text(d, "protocolVersion"))
        if url:
            listed.append(Interface(url, text(d, "preferredTransport") or "JSONRPC", version))
        listed.extend(
            Interface(text(item, "url"), text(item, "transport"), version)
            for item in objects(d, "additionalInterfaces")
        )
        return tuple(dict.fromkeys(listed))

    @cached_property
    def skills(self) -> dict[str, Skill]:
        defaults = {side: _modes(self.document, side) for side in ("defaultInputModes", "defaultOutputModes")}
        return {
            text(item, "id"): Skill(
                id=text(item, "id"),
                input_modes=_modes(item, "inputModes") or defaults["defaultInputModes"],
                output_modes=_modes(item, "outputModes") or defaults["defaultOutputModes"],
                security=member(item, "securityRequirements") or member(item, "security"),
            )
            for item in objects(self.document, "skills")
            if text(item, "id")
        }

    def skill(self, skill_id: str) -> Skill | None:
        return self.skills.get(skill_id)

    def _capability(self, name: str) -> bool:
        return member(member(self.document, "capabilities"), name) is True

    @property
    def streaming(self) -> bool:
        return self._capability("streaming")

    @property
    def push_notifications(self) -> bool:
        return self._capability("pushNotifications")

    @property
    def extended_card(self) -> bool:
        legacy = ("supportsAuthenticatedExtendedCard", "supportsExtendedAgentCard")
        return self._capability("extendedAgentCard") or any(member(self.document, n) is True for n in legacy)

    @cached_property
    def extensions(self) -> dict[str, bool]:
        """Whether each extension is required, by URI; named twice, it is if either says so."""
        found: dict[str, bool] = {}
        for item in objects(member(self.document, "capabilities"), "extensions"):
            uri = text(item, "uri")
            found[uri] = found.get(uri, False) or member(item, "required") is True
        return found

    @cached_property
    def schemes(self) -> dict[str, Any]:
        schemes = member(self.document, "securitySchemes")
        return dict(schemes) if isinstance(schemes, Mapping) else {}

    @property
    def security(self) -> Any:
        """What it requires of callers, as it is written; None when nothing."""
        for name in ("securityRequirements", "security"):
            if member(self.document, name):
                return member(self.document, name)
        return member(member(self.document, "authentication"), "schemes") or None


def _major_minor(version: str) -> str:
    parts = version.split(".")
    return ".".join(parts[:2]) if len(parts) >= 2 else version
