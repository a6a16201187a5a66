# Made by tools/unasync.py from _api/aio/primitive.py: edit that one, then run the tool.
"""What everything that can be acquired has in common: the verbs, the block and the decorator.

The object holds nothing itself, each acquire gives a lease; threads may share one object.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from handfast._api.decorators import require_plain_function
from handfast._api.sync.lease import Lease
from handfast._api.sync.scope import PrimitiveScope
from handfast._drivers.sync.driver import SyncDriver
from handfast._engine.calls import Request
from handfast._engine.validate import milliseconds
from handfast._protocol.acquire import Attempt
from handfast._protocol.lease import LeaseState
from handfast.records import Duration, OnLost

__all__ = ["Primitive"]

P = ParamSpec("P")
R = TypeVar("R")
L = TypeVar("L", bound=Lease)


class Primitive(PrimitiveScope[L]):
    """Something that can be acquired."""

    def __init__(self, driver: SyncDriver, want: Request, on_lost: OnLost) -> None:
        self._driver = driver
        self._want = want
        self._on_lost = on_lost
        self._entered: dict[object, list[L]] = {}

    def acquire(self, *, timeout: Duration | None = None) -> L:
        """Wait for it and hold it.

        ``timeout`` is how many seconds to wait, without limit if it is None. Raises AcquireTimeout when they are
        over, QueueFull when the line takes no more, ServerRefused, and the client library's connection errors.
        However it ends without a lease, nothing is left behind.
        """
        seconds = None if timeout is None else milliseconds(timeout, "timeout") / 1000
        attempt = self._driver.attempt(self._want)
        try:
            return self._again(attempt, waits=True) or self._lease(self._driver.acquire(attempt, seconds))
        except BaseException:
            self._abandon(attempt)
            self._driver.undo(attempt)
            raise

    def try_acquire(self) -> L | None:
        """Hold it if it is free and nobody waits for it, else None. One round trip, no waiting."""
        attempt = self._driver.attempt(self._want)
        try:
            if (again := self._again(attempt, waits=False)) is not None:
                return again
            holding = self._driver.try_acquire(attempt)
            return None if holding is None else self._lease(holding)
        except BaseException:
            self._abandon(attempt)
            self._driver.undo(attempt)
            raise

    def _lease(self, holding: LeaseState) -> L:
        """What an acquire gives."""
        raise NotImplementedError

    def _again(self, attempt: Attempt, *, waits: bool) -> L | None:  # noqa: ARG002 -- for those that know their callers
        """What the caller has already, if that is to be given instead of a lease of its own."""
        return None

    def _abandon(self, attempt: Attempt, lease: L | None = None) -> None:  # noqa: ARG002 -- for those that give again
        """Whatever an acquire has come to, the caller does not get it: its block is not entered."""
        if lease is not None:
            self._take_out(self._driver.caller(), lease)

    def __enter__(self) -> L:
        attempt, lease = self._driver.attempt(self._want), None
        try:
            lease = self._again(attempt, waits=True) or self._lease(self._driver.acquire(attempt, None))
            self._entered.setdefault(self._driver.caller(), []).append(lease)
            return lease.__enter__()
        except BaseException:
            self._abandon(attempt, lease)
            self._driver.undo(attempt)
            raise

    def _left(self) -> tuple[object, L] | None:
        """The block that the caller leaves: who entered it, and the lease that it holds.

        Nearly always it was entered by this thread. A framework may leave it in another one, though; then the block that
        was entered first elsewhere must do.
        """
        mine = self._driver.caller()
        for caller in (mine, *self._others()):
            leases = self._entered.get(caller)
            if leases:
                return caller, leases[-1 if caller == mine else 0]
        return None

    def _not_entered(self) -> Exception:
        return RuntimeError(f"a block of {self!r} is left that was never entered")

    def _take_out(self, caller: object, lease: L) -> None:
        leases = self._entered.get(caller, [])
        if lease in leases:
            leases.remove(lease)
        if not leases:
            self._entered.pop(caller, None)

    def _others(self) -> list[object]:
        """Those whose blocks the caller may leave in their place."""
        return list(self._entered)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorate a function to hold this, a new lease each time, while it runs."""
        require_plain_function(function)

        @functools.wraps(function)
        def holding(*args: P.args, **kwargs: P.kwargs) -> R:
            with self:
                return function(*args, **kwargs)

        return holding
