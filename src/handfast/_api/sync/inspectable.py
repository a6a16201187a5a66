# Made by tools/unasync.py from _api/aio/inspectable.py: edit that one, then run the tool.
"""A name on the server, as anybody may look at it: what locks, semaphores and read-write locks have in common."""

from __future__ import annotations

from handfast._drivers.sync.driver import SyncDriver
from handfast._engine.calls import PermitRequest
from handfast._protocol import admin
from handfast.records import LockStatus

__all__ = ["Inspectable"]


class Inspectable:
    """Something that has a name, holders and waiters."""

    _driver: SyncDriver
    _permits: PermitRequest

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    @property
    def name(self) -> str:
        """What it is called."""
        return self._permits.name

    def locked(self) -> bool:
        """Whether it can't be had right now, because of those who hold it."""
        return self.status().free < self._permits.weight

    def status(self) -> LockStatus:
        """Who holds it and who waits for it. One round trip; changes nothing."""
        return self._driver.ask(admin.status(self._permits), self.name)

    def force_release(self, *, reason: str = "released by force") -> int:
        """Take it away from whoever holds it now; how many leases that ended.

        The holders learn it at once as LeaseLost with this reason, and the next waiters get in. The holders' work is not
        stopped by this: only a fence that the protected resource checks keeps their late writes out.
        """
        return self._driver.ask(admin.force_release(self._permits, reason), self.name)
