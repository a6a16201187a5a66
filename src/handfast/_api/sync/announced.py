# Generated from _api/aio/announced.py by tools/unasync.py: edit that file and run the tool.
"""A lease of which others hear when it begins and ends."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from handfast._api.sync.lease import Lease
from handfast._drivers.sync.driver import SyncDriver
from handfast._protocol.lease import LeaseState
from handfast.arguments import OnLost

__all__ = ["AnnouncedLease"]


class AnnouncedLease(Lease):
    """A lease whose beginning and end are announced. No call waits for an announcement."""

    __slots__ = ("_announce",)

    def __init__(
        self, driver: SyncDriver, state: LeaseState, on_lost: OnLost, announce: Callable[[str], object]
    ) -> None:
        super().__init__(driver, state, on_lost)
        self._announce = announce
        state.callbacks.append(partial(announce, ""))
        announce("")

    def release(self) -> bool:
        """Release the lease. Others hear of it, and of an election the next candidate leads.

        Returns:
            True if this call released the lease; False if it was lost or released before.

        Raises:
            ServerRefused: The server refused, for example because it is read-only.
        """
        released = super().release()
        if released:
            self._announce("resigned")
        return released

    def _leave(self, error: BaseException | None) -> bool:
        left = super()._leave(error)
        if left and self._state.loss is None:
            self._announce("resigned")
        return left
