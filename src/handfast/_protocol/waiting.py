"""Watch over a wait in the queue: the ends besides a grant and the caller's own time, and the reasons for a warning.

A caller waits for itself if the lock is held by a ``with`` block of the same caller. Only a block makes this certain:
another thread or task may release a lease without a block. And the lease must be renewed: else it ends by itself. Of a
semaphore it is never certain, since an operator may give it more permits. Uncertain cases are logged, once for each
name.

A call of the sync API blocks the thread, and with it an event loop running there. So no task of the loop releases the
leases acquired by this thread: to wait for them is to wait for oneself, also without a block.

A caller may have some of several locks already, and wait for the others. The wait is of no use once one of its locks is
lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from handfast._engine.calls import PermitRequest, Request
from handfast._protocol.lease import LeaseState, LeaseTable
from handfast.arguments import CancelEvent
from handfast.errors import AcquireCancelled, LeaseLost, WouldDeadlock

__all__ = ["Watch"]

CANCEL_POLL_S = 0.05
"""How often ``cancel`` is looked at during a wait, in seconds: an event of `threading` can't be waited for beside a
socket."""

HELD_POLL_S = 0.5
"""How often, in seconds, a wait for some of several locks looks whether those that the caller has are lost."""

WARN_AFTER_S = 5.0
"""How long, in seconds, one waits for what the same client holds before that is logged."""

OF_THIS_THREAD = "an event loop runs in this thread, which has it already, and no task goes on while this call waits"

BLOCKED_LOOP = "use AsyncHandfast in coroutines, or call this with asyncio.to_thread()"

MAX_WARNED = 1_000
"""How many names are remembered for which that was logged."""


class Watch:
    """Is called at the beginning of a wait, and then at each moment it has returned.

    ``leases`` are the leases held by the client. ``is_inside`` tells whether the caller is in the block behind a
    `LeaseState.block`. ``warn`` is called with a lease of the client for which the caller has waited. ``held`` is as in
    `Attempt.held`. ``loop_thread`` is the thread of the caller, if an event loop runs in it.
    """

    def __init__(
        self,
        request: Request,
        leases: LeaseTable,
        is_inside: Callable[[Any], bool],
        warn: Callable[[LeaseState], object],
        cancel: CancelEvent | None = None,
        *,
        held: Sequence[LeaseState] = (),
        loop_thread: int | None = None,
    ) -> None:
        self._request = request
        self._leases = leases
        self._is_inside = is_inside
        self._warn = warn
        self._cancel = cancel
        self._held = held
        self._loop_thread = loop_thread
        self._pause = inf if cancel is None else CANCEL_POLL_S
        if held:
            self._pause = min(self._pause, HELD_POLL_S)
        self._warn_at: float | None = None

    def __call__(self, now: float) -> float:
        """Return when to call this again. Raises AcquireCancelled, LeaseLost and WouldDeadlock."""
        if self._cancel is not None and self._cancel.is_set():
            raise AcquireCancelled(self._request.name)
        for lease in self._held:
            if lease.lost(now):
                raise LeaseLost(self._request.name, lease.fence, lease.loss_text)
        if self._warn_at is None:
            self._warn_at = now + WARN_AFTER_S
            self._refuse_deadlock()
            if self._loop_thread is not None:
                self._refuse_to_block_loop()
        elif now >= self._warn_at:
            self._warn_at = inf
            self._warn_of_own_leases()
        return min(self._warn_at, now + self._pause)

    def _refuse_deadlock(self) -> None:
        for lease in self._leases.all():
            if not lease.block or not lease.is_renewed or not self._is_inside(lease.block):
                continue
            if shared := self._shared(lease, "lock", "election", "once"):
                raise WouldDeadlock(shared[0].name, self._advice(lease, shared[0].place.kind))

    def _refuse_to_block_loop(self) -> None:
        """Refuse a request that does not fit beside this thread's leases, which no task of the loop can release."""
        for part in self._request.parts:
            mine = 0
            for lease in self._leases.all():
                if lease.thread == self._loop_thread and lease.is_renewed:
                    mine += sum(other.weight for other in lease.request.parts if other.place.tag == part.place.tag)
            if mine and mine + part.weight > part.limit:
                raise WouldDeadlock(part.name, BLOCKED_LOOP, OF_THIS_THREAD)

    def _advice(self, lease: LeaseState, kind: str) -> str:
        if kind == "once":
            return "a run can't wait for its own result"
        if kind == "election":
            return (
                "a leader can't campaign against itself; leave the block first, or campaign in another task or thread"
            )
        if self._request.name == lease.request.name:
            return "use rlock() in both places, or leave the block first"
        return "acquire all names that are needed together with one lock_all()"

    def _warn_of_own_leases(self) -> None:
        for lease in self._leases.all():
            if lease.is_renewed and (shared := self._shared(lease, "lock", "rwlock")):
                if len(self._leases.warned) >= MAX_WARNED:
                    self._leases.warned.clear()
                if shared[0].name not in self._leases.warned:
                    self._leases.warned.add(shared[0].name)
                    self._warn(lease)

    def _shared(self, lease: LeaseState, *kinds: str) -> list[PermitRequest]:
        """Return the requests for those names of these kinds that a lease holds."""
        held = {part.place.tag for part in lease.request.parts}
        return [part for part in self._request.parts if part.place.kind in kinds and part.place.tag in held]
