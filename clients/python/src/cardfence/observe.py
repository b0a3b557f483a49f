"""What happens inside, for those who watch: events for a callback, and counts of them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened. `kind` is among the names in the README; `about` holds its facts."""

    kind: str
    agent: str | None = None
    about: Mapping[str, Any] = field(default_factory=dict)


class Observer:
    """Counts events and hands them on. A callback that raises is counted, and disturbs nothing else."""

    def __init__(self, on_event: Callable[[Event], None] | None = None) -> None:
        self._on_event = on_event
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def tell(self, kind: str, agent: str | None = None, /, **about: Any) -> None:
        with self._lock:
            self._counts[kind] += 1
        if self._on_event is None:
            return
        try:
            self._on_event(Event(kind, agent, about))
        except Exception:
            with self._lock:
                self._counts["observer_failed"] += 1

    @property
    def counts(self) -> dict[str, int]:
        with self._lock:
            return dict(self._counts)
