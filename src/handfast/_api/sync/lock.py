# Made by tools/unasync.py from _api/aio/lock.py: edit that one, then run the tool.
"""A lock: one holder at a time, first come first served."""

from __future__ import annotations

from handfast._api.sync.inspectable import Inspectable
from handfast._api.sync.lease import Lease
from handfast._api.sync.primitive import Primitive
from handfast._drivers.sync.driver import SyncDriver
from handfast._engine.calls import PermitRequest
from handfast._protocol.lease import LeaseState
from handfast.records import OnLost

__all__ = ["Lock"]


class Lock(Inspectable, Primitive[Lease]):
    """A named lock. The object holds nothing itself: each acquire gives a lease, and threads may share one lock."""

    def __init__(self, driver: SyncDriver, permits: PermitRequest, on_lost: OnLost) -> None:
        super().__init__(driver, permits, on_lost)
        self._permits = permits

    def _lease(self, holding: LeaseState) -> Lease:
        return Lease(self._driver, holding, self._on_lost)
