"""Call the lost-callbacks of one client, on a thread of their own.

A callback is a user's code: it may wait for a lock, and it may raise anything. So it runs neither on the thread that renews
nor in a call that happens to find a loss. The thread is started when there is something to call, and ends when all is done.

Nothing here waits for a lock, so a signal handler or a finalizer may add a callback at any moment.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

__all__ = ["CallbackThread"]

logger = logging.getLogger("handfast.renewal")


class CallbackThread:
    """Calls functions one after the other, in the order in which they were added."""

    def __init__(self) -> None:
        self._pending: deque[tuple[Callable[[], object], str]] = deque()
        self._running = threading.Lock()
        """Held by the thread while there is one, and never waited for."""

    def call(self, callback: Callable[[], object], name: str) -> None:
        """Have a callback for the lost lease of ``name`` called soon. Raises RuntimeError if no thread can be started."""
        self._pending.append((callback, name))
        if not self._running.locked():
            threading.Thread(target=self._run, name="handfast-callbacks", daemon=True).start()

    def _run(self) -> None:
        # After the release it looks again: a callback that was added before found the thread running.
        while self._pending and self._running.acquire(blocking=False):
            try:
                while self._pending:
                    self._call(*self._pending.popleft())
            finally:
                self._running.release()

    @staticmethod
    def _call(callback: Callable[[], object], name: str) -> None:
        try:
            callback()
        except BaseException:
            logger.exception("a callback for the lost lease of %r failed", name, extra={"lock": name})
