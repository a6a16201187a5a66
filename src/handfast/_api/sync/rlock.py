# Made by tools/unasync.py from _api/aio/rlock.py: edit that one, then run the tool.
"""A reentrant lock: the thread that holds it may acquire it again, at no cost."""

from __future__ import annotations

from time import monotonic

from handfast._api.per_caller import PerCaller, ReentrantHold
from handfast._api.sync.inspectable import Inspectable
from handfast._api.sync.lease import Lease
from handfast._api.sync.primitive import Primitive
from handfast._drivers.sync.driver import SyncDriver
from handfast._engine.calls import PermitRequest
from handfast._protocol.acquire import Attempt
from handfast._protocol.lease import LeaseState
from handfast.errors import LeaseLost, NotOwner
from handfast.records import OnLost

__all__ = ["RLease", "RLock"]


class RLease(Lease):
    """One of the leases that a thread has of a reentrant lock. They share one grant, which the last of them gives up.

    It belongs to the thread that acquired it: release by another one is refused with NotOwner.
    """

    __slots__ = ("__weakref__", "_lost_by_then", "_tenure")

    def __init__(
        self,
        driver: SyncDriver,
        holding: LeaseState,
        on_lost: OnLost,
        tenure: ReentrantHold,
        attempt: Attempt | None = None,
    ) -> None:
        super().__init__(driver, holding, on_lost)
        self._lost_by_then: bool | None = None
        """Whether it had been lost when it was released; None until then."""
        self._tenure = tenure
        tenure.leases[self] = attempt

    @property
    def lost(self) -> bool:
        """Whether the lease ended before it was given up. Costs no I/O; also true once its time is over."""
        return super().lost if self._lost_by_then is None else self._lost_by_then

    def release(self) -> bool:
        """Give this lease up, and with the last one the lock; the next waiter has it when this returns.

        False when there was nothing left to give up: it had been lost, or was released before. Raises NotOwner when
        another thread does this, unless the one that acquired it is over.
        """
        if self._given_up:
            return False
        released = super().release() if self._is_last() else not self.lost
        self._lost_by_then = self.lost
        return released

    @property
    def _given_up(self) -> bool:
        return self._lost_by_then is not None or super()._given_up

    def _leave(self, error: BaseException | None) -> bool:
        if self._is_last():
            return super()._leave(error)
        self._lost_by_then = self.lost
        return error is not None or not self._lost_by_then

    def _is_last(self) -> bool:
        """Whether no other lease shares the grant, once this one is out."""
        owner, caller = self._tenure.caller, self._driver.caller()
        if owner is not None and owner is not caller and not self._driver.is_over(owner):
            raise NotOwner(self.name)
        self._tenure.leases.pop(self, None)
        return not self._tenure.leases

    def __del__(self) -> None:
        tenure: ReentrantHold | None = getattr(self, "_tenure", None)  # an interrupt may have struck while it was made
        if tenure is not None:
            tenure.leases.pop(self, None)
            if not tenure.leases:
                super().__del__()


class RLock(Inspectable, Primitive[RLease]):
    """The lock of that name, for threads that may come by more than once.

    While a thread holds it, its further acquires are leases of the same grant, without asking the server; the lock is given
    up with the last of them. A child thread does not inherit it. It is the same lock as ``lock(name)``, and the two exclude
    each other. When the lease is lost, so are all that share it, and acquiring again raises LeaseLost until they are
    released. Do not hold it across a ``yield`` of a generator, which another thread may close.
    """

    def __init__(
        self, driver: SyncDriver, permits: PermitRequest, on_lost: OnLost, callers: PerCaller[ReentrantHold]
    ) -> None:
        super().__init__(driver, permits, on_lost)
        self._permits = permits
        self._callers = callers

    def _again(self, attempt: Attempt, *, waits: bool) -> RLease | None:  # noqa: ARG002 -- what is there already needs no waiting
        caller = self._driver.caller()
        if caller is None:
            raise RuntimeError(f"{self!r} belongs to the thread that acquires it, and none is running here")
        tenure = self._callers.find(caller, self._permits.place.tag)
        if tenure is None or not tenure.goes_on:
            return None
        if tenure.holding.lost(monotonic()):
            raise LeaseLost(self.name, tenure.holding.fence, tenure.holding.loss or "")
        return RLease(self._driver, tenure.holding, self._on_lost, tenure, attempt)

    def _abandon(self, attempt: Attempt, lease: RLease | None = None) -> None:
        super()._abandon(attempt, lease)
        tenure = self._callers.find(self._driver.caller(), self._permits.place.tag)
        if tenure is not None:
            tenure.forget(attempt)

    def _not_entered(self) -> Exception:
        return NotOwner(self.name) if self._entered else super()._not_entered()

    def _others(self) -> list[object]:
        return [caller for caller in self._entered if self._driver.is_over(caller)]

    def _lease(self, holding: LeaseState) -> RLease:
        caller = self._driver.caller()
        tenure = ReentrantHold(caller, holding)
        lease = RLease(self._driver, holding, self._on_lost, tenure)
        self._callers.note(caller, self._permits.place.tag, tenure)
        return lease
