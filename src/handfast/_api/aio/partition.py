"""A partition: the items of a list are spread over processes, each on a single process."""

# ruff: noqa: SLF001 -- the classes of this module know each other

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from inspect import isawaitable
from math import inf
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeAlias

from handfast._api.aio.group import AsyncGroup
from handfast._api.aio.lease import AsyncLease
from handfast._api.aio.primitive import AsyncPrimitive
from handfast._drivers import log
from handfast._drivers.aio.cleanup import may_wait  # asyncio only
from handfast._drivers.aio.driver import AsyncDriver
from handfast._drivers.aio.jobs import AsyncJob, AsyncMailbox
from handfast._drivers.clock import monotonic
from handfast._drivers.failures import OWN_ERRORS
from handfast._engine.calls import PermitRequest
from handfast._engine.keys import KeySet
from handfast._engine.options import LeaseOptions
from handfast._engine.validate import reply_seconds
from handfast._naming import name_publicly
from handfast._objects import AsyncBlockOnly, Named, PublicObject
from handfast._protocol import assigning, grouping
from handfast._protocol.lease import LeaseState
from handfast.arguments import AsyncItems, Duration, OnLost
from handfast.errors import AcquireCancelled, ClientClosed, LeaseLost

if TYPE_CHECKING:
    from handfast.records import Member

__all__ = ["AsyncAssignment", "AsyncChange", "AsyncItemLease", "AsyncPartition"]

Serve: TypeAlias = "Callable[[str, AsyncItemLease], Awaitable[object]]"

