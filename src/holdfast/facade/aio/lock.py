"""A lock: one holder at a time, first come first served."""

from __future__ import annotations

from holdfast.drivers.aio.driver import AsyncDriver
from holdfast.facade.aio.lease import AsyncLease, OnLost
from holdfast.facade.aio.named import AsyncNamed
from holdfast.facade.aio.primitive import AsyncPrimitive
from holdfast.protocol.holding import Holding
from holdfast.wire.permits import Permits

__all__ = ["AsyncLock"]


class AsyncLock(AsyncNamed, AsyncPrimitive[AsyncLease]):
    """A named lock. The object holds nothing itself: each acquire gives a lease, and tasks may share one lock."""

    def __init__(self, driver: AsyncDriver, permits: Permits, on_lost: OnLost) -> None:
        super().__init__(driver, permits, on_lost)
        self._permits = permits

    def _lease(self, holding: Holding) -> AsyncLease:
        return AsyncLease(self._driver, holding, self._on_lost)
