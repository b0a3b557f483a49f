"""Media types as A2A cards use them.

Case and parameters do not matter. A wildcard is a promise that only a card can make: in what is wanted it
asks for all that it covers, so only an equal or wider entry of the card will do. Bare words such as `text`
are media types here, and match themselves.
"""

from __future__ import annotations

from collections.abc import Iterable


def _lower(text: str) -> str:
    # ASCII only, as the registry does: other alphabets have no case that media types know of.
    return "".join(chr(ord(c) + 32) if "A" <= c <= "Z" else c for c in text)


def normalise(mode: str) -> str:
    """`mode` without parameters, trimmed, in lower case."""
    return _lower(mode.split(";", 1)[0].strip())


def accepts(card_mode: str, wanted: str) -> bool:
    """Whether a card that offers `card_mode` takes or gives `wanted`."""
    offered, wanted = normalise(card_mode), normalise(wanted)
    if not wanted:
        return False
    if offered in (wanted, "*/*"):
        return True
    kind = offered[:-2] if offered.endswith("/*") else ""
    if kind in ("", "*"):
        return False
    wanted_kind, slash, rest = wanted.partition("/")
    return bool(slash and rest) and wanted_kind == kind


def accepted(card_modes: Iterable[str], wanted: str) -> bool:
    """Whether any of the card's modes accepts `wanted`."""
    return any(accepts(mode, wanted) for mode in card_modes)


def is_text(mode: str) -> bool:
    """Whether a card's mode is of text: what lenient checking lets bare text pass for."""
    mode = normalise(mode)
    return mode in ("text", "*/*") or mode.startswith("text/")
