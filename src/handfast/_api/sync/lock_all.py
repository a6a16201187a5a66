# Generated from _api/aio/lock_all.py by tools/unasync.py: edit that file and run the tool.
"""Several locks at once: all of them or none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from handfast._api.sync.lease import Lease
from handfast._api.sync.primitive import Primitive
from handfast._drivers.sync.driver import SyncDriver
from handfast._engine.calls import MultiRequest
from handfast._engine.validate import check_reason, reply_seconds
from handfast._protocol import admin
from handfast._protocol.lease import LeaseState
from handfast.arguments import Duration, OnLost

if TYPE_CHECKING:
    from handfast.records import LockStatus

__all__ = ["LeaseOfAll", "LockAll"]


class LeaseOfAll(Lease):
    """A single lease of several locks. If any of the locks is lost, the lease is lost, and its end releases the others.

    In a cluster, the locks of each slot have a token and a fence of their own: ``token`` has all tokens, separated by
    commas, and ``fence`` is the smallest fence. Use `fences` there.
    """

    __slots__ = ("_names",)

    _instead = "acquire the names there"

    _stays = "it is of several locks; use lock() for each"

    def __init__(self, driver: SyncDriver, state: LeaseState, on_lost: OnLost, names: tuple[str, ...]) -> None:
        super().__init__(driver, state, on_lost)
        self._names = names

    @property
    def fences(self) -> dict[str, int]:
        """The fencing token of each name, larger than any before.

        On a single server, or within a slot, the tokens are the same.
        """
        found = {name: part.fence for part in self._state.parts for name in part.request.names}
        return {name: found[name] for name in self._names}


class LockAll(Primitive[LeaseOfAll]):
    """The locks of several names, acquired together. Made by the client's ``lock_all()``.

    They are granted in one step, when all of them are free and this request is the first in the queue of each. Nothing
    is held before, so callers that name the same locks in different orders can't deadlock. The request stands in the
    queues of the single locks, and requests behind it wait even if only another name of the request is taken. The
    object holds nothing itself, so threads or tasks may share it.

    In a cluster, one step takes the locks of a single slot. The slots are taken one after the other, in an order that
    all callers share, so these can't deadlock either. Taken locks stay taken while the request waits for the next
    locks. They are released if it does not get the next locks. They are also released if any taken lock is lost
    meanwhile: then ``acquire`` raises LeaseLost. ``try_acquire`` takes a round trip for each slot. A namespace in
    braces has all names in a single slot.

    Network errors come from redis-py, as `Handfast` lists them.

    Example:
        with hf.lock_all(["account:1", "account:2"]) as lease:
            ...
    """

    _adopts = False

    def __init__(self, driver: SyncDriver, request: MultiRequest, on_lost: OnLost) -> None:
        super().__init__(driver, request, on_lost)
        self._parts = request.parts

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(map(repr, self.names))}>"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the locks, without repetitions, in the order in which they were given."""
        return self._request.names

    def locked(self) -> bool:
        """Return True if any of the locks is held or on hold. Takes a round trip for each name.

        Raises:
            ServerRefused: The server refused, for example for lack of permissions.
        """
        return any(not status.free for status in self.status().values())

    def status(self, *, timeout: Duration | None = None) -> dict[str, LockStatus]:
        """Return who holds and who waits for each of the locks. Takes a round trip for each name; changes nothing.

        Args:
            timeout: Seconds (a number or a timedelta), from 0.001 s to 366 days, for which the server is waited for; it
                has a quarter of a second at least. None takes the ``socket_timeout`` of the client's settings, 5 s by
                default.

        Returns:
            The status of each name, each at an instant of its own.

        Raises:
            ServerRefused: The server refused, for example for lack of permissions.
            TypeError: ``timeout`` is neither a number nor a timedelta.
            ValueError: ``timeout`` is out of range.
        """
        return self._driver.look(admin.statuses(self._request), self._request.name, reply_seconds(timeout))

    def force_release(self, *, reason: str = "released by force") -> int:
        """Revoke the leases of all current holders of each lock, and hand over to the next waiters.

        Each former holder is notified at once: the lease is lost, and the ``with`` block raises LeaseLost with the
        reason. Writes on their way are neither undone nor stopped; only a fence checked by the protected resource
        refuses them.

        Args:
            reason: Text for the holders' LeaseLost and for their logs; 1 to 1,000 bytes of UTF-8.

        Returns:
            How many locks were held: a lease of several names counts once for each of them.

        Raises:
            TypeError: ``reason`` is no str.
            ValueError: ``reason`` is empty or too long.
            ServerRefused: The server refused, for example for lack of permissions.
        """
        why = check_reason(reason)
        revoked = [
            self._driver.run(admin.force_release(part, why, self._driver.label), part.name) for part in self._parts
        ]
        return sum(revoked)

    def _lease(self, state: LeaseState) -> LeaseOfAll:
        return LeaseOfAll(self._driver, state, self._on_lost, self.names)
