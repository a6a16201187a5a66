"""A lock: one holder at a time, first come first served."""

from __future__ import annotations

from handfast._api.aio.inspectable import AsyncInspectable
from handfast._api.aio.lease import AsyncLease
from handfast._api.aio.primitive import AsyncPrimitive
from handfast._drivers.aio.driver import AsyncDriver
from handfast._engine.calls import PermitRequest
from handfast._protocol.lease import LeaseState
from handfast.records import OnLost

__all__ = ["AsyncLock"]


class AsyncLock(AsyncInspectable, AsyncPrimitive[AsyncLease]):
    """A named lock. The object holds nothing itself: each acquire gives a lease, and tasks may share one lock."""

    def __init__(self, driver: AsyncDriver, permits: PermitRequest, on_lost: OnLost) -> None:
        super().__init__(driver, permits, on_lost)
        self._permits = permits

    def _lease(self, holding: LeaseState) -> AsyncLease:
        return AsyncLease(self._driver, holding, self._on_lost)
