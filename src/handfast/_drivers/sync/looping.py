"""Loops of threads: see `handfast._protocol.loops`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from handfast._drivers.clock import monotonic
from handfast._drivers.loops import BaseLoop

__all__ = ["Loop"]

T = TypeVar("T")


class Loop(BaseLoop):
    """A loop of the calling thread."""

    def call(self, function: Callable[..., T], *args: Any) -> T:
        """Call the user's function. The loop can then tell the function's errors from the server's."""
        self._begin()
        try:
            result = function(*args)
        except BaseException as error:
            self._raised = error
            raise
        self._pauses.succeed()
        return result

    def ask(self, question: Callable[[], T]) -> T:
        """Ask the server until it answers."""
        while True:
            self.check()
            try:
                return question()
            except BaseException as error:
                pause = self.after(error)
                if pause is None:
                    raise
            self.rest(pause)

    def rest(self, seconds: float) -> None:
        """Wait for so long. Raises ClientClosed as soon as the client is closed."""
        until = monotonic() + seconds
        while not self.is_over and (left := until - monotonic()) > 0:
            time.sleep(min(left, 0.1))
        self.check()

    def _is_cancelled(self) -> bool:
        return False
