"""A lease: what an acquire gives, and where ownership lives."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable
from contextvars import copy_context
from functools import partial

from handfast._api.uncopied import Uncopied
from handfast._drivers.aio.driver import AsyncDriver
from handfast._drivers.aio.scope import AsyncLeaseScope
from handfast._drivers.clock import monotonic
from handfast._drivers.losses import run_lost_callbacks
from handfast._engine.validate import milliseconds
from handfast._protocol.lease import LeaseState
from handfast.arguments import Duration, OnLost
from handfast.errors import LeaseLost, NotHeld

__all__ = ["AsyncLease"]


class AsyncLease(Uncopied, AsyncLeaseScope):
    """A grant that ends: by `release`, at the end of its ``with`` block, or when it is lost.

    Leases come from ``acquire`` and ``try_acquire``. Any thread or task may release one, except that of a reentrant lock.

    A lease is lost if it expires before it is renewed, if an operator revokes it, or if the server no longer has it. Then
    its ``with`` block raises LeaseLost: in the asyncio API at once, by cancelling the block, and in the sync API when
    the block ends. With ``on_lost="warn"`` the block runs to its end, and a RuntimeWarning is issued there.

    A lease that is garbage-collected without a release is no longer renewed and runs out after its ttl; a ResourceWarning
    is issued.

    Example:
        async with hf.lock("orders:42") as lease:
            save(order, fence=lease.fence)
    """

    __slots__ = ("_driver", "_lost_event")

    _instead = "pass on its fence or its token"

    def __init__(self, driver: AsyncDriver, state: LeaseState, on_lost: OnLost) -> None:
        super().__init__(state, on_lost)
        self._driver = driver
        self._lost_event: asyncio.Event | None = None

    def __repr__(self) -> str:
        status = "released" if self._released else "lost" if self.lost else f"{self.remaining():.3f} s left"
        return f"<{type(self).__name__} of {self.name!r}, fence {self.fence}, {status}>"

    @property
    def name(self) -> str:
        """The name that is held. Of several names: all of them, separated by commas."""
        return self._state.request.name

    @property
    def token(self) -> str:
        """The unguessable id of this lease. It is the right to release, so do not log it."""
        return self._state.token.decode()

    @property
    def fence(self) -> int:
        """The fencing token: a number that grows with every grant of the name.

        Send it along with every write. If the protected resource refuses numbers smaller than one that it has seen, a
        former holder can't overwrite the work of a later one.
        """
        return self._state.fence

    @property
    def lost(self) -> bool:
        """True if the lease ended before it was released. Takes no I/O: the time of its end is known here."""
        return self._state.lost(monotonic())

    @property
    def lost_event(self) -> asyncio.Event:
        """An event that is set when the lease is found lost, for work outside of a ``with`` block to wait for."""
        if self._lost_event is None:
            self._lost_event = asyncio.Event()
            self._on_loss(self._lost_event.set)
        return self._lost_event

    def remaining(self) -> float:
        """Return the seconds until the lease ends unless it is renewed; 0.0 if it has ended. Takes no I/O.

        The number is never larger than the server's own.
        """
        return 0.0 if self._released or self.lost else max(0.0, self._state.deadline - monotonic())

    def check(self) -> None:
        """Raise an error unless the lease is held. Takes no I/O.

        Call it between the steps of long work. It can't see a loss that the server has not reported yet, such as a
        revocation on its way; only the fence protects against that.

        Raises:
            LeaseLost: The lease was lost.
            NotHeld: The lease was released.
        """
        if self.lost:
            raise LeaseLost(self.name, self.fence, self._state.loss or "")
        if self._released:
            raise NotHeld(self.name)

    async def extend(self, ttl: Duration) -> None:
        """Extend the lease to ``ttl`` seconds from now, unless it lasts longer already. Takes one round trip.

        A renewed lease needs this only to bridge a time in which the process can't renew it.

        Args:
            ttl: Seconds from now (a number or a timedelta), from 0.001 s to 366 days.

        Raises:
            LeaseLost: The lease was lost.
            NotHeld: The lease was released.
            TypeError: ``ttl`` is neither a number nor a timedelta.
            ValueError: ``ttl`` is out of range.
            ServerRefused: The server refused, for example because it is read-only.
            redis.exceptions.ConnectionError: The server can't be reached.
            redis.exceptions.TimeoutError: The server does not answer.
        """
        ttl_ms = milliseconds(ttl, "ttl")
        self.check()
        if not await self._driver.extend(self._state, ttl_ms):
            self.check()

    async def release(self) -> bool:
        """Release the lease and hand it to the next waiter.

        After this returns, nothing is sent for the lease any more. After an error it may be called again; a release that
        could not reach the server is also repeated in the background.

        Returns:
            True if this call released the lease; False if it was lost or released before.

        Raises:
            NotOwner: Reentrant locks only: another thread or task acquired it. Nothing was changed.
            ServerRefused: The server refused, for example because it is read-only.
            redis.exceptions.ConnectionError: The server can't be reached.
            redis.exceptions.TimeoutError: The server does not answer.
        """
        return await self._driver.release(self._state)

    def add_lost_callback(self, callback: Callable[[], object]) -> None:
        """Call a function once if the lease is lost, or at once if it was lost already.

        In the asyncio API it is called by the event loop, so it must not block. In the sync API all callbacks of a client are
        called one after the other by a background thread of their own, so one may acquire the lock again; while it waits,
        the callbacks of other leases wait, too. It runs in a copy of the current context (`contextvars`). Exceptions that it
        raises are logged; in the asyncio API a KeyboardInterrupt ends the event loop.

        Args:
            callback: A function without arguments. Its result is ignored.
        """
        callback = partial(copy_context().run, callback)
        # sync only: callback = partial(self._driver.callbacks.call, callback, self.name)
        self._on_loss(callback)

    def _on_loss(self, action: Callable[[], object]) -> None:
        """Perform an action, which does not wait, when the lease is lost, or now if it was lost already."""
        self._state.callbacks.append(action)
        if self.lost:
            run_lost_callbacks(self._state)

    async def _leave(self, error: BaseException | None) -> bool:
        return await self._driver.leave(self._state, error)

    def _report_loss(self) -> None:
        loss = LeaseLost(self.name, self.fence, self._state.loss or "")
        if self._on_lost == "raise":
            raise loss
        warnings.warn(str(loss), RuntimeWarning, stacklevel=3)

    def __del__(self) -> None:
        state: LeaseState | None = getattr(self, "_state", None)  # unset if __init__ was interrupted
        if state is None or not state.request.renew or state.is_released:
            return
        # Not `lost`, which may read: this is called at any point of any thread.
        if state.loss is not None or monotonic() >= state.deadline:
            return
        if self._driver.stop_renewing(state):
            message = f"{self!r} was dropped without a release; it runs out after its ttl"
            warnings.warn(message, ResourceWarning, stacklevel=2)
