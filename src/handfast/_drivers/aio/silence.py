"""Notice a server that is silent although a reply is due.

The time is counted in ticks of the event loop, so a blocked loop is not taken for a silent server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["SilenceWatch"]

TICKS = 5
"""The response timeout is divided into that many ticks. After as many ticks without a byte the server counts as
silent."""


class SilenceWatch:
    """Counts ticks while a reply is due. Any arrival sets ``ticks`` to 0.

    Args:
        timeout: The response timeout, in seconds.
        is_due: Returns whether a reply is due.
        on_silent: Called when the server counts as silent.

    """

    __slots__ = ("_is_due", "_loop", "_on_silent", "_timeout", "ticks", "timer")

    def __init__(self, timeout: float, is_due: Callable[[], bool], on_silent: Callable[[], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self._timeout = timeout
        self._is_due = is_due
        self._on_silent = on_silent
        self.timer: asyncio.TimerHandle | None = None
        self.ticks = 0

    def tick(self) -> None:
        """Count a tick, and the next ticks for as long as a reply is due. Called where no ``timer`` runs."""
        self.timer = None
        if not self._is_due():
            self.ticks = 0
        elif self.ticks >= TICKS:
            self._on_silent()
        else:
            self.ticks += 1
            self.timer = self._loop.call_later(self._timeout / TICKS, self.tick)

    def end(self) -> None:
        """Stop counting."""
        if self.timer is not None:
            self.timer.cancel()
