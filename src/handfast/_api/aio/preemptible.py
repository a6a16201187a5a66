"""Ways to acquire before others: take the place of those who wait, and have the holder end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Never, Self, TypeVar

from handfast._api.aio.lease import AsyncLease
from handfast._api.aio.primitive import AsyncPrimitive
from handfast._api.aio.scope import acquire_context
from handfast._api.foreign import unknown_options
from handfast._engine.calls import PermitRequest

# sync only: from handfast._engine.validate import check_cancel
from handfast._engine.validate import check_reason, grace_milliseconds, wait_seconds
from handfast._protocol.overtaking import AHEAD_US, NO_GRACE, Overtaking

# sync only: from handfast.arguments import CancelEvent
from handfast.arguments import Duration, OnBusy

__all__ = ["AsyncPreemptible"]

L = TypeVar("L", bound=AsyncLease)


class AsyncPreemptible(AsyncPrimitive[L]):
    """A primitive with a single holder, whose requests may take the place of earlier ones."""

    _request: PermitRequest

    # sync only, in Args: cancel: An event that ends the wait when it is set, such as a `threading.Event`. It is looked at before
    # sync only, in Args:     anything is sent, and then every 50 ms. A call to a server that does not answer is not
    # sync only, in Args:     interrupted.
    @acquire_context  # asyncio only
    async def preempt(
        self,
        *_args: Never,
        grace: Duration = 5.0,
        reason: str = "a later request",
        timeout: Duration | None = None,
        # sync only: cancel: CancelEvent | None = None,
        **_options: Never,
    ) -> L:
        """Acquire it before all others: ask the holder to end, wait for that, and take the lease if it does not.

        The holder has ``grace`` seconds, in which code to clean up runs under the lease. In the asyncio API the
        holder's block is cancelled and raises Preempted; in the sync API `Lease.check` raises it, and `Lease.wanted`
        says so. If the holder has not ended then, its lease is lost; no later holder's is. Of several calls the newest
        is next, and the older ones raise Superseded. Requests that wait in `acquire` keep their places. The first of
        several calls sets the end: later calls do not prolong the time of a holder that does not react.

        If this raises, is cancelled or is interrupted, neither a lease nor a queue entry remains on the server. A holder
        that was asked before ends all the same.

        Example:
            async with hf.lock(f"turn:{conversation}").preempt(grace=5, reason="a new message"):
                ...

        Args:
            grace: Seconds that the holder has: a number or a timedelta, from 0 to 366 days. 0 takes the lease at once.
            reason: Why, for the holder: 1 to 1,000 bytes of UTF-8.
            timeout: Seconds to wait at most: a number or a timedelta. 0 or less neither waits nor asks; more than 366
                days (`math.inf`) waits indefinitely. None takes the timeout of the object.

        Returns:
            The lease. Enter it with ``with``, or release it when the work is done.

        Raises:
            Superseded: A later call of `preempt` or `replace` took the place of this call.
            AcquireTimeout: The holder did not end within the ``timeout``.
            AcquireCancelled: Sync API only: ``cancel`` was set.
            WouldDeadlock: The caller holds it in an enclosing block. The holder is not asked.
            ServerRefused: The server is out of memory, read-only, or lacks replicas or permissions.
            TypeError: ``grace`` or ``timeout`` is neither a number nor a timedelta, ``reason`` is no str, or it is a
                semaphore with more than one permit.
            ValueError: ``grace``, ``reason`` or ``timeout`` is out of range.
        """
        if _args or _options:
            raise unknown_options(self.preempt, _args, _options)
        # sync only: if cancel is not None:
        # sync only:     check_cancel(cancel)
        seconds = self._request.timeout if timeout is None else wait_seconds(timeout)
        overtaking = Overtaking(grace_milliseconds(grace), self._driver.label, check_reason(reason))
        attempt = self._driver.attempt(self._alone().overtaking(AHEAD_US))
        attempt.overtaking = overtaking
        try:
            return self._lease(
                await self._driver.acquire(
                    attempt,
                    seconds,
                    # sync only: cancel,
                )
            )
        except BaseException as error:
            await self._driver.undo(attempt, error)
            raise

    # sync only, in Args: cancel: An event that ends the wait when it is set, such as a `threading.Event`. It is looked at before
    # sync only, in Args:     anything is sent, and then every 50 ms. A call to a server that does not answer is not
    # sync only, in Args:     interrupted.
    @acquire_context  # asyncio only
    async def replace(
        self,
        *_args: Never,
        timeout: Duration | None = None,
        # sync only: cancel: CancelEvent | None = None,
        **_options: Never,
    ) -> L:
        """Acquire it in place of all who wait: their calls raise Superseded, and this call is next.

        The holder goes on. So of many calls in a burst two get the lease: the first and the newest.

        If this raises, is cancelled or is interrupted, neither a lease nor a queue entry remains on the server.

        Example:
            async with hf.lock(f"index:{project}").replace():
                ...

        Args:
            timeout: Seconds to wait at most: a number or a timedelta. 0 or less neither waits nor replaces; more than
                366 days (`math.inf`) waits indefinitely. None takes the timeout of the object.

        Returns:
            The lease. Enter it with ``with``, or release it when the work is done.

        Raises:
            Superseded: A later call took the place of this call.
            AcquireTimeout: The holder did not end within the ``timeout``.
            AcquireCancelled: Sync API only: ``cancel`` was set.
            WouldDeadlock: The caller holds it in an enclosing block. No request is replaced.
            ServerRefused: The server is out of memory, read-only, or lacks replicas or permissions.
            TypeError: ``timeout`` is neither a number nor a timedelta, or it is a semaphore with more than one permit.
            ValueError: ``timeout`` is not a number (``nan``).
        """
        if _args or _options:
            raise unknown_options(self.replace, _args, _options)
        # sync only: if cancel is not None:
        # sync only:     check_cancel(cancel)
        seconds = self._request.timeout if timeout is None else wait_seconds(timeout)
        attempt = self._driver.attempt(self._alone().overtaking(0))
        attempt.overtaking = Overtaking(NO_GRACE, "", "")
        try:
            return self._lease(
                await self._driver.acquire(
                    attempt,
                    seconds,
                    # sync only: cancel,
                )
            )
        except BaseException as error:
            await self._driver.undo(attempt, error)
            raise

    def _entering(self, on_busy: OnBusy, options: dict[str, Any]) -> Callable[[Self], Any]:
        if on_busy not in ("replace", "preempt"):
            return super()._entering(on_busy, options)
        self._alone()
        if on_busy == "replace":
            return lambda primitive: primitive.replace()
        return lambda primitive: primitive.preempt(**options)

    def _alone(self) -> PermitRequest:
        """Return the request. Raises TypeError where it may have several holders."""
        if self._request.limit > 1:
            raise TypeError(f"{self!r} may have {self._request.limit} holders, and no one of them to end; use a lock")
        return self._request
