"""A partition: the items of a list are spread over processes, each on a single process."""

# ruff: noqa: SLF001 -- the classes of this module know each other

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self
from weakref import finalize

from handfast._api.aio.items import AsyncChange
from handfast._api.aio.worker import AsyncSettings, AsyncWorker, Serve
from handfast._api.blocks import Entrance
from handfast._api.decorators import awaited_function
from handfast._drivers.aio.looping import AsyncLoop
from handfast._drivers.failures import OWN_ERRORS
from handfast._engine.validate import reply_seconds
from handfast._naming import name_publicly
from handfast._objects import AsyncBlockOnly, Named, PublicObject
from handfast._protocol import grouping
from handfast.arguments import Duration

if TYPE_CHECKING:
    from handfast.records import Member

__all__ = ["AsyncAssignment", "AsyncPartition"]


class AsyncPartition(AsyncBlockOnly, Named):
    """A named partition: each item of a list is on a single worker, and all workers have about as many. Made by ``partition()``.

    When workers join or leave, few items move. After the death of a worker, the items are on others when the leases end.
    Each item has a lock, which the worker of the item holds: so no item is ever on two workers.

    Network errors come from redis-py, as `Handfast` lists them.

    Example:
        async def serve(bot, lease):
            async with connect(bot) as connection:
                async for message in connection:
                    await answer(message, fence=lease.fence)

        await hf.partition("bots", ["a", "b", "c"]).run(serve)
    """

    def __init__(self, settings: AsyncSettings) -> None:
        self._settings = settings
        self._request = settings.place
        self._group = settings.group

    async def run(self, serve: Serve) -> None:
        """Work: join, and call a function for each item of this worker, for as long as the worker lives.

        The function runs as a task for each item; of the sync API in a thread. It gets the item and the lease. When the item
        moves to another worker, or the lease is lost, the task is cancelled; a thread must look: `ItemLease.wanted`,
        `ItemLease.wanted_event`. The next worker begins after the function has ended, cleanup included, or a ttl later.

        If the function returns, the item rests for ``every`` seconds. If it raises, the error is logged, and the function is
        called again after 1, 2, 4 … 60 seconds. If it goes on for a ttl after its lease was lost, it is left alone, and the
        item is served again beside it, on this worker or another. During an outage the worker tries again for as long as
        the process lives, also to join.

        Args:
            serve: Called with the item and its lease.

        Raises:
            TypeError: An item is no str, or the function is of the other API, as in `Election.run`.
            ValueError: An item is out of range or stands twice, or there are more than 10,000.
            ClientClosed: The client was closed.
        """
        serve = awaited_function(serve)
        loop = AsyncLoop(self._settings.driver, "partition", self.name, f"the function for the items of {self.name!r}")
        while True:
            try:
                async with AsyncAssignment(self, serve, await loop.call(self._settings.listed)) as mine:
                    return await mine._worker.until_it_ends()
            except BaseException as error:
                after = loop.after(error)
                if after is None:
                    raise
                pause = after
            await loop.rest(pause)

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
            TypeError: ``timeout`` is neither a number nor a timedelta, or an item is no str.
            ValueError: ``timeout`` is out of range, or items are, as in `run`.
        """
        seconds = reply_seconds(timeout)
        place, driver = self._settings.place, self._settings.driver
        items = await self._settings.listed()
        steps = grouping.owners([place.keyed((item,)) for item in sorted(items)], apart=driver.is_cluster)
        found = await driver.look(steps, self.name, seconds)
        return dict(zip(sorted(items), found, strict=True))


class AsyncAssignment(AsyncBlockOnly, PublicObject):
    """The items of a worker, while the block lasts. Made by `Partition.join`."""

    _instead = "join the partition there"

    def __init__(self, partition: AsyncPartition, serve: Serve | None, items: frozenset[str] | None = None) -> None:
        self._name = partition.name
        self._make_worker = partial(AsyncWorker, partition._settings, serve, items)
        self._worker = self._make_worker()
        self._entrance = Entrance(self, "call join() for another")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._name!r}, {len(self.items())} items>"

    def items(self) -> frozenset[str]:
        """Return the held items. No I/O."""
        held = [*self._worker.held.values()]
        return frozenset(item for item, lease in held if not (lease._released or lease.lost))

    async def changes(self) -> AsyncIterator[AsyncChange]:
        """Yield each item which this worker gets, with the lease, or must give up, with None. For a single reader.

        After None, stop the work and release the lease of the item: until then no other worker has it. A ttl later the
        lease is lost.

        Returns:
            An iterator, which is asynchronous in the asyncio API.
        """
        while (change := await self._worker.changes.get()) is not None:
            yield change
        self._worker.check()

    async def __aenter__(self) -> Self:
        self._entrance.claim()
        worker = self._worker
        try:
            finalize(self, worker.abandon).atexit = False  # for the points at which leaving can't be guarded
            await worker.start()
        except BaseException as error:  # no further thread can be started, for example
            self._worker = self._make_worker()
            self._entrance.reopen()
            await worker.leave(error, waits=False)
            raise
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self._worker.leave(exc)
        except OWN_ERRORS:
            raise
        except BaseException as interrupt:
            await self._worker.leave(interrupt, waits=False)
            raise


name_publicly(globals(), "handfast")
