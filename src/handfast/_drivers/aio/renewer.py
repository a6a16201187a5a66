"""Renew the leases of one client on one event loop, and notify the holders of lost leases.

The renewer is a timer of the loop and not a task: no code can cancel it by accident, it still runs while the scopes of
an ending program are left, and nothing is pending when the loop goes away. It looks at the table at the moment of the
next renewal or expiry; renewals due together leave together. While code that does not await blocks the loop, the
stand-in renews.

A release withdraws the renewal of its lease: a renewal already sent stays sent, but none is sent after the release
(invariant 10).

The renewer also runs background cleanup: an undo that could not be finished in time goes on until the server replies.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable
from contextvars import Context
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from redis.exceptions import TimeoutError as RedisTimeoutError

from handfast._drivers import log
from handfast._drivers.aio.pending import Outcome
from handfast._drivers.aio.stand_in import StandIn
from handfast._drivers.clock import monotonic
from handfast._drivers.events import Events
from handfast._drivers.losses import LossNotifier
from handfast._engine.effects import Call, Steps
from handfast._engine.messages import Told
from handfast._protocol.lease import LeaseState, LeaseTable, Renewal
from handfast._protocol.retry import CLEANUP_FOR, CLEANUP_PAUSE_S, Cleanup

if TYPE_CHECKING:
    from handfast._drivers.aio.router import Router
    from handfast._drivers.aio.session import Session
    from handfast._drivers.aio.sessions import Sessions

__all__ = ["Renewer"]

TICK_S = 0.5
"""Longest time that a timer is set for, in seconds. Timers stand still while the machine is suspended and the clock
does not, so after a resume a loss is noticed within this time."""

MIN_INTERVAL_S = 0.01
"""Shortest time between two passes over the table, in seconds, however many leases end one after the other."""


class Renewer(LossNotifier):
    """Renews the leases in the table. Only the loop's own thread may call it."""

    def __init__(
        self,
        session_for: Callable[[Call], Session | Router],
        leases: LeaseTable,
        make_sessions: Callable[[], Sessions] | None,
        events: Events,
    ) -> None:
        super().__init__(leases, events)
        self._session_for = session_for
        self._stand_in = StandIn(leases, session_for, make_sessions, self.notify_lost)
        self._loop = asyncio.get_running_loop()
        self.renewals: dict[bytes, Future[Outcome]] = {}
        """The renewals in progress, by token."""
        self._cleanups: set[Future[Any]] = set()
        self._alarm: asyncio.TimerHandle | None = None
        self._wakes_at = inf
        self._stopped = False

    @property
    def is_idle(self) -> bool:
        """Whether no cleanup is in progress."""
        return not self._cleanups

    def add(self, lease: LeaseState) -> None:
        """Renew this lease from now on."""
        self._leases[lease.token] = lease
        if lease.confirmation is not None:
            self._watch(lease, self._session_for(lease.renewal), lease.confirmation.pending)
        if lease.due_at < self._wakes_at:
            self._wake_at(lease.due_at)
        if not self._stand_in.is_awake and lease.due_at < lease.deadline:
            self._stand_in.wake()

    def remove(self, lease: LeaseState) -> None:
        """Stop renewing this lease. When this returns, no renewal is sent for it again."""
        self._leases.pop(lease.token, None)
        if self.renewals and (renewal := self.renewals.pop(lease.token, None)) is not None:
            renewal.cancel()

    def clean_up(self, steps: Steps[Any]) -> Future[Any]:
        """Perform an undo as soon as the server can be reached. The future gets the result; None if it is given up."""
        cleanup, done = Cleanup(steps, monotonic() + CLEANUP_FOR), self._loop.create_future()
        self._cleanups.add(done)
        self._send_cleanup(cleanup, done)
        return done

    def take(self, token: bytes, told: Told) -> bool:
        """Take a message for a holder. Return False if no lease here has this token."""
        lease = self._leases.get(token)
        if lease is None:
            return False
        self.tell(lease, told)
        return True

    def tell(self, lease: LeaseState, told: Told) -> None:
        try:
            super().tell(lease, told)
        except KeyboardInterrupt as interrupt:  # as in `notify_lost`
            self._loop.call_soon(_raise, interrupt)
        if lease.due_at < self._wakes_at:
            self._wake_at(lease.due_at)

    def on_break(self, error: Exception) -> None:
        """Renew every lease now: while the connection was down, the message of a revocation may have been lost."""
        self.note_failure(error)
        if isinstance(error, RedisTimeoutError):
            self.review()
        if not self._stopped and self._leases:
            self._leases.renew_all(monotonic())
            self._wake_at(monotonic())

    def on_unreachable(self, error: Exception) -> None:
        """Note a failure to open a connection. The session goes on trying."""
        self.note_failure(error)
        self.review()

    def review(self) -> None:
        """Log changes unless renewal has ended for good."""
        if not self._stopped:
            super().review()

    def stop_renewing(self) -> None:
        """Let the leases run out. Lost callbacks and listening functions are still called when they end."""
        self._stopped = True
        self._stand_in.stop()
        self._leases.stop_renewing(listened=self._events.dispatcher is not None)
        for token in self.renewals.keys() - self._leases.keys():
            self.renewals.pop(token).cancel()

    def notify_lost(self, lease: LeaseState) -> None:
        """Log the loss and call the callbacks.

        An interrupt of a callback ends the loop, but not the delivery of replies.
        """
        try:
            super().notify_lost(lease)
        except KeyboardInterrupt as interrupt:
            self._loop.call_soon(_raise, interrupt)

    def end(self) -> None:
        """Stop for good."""
        if self._alarm is not None:
            self._alarm.cancel()
        for lease in self._leases.all():
            self.remove(lease)

    def abandon(self) -> None:
        """Drop the connections of the stand-in in a forked child."""
        self._stand_in.abandon()

    def _wake_at(self, moment: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._wakes_at = moment
        delay = min(TICK_S, max(0.0, moment - monotonic()))
        self._alarm = self._loop.call_later(delay, self._on_alarm, context=Context())

    def _on_alarm(self) -> None:
        if self._leases and monotonic() < self._wakes_at:
            self._wake_at(self._wakes_at)
        else:
            self._tick()

    def _tick(self) -> None:
        self._alarm, self._wakes_at = None, inf
        now = monotonic()
        try:
            for lease in self._leases.remove_expired(now):
                self.remove(lease)
                self.notify_lost(lease)
            if not self.renewals:
                self.review()
            for lease in () if self._stopped else self._leases.due(now):
                if lease.token not in self.renewals:
                    self._renew(lease)
        finally:
            due_at = self._leases.next_due()
            if due_at is not None and due_at < self._wakes_at:
                self._wake_at(max(due_at, now + MIN_INTERVAL_S))

    def _renew(self, lease: LeaseState) -> None:
        call = lease.renewal
        session = self._session_for(call)
        self._watch(lease, session, session.send(call, on_answer=lease.answered))

    def _watch(self, lease: LeaseState, session: Session | Router, renewal: Future[Outcome]) -> None:
        self.renewals[lease.token] = renewal
        renewal.add_done_callback(partial(self._on_renewal, lease, session, session.breaks))

    def _on_renewal(self, lease: LeaseState, session: Session | Router, breaks: int, renewal: Future[Outcome]) -> None:
        if renewal.cancelled():
            return
        self.renewals.pop(lease.token, None)
        error = renewal.exception()
        if error is not None:
            self.note_failure(error)
        elif self.settle(lease, renewal.result(), monotonic()) is Renewal.RECONNECT:
            session.reconnect(breaks)
        if not self.renewals:
            self.review()

    def _send_cleanup(self, cleanup: Cleanup, done: Future[Any]) -> None:
        if cleanup.call is not None:
            session = self._session_for(cleanup.call)
            sent = session.send(cleanup.call, cleanup.time_left(monotonic()))
            sent.add_done_callback(partial(self._on_cleanup, cleanup, done, session, session.breaks))
            return
        self._cleanups.discard(done)
        if not done.done():
            done.set_result(cleanup.result)

    def _on_cleanup(
        self, cleanup: Cleanup, done: Future[Any], session: Session | Router, breaks: int, sent: Future[Outcome]
    ) -> None:
        error, now = sent.exception(), monotonic()
        if error is not None:  # the connection was refused, which may pass, or the time is over
            cleanup.due_at = now + CLEANUP_PAUSE_S
            cleanup.expire(inf if self._stopped else now)
            if cleanup.call is None:
                log.cleanup_given_up(error)
        elif cleanup.settle(sent.result(), now):
            session.reconnect(breaks)
        if cleanup.call is not None and cleanup.due_at > now:
            self._loop.call_later(cleanup.due_at - now, self._send_cleanup, cleanup, done)
        else:
            self._send_cleanup(cleanup, done)


def _raise(error: BaseException) -> None:
    raise error
