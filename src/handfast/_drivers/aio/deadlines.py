"""Give up calls whose replies are late, with a common timer for all calls instead of a timer for each call.

A call may be late though the server is not silent: while a connection is opened for it, or behind others.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections import deque
from typing import TYPE_CHECKING

from handfast._drivers.clock import monotonic
from handfast._drivers.failures import copy_exception, server_silent

if TYPE_CHECKING:
    from handfast._drivers.aio.pending import Outcome
    from handfast._drivers.aio.router import Router
    from handfast._drivers.aio.session import Session

__all__ = ["Deadlines", "give_up"]


class Deadlines:
    """The calls with ``timeout`` seconds for their replies, in the order in which they were sent."""

    __slots__ = ("_calls", "_loop", "_timeout", "_timer")

    def __init__(self, timeout: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._timeout = timeout
        self._calls: deque[tuple[float, Future[Outcome], Session | Router]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, session: Session | Router, sent: Future[Outcome]) -> None:
        """Give up a call sent now, unless the reply comes in time."""
        calls = self._calls
        while calls and calls[0][1].done():
            calls.popleft()
        calls.append((monotonic() + self._timeout, sent, session))
        if self._timer is None:
            self._timer = self._loop.call_later(self._timeout, self._check)

    def end(self) -> None:
        """Watch no longer: the sessions are closed, and have answered all calls."""
        self._calls.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _check(self) -> None:
        self._timer = None
        calls, now = self._calls, monotonic()
        while calls:
            until, sent, session = calls[0]
            if not sent.done():
                if until > now:
                    self._timer = self._loop.call_later(until - now, self._check)
                    return
                give_up(session, sent)
            calls.popleft()


def give_up(session: Session | Router, sent: Future[Outcome]) -> None:
    """End a call with the trouble of the session, or with a timeout where the session has none."""
    sent.set_exception(server_silent() if session.trouble is None else copy_exception(session.trouble))