MOVES_PER_PERIOD = 10
"""Items that a worker gives up in each period at least; all are given up within a period. The first worker waits for others
for as long as a single move takes."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
"""Seconds for which an item rests after a failure of the function. The pause doubles with each failure."""

QUICK = 20_000
"""Items times members above which the assignment is computed in a thread."""


class AsyncItemLease(AsyncLease):
    """The lease of an item of a partition. The function which serves the item gets it.

    Example:
        async def serve(item, lease):
            while not lease.wanted:
                await poll(item, fence=lease.fence)
    """

    __slots__ = ("_ended", "_wanted")

    _stays: ClassVar[str] = "the worker of the item releases it"

    def __init__(self, driver: AsyncDriver, state: LeaseState, on_lost: OnLost) -> None:
        super().__init__(driver, state, on_lost)
        self._wanted, self._ended = asyncio.Event(), asyncio.Event()
        self._on_loss(self._end)

    @property
    def wanted(self) -> str | None:
        """Why the work must stop: the item is assigned to another worker, or the lease has ended. None while it goes on.

        Takes no I/O. If the worker does not stop, it loses the lease a ``ttl`` later.
        """
        if not (self.lost or self._wanted.is_set()):
            return None
        return self._state.loss or "the item is assigned to another worker"

    @property
    def wanted_event(self) -> asyncio.Event:
        """An event that is set when the work must stop, for work to wait for."""
        return self._wanted

    async def release(self) -> bool:
        """Release the lease and hand it to the next waiter.

        Returns:
            True if this call released the lease; False if it was lost or released before.

        Raises:
            ServerRefused: The server refused, for example because it is read-only.
            redis.exceptions.ConnectionError: The server can't be reached.
            redis.exceptions.TimeoutError: The server does not answer.
        """
        self._end()
        return await super().release()

    def _end(self) -> None:
        self._wanted.set()
        self._ended.set()

    def _want(self) -> None:
        """Ask the holder to stop. If the holder goes on, the lease ends a ttl later."""
        self._state.end_within(self._state.request.ttl_ms / 1000, monotonic())
        self._wanted.set()


class AsyncChange(NamedTuple):
    """An item which this worker gets or must give up."""

    item: str
    lease: AsyncItemLease | None
    """The lease of an item which this worker gets. None for an item to be given up: stop the work, and release the lease of
    the item."""


class _Item(AsyncPrimitive[AsyncItemLease]):
    """The lock of an item."""

    def _lease(self, state: LeaseState) -> AsyncItemLease:
        return AsyncItemLease(self._driver, state, self._on_lost)


class AsyncPartition(AsyncBlockOnly, Named):
    """A named partition: each item of a list is on a single worker, and all workers have about as many. Made by ``partition()``.

    When workers join or leave, few items move. After the death of a worker, the items are on others when the leases end.
    Each item has a lock, which the worker of the item holds: so no item is ever on two workers.

    Example:
        async def serve(bot, lease):
            async with connect(bot) as connection:
                async for message in connection:
                    await answer(message, fence=lease.fence)

        await hf.partition("bots", ["a", "b", "c"]).run(serve)
    """

    def __init__(self, driver: AsyncDriver, place: KeySet, options: LeaseOptions, settings: Settings) -> None:
        self._driver = driver
        self._options = options
        self._settings = settings
        self._request = self._place = place
        self._group = AsyncGroup(driver, grouping.request(place, options), "warn")

    async def run(self, serve: Serve) -> None:
        """Work: join, and call a function for each item of this worker, for as long as the worker lives.

        The function runs as a task for each item; of the sync API in a thread. It gets the item and the lease. When the item
        moves to another worker, or the lease is lost, the task is cancelled; a thread must look: `ItemLease.wanted`,
        `ItemLease.wanted_event`. The next worker begins after the function has ended, cleanup included, or a ttl later.

        If the function returns, the item rests for ``every`` seconds. If it raises, the error is logged, and the function is called again
        after 1, 2, 4 … 60 seconds.

        Args:
            serve: Called with the item and its lease.

        Raises:
            TypeError: An item is no str.
            ValueError: An item is out of range or stands twice, or there are more than 10,000.
            ServerRefused: The server is out of memory, read-only, or lacks permissions.
            redis.exceptions.ConnectionError: The server can't be reached, or not again within the client's
                ``retry_for``.
            redis.exceptions.TimeoutError: The server does not answer.
        """
        async with AsyncAssignment(self, serve) as mine:
            await mine._until_it_ends()

    def join(self) -> AsyncAssignment:
        """Join, and work on the items of this worker by hand. No I/O before the block is entered.

        Example:
            async with bots.join() as mine:
                async for item, lease in mine.changes():
                    ...

        Returns:
            The assignment, a block. At the end all leases are released.
        """
        return AsyncAssignment(self, None)

    async def owners(self, *, timeout: Duration | None = None) -> dict[str, Member | None]:
        """Return who works on each item; None for an item without a worker. Takes a round trip for each 25 items.

        Args:
            timeout: Seconds (a number or a timedelta), from 0.001 s to 366 days, for which the server is waited for; it
                has a quarter of a second at least. None takes the ``socket_timeout`` of the client's settings, 5 s by
                default.

        Raises:
            ServerRefused: The server refused, for example for lack of permissions.
            redis.exceptions.ConnectionError: The server can't be reached. A connection that broke is replaced once.
            redis.exceptions.TimeoutError: The server does not answer.
            TypeError: ``timeout`` is neither a number nor a timedelta, or an item is no str.
            ValueError: ``timeout`` is out of range, or items are, as in `run`.
        """
        seconds = reply_seconds(timeout)
        items = await self._items()
        steps = grouping.owners([self._place.keyed((item,)) for item in sorted(items)], apart=self._driver.is_cluster)
        found = await self._driver.look(steps, self.name, seconds)
        return dict(zip(sorted(items), found, strict=True))

    async def _items(self) -> frozenset[str]:
        items = self._settings.items
        found: Any = items() if callable(items) else items
        if isawaitable(found):  # asyncio only
            found = await found  # asyncio only
        return assigning.check_items(found)

    def _lock_of(self, item: str) -> _Item:
        request = PermitRequest(self._place.keyed((item,)), self._options)
        return _Item(self._driver, request, "raise")


class Settings(NamedTuple):
    """The settings of a partition."""

    items: AsyncItems
    """Checked, unless it is a function."""
    every: float
    """Seconds between two looks at the items."""
    value: str
    most: int | None


class AsyncAssignment(AsyncBlockOnly, PublicObject):
    """The items of a worker, while the block lasts. Made by `Partition.join`.

    A coordinator follows the members and the items. For each item of this worker, a job stands in the queue of the
    item's lock and has the item served.
    """

    _instead = "join the partition there"

    def __init__(self, partition: AsyncPartition, serve: Serve | None) -> None:
        self._partition = partition
        self._serve: Serve = serve or self._offer
        self._is_by_hand = serve is None
        self._jobs: dict[str, AsyncJob] = {}
        """By item: jobs which are to go on."""
        self._ending: dict[AsyncJob, None] = {}
        """Jobs which are to stop. Each is added here before it is removed from ``_jobs``: leaving the block waits for all."""
        self._held: dict[AsyncJob, tuple[str, AsyncItemLease]] = {}
        self._changes: AsyncMailbox[AsyncChange | None] = AsyncMailbox()
        self._has_begun = self._is_over = False
        self._error: BaseException | None = None
        """The error with which the coordinator ended."""
        self._move_at, self._gap = 0.0, 0.0
        """When the next item may be given up, and seconds between two items."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._partition.name!r}, {len(self.items())} items>"

    def items(self) -> frozenset[str]:
        """Return the held items. No I/O."""
        return frozenset(item for item, lease in [*self._held.values()] if not (lease._released or lease.lost))

    async def changes(self) -> AsyncIterator[AsyncChange]:
        """Yield each item which this worker gets, with the lease, or must give up, with None. For a single reader.

        After None, stop the work and release the lease of the item: until then no other worker has it. A ttl later the
        lease is lost.

        Returns:
            An iterator, which is asynchronous in the asyncio API.
        """
        while (change := await self._changes.get()) is not None:
            yield change
        self._raise()

    async def __aenter__(self) -> Self:
        partition = self._partition
        if self._has_begun:
            raise RuntimeError(f"{self!r} can be entered once; call join() for another")
        items = await partition._items()
        self._member = await partition._group.join(value=partition._settings.value)
        try:
            self._coordinator = AsyncJob(self._coordinate, items)
        except BaseException:  # no further thread can be started
            await self._member.release()
            raise
        self._has_begun = True
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_over = True
        self._coordinator.stop()
        try:
            with contextlib.suppress(*OWN_ERRORS):  # then it is released in the background, or ends with the ttl
                await self._member._leave(exc)  # first: others then stand in the queues of the items
        finally:
            for job in [*self._jobs.values()]:
                self._stop(job)
        if not may_wait(exc):  # asyncio only
            return  # asyncio only
        patience = monotonic() + self._partition._options.ttl_ms / 1000
        for job in [*self._ending]:
            await job.wait(max(0.0, patience - monotonic()))

    async def _until_it_ends(self) -> None:
        await self._coordinator.wait()
        self._raise()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    # --- the coordinator

    async def _coordinate(self, job: AsyncJob, items: frozenset[str]) -> None:
        """Follow members and items until the end."""
        try:
            await self._follow(job, items)
        except BaseException as error:  # noqa: BLE001 -- the block raises it
            if not job.stopping:
                self._error = error
        finally:
            self._changes.put_nowait(None)

    async def _follow(self, job: AsyncJob, items: frozenset[str]) -> None:
        """Follow members and items. Errors are logged, and tried again; jobs go on meanwhile."""
        partition = self._partition
        every = partition._settings.every
        mine, seen, begins = frozenset[str](), (frozenset[int](), frozenset[str]()), True
        known, fences = grouping.NOTHING, frozenset[int]()
        look_at, until = monotonic() + every, -inf
        while not job.stopping:
            try:
                if self._member.lost:
                    self._member = await partition._group.join(value=partition._settings.value)
                    # sync only: if self._is_over:
                    # sync only:     self._member.release()
                known, members = await partition._group._following(known, until)
                if members is not None:
                    fences = frozenset(one.fence for one in members)
                    if begins:  # so that workers which start together share the items from the beginning
                        begins = False
                        oldest = max((member.joined_for for member in members), default=0.0)
                        await job.sleep(max(0.0, every / MOVES_PER_PERIOD - oldest))
                        continue
                elif (left := until - monotonic()) > 0:
                    await job.sleep(left)  # there is no server
                if monotonic() >= look_at:
                    look_at = monotonic() + every
                    items = await partition._items()
                everyone = fences | {self._member.fence}
                if (everyone, items) != seen:
                    mine = await self._assigned(everyone, items)
                    seen = everyone, items
                    self._gap = every / max(MOVES_PER_PERIOD, len(self._jobs.keys() - mine))
                until = min(look_at, self._settle(job, mine, items))
            except ClientClosed:
                raise
            except Exception as error:  # noqa: BLE001 -- of the server, of the user's function, or no thread can be started
                log.partition_failed(partition.name, error, FIRST_PAUSE_S)
                await job.sleep(FIRST_PAUSE_S)

    async def _assigned(self, members: frozenset[int], items: frozenset[str]) -> frozenset[str]:
        """Return the items of this worker."""
        compute = partial(assigning.assigned, members, items, self._partition._settings.most)
        if len(members) * len(items) > QUICK:  # asyncio only
            found = await asyncio.to_thread(compute)  # asyncio only
        else:  # asyncio only
            found = compute()  # asyncio only
        # sync only: found = compute()
        return frozenset(item for item, member in found.items() if member == self._member.fence)

    def _settle(self, coordinator: AsyncJob, mine: frozenset[str], items: frozenset[str]) -> float:
        """Start and stop jobs, and return when the next item is to be given up."""
        for ended in [one for one in [*self._ending] if one.done]:
            self._ending.pop(ended, None)
        for item in sorted(mine):
            job = self._jobs.get(item)
            if coordinator.stopping:
                return inf
            if job is None or job.done:
                self._jobs[item] = AsyncJob(self._hold, item)
        others = [(item, job) for item, job in self._jobs.items() if item not in mine]
        for item, job in others:
            is_waiting = job not in self._held
            if is_waiting or item not in items or monotonic() >= self._move_at:
                if item in items and not is_waiting:
                    self._move_at = monotonic() + self._gap
                self._stop(job)
                del self._jobs[item]
        return self._move_at if self._jobs.keys() - mine else inf

    def _stop(self, job: AsyncJob) -> None:
        """Tell a job to stop. By hand the reader of `changes` has the item for as long as the lease lasts."""
        self._ending[job] = None
        _, lease = self._held.get(job, ("", None))
        if lease is not None:
            lease._want()
            if self._is_over and self._is_by_hand:
                lease._end()
            elif self._is_by_hand:
                job.ask()
                return
        job.stop()

    # --- the job of an item

    async def _hold(self, job: AsyncJob, item: str) -> None:
        """Stand in the queue of an item, and have it served, until the item is assigned to another."""
        partition, pause = self._partition, FIRST_PAUSE_S
        while not (job.stopping or self._is_over):
            rest, lease, has_served = partition._settings.every, None, False
            try:
                async with (
                    partition._lock_of(item).acquire(
                        # sync only: cancel=job.stopped,
                    ) as lease
                ):
                    self._held[job] = item, lease
                    # sync only: if job.stopping:
                    # sync only:     lease._want()
                    # sync only: if self._is_over and self._is_by_hand:  # `_stop` has not seen the lease
                    # sync only:     lease._end()
                    try:
                        await self._serve(item, lease)
                        pause, has_served = FIRST_PAUSE_S, True
                    finally:
                        del self._held[job]
            except ClientClosed:
                return
            except Exception as error:  # noqa: BLE001 -- a user's function may raise anything
                if isinstance(error, AcquireCancelled) and lease is None:
                    return
                if isinstance(error, LeaseLost) and lease is not None and lease.lost:
                    rest = 0.0
                elif lease is None or has_served:
                    log.partition_failed(partition.name, error, FIRST_PAUSE_S)
                    rest = FIRST_PAUSE_S
                else:
                    log.serve_failed(partition.name, item, error, pause)
                    rest, pause = pause, min(LONGEST_PAUSE_S, 2 * pause)
            if not job.stopping:
                await job.sleep(rest)

    async def _offer(self, item: str, lease: AsyncItemLease) -> None:
        """Leave an item to the reader of `changes`, until the lease ends."""
        self._changes.put_nowait(AsyncChange(item, lease))
        try:
            await lease.wanted_event.wait()
        finally:
            self._changes.put_nowait(AsyncChange(item, None))
        await lease._ended.wait()


name_publicly(globals(), "handfast")
