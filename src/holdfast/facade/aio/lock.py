"""A lock: one holder at a time, first come first served."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from holdfast.drivers.aio.driver import AsyncDriver
from holdfast.facade.aio.entering import enterable
from holdfast.facade.aio.lease import AsyncLease, OnLost
from holdfast.facade.wrapping import require_coroutine_function
from holdfast.protocol import looking
from holdfast.wire.permits import Permits
from holdfast.words.durations import Duration, milliseconds
from holdfast.words.records import LockStatus

__all__ = ["AsyncLock"]

P = ParamSpec("P")
R = TypeVar("R")


class AsyncLock:
    """A named lock. The object holds nothing itself: each acquire gives a lease, and tasks may share one lock."""

    def __init__(self, driver: AsyncDriver, permits: Permits, on_lost: OnLost) -> None:
        self._driver = driver
        self._permits = permits
        self._on_lost = on_lost
        self._entered: dict[object, list[AsyncLease]] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    @property
    def name(self) -> str:
        """What is locked."""
        return self._permits.name

    @enterable
    async def acquire(self, *, timeout: Duration | None = None) -> AsyncLease:
        """Wait for the lock and hold it: await this, or enter it with ``async with``.

        ``timeout`` is how many seconds to wait, without limit if it is None. Raises AcquireTimeout when they are
        over, QueueFull when the line takes no more, ServerRefused, and the client library's connection errors.
        However it ends without a lease, nothing is left behind.
        """
        seconds = None if timeout is None else milliseconds(timeout, "timeout") / 1000
        attempt = self._driver.attempt(self._permits)
        try:
            return AsyncLease(self._driver, await self._driver.acquire(attempt, seconds), self._on_lost)
        except BaseException:
            await self._driver.undo(attempt)
            raise

    async def try_acquire(self) -> AsyncLease | None:
        """Hold the lock if it is free and nobody waits for it, else None. One round trip, no waiting."""
        attempt = self._driver.attempt(self._permits)
        try:
            holding = await self._driver.try_acquire(attempt)
            return None if holding is None else AsyncLease(self._driver, holding, self._on_lost)
        except BaseException:
            await self._driver.undo(attempt)
            raise

    async def locked(self) -> bool:
        """Whether anybody holds the lock right now."""
        return bool((await self.status()).holders)

    async def status(self) -> LockStatus:
        """Who holds the lock and who waits for it. One round trip; changes nothing."""
        return await self._driver.ask(looking.status(self._permits), self.name)

    async def force_release(self, *, reason: str = "released by force") -> int:
        """Take the lock away from whoever holds it now; how many leases that ended.

        The holder learns it at once as LeaseLost with this reason, and the next waiter gets in. The holder's work is
        not stopped by this: only a fence that the protected resource checks keeps its late writes out.
        """
        return await self._driver.ask(looking.force_release(self._permits, reason), self.name)

    async def __aenter__(self) -> AsyncLease:
        attempt = self._driver.attempt(self._permits)
        try:
            lease = AsyncLease(self._driver, await self._driver.acquire(attempt, None), self._on_lost)
            self._entered.setdefault(self._driver.caller(), []).append(lease)
            return await lease.__aenter__()
        except BaseException:
            await self._driver.undo(attempt)
            raise

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._leave().__aexit__(exc_type, exc, traceback)

    def _leave(self) -> AsyncLease:
        """The lease of the block that is being left.

        Nearly always it was entered by this task. A framework may leave it in another one, though; then the block that
        was entered first elsewhere must do.
        """
        mine = self._driver.caller()
        for caller in (mine, *self._entered):
            leases = self._entered.get(caller)
            if leases:
                lease = leases.pop(-1 if caller == mine else 0)
                if not leases:
                    self._entered.pop(caller, None)
                return lease
        raise RuntimeError(f"a block of {self!r} is left that was never entered")

    def __call__(self, function: Callable[P, Awaitable[R]]) -> Callable[P, Coroutine[Any, Any, R]]:
        """Decorate a function to hold the lock, a new lease each time, while it runs."""
        require_coroutine_function(function)

        @functools.wraps(function)
        async def holding(*args: P.args, **kwargs: P.kwargs) -> R:
            async with self:
                return await function(*args, **kwargs)

        return holding
