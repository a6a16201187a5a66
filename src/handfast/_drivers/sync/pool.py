"""The sessions of one client, reused, and the places for those who wait on one.

Only waiting is bounded: a thread that stands in line keeps its session until it is served. Whoever does not wait (a try,
a release, an undo) is never kept: a client whose threads all stand in line for a lock that it holds itself would
otherwise never let go of it. Every step here is a single atomic operation of a list or a queue.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from queue import Empty, SimpleQueue

from handfast._drivers.sync.session import Session

__all__ = ["Pool"]


class Pool:
    """Lends sessions that ``make`` makes. ``places`` holds a token for each thread that may still begin to wait."""

    def __init__(self, make: Callable[[], Session], places: int) -> None:
        self._make = make
        self._idle: list[Session] = []
        self._all: weakref.WeakSet[Session] = weakref.WeakSet()
        self._closed = False
        self.places: SimpleQueue[None] = SimpleQueue()
        for _ in range(places):
            self.places.put(None)

    def take(self) -> Session:
        """An idle session, or a new one that is not yet open."""
        try:
            return self._idle.pop()
        except IndexError:
            session = self._make()
            self._all.add(session)
            return session

    def give(self, session: Session) -> None:
        """Take a session back, open or closed."""
        self._idle.append(session)
        if self._closed:
            self.close()

    def enter(self, seconds: float) -> bool:
        """Take a place to wait at; False when none came free in that time. Whoever leaves puts None into ``places``."""
        try:
            self.places.get(seconds > 0, seconds)
        except Empty:
            return False
        return True

    def close(self) -> None:
        """Close what is idle, and from now on what comes back."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    def abandon(self) -> None:
        """Close every session there is, lent or not: this is a forked child, and they are its parent's."""
        for session in list(self._all):
            session.close()
