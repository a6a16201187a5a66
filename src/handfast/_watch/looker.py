"""Take looks in a thread, one after the other, and know whether the latest view is old.

Each look is followed by a rest in proportion to it, so looks take a small part of the server's time. Whatever error a
look has raised, the next look follows: a thread that ended would show old things as new.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Generic, NamedTuple, TypeVar

from redis.exceptions import RedisError

from handfast.errors import ClientClosed, HandfastError, ServerRefused

__all__ = ["EVERY_S", "REST", "SLOW_S", "Looker", "Outage", "is_known"]

EVERY_S = 1.0
"""Seconds from one look of ``top`` and the page to the next, at least. The page in the browser asks as often."""

REST = 1
"""How many times longer the rest after a look is than the look. A search, which costs the most, rests by itself."""

SLOW_S = 2.0
"""Seconds after which a look counts as unanswered."""

V = TypeVar("V")

HANGS = "The server hangs, or the network does."

NOT_OUTAGES = (ServerRefused, ClientClosed)
"""Errors that say nothing of the server's health."""

LOG = logging.getLogger("handfast.watch")


class Outage(NamedTuple):
    """Nothing new is seen."""

    since: float
    """Since when, in seconds of `time.monotonic`."""
    error: Exception | None
    """Why; None while a look goes on without an answer."""

    @property
    def is_of_server(self) -> bool:
        """Whether the server does not answer; else the user may not look, or there is a fault."""
        return self.error is None or (is_known(self.error) and not isinstance(self.error, NOT_OUTAGES))

    @property
    def text(self) -> str:
        """Why, in words."""
        if self.error is None:
            return HANGS
        return str(self.error) or type(self.error).__name__ if is_known(self.error) else repr(self.error)


def is_known(error: Exception) -> bool:
    """Return whether an error is one of the server, or of the way to it: not one of a program."""
    return isinstance(error, HandfastError | RedisError | OSError)


@dataclass
class Looker(Generic[V]):
    """Looks in a thread of its own.

    Args:
        name: The name of the thread.
        step: Looks once. None says that there is nothing to look at.
        on_view: Called with the result of a step, in the thread. If it raises an error, the look has failed.
        every: Returns the seconds from the beginning of a look to that of the next one, at least.
        rests: How many times longer than a look the rest after it is.
        longest_rest: How long that rest is at most, in seconds.
        slow: After how many seconds a look in progress counts as one without an answer.
        on_change: Called with the error of a look that fails after a good look, and with None the other way round.
        goes_on: Whether looks go on.
    """

    name: str
    step: Callable[[], V | None]
    on_view: Callable[[V], object]
    every: Callable[[], float]
    rests: float
    longest_rest: float = inf
    slow: float = inf
    on_change: Callable[[Exception | None], object] = lambda _: None
    goes_on: Callable[[], bool] = lambda: True
    looked_at: float | None = None
    """When the latest look that has succeeded ended, in seconds of `time.monotonic`."""
    ended_at: float = field(default_factory=time.monotonic)
    """When the latest look ended."""
    _error: Exception | None = None
    _failed_at: float | None = None
    _has_failed: bool | None = None
    """Whether the latest look has failed; None before the first one."""
    _began_at: float | None = None
    """When the look in progress has begun; None in a rest."""
    _is_over: bool = False
    _wakes: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _thread: threading.Thread | None = None

    def start(self, *, before: Callable[[], object] = lambda: None) -> None:
        """Look from now on. Call a function first if no looks go on: in a child process, the parent's thread is not alive."""
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._error = self._failed_at = self._began_at = None
                before()
                self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
                self._thread.start()

    def end(self) -> None:
        """Look no more. A look in progress ends by itself; a later `start` begins none."""
        self._is_over = True
        self._wakes.set()

    def look_soon(self) -> None:
        """Look at once, without the rest."""
        self._wakes.set()

    @property
    def outage(self) -> Outage | None:
        """Since when nothing new is seen, and why; None while looks succeed."""
        now, began_at, failed_at = time.monotonic(), self._began_at, self._failed_at
        if failed_at is not None:
            return Outage(self.looked_at or failed_at, self._error)
        if began_at is not None and self.looked_at is not None and now > began_at + self.slow:
            return Outage(self.looked_at, None)
        return None

    def _run(self) -> None:
        while self.goes_on() and not self._is_over:
            self._began_at = began = time.monotonic()
            error = self._look()
            self._began_at, self.ended_at = None, time.monotonic()
            self._note(error, began)
            took, every = self.ended_at - began, self.every()
            self._wakes.wait(every if error else max(every - took, min(self.longest_rest, self.rests * took)))
            self._wakes.clear()  # before the condition is asked: an end that comes meanwhile is seen there

    def _look(self) -> Exception | None:
        try:
            view = self.step()
            now = time.monotonic()
            if view is not None:
                self.on_view(view)
        except Exception as error:  # noqa: BLE001 -- see the module
            return error
        if view is not None:
            self.looked_at = now
        return None

    def _note(self, error: Exception | None, began: float) -> None:
        self._error = error
        if error is None:
            self._failed_at = None
        elif self._failed_at is None:
            self._failed_at = began
        if self._has_failed != (error is not None):
            self._has_failed = error is not None
            try:
                self.on_change(error)
            except Exception:
                LOG.exception("a look is made, and no one could be told")
