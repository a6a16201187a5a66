# Made by tools/unasync.py from facade/aio/lock.py: edit that one, then run the tool.
"""A lock: one holder at a time, first come first served."""

from __future__ import annotations

from holdfast.drivers.sync.driver import SyncDriver
from holdfast.facade.sync.lease import Lease, OnLost
from holdfast.facade.sync.named import Named
from holdfast.facade.sync.primitive import Primitive
from holdfast.protocol.holding import Holding
from holdfast.wire.permits import Permits

__all__ = ["Lock"]


class Lock(Named, Primitive[Lease]):
    """A named lock. The object holds nothing itself: each acquire gives a lease, and threads may share one lock."""

    def __init__(self, driver: SyncDriver, permits: Permits, on_lost: OnLost) -> None:
        super().__init__(driver, permits, on_lost)
        self._permits = permits

    def _lease(self, holding: Holding) -> Lease:
        return Lease(self._driver, holding, self._on_lost)
