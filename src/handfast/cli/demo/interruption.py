"""Signals that end the demo are noted instead of raised.

An exception between the start of a process and the line that stores it would leave the process behind. So the handler only
notes the signal, and the demo checks for it between two frames.
"""

from __future__ import annotations

import signal
from types import TracebackType
from typing import Any, Self

__all__ = ["Interrupted", "Interruption"]


class Interrupted(Exception):
    """A signal ended the demo."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.number = number


class Interruption:
    """Notes SIGINT, SIGTERM and SIGHUP inside a ``with`` block. Later ones do not disturb the cleanup."""

    def __init__(self) -> None:
        self._noted: int | None = None
        self._before: dict[int, Any] = {}

    def check(self) -> None:
        """Raise Interrupted if there was a signal."""
        if self._noted is not None:
            raise Interrupted(self._noted)

    def _note(self, number: int, _frame: object) -> None:
        if self._noted is None:
            self._noted = number

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                continue  # nohup: the demo is to outlive its terminal
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
