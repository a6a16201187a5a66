"""Saying for whom a run waits: once, after a second, to people who watch it.

The status is read in a thread of its own, since the main thread waits for the lease. The thread takes no signals: they
end the wait only in the main thread.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Self

from handfast.cli.program import say
from handfast.cli.taking.messages import describe_conflict, describe_taken
from handfast.cli.taking.options import Options

if TYPE_CHECKING:
    from handfast import LockStatus
    from handfast.cli.taking.acquire import Primitive

__all__ = ["Notice", "describe_wait"]

AFTER_S = 1.0
"""Seconds of waiting before it is said: shorter waits need no explanation."""


class Notice:
    """Says for whom the run waits if that takes longer, on a terminal or with ``--verbose``. Cron sees neither."""

    def __init__(self, options: Options, primitive: Primitive) -> None:
        self._options, self._primitive = options, primitive
        self._over = threading.Event()
        self._waiter = f".{threading.get_native_id()}"
        """The end of the owner of this run's request."""

    def __enter__(self) -> Self:
        most = self._options.wait_timeout
        if (self._options.verbose or sys.stderr.isatty()) and (most is None or most > AFTER_S):
            threading.Thread(target=self._tell, name="handfast-notice", daemon=True).start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """Say nothing from now on: the wait is over."""
        self._over.set()

    def _tell(self) -> None:
        from redis.exceptions import RedisError

        from handfast import HandfastError

        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        if self._over.wait(AFTER_S):
            return
        with contextlib.suppress(HandfastError, RedisError, OSError):  # the wait itself reports what is wrong
            message = describe_wait(self._options, self._primitive.status(), self._waiter)
            if not self._over.is_set():
                say(message)


def describe_wait(options: Options, status: LockStatus, waiter: str) -> str:
    """Say who holds the name, and how many wait before the one with that end of its owner and with our label."""
    label = options.label or f"{os.uname().nodename}:{os.getpid()}"
    ours = (one.position for one in status.waiters if one.owner.endswith(waiter) and one.label == label)
    place = next(ours, len(status.waiters))
    conflict = describe_conflict(options, replace(status, waiters=status.waiters[:place]))
    reason = f" for {options.name!r}" if conflict == describe_taken(options) else f": {conflict}"
    at_least = "at least " if place == len(status.waiters) < status.waiting else ""
    before = "next in the queue" if place == 0 else f"{at_least}{place} ahead in the queue"
    return f"waiting{reason}; {before}"
