"""Virtual time: one clock, one source of randomness, and the processes that use them.

All events stand in one heap, ordered by their moment. Of two events at the same moment, the one that was scheduled
first runs first, so a seed has exactly one course.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from heapq import heappop, heappush
from math import inf
from typing import Any

__all__ = ["Process", "World", "readable"]

_ZEROS = re.compile(r"\b([a-f])0{8,}")


def readable(words: str) -> str:
    """Return the words with tokens and client ids as ``a-0001``: see `Process.urandom`."""
    return _ZEROS.sub(r"\1-", words)


class World:
    """The clock, the random numbers and the scheduled events. ``log`` receives one line per event, if it is given."""

    __slots__ = ("_count", "_heap", "chance", "log", "now", "stopped")

    def __init__(self, seed: int, log: Callable[[str], None] | None = None) -> None:
        self._heap: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._count = 0
        self.chance = random.Random(seed).random  # noqa: S311 -- a seed must give the same numbers again
        self.log = log
        self.now = 0.0
        """Seconds since the start of the simulation."""
        self.stopped = False

    def at(self, moment: float, action: Callable[..., object], *args: Any) -> None:
        """Schedule a call."""
        self._count += 1
        heappush(self._heap, (moment, self._count, action, args))

    def run(self, until: float) -> None:
        """Run the events up to that moment, or until ``stopped`` is set."""
        heap = self._heap
        while heap and heap[0][0] <= until and not self.stopped:
            self.now, _, action, args = heappop(heap)
            action(*args)
        if not self.stopped and until != inf:
            self.now = until

    def discard_events(self) -> None:
        """Drop all scheduled events, and with them their references."""
        self._heap.clear()

    def between(self, least: float, most: float) -> float:
        """Return a random number between the two."""
        return least + (most - least) * self.chance()

    def below(self, count: int) -> int:
        """Return a random integer from 0 to ``count`` - 1."""
        return int(self.chance() * count)

    def say(self, who: str, words: str) -> None:
        """Write a line to the log, if there is one."""
        if self.log is not None:
            self.log(f"{self.now:12.6f}  {who:<6} {readable(words)}")


class Process:
    """A client process: it dies and freezes as one. ``offset`` is what its monotonic clock shows at the beginning."""

    __slots__ = (
        *("_arrivals", "_drawn", "_timers", "alive", "awake_since", "blocked_until", "frozen", "name", "offset"),
        "world",
    )

    def __init__(self, world: World, name: str, offset: float) -> None:
        self.world = world
        self.name = name
        self.offset = offset
        self.alive = True
        self.frozen = False
        self.awake_since = 0.0
        """The time since which it has not been frozen; infinite while it is."""
        self.blocked_until = 0.0
        """The time until which no message reaches or leaves it."""
        self._arrivals: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self._timers: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self._drawn = 0

    def monotonic(self) -> float:
        """Return the time of its monotonic clock in seconds."""
        return self.world.now + self.offset

    def urandom(self, size: int) -> bytes:
        """Return so many unique bytes. Their hexadecimal form begins with the process's name and ends with a number."""
        self._drawn += 1
        return bytes.fromhex(f"{self.name}{self._drawn:0{2 * size - 1}}")

    def deliver(self, action: Callable[..., object], *args: Any) -> None:
        """Deliver an external event to the process: now, or when it resumes. A dead process receives none."""
        if self.frozen:
            self._arrivals.append((action, args))
        elif self.alive:
            action(*args)

    def fire(self, action: Callable[..., object], *args: Any) -> None:
        """Let a timer of the process expire: now, or when it resumes. A dead process has none."""
        if self.frozen:
            self._timers.append((action, args))
        elif self.alive:
            action(*args)

    def freeze(self) -> None:
        """Suspend the process, as SIGSTOP does."""
        if self.alive:
            self.frozen, self.awake_since = True, inf

    def thaw(self) -> None:
        """Resume the process. What arrived meanwhile and which timers expired it learns at once, either kind first."""
        if self.frozen:
            self.frozen, self.awake_since = False, self.world.now
            arrivals, timers = self._arrivals, self._timers
            self._arrivals, self._timers = [], []
            for action, args in arrivals + timers if self.world.chance() < 0.5 else timers + arrivals:
                self.world.at(self.world.now, self.deliver, action, *args)

    def die(self) -> None:
        """Kill the process."""
        self.alive = self.frozen = False
        self._arrivals.clear()
        self._timers.clear()
