# Generated from _api/aio/lease.py by tools/unasync.py: edit that file and run the tool.
"""A lease: the result of an acquire, and the place where ownership lives."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import ClassVar

from handfast._api.decorators import check_called_here
from handfast._api.sync.scope import LeaseScope
from handfast._drivers.clock import monotonic
from handfast._drivers.losses import WhenWanted, run_lost_callbacks, run_wanted
from handfast._drivers.sync.driver import SyncDriver
from handfast._engine.calls import PermitRequest
from handfast._engine.validate import milliseconds
from handfast._objects import BlockOnly, PublicObject
from handfast._protocol.lease import LeaseState
from handfast.arguments import Duration, OnLost
from handfast.errors import LeaseLost, NotHeld, Preempted

__all__ = ["Lease"]

PLAIN = "give a plain function"


class Lease(BlockOnly, PublicObject, LeaseScope):
    """A grant that ends: by `release`, at the end of its ``with`` block, or when it is lost.

    Leases come from ``acquire`` and ``try_acquire``. Any thread or task may release a lease, except the lease of a
    reentrant lock.

    A lease is lost if it expires before it is renewed, if an operator revokes it, or if the server no longer has it.
    Then the ``with`` block raises LeaseLost: in the asyncio API at once, by cancelling the block, and in the sync API
    when the block ends. With ``on_lost="warn"`` the block runs to its end, and a RuntimeWarning is issued there.

    A lease that is garbage-collected without a release is no longer renewed and runs out after its ttl; a
    ResourceWarning is issued.

    Network errors come from redis-py, as `Handfast` lists them.

    Example:
        with hf.lock("orders:42") as lease:
            save(order, fence=lease.fence)
    """

    __slots__ = ("_lost_event", "_wanted_event")

    _instead = "use detach() to give it to another process"

    _stays: ClassVar[str] = ""
    """Why it can't be detached; empty if it can."""

    def __init__(self, driver: SyncDriver, state: LeaseState, on_lost: OnLost) -> None:
        # Written out: every acquire makes a lease, and each __init__ of a base class would be another frame.
        self._state = state
        self._on_lost = on_lost
        self._driver = driver
        self._lost_event: threading.Event | None = None

    def __repr__(self) -> str:
        status = "lost" if self.lost else "released" if self._released else f"{self.remaining():.3f} s left"
        return f"<{type(self).__name__} of {self.name!r}, fence {self.fence}, {status}>"

    @property
    def name(self) -> str:
        """The name that is held. Of several names: all of them, separated by commas."""
        return self._state.request.name

    @property
    def token(self) -> str:
        """The unguessable id of this lease. It is the right to renew and to release, so do not log it.

        ``handfast extend`` and ``handfast release`` take the token. With ``at_least``, this time in milliseconds
        follows behind a dot, since it belongs to the grant.
        """
        request = self._state.request
        at_least_ms = request.at_least_ms if isinstance(request, PermitRequest) else 0
        return self._state.token.decode() + (f".{at_least_ms}" if at_least_ms else "")

    @property
    def fence(self) -> int:
        """The fencing token: a number that grows with every grant of the name.

        Send it along with every write. If the protected resource refuses numbers smaller than the largest it has seen,
        a former holder can't overwrite the work of a later holder.
        """
        return self._state.fence

    @property
    def lost(self) -> bool:
        """True if the lease ended before it was released. Takes no I/O: the time of the end is known here."""
        return self._state.lost(monotonic())

    @property
    def lost_event(self) -> threading.Event:
        """An event that is set when the lease is found lost, for work outside of a ``with`` block to wait for."""
        if self._lost_event is None:
            self._lost_event = threading.Event()
            self._on_loss(self._lost_event.set)
        return self._lost_event

    @property
    def wanted(self) -> str | None:
        """Why a later request asks the holder to end, see `Lock.preempt`; None while none does. Takes no I/O."""
        wanted = self._state.wanted
        return None if wanted is None else wanted.reason

    @property
    def wanted_event(self) -> threading.Event:
        """An event for work outside of a ``with`` block: set when a later request asks the holder to end, or at a loss."""
        event: threading.Event | None = getattr(self, "_wanted_event", None)  # few leases have one
        if event is None:
            event = self._wanted_event = threading.Event()
            self._on_wanted(event.set)
            self._on_loss(event.set)
        return event

    @property
    def waited(self) -> float:
        """Seconds from the acquiring call to the grant; at most one round trip less than the caller waited.

        A lease of a reentrant lock that was acquired again has the time of the first acquire.
        """
        return self._state.waited

    @property
    def held_for(self) -> float:
        """Seconds since the lease was granted. It stops when the lease is released or lost. Takes no I/O."""
        now = monotonic()
        self._state.lost(now)
        return self._state.held_for(now)

    def remaining(self) -> float:
        """Return the seconds until the lease ends unless it is renewed; 0.0 if it has ended. Takes no I/O.

        The number is never larger than the server's own.
        """
        return 0.0 if self._released or self.lost else max(0.0, self._state.deadline - monotonic())

    def check(self) -> None:
        """Raise an error unless the lease is held. Takes no I/O.

        Call it between the steps of long work. It can't see a loss which the server has not reported yet, such as a
        revocation on its way; only the fence protects against that.

        Raises:
            Preempted: A later request asks the holder to end. Raised once, and not in a block that was cancelled for it: code
                that cleans up may go on to check.
            LeaseLost: The lease was lost.
            NotHeld: The lease was released or detached.
        """
        if self.lost:
            raise LeaseLost(self.name, self.fence, self._state.loss_text)
        if self._released:
            raise NotHeld(self.name)
        if self._state.wanted is not None and self._on_lost == "raise" and self._state.claim_yield():
            self._report_wanted()

    def extend(self, ttl: Duration) -> None:
        """Extend the lease to ``ttl`` seconds from now, unless it lasts longer already. Takes one round trip.

        A renewed lease needs this only to bridge a time in which the process can't renew it. It does not last longer
        than the lock's ``max_hold``.

        Args:
            ttl: Seconds from now (a number or a timedelta), from 0.001 s to 366 days.

        Raises:
            LeaseLost: The lease was lost.
            NotHeld: The lease was released.
            TypeError: ``ttl`` is neither a number nor a timedelta.
            ValueError: ``ttl`` is out of range.
            ServerRefused: The server refused, for example because it is read-only.
        """
        ttl_ms = self._state.limited(milliseconds(ttl, "ttl"), monotonic())
        self.check()
        if not self._driver.extend(self._state, ttl_ms):
            self.check()

    def detach(self, *, ttl: Duration | None = None) -> str:
        """Give the lease up here without releasing it, and return a token with which another process adopts it.

        The lease is extended, in one round trip, and renewed no more: it ends after ``ttl`` unless it is adopted or
        extended. The fence and ``at_least`` stay the same. ``max_hold`` no longer counts; the ``max_hold`` of the
        adopting lock counts instead. Here the lease counts as released. `Lock.adopt` turns the token into a lease
        again, and ``handfast extend`` and ``handfast release`` take it, too.

        Example:
            lease = hf.lock("report:7").acquire()
            queue.put(("report:7", lease.detach(ttl=600)))

            # in a worker
            with hf.lock(name).adopt(token) as lease:
                ...

        Args:
            ttl: Seconds from now (a number or a timedelta) that the lease lasts at least, from 0.001 s to 366 days.
                None takes the ttl of the lock.

        Returns:
            The token: opaque text without white space. It is the right to renew and to release, so do not log it.

        Raises:
            LeaseLost: The lease was lost.
            NotHeld: The lease was released or detached before.
            TypeError: It is a lease of a reentrant lock or of several locks, or ``ttl`` is neither a number nor a
                timedelta.
            ValueError: ``ttl`` is out of range.
            ServerRefused: The server refused, for example because it is read-only. The lease is still held here.
            redis.exceptions.ConnectionError: The server can't be reached. The lease is still held here.
            redis.exceptions.TimeoutError: The server does not answer. The lease is still held here.
        """
        from handfast._protocol.detached import DetachedLease

        request = self._state.request
        if self._stays or not isinstance(request, PermitRequest):
            raise TypeError(f"{self!r} can't be detached: {self._stays}")
        ttl_ms = request.ttl_ms if ttl is None else milliseconds(ttl, "ttl")
        text = DetachedLease.of(self._state, request).text
        self.check()
        if not self._driver.detach(self._state, ttl_ms):
            self.check()
        return text

    def release(self) -> bool:
        """Release the lease and hand it to the next waiter, which a lock with ``at_least`` does when that time is over.

        After this returns, nothing is sent for the lease any more. After an error it may be called again; a release
        that could not reach the server is also repeated in the background.

        Returns:
            True if this call released the lease; False if it was lost or released before.

        Raises:
            NotOwner: Reentrant locks only: another thread or task acquired it. Nothing was changed.
            ServerRefused: The server refused, for example because it is read-only.
        """
        return self._driver.release(self._state)

    def add_lost_callback(self, callback: Callable[[], object]) -> None:
        """Call a function once if the lease is lost, or at once if it was lost already.

        In the asyncio API it is called by the event loop, so it must not block. In the sync API all callbacks of a
        client are called one after the other by a separate background thread, so a callback may acquire the lock again;
        while it waits, the callbacks of other leases wait, too. It runs in a copy of the current context
        (`contextvars`). Exceptions of the callback are logged; in the asyncio API a KeyboardInterrupt ends the event
        loop.

        Args:
            callback: A function without arguments. Its result is ignored.

        Raises:
            TypeError: ``callback`` can't be called, or is a coroutine function.
        """
        check_called_here(callback, PLAIN)
        callback = partial(copy_context().run, callback)
        callback = partial(self._driver.callbacks.call, callback, self.name)
        self._on_loss(callback)

    def add_wanted_callback(self, callback: Callable[[], object]) -> None:
        """Call a function once when a later request asks the holder to end, or at once if one has; see `wanted`.

        It is called like the callbacks of `add_lost_callback`.

        Args:
            callback: A function without arguments. Its result is ignored.

        Raises:
            TypeError: ``callback`` can't be called, or is a coroutine function.
        """
        check_called_here(callback, PLAIN)
        callback = partial(copy_context().run, callback)
        callback = partial(self._driver.callbacks.call, callback, self.name)
        self._on_wanted(callback)

    def _on_loss(self, action: Callable[[], object]) -> None:
        """Perform an action, which does not wait, when the lease is lost, or now if it was lost already."""
        self._state.callbacks.append(action)
        if self.lost:
            run_lost_callbacks(self._state)

    def _on_wanted(self, action: Callable[[], object]) -> None:
        """Perform an action, which does not wait, when a later request asks the holder to end, or now if one has."""
        self._state.callbacks.append(WhenWanted(action))
        if self._state.wanted is not None:
            run_wanted(action, self._state)

    def _report_wanted(self) -> None:
        if (wanted := self._state.wanted) is not None:
            raise Preempted(self.name, self.fence, wanted.reason, wanted.by, wanted.grace)

    def _report_loss(self) -> None:
        loss = LeaseLost(self.name, self.fence, self._state.loss_text)
        if self._on_lost == "raise":
            raise loss
        warnings.warn(str(loss), RuntimeWarning, stacklevel=_level_of_user())

    def __del__(self) -> None:
        state: LeaseState | None = getattr(self, "_state", None)  # unset if __init__ was interrupted
        if state is None or state.is_released or not state.request.renew:
            return
        # Neither `lost` nor repr(), which may read: this is called at any point of any thread. So a lease whose
        # deadline has passed is not taken for lost: the reply that renews it may be there already.
        if state.loss is None and self._driver.stop_renewing(state):
            lease = f"<{type(self).__name__} of {self.name!r}, fence {self.fence}>"
            message = f"{lease} was dropped without a release; it runs out after its ttl"
            if not sys.is_finalizing():
                self._driver.events.dropped(lease, state)
            warnings.warn(message, ResourceWarning, stacklevel=2)


def _level_of_user() -> int:
    """Return the ``stacklevel`` by which a warning of the caller points to the first code outside of this package."""
    level, frame = 1, sys._getframe(1)  # noqa: SLF001 -- documented, and Python 3.11 has no skip_file_prefixes
    while frame.f_back is not None and frame.f_globals["__name__"].startswith("handfast."):
        level, frame = level + 1, frame.f_back
    return level
