"""The sessions of one client, reused, and the places for those who wait on one.

Only waiting is bounded: a thread that stands in line keeps its session until it is served. Whoever does not wait (a try,
a release, an undo) is never kept: a client whose threads all stand in line for a lock that it holds itself would
otherwise never let go of it. Every step here is a single atomic operation of a list or a queue.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from queue import Empty, SimpleQueue
from time import monotonic

from holdfast.drivers.sync.session import Session

__all__ = ["Pool"]


class Pool:
    """Lends sessions that ``make`` makes, and ``places`` to wait at."""

    def __init__(self, make: Callable[[], Session], places: int) -> None:
        self._make = make
        self._idle: list[Session] = []
        self._places: SimpleQueue[None] = SimpleQueue()
        for _ in range(places):
            self._places.put(None)

    def take(self) -> Session:
        """An idle session, or a new one that is not yet open."""
        try:
            return self._idle.pop()
        except IndexError:
            return self._make()

    def give(self, session: Session) -> None:
        """Take a session back, open or closed."""
        self._idle.append(session)

    def enter(self, until: float) -> bool:
        """Take a place to wait at; False when the moment ``until`` came first."""
        try:
            self._places.get(timeout=None if until == inf else max(0.0, until - monotonic()))
        except Empty:
            return False
        return True

    def leave(self) -> None:
        """Make the place free."""
        self._places.put(None)

    def close(self) -> None:
        """Close what is idle. What is out is closed by whoever has it."""
        while self._idle:
            self._idle.pop().close()
