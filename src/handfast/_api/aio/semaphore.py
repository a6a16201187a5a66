"""A semaphore: a number of permits, each held by lease, first come first served."""

from __future__ import annotations

from typing import Never

from handfast._api.aio.inspectable import AsyncInspectable
from handfast._api.aio.lease import AsyncLease
from handfast._api.aio.primitive import AsyncPrimitive
from handfast._api.aio.scope import acquire_context
from handfast._api.foreign import unknown_options
from handfast._engine.calls import PermitRequest
from handfast._engine.validate import check_int, reply_seconds, wait_seconds
from handfast._kinds import MAX_PERMITS
from handfast._protocol import admin
from handfast._protocol.lease import LeaseState

# sync only: from handfast.arguments import CancelEvent
from handfast.arguments import Duration

__all__ = ["AsyncSemaphore"]


class AsyncSemaphore(AsyncInspectable, AsyncPrimitive[AsyncLease]):
    """A named semaphore: up to ``limit`` permits are held at a time. Made by the client's ``semaphore()``.

    Requests are served first come, first served. A request for many permits at the head of the queue keeps them as they
    come free, and smaller requests behind it wait. Permits of a holder that died are free when its lease ends. The
    object holds nothing itself, so threads or tasks may share it.

    If clients use different limits, each request is judged by its own: it is granted if the permits held, together with
    its own, are at most its limit. After `resize`, that limit counts for all clients.

    Example:
        async with hf.semaphore("api", 10).acquire(permits=2, timeout=5) as lease:
            ...
    """

    _request: PermitRequest

    @property
    def limit(self) -> int:
        """The number of permits that this object was made with. `status` has the limit in force after a `resize`."""
        return self._request.limit

    # sync only, in Args: cancel: An event that ends the wait when it is set, such as a `threading.Event`. It is looked at before
    # sync only, in Args:     anything is sent, and then every 50 ms. A call to a server that does not answer is not
    # sync only, in Args:     interrupted.
    @acquire_context  # asyncio only
    async def acquire(
        self,
        *_args: Never,
        permits: int = 1,
        timeout: Duration | None = None,
        # sync only: cancel: CancelEvent | None = None,
        **_options: Never,
    ) -> AsyncLease:
        """Acquire permits, all of them or none, and wait in the queue until they are free.

        If this raises, is cancelled or is interrupted, neither a lease nor a queue entry remains on the server. If the
        server can't be reached then, they are removed in the background when it answers again.

        Example:
            async with semaphore.acquire(permits=2, timeout=5) as lease:
                ...

        Args:
            permits: How many permits, from 1 to `limit`.
            timeout: Seconds to wait at most: a number or a timedelta. 0 or less does not wait; more than 366 days
                (`math.inf`) waits indefinitely. None takes the timeout that the object was made with.

        Returns:
            The lease of the permits. Enter it with ``with``, or release it when the work is done.

        Raises:
            AcquireTimeout: Others held them, or stood before this request, for the whole ``timeout``.
            AcquireCancelled: Sync API only: ``cancel`` was set.
            QueueFull: The queue has ``max_waiters`` requests already.
            LimitExceeded: The semaphore was resized to fewer permits than requested.
            TypeError: ``permits`` is not an int, or ``timeout`` neither a number nor a timedelta.
            ValueError: ``permits`` or ``timeout`` is out of range.
            ServerRefused: The server is out of memory, read-only, or lacks replicas or permissions.
            redis.exceptions.ConnectionError: The server can't be reached, or not again within the client's
                ``retry_for``.
            redis.exceptions.TimeoutError: The server does not answer.
        """
        if _args or _options:
            raise unknown_options(self.acquire, _args, _options)
        seconds = self._request.timeout if timeout is None else wait_seconds(timeout)
        attempt = self._driver.attempt(self._request.with_weight(check_int(permits, "permits", self.limit)))
        try:
            return self._lease(
                await self._driver.acquire(
                    attempt,
                    seconds,
                    # sync only: cancel,
                )
            )
        except BaseException:
            await self._driver.undo(attempt)
            raise

    async def try_acquire(
        self, *_args: Never, permits: int = 1, timeout: Duration | None = None, **_options: Never
    ) -> AsyncLease | None:
        """Acquire permits if they are free and no one waits. Takes one round trip and does not wait.

        Args:
            permits: How many permits, from 1 to `limit`.
            timeout: Seconds (a number or a timedelta), from 0.001 s to 366 days, for which the server is waited for; it
                has a quarter of a second at least. None takes the ``socket_timeout`` of the client's settings, 5 s by
                default.

        Returns:
            The lease of the permits, or None if they were not acquired.

        Raises:
            LimitExceeded: The semaphore was resized to fewer permits than requested.
            TypeError: ``permits`` is not an int, or ``timeout`` neither a number nor a timedelta.
            ValueError: ``permits`` or ``timeout`` is out of range.
            ServerRefused: The server is out of memory, read-only, or lacks replicas or permissions.
            redis.exceptions.ConnectionError: The server can't be reached. A connection that broke is replaced once.
            redis.exceptions.TimeoutError: The server does not answer.
        """
        if _args or _options:
            raise unknown_options(self.try_acquire, _args, _options)
        seconds = reply_seconds(timeout)
        attempt = self._driver.attempt(self._request.with_weight(check_int(permits, "permits", self.limit)))
        try:
            state = await self._driver.try_acquire(attempt, seconds)
            return None if state is None else self._lease(state)
        except BaseException:
            await self._driver.undo(attempt)
            raise

    async def resize(self, limit: int | None) -> None:
        """Set the number of permits for all clients, regardless of the limits that they use.

        With a larger limit, waiters are granted at once. With a smaller one, holders keep their permits, and waiters
        are granted when enough permits have been released; waiters that request more than the new limit get
        LimitExceeded. The server forgets the limit 30 days after the last acquire or renewal. Of two calls at once, the
        later one counts.

        Args:
            limit: The number of permits, from 1 to 1,000,000,000. None restores the limits that the clients use.

        Raises:
            TypeError: ``limit`` is neither an int nor None.
            ValueError: ``limit`` is out of range.
            ServerRefused: The server is out of memory, read-only, or lacks replicas or permissions.
            redis.exceptions.ConnectionError: The server can't be reached.
            redis.exceptions.TimeoutError: The server does not answer.
        """
        new_limit = 0 if limit is None else check_int(limit, "limit", MAX_PERMITS)
        await self._driver.run(admin.resize(self._request, new_limit, self._driver.label), self.name)

    def _lease(self, state: LeaseState) -> AsyncLease:
        return AsyncLease(self._driver, state, self._on_lost)
