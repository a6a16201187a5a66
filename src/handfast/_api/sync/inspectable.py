# Generated from _api/aio/inspectable.py by tools/unasync.py: edit that file and run the tool.
"""The base of all primitives with a name: who holds it, who waits for it, and how to take it away."""

from __future__ import annotations

from typing import TYPE_CHECKING

from handfast._drivers.sync.driver import SyncDriver
from handfast._engine.calls import PermitRequest
from handfast._engine.validate import MAX_FENCE, check_int, check_reason, reply_seconds
from handfast._objects import Named
from handfast._protocol import admin
from handfast.arguments import Duration

if TYPE_CHECKING:
    from handfast.records import LockStatus

__all__ = ["Inspectable", "Revocable"]


class Revocable(Named):
    """An object with a name, and with holders whose leases can be taken away."""

    _driver: SyncDriver
    _request: PermitRequest

    def force_release(
        self, *, reason: str = "released by force", up_to_fence: int | None = None, fence: int | None = None
    ) -> int:
        """Revoke the leases of all current holders, or of a single holder, and hand over to the next waiters.

        Each former holder is notified at once: the lease is lost, and the ``with`` block raises LeaseLost with the
        reason. Writes on their way are neither undone nor stopped; only a fence checked by the protected resource
        refuses them.

        Example:
            for holder in semaphore.status().holders:
                if holder.label == "gpu-7:4711":
                    semaphore.force_release(fence=holder.fence, reason="hangs")

        Args:
            reason: Text for the holders' LeaseLost and for their logs; 1 to 1,000 bytes of UTF-8.
            up_to_fence: Revoke only leases with this fence or a smaller fence, from 1 to 2**53: the leases shown by a
                status, and no later leases. None revokes all present leases.
            fence: Revoke only the lease with this fence, from 1 to 2**53, of a holder shown by a status. A lease whose
                fence the server has evicted, shown as 0, can't be chosen. Not together with ``up_to_fence``.

        Returns:
            How many leases were revoked. With ``fence``: 1, or 0 if the lease has ended.

        Raises:
            TypeError: ``reason`` is no str, or a fence no int.
            ValueError: ``reason`` is empty or too long, a fence is out of range, or both fences are given.
            ServerRefused: The server refused, for example for lack of permissions.
        """
        if fence is not None and up_to_fence is not None:
            raise ValueError("fence is of one lease, up_to_fence of all up to it; give one of them")
        most = 0 if up_to_fence is None else check_int(up_to_fence, "up_to_fence", MAX_FENCE)
        single = 0 if fence is None else check_int(fence, "fence", MAX_FENCE)
        steps = admin.force_release(
            self._request, check_reason(reason), self._driver.label, single or most, least_fence=single
        )
        return self._driver.run(steps, self.name)


class Inspectable(Revocable):
    """An object with a name, holders and waiters."""

    def locked(self) -> bool:
        """Return True if `try_acquire` would fail because of current holders or an operator's hold. Takes one round trip.

        Raises:
            ServerRefused: The server refused, for example for lack of permissions.
        """
        return self.status().free < self._request.weight

    def status(self, *, timeout: Duration | None = None) -> LockStatus:
        """Return who holds it and who waits for it. Takes one round trip and changes nothing.

        Args:
            timeout: Seconds (a number or a timedelta), from 0.001 s to 366 days, for which the server is waited for; it
                has a quarter of a second at least. None takes the ``socket_timeout`` of the client's settings, 5 s by
                default.

        Returns:
            The status at one instant of the server.

        Raises:
            ServerRefused: The server refused, for example for lack of permissions.
            TypeError: ``timeout`` is neither a number nor a timedelta.
            ValueError: ``timeout`` is out of range.
        """
        return self._driver.look(admin.status(self._request), self.name, reply_seconds(timeout))
