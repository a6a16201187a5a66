"""A read-write lock: many readers or one writer, first come first served."""

from __future__ import annotations

from typing import Self
from weakref import WeakSet

from handfast._api import foreign
from handfast._api.aio.inspectable import AsyncInspectable
from handfast._api.aio.lease import AsyncLease
from handfast._api.aio.primitive import AsyncPrimitive
from handfast._api.per_caller import PerCaller
from handfast._drivers.aio.driver import AsyncDriver
from handfast._engine.calls import PermitRequest
from handfast._kinds import MAX_PERMITS
from handfast._protocol.acquire import Attempt
from handfast._protocol.lease import LeaseState
from handfast.arguments import OnLost
from handfast.errors import WouldDeadlock

__all__ = ["AsyncRWLease", "AsyncRWLock", "AsyncReadLock", "AsyncWriteLock"]


class AsyncRWLease(AsyncLease):
    """A lease to read or to write."""

    __slots__ = ("__weakref__", "_entered_by", "_in_block", "_peers", "_read")

    def __init__(
        self,
        driver: AsyncDriver,
        state: LeaseState,
        on_lost: OnLost,
        entered_by: PerCaller[WeakSet[AsyncRWLease]],
        read: PermitRequest,
    ) -> None:
        super().__init__(driver, state, on_lost)
        self._entered_by = entered_by
        self._read = read
        self._in_block = False

    @property
    def writes(self) -> bool:
        """True if it is a lease to write; False after `downgrade`."""
        return isinstance(self._state.request, PermitRequest) and self._state.request.weight == MAX_PERMITS

    async def downgrade(self) -> None:
        """Turn a lease to write into a lease to read, without releasing it in between.

        Waiting readers are granted at once, and no writer gets in between. A lease to read stays as it is. There is no
        upgrade from read to write: two readers that both wanted it would wait for each other. Release the lease to
        read, acquire a lease to write, and read the data again: it may have changed in between.

        Raises:
            LeaseLost: The lease was lost.
            NotHeld: The lease was released.
            ServerRefused: The server refused, for example because it is read-only.
            redis.exceptions.ConnectionError: The server can't be reached. The lease may be of either kind; try again.
            redis.exceptions.TimeoutError: The server does not answer. The lease may be of either kind; try again.
        """
        self.check()
        if self.writes and not await self._driver.downgrade(self._state, self._read):
            self.check()

    @property
    def is_in_block(self) -> bool:
        """True while a ``with`` block of the lease runs and the lease is held: the caller that is in it can't acquire again.

        False in a thread that has suspended the generator whose block it is: another thread may go on with it.
        """
        return self._in_block and not self._state.is_released and not self.lost and not self._suspended()

    def _on_enter(self) -> None:
        caller, tag = self._driver.caller(), self._read.place.tag
        self._peers = self._entered_by.find(caller, tag) or WeakSet()
        self._peers.add(self)
        self._entered_by.set(caller, tag, self._peers)
        self._in_block = True

    async def _leave(self, error: BaseException | None) -> bool:
        self._in_block = False
        return await super()._leave(error)


class _Side(AsyncInspectable, AsyncPrimitive[AsyncRWLease]):
    """A side of a read-write lock: to read, or to write."""

    _request: PermitRequest

    def __init__(
        self,
        driver: AsyncDriver,
        permits: PermitRequest,
        on_lost: OnLost,
        entered_by: PerCaller[WeakSet[AsyncRWLease]],
        read: PermitRequest,
    ) -> None:
        super().__init__(driver, permits, on_lost)
        self._entered_by = entered_by
        self._read = read

    def _like(self, request: PermitRequest) -> Self:
        return type(self)(self._driver, request, self._on_lost, self._entered_by, request.with_weight(1))

    def _lease(self, state: LeaseState) -> AsyncRWLease:
        return AsyncRWLease(self._driver, state, self._on_lost, self._entered_by, self._read)

    def _existing_lease(self, attempt: Attempt, *, waits: bool) -> AsyncRWLease | None:  # noqa: ARG002 -- never returns one
        """Raise WouldDeadlock if the caller would wait here for an enclosing block of its own."""
        mine = self._entered_by.find(self._driver.caller(), self._read.place.tag) if waits else None
        held = [lease for lease in mine or () if lease.is_in_block]
        if held:
            raise WouldDeadlock(self.name, self._in_write if any(lease.writes for lease in held) else self._in_read)
        return None

    _in_read = _in_write = ""
    """Advice for a caller that holds a lease to read, or to write, in an enclosing block."""


class AsyncReadLock(_Side):
    """The read side of a read-write lock: shared with other readers, exclusive of writers.

    Made by `RWLock.read`. Use it like a lock: as a context manager, through `acquire` and `try_acquire`, or as a
    decorator.

    Network errors come from redis-py, as `Handfast` lists them.
    """

    _in_read = "it may read already; a second lease to read could wait behind a writer that waits for the first"
    _in_write = "a writer may read already; use downgrade() to go on as a reader"


class AsyncWriteLock(_Side):
    """The write side of a read-write lock: exclusive of readers and of other writers.

    Made by `RWLock.write`. Use it like a lock: as a context manager, through `acquire` and `try_acquire`, or as a
    decorator.

    Network errors come from redis-py, as `Handfast` lists them.
    """

    _in_read = (
        "there is no upgrade from read to write, since two readers that both wanted it would wait for each other; leave the "
        "block, acquire to write, and read again what may have changed"
    )
    _in_write = "it may write already"


class AsyncRWLock(AsyncInspectable):
    """A named read-write lock: many readers or one writer at a time. Made by the client's ``rwlock()``.

    Readers and writers share one queue, so neither starve: readers next to each other in the queue are granted
    together, a writer is granted when all before it have released, and later readers wait behind it. It is not
    reentrant: acquiring it inside a block that holds it raises WouldDeadlock.

    Network errors come from redis-py, as `Handfast` lists them.

    Example:
        async with hf.rwlock("config").read():
            ...
        async with hf.rwlock("config").write() as lease:
            ...
    """

    _elsewhere = dict.fromkeys(
        ("acquire", "try_acquire", "adopt", *foreign.BLOCKS, *foreign.PERMITS), "use its read() or write()"
    )

    def __init__(
        self,
        driver: AsyncDriver,
        read: PermitRequest,
        write: PermitRequest,
        on_lost: OnLost,
        entered_by: PerCaller[WeakSet[AsyncRWLease]],
    ) -> None:
        self._driver = driver
        self._request = read
        self._reading = AsyncReadLock(driver, read, on_lost, entered_by, read)
        self._writing = AsyncWriteLock(driver, write, on_lost, entered_by, read)

    async def locked(self) -> bool:
        """Return True if anyone holds it, to read or to write, or it is on hold. Takes one round trip.

        Raises:
            ServerRefused: The server refused, for example for lack of permissions.
        """
        status = await self.status()
        return status.free < status.limit

    def read(self) -> AsyncReadLock:
        """Return the read side: shared with other readers. No I/O."""
        return self._reading

    def write(self) -> AsyncWriteLock:
        """Return the write side: exclusive. No I/O."""
        return self._writing
