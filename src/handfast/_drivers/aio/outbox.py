"""The calls that a session has to send, in order, and how long each of them waits for a connection.

A call that lost its connection is sent again on the next connection. It fails when its ``retry_for`` is over, counted
from the first break, but not before it was sent on a second connection. A call that was not sent yet when the
connection broke is sent on the next one. A call that must not run twice fails at once if it was sent. While there is
no connection, a timer fails the calls one after the other.
"""

from __future__ import annotations

import asyncio
from collections import deque
from math import inf

from redis.exceptions import ConnectionError as RedisConnectionError

from handfast._drivers.aio.pending import PendingCall
from handfast._drivers.clock import monotonic

__all__ = ["Outbox"]


class Outbox(deque[PendingCall]):
    """The calls to be sent by one session."""

    __slots__ = ("_expiry", "_loop", "trouble")

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._expiry: asyncio.TimerHandle | None = None
        self.trouble: Exception | None = None
        """Why there is no connection; None while there is one, or none was asked for yet."""

    @property
    def is_stuck(self) -> bool:
        """Whether a call waits for a connection that could not be opened."""
        return self.trouble is not None and any(not request.future.done() for request in self)

    def has_work(self) -> bool:
        """Return whether a call is to be sent. Calls that were withdrawn, or have failed, are dropped."""
        while self and self[0].future.done():
            self.popleft()
        return bool(self)

    def withdraw(self) -> list[PendingCall]:
        """Give back the calls to be sent."""
        requests = [request for request in self if not request.future.done()]
        if requests:
            self.clear()
        return requests

    def fail(self, pending: list[PendingCall], error: Exception, moment: float, *, broke: bool = False) -> None:
        """Fail the calls whose retries end by ``moment``: of ``pending``, which were sent, and of the calls to be sent.

        The others are sent on the next connection, in order. ``broke`` says that there was a connection until now.
        """
        may_have_been_idle = broke and isinstance(error, RedisConnectionError)
        for request in (*pending, *self):
            # The connection may have been idle, and ended before the call came: so the call has one more try,
            # whatever its time, also where it was still to be sent. A second break spares it no more, nor does
            # a connection that can't be opened, nor the end of the session.
            request.is_spared = may_have_been_idle and not request.again and not request.is_spared
        for request in pending:
            request.again = True
        # Those that were sent stand first, so that the calls keep their order.
        pending += self
        self.clear()
        for request in pending:
            if request.future.done():
                continue
            # Counted from the first break: a later one does not prolong it.
            request.give_up_at = min(request.give_up_at, monotonic() + request.retry_for)
            is_over = request.give_up_at <= moment and not request.is_spared
            if is_over or (request.again and request.call.once):
                request.fail(error)
            else:
                self.append(request)
        self._expire()

    def end(self) -> None:
        """Stop the timer."""
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    def _expire(self) -> None:
        """Fail the calls that are not tried again, and come back when the time of the next call is over.

        Calls in progress are waited for.
        """
        self.end()
        if self.trouble is None:
            return
        now, first = monotonic(), inf
        for _ in range(len(self)):
            request = self.popleft()
            if request.future.done():
                continue
            if request.give_up_at <= now and not request.is_spared:
                request.fail(self.trouble)
                continue
            self.append(request)
            if request.give_up_at > now:
                first = min(first, request.give_up_at)
        if first < inf:
            self._expiry = self._loop.call_later(first - now, self._expire)
