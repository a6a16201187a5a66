"""Call functions on a thread of their own, which is started when there is something to call and ends when all is done.

Nothing here waits for a lock, so a signal handler or a finalizer may add a function at any moment.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable

__all__ = ["Background"]


class Background:
    """Calls functions one after the other, in the order in which they were added.

    When Python ends, it waits for the thread, unless this is a daemon.
    """

    def __init__(self, name: str, *, daemon: bool) -> None:
        self._name = name
        self._daemon = daemon
        self._start()

    def _start(self) -> None:
        """Start empty: at first, and again in a forked child, which does not have the thread."""
        self._pending: deque[Callable[[], object]] = deque()
        self._running = threading.Lock()
        """Held by the thread while there is one, and never waited for."""
        self._pid = os.getpid()

    def __len__(self) -> int:
        """Return how many functions wait."""
        return len(self._pending)

    def call(self, function: Callable[[], object]) -> None:
        """Have a function called soon. Raises RuntimeError, and does not call it, if no thread can be started."""
        if self._pid != os.getpid():
            self._start()
        self._pending.append(function)
        if not self._running.locked():
            try:
                threading.Thread(target=self._run, name=self._name, daemon=self._daemon).start()
            except RuntimeError:
                self._pending.remove(function)
                raise

    def _run(self) -> None:
        # After the release it looks again: a function that was added before found the thread running.
        while self._pending and self._running.acquire(blocking=False):
            try:
                while self._pending:
                    self._call(self._pending.popleft())
            finally:
                self._running.release()

    @staticmethod
    def _call(function: Callable[[], object]) -> None:
        """Call a function, and have Python report an exception as it does for a failed thread."""
        try:
            function()
        except BaseException:  # noqa: BLE001 -- whatever it is
            threading.excepthook(threading.ExceptHookArgs([*sys.exc_info(), threading.current_thread()]))
