"""Ends a block whose lease was lost, the way `asyncio.timeout` ends one whose time is over.

A loss cancels the task that is in the block. When the cancellation comes back out of the block it is taken off the task
again, and becomes a LeaseLost there. A cancellation by anybody else meanwhile wins, and so does any other exception of
the block; timeouts may be nested within and around it.

A loss strikes from a callback of the loop, so the task is suspended at an await of the block just then: it can't have
left the block without the cancellation having reached it. Where the task finds the loss by itself, it goes on to its
next await, and is struck there.
"""

from __future__ import annotations

import asyncio
import contextlib
from time import monotonic

from handfast._drivers.aio.loops import call_on, current_task, runs_here
from handfast._protocol.lease import LeaseState

__all__ = ["Guard", "ended_by_loss"]


class Guard:
    """Watches over one block of one task; cancels it only if it ``strikes``."""

    __slots__ = ("_cancelling", "_holding", "_struck", "_task")

    def __init__(self, holding: LeaseState, *, strikes: bool) -> None:
        self._task = current_task()
        self._cancelling = self._task.cancelling() if self._task is not None else 0
        self._struck = False
        self._holding = holding
        if not strikes:
            return
        holding.callbacks.append(self._strike)
        if self._task is not None and holding.lost(monotonic()):  # nobody will call
            self._task.get_loop().call_soon(self._strike)

    def leave(self, error: BaseException | None) -> bool:
        """The block is left; whether it was this guard's cancellation, and no other exception, that ended it."""
        task, self._task = self._task, None
        with contextlib.suppress(ValueError):  # it was called
            self._holding.callbacks.remove(self._strike)
        if not self._struck or task is None:
            return False
        return task.uncancel() <= self._cancelling and isinstance(error, asyncio.CancelledError)

    def _strike(self) -> None:
        task = self._task
        if task is None or self._struck:
            return
        loop = task.get_loop()
        if not runs_here(loop):
            call_on(loop, self._strike)
        elif task is asyncio.current_task():
            loop.call_soon(self._strike)
        else:
            self._struck = task.cancel("the lease was lost")


def ended_by_loss(guards: list[Guard], error: BaseException | None) -> bool:
    """Leave the block that was entered last; whether it was the loss of the lease that ended it with this error."""
    return bool(guards) and guards.pop().leave(error)
