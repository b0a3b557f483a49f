"""The clock that ages are counted by.

A proof's age is the larger of the elapsed boot time, which counts suspend, and the elapsed wall time.
`time.monotonic` will not do: it stands still while the machine sleeps, and a card would wake up young.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

# Linux has it. Elsewhere the wall clock is what notices a suspend.
_BOOT = getattr(time, "CLOCK_BOOTTIME", None)


@dataclass(frozen=True, slots=True)
class Instant:
    """A moment of this machine, in seconds of both clocks."""

    boot: float
    wall: float


class Clock(Protocol):
    """Where moments come from; tests bring their own."""

    def now(self) -> Instant: ...


class SystemClock:
    """This machine's clocks."""

    def now(self) -> Instant:
        boot = time.monotonic() if _BOOT is None else time.clock_gettime(_BOOT)
        return Instant(boot=boot, wall=time.time())


def elapsed(since: Instant, until: Instant) -> float:
    """Seconds between two moments: the larger of what the clocks say, never negative."""
    return max(until.boot - since.boot, until.wall - since.wall, 0.0)
