# Generated from _drivers/aio/cluster.py by tools/unasync.py: edit that file and run the tool.
"""The driver of a client of a cluster: it acquires locks of several slots group by group.

Everything else is the same as for a single server.

A group that the server did not grant is undone before the call returns or raises, within the reach of the caller's own
undo: an interrupt in the meantime finds all remaining traces.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from handfast._drivers.clock import monotonic
from handfast._drivers.failures import OWN_ERRORS
from handfast._drivers.sync.driver import SyncDriver
from handfast._engine.calls import Request
from handfast._protocol.acquire import Attempt
from handfast._protocol.groups import GroupedAttempt, GroupedLease
from handfast._protocol.lease import LeaseState
from handfast.arguments import CancelEvent

__all__ = ["SyncClusterDriver"]


class SyncClusterDriver(SyncDriver):
    """The driver of a client of a cluster."""

    def attempt(self, request: Request) -> Attempt:
        """Start to acquire, with an attempt for each group."""
        if len(request.groups) == 1:
            return super().attempt(request)
        return GroupedAttempt(request, [*map(super().attempt, request.groups)])

    def acquire(
        self,
        attempt: Attempt,
        timeout: float | None,
        cancel: CancelEvent | None = None,
    ) -> LeaseState:
        """Wait for the leases of all groups, one after the other."""
        acquire = partial(super().acquire, timeout=timeout, cancel=cancel)
        if not isinstance(attempt, GroupedAttempt):
            return acquire(attempt)
        return self._acquire_groups(attempt, acquire)  # type: ignore[return-value]  # it raises instead of None

    def try_acquire(self, attempt: Attempt, timeout: float | None = None) -> LeaseState | None:
        """Return the leases of all groups, or None if any group is not free.

        A round trip for each, for ``timeout`` seconds at most.
        """
        try_acquire = super().try_acquire
        if not isinstance(attempt, GroupedAttempt):
            return try_acquire(attempt, timeout)

        def in_time(part: Attempt) -> LeaseState | None:
            return try_acquire(part, None if timeout is None else attempt.asked_at + timeout - monotonic())

        return self._acquire_groups(attempt, in_time)

    def release(self, lease: LeaseState, *, leaves: bool = False) -> bool:
        """Release the leases of all groups, the latest first. Return False if any was lost or released before."""
        if not isinstance(lease, GroupedLease):
            return super().release(lease, leaves=leaves)
        released, failure = True, None
        try:
            for part in reversed(lease.parts):
                try:
                    released &= super().release(part)
                except OWN_ERRORS as error:
                    failure = failure or error
        except BaseException as interrupt:
            self.leave(lease, interrupt)
            raise
        if failure is not None:
            raise failure
        return released or (leaves and lease.loss is None)

    def extend(self, lease: LeaseState, ttl_ms: int) -> bool:
        """Extend the leases of all groups to ``ttl_ms`` from now. Return False if any was lost."""
        extended = True
        for part in lease.parts:
            extended = extended and super().extend(part, ttl_ms)
        return extended

    def _acquire_groups(
        self, attempt: GroupedAttempt, acquire: Callable[[Attempt], LeaseState | None]
    ) -> LeaseState | None:
        """Acquire the groups in order.

        Return None, and leave nothing behind, if ``acquire`` returns None for any of them.
        """
        held: list[LeaseState] = []
        try:
            for part in attempt.parts:
                part.held = held
                lease = acquire(part)
                if lease is None:
                    self.undo(attempt)
                    return None
                held.append(lease)
        except OWN_ERRORS:
            self.undo(attempt)
            raise
        return GroupedLease(attempt.request, held)
