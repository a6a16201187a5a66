"""The sessions of one client, reused, and the places for waiting threads.

Only waiting is bounded: a waiting thread keeps its session until it gets its lease. A call that does not wait (a try, a
release, an undo) always gets a session; otherwise a client whose threads all wait for a lock that it holds itself could
never release it.

Every step here is a single atomic operation of a list, a set or a queue, and may be interrupted before and after it. A
place belongs to an attempt: it is free again when the attempt leaves, which may happen twice, or is garbage-collected.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from weakref import WeakValueDictionary, ref

from redis.exceptions import RedisError

from handfast._drivers.sync.session import Session
from handfast._protocol.acquire import Attempt
from handfast._protocol.lease import LeaseState

__all__ = ["Pool"]

LENT_PAUSES_S = (0.0, 0.001, 0.01)
"""Pauses, in seconds, in which the thread that uses a session takes the replies that have arrived, once it runs again."""


class Pool:
    """Lends the sessions that ``make`` makes, and lets so many attempts wait at a time."""

    def __init__(self, make: Callable[[], Session], places: int) -> None:
        self._make = make
        self._idle: list[Session] = []
        self._all: WeakValueDictionary[int, Session] = WeakValueDictionary()
        self._closed = False
        self._places = places
        self._waiting: set[ref[Attempt]] = set()
        """The attempts that have a place."""
        self._left: SimpleQueue[None] = SimpleQueue()
        """An item for each place that was left while all were taken. Only a hint to look again, so one too few or too many
        does no harm."""

    def take(self) -> Session:
        """Lend an idle session, or a new one that is not open yet."""
        try:
            return self._idle.pop()
        except IndexError:
            session = self._make()
            self._all[id(session)] = session
            if self._closed:  # `close` may have missed it
                session.end_waits()
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
            self._close_idle()

    def receive(self, lease: LeaseState, pauses: Iterable[float] = LENT_PAUSES_S) -> None:
        """Take the reply to a lease's confirmation if it has arrived. Look again after these pauses if its session is lent."""
        for pause in pauses:
            if (confirmation := lease.confirmation) is None:
                break
            try:
                self._idle.remove(confirmation.pending)
            except ValueError:
                time.sleep(pause)
                continue
            try:
                with contextlib.suppress(RedisError):
                    confirmation.pending.listen()
            finally:
                self.give(confirmation.pending)
            break

    def enter(self, attempt: Attempt, seconds: float = 0) -> bool:
        """Give an attempt a place to wait, or return False if none is free in that time."""
        if seconds > 0:
            with contextlib.suppress(Empty):
                self._left.get(timeout=seconds)
        self._waiting.add(ref(attempt, self._waiting.discard))
        if len(self._waiting) <= self._places:
            return True
        self.leave(attempt)
        return False

    def leave(self, attempt: Attempt) -> None:
        """Free the place of an attempt, if it has one."""
        was_full = len(self._waiting) >= self._places
        self._waiting.discard(ref(attempt))
        if was_full and self._left.qsize() < self._places:
            self._left.put(None)

    def close(self) -> None:
        """Close the idle sessions now, and the others when they come back. Threads that wait are woken."""
        self._closed = True
        self._close_idle()
        for session in filter(None, (reference() for reference in self._all.valuerefs())):
            session.end_waits()

    def abandon(self) -> None:
        """Close every session, lent or not, in a forked child: they are the parent's."""
        for session in self._all.values():
            session.close()

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()
