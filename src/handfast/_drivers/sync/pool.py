"""The sessions of one client, reused, and the places for waiting threads.

Only waiting is bounded: a waiting thread keeps its session until it gets its lease. A call that does not wait (a try, a
release, an undo) always gets a session; otherwise a client whose threads all wait for a lock that it holds itself could
never release it. Every step here is a single atomic operation of a list or a queue.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from queue import Empty, SimpleQueue

from handfast._drivers.sync.session import Session

__all__ = ["Pool"]


class Pool:
    """Lends the sessions that ``make`` makes. ``places`` has an item for each further thread that may wait."""

    def __init__(self, make: Callable[[], Session], places: int) -> None:
        self._make = make
        self._idle: list[Session] = []
        self._all: weakref.WeakSet[Session] = weakref.WeakSet()
        self._closed = False
        self.places: SimpleQueue[None] = SimpleQueue()
        for _ in range(places):
            self.places.put(None)

    def take(self) -> Session:
        """Lend an idle session, or a new one that is not open yet."""
        try:
            return self._idle.pop()
        except IndexError:
            session = self._make()
            self._all.add(session)
            return session

    def take_open(self) -> Session | None:
        """Lend an idle session that is open, if there is one. Those that are closed are dropped: `take` makes new ones."""
        try:
            while not (session := self._idle.pop()).is_open:
                pass
        except IndexError:
            return None
        return session

    def give(self, session: Session) -> None:
        """Take a session back, open or closed."""
        self._idle.append(session)
        if self._closed:
            self.close()

    def enter(self, seconds: float) -> bool:
        """Take a place to wait; return False if none is free in that time. To leave, put None into ``places``."""
        try:
            self.places.get(seconds > 0, seconds)
        except Empty:
            return False
        return True

    def close(self) -> None:
        """Close the idle sessions now, and the others when they come back."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    def abandon(self) -> None:
        """Close every session, lent or not, in a forked child: they are the parent's."""
        for session in list(self._all):
            session.close()
