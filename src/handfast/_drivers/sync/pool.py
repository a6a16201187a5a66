"""The sessions of one client, reused.

A waiting thread keeps its session until it gets its lease. When so many threads wait or call that no session is left,
the others get a seat at a shared connection. So a connection is always left for the thread that releases the lease
they all wait for.

Every step here is a single atomic operation of a list or a dictionary, and may be interrupted before and after it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Generic, TypeVar
from weakref import WeakValueDictionary

from redis.exceptions import RedisError

from handfast._drivers.clock import monotonic
from handfast._protocol.lease import LeaseState

if TYPE_CHECKING:
    from handfast._drivers.sync.routed import RoutedSession
    from handfast._drivers.sync.session import Session
    from handfast._drivers.sync.shared import Seat, SharedConnections

__all__ = ["Pool"]

S = TypeVar("S", bound="Session | RoutedSession | Seat")

KEPT = 4
"""So many idle sessions stay open, however long they are idle."""

IDLE_S = 60.0
"""Those beyond are closed after so many seconds, by the next one that comes back."""

LENT_PAUSES_S = (0.0, 0.001, 0.01)
"""Pauses, in seconds, in which the thread that uses a session takes the replies that have arrived, once it runs
again."""


class Pool(Generic[S]):
    """Lends the sessions made by ``make``.

    It lends at most ``most`` sessions at a time, and beyond these, seats at the connections of ``shared``.
    """

    def __init__(self, make: Callable[[], S], most: int, make_seat: Callable[[], S], shared: SharedConnections) -> None:
        self._make = make
        self._most = most
        self._make_seat = make_seat
        self._shared = shared
        self._idle: list[S] = []
        self._own: WeakValueDictionary[int, S] = WeakValueDictionary()
        self._seats: WeakValueDictionary[int, S] = WeakValueDictionary()
        """Those that are lent."""
        self.closed = False

    def take(self) -> S:
        """Lend an idle session, or a new session which is not open yet, or a seat."""
        try:
            return self._idle.pop()
        except IndexError:
            pass
        make, kept = (self._make, self._own) if len(self._own) < self._most else (self._make_seat, self._seats)
        session = make()
        kept[id(session)] = session
        if self.closed:  # `close` may have missed it
            session.end_waits()
        return session

    def take_open(self) -> S | None:
        """Lend an idle open session, if there is one.

        Closed sessions are dropped: `take` makes new sessions.
        """
        try:
            while not (session := self._idle.pop()).is_open:
                pass
        except IndexError:
            return None
        return session

    def give(self, session: S) -> None:
        """Take a session back, open or closed. A seat is not used again."""
        if session.is_seat:
            session.close()
            return
        session.idle_since = monotonic()
        self._idle.append(session)
        if self.closed:
            self._close_idle()
        elif len(self._idle) > KEPT:
            self._close_unused()

    def receive(self, lease: LeaseState, pauses: Iterable[float] = LENT_PAUSES_S) -> None:
        """Take the reply to a lease's confirmation if it has arrived.

        Look again after these pauses if the session of the confirmation is lent.
        """
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

    def close(self) -> None:
        """Close the idle sessions now, and the others when they come back. Waiting threads are woken."""
        self.closed = True
        self._close_idle()
        for session in self._sessions():
            session.end_waits()
        self._shared.close()

    def hang_up(self) -> None:
        """End all connections, also those in use, from another thread."""
        for session in self._sessions():
            session.hang_up()
        self._shared.hang_up()

    def abandon(self) -> None:
        """Close every session, lent or not, in a forked child: they are the parent's."""
        for session in self._sessions():
            session.close()
        self._shared.abandon()

    def _sessions(self) -> list[S]:
        references = [*self._own.valuerefs(), *self._seats.valuerefs()]
        return [session for reference in references if (session := reference()) is not None]

    def _close_unused(self) -> None:
        """Close the sessions idle for too long: the first ones in the list, since the last are lent first."""
        with contextlib.suppress(IndexError, ValueError):  # another thread was faster
            while len(self._idle) > KEPT and (longest := self._idle[0]).idle_since < monotonic() - IDLE_S:
                self._idle.remove(longest)
                longest.close()

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()
