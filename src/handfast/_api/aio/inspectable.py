"""What all primitives of one name have in common: who holds it, who waits for it, and how to take it away."""

from __future__ import annotations

from typing import TYPE_CHECKING

from handfast._drivers.aio.driver import AsyncDriver
from handfast._engine.calls import PermitRequest
from handfast._protocol import admin

if TYPE_CHECKING:
    from handfast.records import LockStatus

__all__ = ["AsyncInspectable"]


class AsyncInspectable:
    """An object with a name, holders and waiters."""

    _driver: AsyncDriver
    _permits: PermitRequest

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    @property
    def name(self) -> str:
        """The name that the object was made with."""
        return self._permits.name

    async def locked(self) -> bool:
        """Return True if `try_acquire` would fail because of current holders. Takes one round trip.

        Raises:
            ServerRefused: The server refused, for example for lack of permissions.
            redis.exceptions.ConnectionError: The server can't be reached.
            redis.exceptions.TimeoutError: The server does not answer.
        """
        return (await self.status()).free < self._permits.weight

    async def status(self) -> LockStatus:
        """Return who holds it and who waits for it. Takes one round trip and changes nothing.

        Returns:
            The status at one instant of the server.

        Raises:
            ServerRefused: The server refused, for example for lack of permissions.
            redis.exceptions.ConnectionError: The server can't be reached.
            redis.exceptions.TimeoutError: The server does not answer.
        """
        return await self._driver.run(admin.status(self._permits), self.name)

    async def force_release(self, *, reason: str = "released by force") -> int:
        """Revoke the leases of all current holders and hand over to the next waiters.

        Each former holder is notified at once: its lease is lost, and its ``with`` block raises LeaseLost with the reason.
        That does not undo or stop writes on their way; only a fence that the protected resource checks refuses those.

        Args:
            reason: Text for the holders' LeaseLost and for their logs.

        Returns:
            How many leases were revoked.

        Raises:
            ServerRefused: The server refused, for example for lack of permissions.
            redis.exceptions.ConnectionError: The server can't be reached.
            redis.exceptions.TimeoutError: The server does not answer.
        """
        return await self._driver.run(admin.force_release(self._permits, reason, self._driver.label), self.name)
