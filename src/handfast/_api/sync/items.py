# Generated from _api/aio/items.py by tools/unasync.py: edit that file and run the tool.
"""The items of a partition: the lease of an item, and the change that tells a worker of it."""

from __future__ import annotations

import threading
from typing import ClassVar, NamedTuple

from handfast._api.sync.lease import Lease
from handfast._api.sync.primitive import Primitive
from handfast._drivers.clock import monotonic
from handfast._drivers.sync.driver import SyncDriver
from handfast._naming import name_publicly
from handfast._protocol.lease import LeaseState
from handfast.arguments import OnLost

__all__ = ["Change", "ItemLease", "ItemLock"]


class ItemLease(Lease):
    """The lease of an item of a partition. The function which serves the item gets it.

    Example:
        def serve(item, lease):
            while not lease.wanted:
                poll(item, fence=lease.fence)
    """

    __slots__ = ("_ended", "_wanted")

    _stays: ClassVar[str] = "the worker of the item releases it"

    def __init__(self, driver: SyncDriver, state: LeaseState, on_lost: OnLost) -> None:
        super().__init__(driver, state, on_lost)
        self._wanted, self._ended = threading.Event(), threading.Event()
        self._on_loss(self._end)

    @property
    def wanted(self) -> str | None:
        """Why the work must stop: the item is assigned to another worker, or the lease has ended. None while it goes on.

        Takes no I/O. If the worker does not stop, it loses the lease a ``ttl`` later.
        """
        if not (self.lost or self._wanted.is_set()):
            return None
        return self._state.loss_text or "the item is assigned to another worker"

    @property
    def wanted_event(self) -> threading.Event:
        """An event that is set when the work must stop, for work to wait for."""
        return self._wanted

    def release(self) -> bool:
        """Release the lease and hand it to the next waiter.

        Returns:
            True if this call released the lease; False if it was lost or released before.

        Raises:
            ServerRefused: The server refused, for example because it is read-only.
        """
        self._end()
        return super().release()

    def _end(self) -> None:
        self._wanted.set()
        self._ended.set()

    def _want(self) -> None:
        """Ask the holder to stop. If the holder goes on, the lease ends a ttl later."""
        self._state.end_within(self._state.request.ttl_ms / 1000, monotonic())
        self._wanted.set()


class Change(NamedTuple):
    """An item which this worker gets or must give up."""

    item: str
    """The name of the item."""
    lease: ItemLease | None
    """The lease of an item which this worker gets. None for an item to be given up: stop the work, and release the lease of
    the item."""


class ItemLock(Primitive[ItemLease]):
    """The lock of an item."""

    def _lease(self, state: LeaseState) -> ItemLease:
        return ItemLease(self._driver, state, self._on_lost)


name_publicly(globals(), "handfast")
