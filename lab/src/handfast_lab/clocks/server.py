"""A server whose wall clock can be shifted."""

from __future__ import annotations

import shutil
import tempfile
import time

from handfast.embedded import find_binary
from handfast.testing import ServerController
from handfast_lab.clocks.clock import ShiftedClock

__all__ = ["ClockedServer"]

CLOCK_CACHE_S = 0.005
"""After this many seconds the server has read its clock again: some versions cache it for a millisecond."""


class ClockedServer(ServerController):
    """A private server with a wall clock of its own. Needs Linux and a C compiler.

    Raises:
        NoServer: The server cannot be started, or its clock cannot be shifted.
    """

    def __init__(self, *options: str, persistent: bool = False) -> None:
        self._clock_folder = tempfile.mkdtemp(prefix="handfast-clock-")
        self._clock: ShiftedClock | None = None
        try:
            self._clock = ShiftedClock(self._clock_folder)
            super().__init__(*options, persistent=persistent, binary=self._clock.starter(find_binary()))
        except BaseException:
            self._remove_clock()
            raise

    def shift_clock(self, seconds: float) -> None:
        """Shift the server's wall clock by that much, forward or back. The shift stays, also after a restart.

        Raises:
            ValueError: The clock would be off by more than ten years.
        """
        assert self._clock is not None  # noqa: S101 -- for the type checker
        self._clock.shift(seconds)
        time.sleep(CLOCK_CACHE_S)

    @property
    def clock_offset(self) -> float:
        """Seconds by which the server's wall clock is ahead of the system's."""
        return 0.0 if self._clock is None else self._clock.offset

    def replica(self, *options: str) -> ServerController:
        """Start a replica, which has the system's clock."""
        clocked, self._binary = self._binary, find_binary()
        try:
            return super().replica(*options)
        finally:
            self._binary = clocked

    def close(self) -> None:
        """End the server, and unmap its clock."""
        super().close()
        self._remove_clock()

    def _remove_clock(self) -> None:
        if self._clock is not None:
            self._clock.close()
        shutil.rmtree(self._clock_folder, ignore_errors=True)
