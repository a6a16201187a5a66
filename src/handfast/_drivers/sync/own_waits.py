"""Ask for each thread separately: a waiting thread has its own connection, and wakes up by itself.

In asyncio, tasks with the same question share an answer, see ``aio/shared_waits.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar

from handfast._engine.effects import Answer

__all__ = ["OwnWaits"]

T = TypeVar("T")


class OwnWaits:
    """Has the methods of the asyncio side."""

    @staticmethod
    def ask(
        _question: Hashable, _came_at: float, _until: float, _before_waiting: Callable[[], object], ask: Callable[[], T]
    ) -> T:
        """Ask a question whose answer is for one caller alone."""
        return ask()

    @staticmethod
    def share(_question: Hashable, _came_at: float, until: float, ask: Callable[[float], Answer]) -> Answer:
        """Ask a question whose answer is good for all."""
        return ask(until)
