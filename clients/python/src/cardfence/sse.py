"""Server-sent events, without IO: bytes in, events out."""

from __future__ import annotations

import codecs
from dataclasses import dataclass

EVENT_MAX = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class SseEvent:
    event: str
    data: str
    # The id of this very event; the rule that an id lasts until the next one is for browsers.
    id: str | None


class SseParser:
    """Feed it what arrives. Raises ValueError when an event is too large or not UTF-8."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._rest = ""
        self._reset()

    def _reset(self) -> None:
        self._event, self._size = "message", 0
        self._data: list[str] = []
        self._id: str | None = None

    def feed(self, chunk: bytes) -> list[SseEvent]:
        self._rest += self._decoder.decode(chunk)
        events: list[SseEvent] = []
        lines = self._rest.replace("\r\n", "\n").split("\n")
        self._rest = lines.pop()
        for line in lines:
            self._size += len(line)
            if line == "":
                if self._data:
                    events.append(SseEvent(self._event, "\n".join(self._data), self._id))
                self._reset()
                continue
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if name == "event":
                self._event = value
            elif name == "data":
                self._data.append(value)
            elif name == "id" and "\0" not in value:
                self._id = value
        if self._size + len(self._rest) > EVENT_MAX:
            raise ValueError(f"an event of more than {EVENT_MAX} bytes")
        return events
