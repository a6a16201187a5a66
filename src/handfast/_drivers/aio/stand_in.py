"""Renew the leases of an event loop that is blocked, from a thread.

Code that does not await keeps its loop from everything else, also from renewing leases. So while any lease is held, a
thread looks every TICK_S seconds whether a renewal is overdue. If so, the thread asks the loop for a sign of life.
While there is none, the thread renews the overdue leases on a second event loop, by separate connections. These are
closed when the first loop goes on. Where the server has no room for another connection, the thread ends the connection
of the blocked loop, which cannot use it, and takes its place. A loop which is not running at all gets no stand-in: the
leases left on it would be renewed without end.

A lease costs no more than a check whether the thread runs. The thread ends when nothing is held, and the next lease
starts another thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import weakref
from asyncio import Future
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from redis.exceptions import ConnectionError as RedisConnectionError

from handfast._drivers import log
from handfast._drivers.aio.pending import Outcome
from handfast._drivers.aio.sessions import Sessions
from handfast._drivers.background import Background
from handfast._drivers.clock import monotonic
from handfast._drivers.failures import is_full
from handfast._engine.effects import Call
from handfast._protocol.lease import LeaseState, LeaseTable, Renewal

if TYPE_CHECKING:
    from handfast._drivers.aio.router import Router
    from handfast._drivers.aio.session import Session

__all__ = ["StandIn"]

TICK_S = 0.5
"""Longest time between two looks at the leases, in seconds."""

MIN_TICK_S = 0.05
"""Shortest time between them."""

SIGN_S = 0.1
"""How long a loop has for a sign of life before it counts as blocked, in seconds."""


class StandIn:
    """Renews the leases in the table whenever the running loop, in which this is made, is blocked.

    ``session_for`` returns the running loop's own session for a call. ``make_sessions`` is called on the other loop;
    None if there is to be no thread. ``notify_lost`` is called on the running loop, with each lost lease.
    """

    def __init__(
        self,
        leases: LeaseTable,
        session_for: Callable[[Call], Session | Router],
        make_sessions: Callable[[], Sessions] | None,
        notify_lost: Callable[[LeaseState], object],
    ) -> None:
        self.is_awake = make_sessions is None
        """Whether the leases are looked at. If not, `wake` is to be called for each that is added."""
        self._leases = leases
        self._session_for = session_for
        self._make_sessions = make_sessions
        self._notify_lost = notify_lost
        self._loop = asyncio.get_running_loop()
        self._thread = Background("handfast-stand-in", daemon=True)
        self._sessions: Sessions | None = None
        """What it renews by while the loop is blocked."""
        self._stopped = False

    def wake(self) -> None:
        """Have the leases looked at from now on."""
        with contextlib.suppress(RuntimeError):  # there are too many threads, or the interpreter is ending
            self._thread.call(partial(_look_on, weakref.ref(self)))

    def stop(self) -> None:
        """Stand in no more."""
        self._stopped = True

    def abandon(self) -> None:
        """Drop the thread's connections in a forked child: they are the parent's."""
        for session in () if self._sessions is None else self._sessions.all():
            session.abandon()

    def look(self) -> float | None:
        """Renew the overdue leases if the loop is blocked, in the thread.

        Return the seconds until the next look; None if there is no next look.
        """
        self.is_awake = True
        overdue_at = self._overdue_at()
        if overdue_at is not None and monotonic() >= overdue_at and self._loop.is_running():
            absence = Absence()
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(absence.end)
            time.sleep(SIGN_S)
            if not absence.is_over and not self._loop.is_closed():
                asyncio.run(self._stand_in(absence))
            overdue_at = self._overdue_at()
        if overdue_at is None:
            self.is_awake = False
            overdue_at = self._overdue_at()  # again: a lease that was added before found it awake
            if overdue_at is None:
                return None
        if not self._loop.is_running():
            return TICK_S
        return min(TICK_S, max(MIN_TICK_S, overdue_at - monotonic()))

    def _overdue_at(self) -> float | None:
        return None if self._stopped or self._loop.is_closed() else self._leases.overdue_at(monotonic())

    async def _stand_in(self, absence: Absence) -> None:
        """Renew overdue leases until the loop is back."""
        began = monotonic()
        log.loop_blocked(len(self._leases))
        assert self._make_sessions is not None  # noqa: S101 -- else there is no thread
        sessions = self._sessions = self._make_sessions()
        sessions.main.on_unreachable = absence.note_unreachable
        try:
            while self._loop.is_running() and not absence.is_over and self._overdue_at() is not None:
                for lease in self._leases.overdue(monotonic()):
                    if lease.token not in absence.renewals:
                        session = sessions.session_for(lease.renewal)
                        absence.add(lease, session, session.send(lease.renewal, on_answer=lease.answered))
                if absence.found_it_full:
                    absence.make_room(self._session_for)
                await asyncio.sleep(MIN_TICK_S)
                for renewal in absence.take_answered():
                    self._settle(*renewal)
        finally:
            absence.end()
            sessions.end(RedisConnectionError("the event loop goes on"))
            await asyncio.sleep(0)  # for the transport's connection_lost
            self._sessions = None
        log.loop_back(monotonic() - began)

    def _settle(self, lease: LeaseState, session: Session | Router, breaks: int, sent: Future[Outcome]) -> None:
        if (error := sent.exception()) is not None:
            self._leases.note_failure(error)
            return
        verdict = self._leases.settle(lease, sent.result(), monotonic())
        if verdict is Renewal.LOST:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._notify_lost, lease)
        elif verdict is Renewal.RECONNECT:
            session.reconnect(breaks)


def _look_on(of: weakref.ref[StandIn]) -> None:
    """Look at the leases again and again, without keeping them alive."""
    while (stand_in := of()) is not None:
        try:
            seconds = stand_in.look()
        except Exception:  # noqa: BLE001 -- it is logged, and the next look may find it well
            log.stand_in_failed(TICK_S)
            seconds = TICK_S
        del stand_in
        if seconds is None:
            break
        time.sleep(seconds)


class Absence:
    """A time in which a loop is blocked, and the renewals sent meanwhile."""

    def __init__(self) -> None:
        self.is_over = False
        self.renewals: dict[bytes, tuple[LeaseState, Session | Router, int, Future[Outcome]]] = {}
        """Those without a reply, by token, each with how many connections had broken before."""
        self.found_it_full = False
        """Whether a server had no room for a connection."""
        self._made_room: set[bytes] = set()
        """The tokens of the leases for which the loop's own connection was ended."""

    def add(self, lease: LeaseState, session: Session | Router, sent: Future[Outcome]) -> None:
        self.renewals[lease.token] = lease, session, session.breaks, sent
        # `end` writes what this reads, and reads what this writes. One of the two always sees the other.
        if self.is_over:
            sent.cancel()

    def note_unreachable(self, error: Exception) -> None:
        """Note why a connection could not be opened."""
        self.found_it_full = self.found_it_full or is_full(error)

    def make_room(self, session_for: Callable[[Call], Session | Router]) -> None:
        """End each connection by which the blocked loop would renew a lease whose renewal has no reply yet, once."""
        for token, (lease, *_) in self.renewals.items():
            if not self.is_over and token not in self._made_room:
                self._made_room.add(token)
                session_for(lease.renewal).make_room(lease.renewal)

    def end(self) -> None:
        """Note that the loop is back, in the loop's thread.

        A renewal not sent by now is not sent any more: the lease may be released next.
        """
        self.is_over = True
        for *_, sent in list(self.renewals.values()):
            sent.cancel()  # which only marks it: it has no callbacks

    def take_answered(self) -> list[tuple[LeaseState, Session | Router, int, Future[Outcome]]]:
        """Return the renewals with a reply or an error, and forget them."""
        over = [renewal for renewal in self.renewals.values() if renewal[-1].done()]
        for lease, *_ in over:
            del self.renewals[lease.token]
        return [renewal for renewal in over if not renewal[-1].cancelled()]
