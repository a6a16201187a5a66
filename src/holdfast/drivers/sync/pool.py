"""The sessions of one client: few, reused, and never more than the caller allows.

Taking an idle session and giving it back are single list operations. A thread that finds none opens one, or waits where
as many as allowed are out. Who never waits, or must give something up (a try, a release, an undo), is not kept: a client
whose sessions all stand in line for a lock that it holds itself would never let go of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from math import inf
from time import monotonic

from holdfast.drivers.sync.session import Session

__all__ = ["Pool"]


class Pool:
    """Lends sessions that ``make`` makes."""

    def __init__(self, make: Callable[[], Session], max_sessions: int) -> None:
        self._make = make
        self._max = max_sessions
        self._made = 0
        self._idle: list[Session] = []
        self._waiting = 0
        self._changed = threading.Condition(threading.RLock())

    def take(self) -> Session:
        """An idle session, or a new one that is not yet open, above the limit if need be."""
        try:
            return self._idle.pop()
        except IndexError:
            with self._changed:
                self._made += 1
            return self._make()

    def wait(self, until: float) -> Session | None:
        """The same within the limit; None when the moment ``until`` came first."""
        try:
            return self._idle.pop()
        except IndexError:
            pass
        with self._changed:
            self._waiting += 1
            try:
                while True:
                    if self._idle or self._made < self._max:
                        return self.take()
                    left = None if until == inf else until - monotonic()
                    if left is not None and left <= 0:
                        return None
                    self._changed.wait(left)
            finally:
                self._waiting -= 1

    def give(self, session: Session) -> None:
        """Take a session back, open or closed."""
        self._idle.append(session)
        # Appended first, looked second; who waits does it the other way round, so no wake-up is missed.
        if self._waiting:
            with self._changed:
                self._changed.notify()

    def close(self) -> None:
        """Close what is idle. What is out is closed by whoever has it."""
        while self._idle:
            self._idle.pop().close()
