# Made by tools/unasync.py from _api/aio/rwlock.py: edit that one, then run the tool.
"""A read-write lock: many readers or one writer, in the order in which they came."""

from __future__ import annotations

from weakref import WeakSet

from handfast._api.per_caller import PerCaller
from handfast._api.sync.inspectable import Inspectable
from handfast._api.sync.lease import Lease
from handfast._api.sync.primitive import Primitive
from handfast._drivers.sync.driver import SyncDriver
from handfast._engine.calls import MAX_PERMITS, PermitRequest
from handfast._protocol.acquire import Attempt
from handfast._protocol.lease import LeaseState
from handfast.errors import WouldDeadlock
from handfast.records import OnLost

__all__ = ["RWLease", "RWLock", "ReadLock", "WriteLock"]


class RWLease(Lease):
    """A lease to read or to write."""

    __slots__ = ("__weakref__", "_callers", "_in_block", "_peers", "_read")

    def __init__(
        self,
        driver: SyncDriver,
        holding: LeaseState,
        on_lost: OnLost,
        callers: PerCaller[WeakSet[RWLease]],
        read: PermitRequest,
    ) -> None:
        super().__init__(driver, holding, on_lost)
        self._callers = callers
        self._read = read
        self._in_block = False

    @property
    def writes(self) -> bool:
        """Whether it is a lease to write; not any more after `downgrade`."""
        return isinstance(self._holding.permits, PermitRequest) and self._holding.permits.weight == MAX_PERMITS

    def downgrade(self) -> None:
        """Go on as a reader, with the same lease: no writer gets in between, waiting readers get in at once.

        A lease to read stays one. Raises LeaseLost, NotHeld, ServerRefused, and the client library's connection errors:
        then it is either, and may be downgraded again.

        The other way, from read to write, there is none: two readers that both wanted it would wait for each other. Release
        the lease to read, acquire one to write, and look again at what was read: it may have changed in between.
        """
        self.check()
        if self.writes and not self._driver.lower(self._holding, self._read):
            self.check()

    @property
    def is_in_block(self) -> bool:
        """Whether a block is being run that holds it."""
        return self._in_block and not self._holding.given_up and not self.lost

    def _enter(self) -> None:
        caller, tag = self._driver.caller(), self._read.place.tag
        self._peers = self._callers.find(caller, tag) or WeakSet()
        self._peers.add(self)
        self._callers.note(caller, tag, self._peers)
        self._in_block = True

    def _leave(self, error: BaseException | None) -> bool:
        self._in_block = False
        return super()._leave(error)


class _Side(Inspectable, Primitive[RWLease]):
    """One of the two ways to hold a read-write lock."""

    def __init__(
        self,
        driver: SyncDriver,
        permits: PermitRequest,
        on_lost: OnLost,
        callers: PerCaller[WeakSet[RWLease]],
        read: PermitRequest,
    ) -> None:
        super().__init__(driver, permits, on_lost)
        self._permits = permits
        self._callers = callers
        self._read = read

    def _lease(self, holding: LeaseState) -> RWLease:
        return RWLease(self._driver, holding, self._on_lost, self._callers, self._read)

    def _again(self, attempt: Attempt, *, waits: bool) -> RWLease | None:  # noqa: ARG002 -- nothing is given
        """Never anything; but who is in a block of this lock can't leave it while it waits here."""
        mine = self._callers.find(self._driver.caller(), self._read.place.tag) if waits else None
        held = [lease for lease in mine or () if lease.is_in_block]
        if held:
            raise WouldDeadlock(self.name, self._in_write if any(lease.writes for lease in held) else self._in_read)
        return None

    _in_read = _in_write = ""
    """What to do instead, in a block that holds it to read or to write."""


class ReadLock(_Side):
    """To read: together with other readers, and with no writer."""

    _in_read = "it may read already, and a second read could wait behind a writer that waits for the first"
    _in_write = "who writes may read already, and downgrade() goes on as a reader"


class WriteLock(_Side):
    """To write: alone."""

    _in_read = (
        "there is no upgrade from read to write, since two readers that both wanted it would wait for each other; leave the "
        "block, acquire to write, and look again at what was read"
    )
    _in_write = "it may write already"


class RWLock(Inspectable):
    """A named read-write lock. `read` and `write` are what can be acquired, entered and used as decorators.

    Both stand in one line: readers that stand side by side get in together, a writer gets in when those before it are done,
    and whoever comes after a writer waits behind it. So neither starves. It is not reentrant: who is in a block of it and
    wants to acquire it again gets WouldDeadlock.
    """

    def __init__(
        self,
        driver: SyncDriver,
        read: PermitRequest,
        write: PermitRequest,
        on_lost: OnLost,
        callers: PerCaller[WeakSet[RWLease]],
    ) -> None:
        self._driver = driver
        self._permits = read
        self._reading = ReadLock(driver, read, on_lost, callers, read)
        self._writing = WriteLock(driver, write, on_lost, callers, read)

    def locked(self) -> bool:
        """Whether anybody holds it right now, to read or to write."""
        return bool(self.status().holders)

    def read(self) -> ReadLock:
        """To share it with other readers."""
        return self._reading

    def write(self) -> WriteLock:
        """To have it alone."""
        return self._writing
