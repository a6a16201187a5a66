"""Several locks at once: all of them or none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from handfast._api.aio.lease import AsyncLease
from handfast._api.aio.primitive import AsyncPrimitive
from handfast._drivers.aio.driver import AsyncDriver
from handfast._engine.calls import MultiRequest
from handfast._protocol import admin
from handfast._protocol.lease import LeaseState
from handfast.arguments import OnLost

if TYPE_CHECKING:
    from handfast.records import LockStatus

__all__ = ["AsyncLeaseOfAll", "AsyncLockAll"]


class AsyncLeaseOfAll(AsyncLease):
    """One lease of several locks. If one of the locks is lost, the lease is lost; its end releases the others."""

    __slots__ = ("_names",)

    def __init__(self, driver: AsyncDriver, state: LeaseState, on_lost: OnLost, names: tuple[str, ...]) -> None:
        super().__init__(driver, state, on_lost)
        self._names = names

    @property
    def fences(self) -> dict[str, int]:
        """The fencing token of each name. All have the same one, larger than any that these names had before."""
        return dict.fromkeys(self._names, self.fence)


class AsyncLockAll(AsyncPrimitive[AsyncLeaseOfAll]):
    """The locks of several names, acquired together. Made by the client's ``lock_all()``.

    They are granted in one step, when all of them are free and this request is the first in the queue of each. Nothing is
    held before, so callers that name the same locks in different orders can't deadlock. The request stands in the queues
    of the single locks, and requests behind it wait even if only another of its names is taken. The object holds nothing
    itself, so threads or tasks may share it.

    Example:
        async with hf.lock_all(["account:1", "account:2"]) as lease:
            ...
    """

    def __init__(self, driver: AsyncDriver, request: MultiRequest, on_lost: OnLost) -> None:
        super().__init__(driver, request, on_lost)
        self._parts = request.parts

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(map(repr, self.names))}>"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the locks, without repetitions, in the order in which they were given."""
        return self._request.names

    async def locked(self) -> bool:
        """Return True if any of the locks is held. Takes one round trip for each name.

        Raises:
            ServerRefused: The server refused, for example for lack of permissions.
            redis.exceptions.ConnectionError: The server can't be reached.
            redis.exceptions.TimeoutError: The server does not answer.
        """
        return any(not status.free for status in (await self.status()).values())

    async def status(self) -> dict[str, LockStatus]:
        """Return who holds and who waits for each of the locks. Takes one round trip for each name; changes nothing.

        Returns:
            The status of each name, each at an instant of its own.

        Raises:
            ServerRefused: The server refused, for example for lack of permissions.
            redis.exceptions.ConnectionError: The server can't be reached.
            redis.exceptions.TimeoutError: The server does not answer.
        """
        return {part.name: await self._driver.run(admin.status(part), part.name) for part in self._parts}

    async def force_release(self, *, reason: str = "released by force") -> int:
        """Revoke the leases of all current holders of each lock, and hand over to the next waiters.

        Each former holder is notified at once: its lease is lost, and its ``with`` block raises LeaseLost with the reason.
        That does not undo or stop writes on their way; only a fence that the protected resource checks refuses those.

        Args:
            reason: Text for the holders' LeaseLost and for their logs.

        Returns:
            How many locks were held: a lease of several names counts once for each of them.

        Raises:
            ServerRefused: The server refused, for example for lack of permissions.
            redis.exceptions.ConnectionError: The server can't be reached.
            redis.exceptions.TimeoutError: The server does not answer.
        """
        revoked = [
            await self._driver.run(admin.force_release(part, reason, self._driver.label), part.name)
            for part in self._parts
        ]
        return sum(revoked)

    def _lease(self, state: LeaseState) -> AsyncLeaseOfAll:
        return AsyncLeaseOfAll(self._driver, state, self._on_lost, self.names)
