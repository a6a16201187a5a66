"""A semaphore: so many permits, each held for a time that ends, handed out first come first served."""

from __future__ import annotations

from handfast._api.aio.acquire_context import acquire_context
from handfast._api.aio.inspectable import AsyncInspectable
from handfast._api.aio.lease import AsyncLease
from handfast._api.aio.primitive import AsyncPrimitive
from handfast._drivers.aio.driver import AsyncDriver
from handfast._engine.calls import MAX_PERMITS, PermitRequest
from handfast._engine.validate import check_int, milliseconds
from handfast._protocol import admin
from handfast._protocol.lease import LeaseState
from handfast.records import Duration, OnLost

__all__ = ["AsyncSemaphore"]


class AsyncSemaphore(AsyncInspectable, AsyncPrimitive[AsyncLease]):
    """A named semaphore. The object holds nothing itself: each acquire gives a lease, and tasks may share one semaphore.

    Permits of a holder that dies come back when its lease ends, one holder at a time. Nobody is overtaken: a request for
    many permits that is first in line gets them as they come free, and smaller ones behind it wait.

    Where clients give different limits, each request counts by its own: it is let in when no more permits than that are
    out together with its own. Once somebody has called `resize`, that counts for everybody.
    """

    def __init__(self, driver: AsyncDriver, permits: PermitRequest, on_lost: OnLost) -> None:
        super().__init__(driver, permits, on_lost)
        self._permits = permits

    @property
    def limit(self) -> int:
        """How many permits this object was made for. What counts after a `resize` is in `status`."""
        return self._permits.limit

    @acquire_context
    async def acquire(self, *, permits: int = 1, timeout: Duration | None = None) -> AsyncLease:
        """Wait for so many permits and hold them, all or none: await this, or enter it with ``async with``.

        ``timeout`` is how many seconds to wait, without limit if it is None. Raises AcquireTimeout when they are
        over, QueueFull when the line takes no more, LimitExceeded when the semaphore was resized to fewer permits,
        ServerRefused, ValueError for more permits than the limit, and the client library's connection errors.
        However it ends without a lease, nothing is left behind.
        """
        seconds = None if timeout is None else milliseconds(timeout, "timeout") / 1000
        attempt = self._driver.attempt(self._permits.with_weight(check_int(permits, "permits", self.limit)))
        try:
            return self._lease(await self._driver.acquire(attempt, seconds))
        except BaseException:
            await self._driver.undo(attempt)
            raise

    async def try_acquire(self, *, permits: int = 1) -> AsyncLease | None:
        """Hold so many permits if they are free and nobody waits, else None. One round trip, no waiting.

        Raises LimitExceeded and ValueError as `acquire` does.
        """
        attempt = self._driver.attempt(self._permits.with_weight(check_int(permits, "permits", self.limit)))
        try:
            holding = await self._driver.try_acquire(attempt)
            return None if holding is None else self._lease(holding)
        except BaseException:
            await self._driver.undo(attempt)
            raise

    async def resize(self, limit: int | None) -> None:
        """Set how many permits there are, for all clients, whatever limit they give; None lets theirs count again.

        When there are more, waiters get in at once. When there are fewer, nobody is thrown out: the next ones get in when
        enough have been given back, and who waits for more than there are gets LimitExceeded at its turn, or when it asks
        again. It is remembered for 30 days after a permit was last acquired or renewed. When two clients do this at once,
        the later one counts.
        """
        wanted = 0 if limit is None else check_int(limit, "limit", MAX_PERMITS)
        await self._driver.ask(admin.resize(self._permits, wanted), self.name)

    def _lease(self, holding: LeaseState) -> AsyncLease:
        return AsyncLease(self._driver, holding, self._on_lost)
