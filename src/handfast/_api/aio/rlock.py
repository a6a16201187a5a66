"""A reentrant lock: the caller that holds it may acquire it again without a round trip."""

from __future__ import annotations

from typing import Self

from handfast._api.aio.inspectable import AsyncInspectable
from handfast._api.aio.lease import AsyncLease
from handfast._api.aio.primitive import AsyncPrimitive
from handfast._api.per_caller import PerCaller, ReentrantHold
from handfast._drivers.aio.driver import AsyncDriver
from handfast._drivers.clock import monotonic
from handfast._engine.calls import PermitRequest
from handfast._protocol.acquire import Attempt
from handfast._protocol.lease import LeaseState
from handfast.arguments import OnLost
from handfast.errors import LeaseLost, NotOwner

__all__ = ["AsyncRLease", "AsyncRLock"]


class AsyncRLease(AsyncLease):
    """A lease of a reentrant lock. All leases of a caller share a grant; the release of the last lease ends it.

    It belongs to the thread or task that acquired it. A release by another thread or task raises NotOwner, unless the
    owner has ended. Leaving a block in another thread or task raises NotOwner, too, but the block is over: the lease is
    released.
    """

    __slots__ = ("__weakref__", "_hold", "_lost_at_release")

    _instead = "acquire the lock there"

    _stays = "a reentrant lock belongs to the caller that acquired it; use lock() instead"

    def __init__(
        self,
        driver: AsyncDriver,
        state: LeaseState,
        on_lost: OnLost,
        hold: ReentrantHold,
        attempt: Attempt | None = None,
    ) -> None:
        super().__init__(driver, state, on_lost)
        self._lost_at_release: bool | None = None
        """Whether the lease was lost when it was released; None until then."""
        self._hold = hold
        hold.leases[self] = attempt

    @property
    def lost(self) -> bool:
        """True if the lease ended before it was released. Takes no I/O: the time of the end is known here."""
        return super().lost if self._lost_at_release is None else self._lost_at_release

    async def release(self) -> bool:
        """Release this lease; the last lease of the caller releases the lock and hands it to the next waiter.

        Returns:
            True if this call released the lease; False if it was lost or released before.

        Raises:
            NotOwner: Another thread or task acquired it and has not ended. Nothing was changed.
            ServerRefused: The server refused, for example because it is read-only.
        """
        if self._released:
            return False
        if self._is_foreign():
            raise NotOwner(self.name)
        released = await super().release() if self._is_last() else not self.lost
        self._lost_at_release = self.lost
        return released

    @property
    def _released(self) -> bool:
        return self._lost_at_release is not None or super()._released

    async def _leave(self, error: BaseException | None) -> bool:
        is_foreign = self._is_foreign()
        if self._is_last():
            left = await super()._leave(error)
        else:
            self._lost_at_release = self.lost
            left = error is not None or not self._lost_at_release
        if is_foreign and error is None:
            raise NotOwner(self.name, "its block was left by another one, which released it")
        return left

    def _is_foreign(self) -> bool:
        """Return whether it belongs to another thread or task, which has not ended."""
        owner = self._hold.caller
        return owner is not None and owner is not self._driver.caller() and not self._driver.is_over(owner)

    def _is_last(self) -> bool:
        """Remove this lease from the shared grant. Return whether it was the last."""
        self._hold.leases.pop(self, None)
        return not self._hold.leases

    def __del__(self) -> None:
        hold: ReentrantHold | None = getattr(self, "_hold", None)  # unset if __init__ was interrupted
        if hold is not None:
            hold.leases.pop(self, None)
            if not hold.leases:
                super().__del__()


class AsyncRLock(AsyncInspectable, AsyncPrimitive[AsyncRLease]):
    """A named reentrant lock: the holder may acquire it again. Made by the client's ``rlock()``.

    The first acquire of a thread or task takes the lock. Its further acquires return leases of the same grant without a
    round trip, and the release of the last lease releases the lock. Other threads and tasks wait, child tasks among
    them. It excludes holders of ``lock()`` of the same name, and the other way round.

    If the grant is lost, all its leases are lost, and acquiring raises LeaseLost until they are released.

    Do not hold it across a ``yield`` of a generator, which another thread or task may close. Before Python 3.12,
    ``asyncio.wait_for`` acquires in a new task: use ``acquire(timeout=…)`` instead.

    Network errors come from redis-py, as `Handfast` lists them.

    Example:
        async with hf.rlock("account:7"):
            async with hf.rlock("account:7"):  # no round trip
                ...
    """

    _request: PermitRequest
    _adopts = False
    _owned = True

    def __init__(
        self, driver: AsyncDriver, permits: PermitRequest, on_lost: OnLost, holds: PerCaller[ReentrantHold]
    ) -> None:
        super().__init__(driver, permits, on_lost)
        self._holds = holds

    def _like(self, request: PermitRequest) -> Self:
        return type(self)(self._driver, request, self._on_lost, self._holds)

    def _existing_lease(self, attempt: Attempt, *, waits: bool) -> AsyncRLease | None:  # noqa: ARG002 -- it never has to wait
        caller = self._driver.caller()
        if caller is None:  # asyncio only
            raise RuntimeError(f"{self!r} belongs to the task that acquires it; call this in a task")  # asyncio only
        hold = self._holds.find(caller, self._request.place.tag)
        if hold is None or not hold.is_active:
            return None
        if hold.state.lost(monotonic()):
            raise LeaseLost(self.name, hold.state.fence, hold.state.loss_text)
        return AsyncRLease(self._driver, hold.state, self._on_lost, hold, attempt)

    def _abandon(self, attempt: Attempt, lease: AsyncRLease | None = None) -> None:
        super()._abandon(attempt, lease)
        hold = self._holds.find(self._driver.caller(), self._request.place.tag)
        if hold is not None:
            hold.forget(attempt)

    def _lease(self, state: LeaseState) -> AsyncRLease:
        caller = self._driver.caller()
        hold = ReentrantHold(caller, state)
        lease = AsyncRLease(self._driver, state, self._on_lost, hold)
        self._holds.set(caller, self._request.place.tag, hold)
        return lease
