"""A lock: one holder at a time, first come first served."""

from __future__ import annotations

from handfast._api.aio.inspectable import AsyncInspectable
from handfast._api.aio.lease import AsyncLease
from handfast._api.aio.preemptible import AsyncPreemptible
from handfast._engine.calls import PermitRequest
from handfast._protocol.lease import LeaseState

__all__ = ["AsyncLock"]


class AsyncLock(AsyncInspectable, AsyncPreemptible[AsyncLease]):
    """A named lock: one holder at a time, first come first served. Made by the client's ``lock()``.

    Use it as a context manager, call `acquire` or `try_acquire` for a lease, or decorate a function with it. The object
    holds nothing itself, so threads or tasks may share it. It is not reentrant: to wait for it within its own ``with``
    block raises WouldDeadlock; see ``rlock()``.

    Network errors come from redis-py, as `Handfast` lists them.

    Example:
        async with hf.lock("orders:42", ttl=10) as lease:
            ...
    """

    _request: PermitRequest

    def _lease(self, state: LeaseState) -> AsyncLease:
        return AsyncLease(self._driver, state, self._on_lost)
