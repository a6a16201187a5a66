"""A lease: what a caller gets who has acquired, and where ownership lives."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from time import monotonic

from handfast._api.aio.scope import AsyncLeaseScope
from handfast._drivers.aio.driver import AsyncDriver
from handfast._drivers.losses import tell
from handfast._engine.validate import milliseconds
from handfast._protocol.lease import LeaseState
from handfast.errors import LeaseLost, NotHeld
from handfast.records import Duration, OnLost

__all__ = ["AsyncLease"]


class AsyncLease(AsyncLeaseScope):
    """A grant with an end. Use it as a context manager, or call `release`; it may be released by any task.

    When the lease is lost within an ``async with`` block, the block is cancelled, and LeaseLost is raised from it.
    A lease that is dropped without a release is renewed no more and runs out after its ttl.
    """

    __slots__ = ("_driver", "_lost_event")

    def __init__(self, driver: AsyncDriver, holding: LeaseState, on_lost: OnLost) -> None:
        super().__init__(holding, on_lost)
        self._driver = driver
        self._lost_event: asyncio.Event | None = None

    def __repr__(self) -> str:
        holding = self._holding
        state = "released" if self._given_up else "lost" if self.lost else f"{self.remaining():.3f} s left"
        return f"<{type(self).__name__} of {holding.permits.name!r}, fence {holding.fence}, {state}>"

    @property
    def name(self) -> str:
        """What is held."""
        return self._holding.permits.name

    @property
    def token(self) -> str:
        """The unguessable id of this lease. Whoever knows it can release it: do not log it."""
        return self._holding.token.decode()

    @property
    def fence(self) -> int:
        """A number that grows with every grant of the name. Let the protected resource refuse smaller ones."""
        return self._holding.fence

    @property
    def lost(self) -> bool:
        """Whether the lease ended before it was given up. Costs no I/O; also true once its time is over."""
        return self._holding.lost(monotonic())

    @property
    def lost_event(self) -> asyncio.Event:
        """Set when the lease is found lost; wait for it where nothing else tells."""
        if self._lost_event is None:
            self._lost_event = asyncio.Event()
            self.add_lost_callback(self._lost_event.set)
        return self._lost_event

    def remaining(self) -> float:
        """Seconds until the lease ends, if it is not renewed: 0 when it has ended, never more than the server's."""
        holding = self._holding
        return 0.0 if self._given_up or self.lost else max(0.0, holding.deadline - monotonic())

    def check(self) -> None:
        """Raise LeaseLost if the lease was lost, NotHeld if it was released. Costs no I/O."""
        if self.lost:
            raise LeaseLost(self.name, self.fence, self._holding.loss or "")
        if self._given_up:
            raise NotHeld(self.name)

    async def extend(self, ttl: Duration) -> None:
        """Let the lease last ``ttl`` seconds from now, or longer if it already does.

        Raises LeaseLost, NotHeld, and ValueError for a ttl below a millisecond.
        """
        ttl_ms = milliseconds(ttl, "ttl")
        self.check()
        if not await self._driver.extend(self._holding, ttl_ms):
            self.check()

    async def release(self) -> bool:
        """Give the lease up; the next waiter has it when this returns.

        False when there was nothing left to give up: it had been lost, or was released before.
        """
        return await self._driver.release(self._holding)

    def add_lost_callback(self, callback: Callable[[], object]) -> None:
        """Call this when the lease is found lost: from the event loop, or at once if it is known already.

        It is called in a copy of the context in which it is given.
        """
        self._holding.callbacks.append(partial(copy_context().run, callback))
        if self.lost:
            tell(self._holding)

    async def _leave(self, error: BaseException | None) -> bool:
        return await self._driver.leave(self._holding, error)

    def _tell_loss(self) -> None:
        loss = LeaseLost(self.name, self.fence, self._holding.loss or "")
        if self._on_lost == "raise":
            raise loss
        warnings.warn(str(loss), RuntimeWarning, stacklevel=3)

    def __del__(self) -> None:
        holding: LeaseState | None = getattr(self, "_holding", None)  # an interrupt may have struck while it was made
        if holding is None or not holding.permits.renew or holding.given_up or self.lost:
            return
        if self._driver.let_go(holding):
            message = f"{self!r} was dropped without a release; it runs out by itself"
            warnings.warn(message, ResourceWarning, stacklevel=2)
