"""Perform protocols for the callers of a client.

When an operation ends early (a timeout, Ctrl-C, a cancellation, an error), any traces on the server are undone. The
caller waits for the undo at most UNDO_WAIT seconds, then background cleanup goes on. The original exception always
wins.
"""

from __future__ import annotations

import contextlib
import os
from asyncio import get_running_loop  # asyncio only
from collections.abc import Callable, Coroutine, Hashable
from functools import partial
from logging import DEBUG
from math import inf
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from handfast._drivers.aio.cleanup import GOES_ON_ALONE, clean_up, may_wait
from handfast._drivers.aio.contexts import Contexts
from handfast._drivers.aio.performing import run
from handfast._drivers.clock import monotonic
from handfast._drivers.failures import OWN_ERRORS
from handfast._drivers.log import is_logged
from handfast._drivers.losses import run_lost_callbacks
from handfast._engine.calls import PermitRequest
from handfast._engine.effects import Answer, Found, Steps
from handfast._protocol.acquire import Attempt, BaseAttempt, Grant, acquire, try_acquire, undo
from handfast._protocol.admin import who_is_there
from handfast._protocol.lease import LeaseState, downgrade, give_up, number, release, renew
from handfast._protocol.loss import gone
from handfast._protocol.retry import UNDO_WAIT
from handfast.errors import AcquireTimeout, ClientClosed, NotHeld

# sync only: import threading
# sync only: from handfast.arguments import CancelEvent
# sync only: from handfast.errors import AcquireCancelled

if TYPE_CHECKING:
    from handfast._drivers.aio.context import Context
    from handfast._protocol.asking import ObjectAttempt
    from handfast._protocol.detached import DetachedLease

__all__ = ["AsyncDriver"]

T = TypeVar("T")


class AsyncDriver(Contexts):
    """The driver of a client."""

    async def acquire(
        self,
        attempt: Attempt,
        timeout: float | None,
        # sync only: cancel: CancelEvent | None = None,
    ) -> LeaseState:
        """Wait for the lease.

        Raises AcquireTimeout after ``timeout`` seconds, at once if it is 0; and the errors of the protocol.
        """
        # sync only: if cancel is not None and cancel.is_set():
        # sync only:     raise AcquireCancelled(attempt.request.name)
        if timeout == 0:
            lease = await self.try_acquire(attempt)
            if lease is None:
                raise await self._busy(attempt, 0)
            return lease
        until = inf if timeout is None else attempt.asked_at + timeout
        steps = acquire(attempt, until, self._watch)  # asyncio only
        # sync only: watch = self._watch if cancel is None else partial(self._watch, cancel=cancel)
        # sync only: steps = acquire(attempt, until, watch)
        grant = await run(attempt.owner, steps, attempt.request.name, until, attempt=attempt)
        if grant is None:
            raise await self._busy(attempt, timeout or 0)
        return self._hold(attempt, grant)

    async def acquire_in_turns(self, attempt: Attempt, timeout: float | None, question: Hashable) -> LeaseState | Found:
        """Acquire for many callers with the same question. An answer without a lease may be good for all of them."""
        if timeout == 0:
            return await self.acquire(attempt, 0)
        until = inf if timeout is None else attempt.asked_at + timeout
        lease = await attempt.owner.waits.ask(
            question,
            attempt.asked_at,
            until,
            lambda: self._watch(attempt)(monotonic()),
            partial(self.acquire, attempt, timeout),
        )
        if lease is None:
            raise await self._busy(attempt, timeout or 0)
        return lease  # type: ignore[no-any-return]  # the owner is any context

    async def try_acquire(self, attempt: Attempt, timeout: float | None = None) -> LeaseState | None:
        """Return the lease, or None if the name is not free. One round trip, for ``timeout`` seconds at most."""
        until, name = _soon(timeout), attempt.request.name
        grant = await run(attempt.owner, try_acquire(attempt), name, until, retry_for=0, attempt=attempt)
        if grant is None:
            await self.undo(attempt)
            if (dispatcher := self.events.dispatcher) is not None:
                dispatcher.refused(attempt, "busy")
            return None
        return self._hold(attempt, grant)

    async def wait(
        self,
        attempt: BaseAttempt,
        steps: Steps[T],
        until: float = inf,
        *,
        once: bool = False,
        timeout: float | None = None,
    ) -> T:
        """Perform the protocol of an attempt without a lease, until the moment ``until`` at most.

        With ``once`` it does not wait for a server that is away, and waits for the replies of a server that is there
        ``timeout`` seconds at most.
        """
        name = attempt.request.name
        end, retry_for = (None if timeout is None else _soon(timeout), 0) if once else (until, None)
        result = await run(self._context(name), steps, name, end, retry_for=retry_for, attempt=attempt)
        if self._closed:
            raise ClientClosed(name)
        return result

    async def watch(self, attempt: ObjectAttempt, steps: Callable[[float], Steps[Answer]], until: float) -> Answer:
        """Wait for an answer, until ``until`` at most. Tasks with the same question share a single request."""

        async def ask(until: float) -> Answer:
            return await self.wait(attempt, steps(until), until, once=until <= attempt.asked_at)

        request = attempt.request
        return await self._context(request.name).waits.share(request.question, attempt.asked_at, until, ask)

    async def undo(self, attempt: BaseAttempt, error: BaseException | None = None) -> None:
        """Leave nothing behind: no queue entry, no permit, no renewal. It is begun once. ``error`` is why, if it failed."""
        context, parts = self._running_context(), [part for part in reversed(attempt.parts) if part.needs_undo]
        stopped: list[LeaseState] = []
        # A server that was never reached has nothing of the
        # attempt, and an undo would wait for it without need.
        if parts and self._connector.reached and context is not None:
            # A grant may have become a lease that did not reach the caller. It leaves the table before the
            # undo is sent, so that no renewal follows (invariant 10).
            stopped += [lease for part in parts if (lease := _stop_renewing(context, part.token)) is not None]
            await clean_up(
                context,
                # A part is unanswered where the server stopped replying:
                # the caller waits for the undo of the others only.
                [partial(undo, part) for part in parts if not part.is_unanswered],
                attempt.request.name,
                apart=[partial(undo, part) for part in parts if part.is_unanswered],
            )
        # With the leases that were stopped: an attempt that was granted and then failed has a single end.
        if (dispatcher := self.events.dispatcher) is not None:
            dispatcher.undone(attempt, stopped, error)

    async def release(self, lease: LeaseState, *, leaves: bool = False) -> bool:
        """Release a lease. Return False if it was lost or released before; with ``leaves`` only if it was lost."""
        context = lease.owner
        loop = get_running_loop()  # asyncio only
        try:
            # sync only: if self._pid != os.getpid():  # asked here, without a frame for it
            # sync only:     self._in_this_process()
            lost = lease.lost(monotonic())
            # A lost lease is released as well, as long as the client is open: by the server's clock it may
            # last longer (invariant 8), and waiters would wait for its end.
            if lease.is_released or (lost and (self._closed or context.is_closed)):
                return leaves and lease.loss is None
            is_elsewhere = context.loop is not loop or self._pid != os.getpid()  # asyncio only
            # sync only: is_elsewhere = False
            if is_elsewhere or (
                self.openings and context.is_closed and not self._closed
            ):  # the client was opened again
                context = self._context(lease.request.name)
            # Before the release is sent: no renewal may follow it (invariant 10).
            lease.owner.remove(lease)
            released = await run(context, release(lease), lease.request.name)
        except GOES_ON_ALONE:
            # The caller gets the error at once: the release goes
            # on in the background, for as long as an undo does.
            context.renewer.clean_up(release(lease, by_holder=False))
            self._report_end(lease)
            raise
        except BaseException:
            if not lease.is_released:
                lease.owner.remove(lease)  # which an interrupt may have prevented
                await clean_up(context, [partial(release, lease, by_holder=False)], lease.request.name)
                lease.let_go(monotonic())
            self._report_end(lease)
            raise
        if not released and not lost:
            lease.owner.lose(lease, gone("released"))
        # Of several callers at a time a single one gets True, and reports the release.
        if not released or lost or not lease.claim_release():
            self._report_end(lease)
            return leaves and lease.loss is None
        if self.events.dispatcher is not None or is_logged(DEBUG, True):
            self.events.released(lease)
        return True

    def leave(self, lease: LeaseState, error: BaseException | None) -> Coroutine[Any, Any, bool]:
        """Release at the end of a scope that ended with this error. Return False if the caller is to raise LeaseLost.

        If the scope failed, the exception matters, and a server that is gone is not waited for. The same holds after a
        known loss.
        """
        lost = lease.lost(monotonic())
        if error is None and not lost:
            return self.release(lease, leaves=True)
        return self._leave_failed(lease, error, lost=lost)

    async def _leave_failed(self, lease: LeaseState, error: BaseException | None, *, lost: bool) -> bool:
        """Release at the end of a scope that failed, or whose lease was lost."""
        context, parts = self._running_context(), [part for part in reversed(lease.parts) if not part.is_released]
        # All leave the table before the first release is sent: no renewal follows it (invariant 10).
        for part in parts:
            part.owner.remove(part)
        # Nothing can be sent from here: each lease ends with its ttl, and only its end is reported.
        if context is None:
            for part in parts:
                part.let_go(monotonic())
                self._report_end(part)
            return error is not None
        undos = [partial(give_up, part, monotonic()) for part in parts]
        waits = not lost and may_wait(error)
        name = lease.request.name
        if not waits:
            await clean_up(context, [], name, apart=undos)
            for part in parts:
                self._report_end(part)
            return error is not None
        # None is a release that goes on in the background: it is not known to have been lost.
        for part, released in zip(parts, await clean_up(context, undos, name), strict=True):
            if released is False:
                part.owner.lose(part, gone("released"))
            elif released:
                self.events.released(part)
            else:
                self._report_end(part)
        return error is not None

    async def extend(self, lease: LeaseState, ttl_ms: int) -> bool:
        """Extend a lease to ``ttl_ms`` from now.

        Return False if it was lost. Raises NotHeld if it is being released.
        """
        return await self._change(lease, renew(lease, ttl_ms), "extended")

    async def downgrade(self, lease: LeaseState, request: PermitRequest) -> bool:
        """Keep only these permits of a lease. Return False if it was lost. Raises NotHeld if it is being released."""
        return await self._change(lease, downgrade(lease, request), "downgraded")

    async def number(self, lease: LeaseState, prefer: int) -> tuple[int] | Literal[False]:
        """Give a lease a number. Return False if it was lost. Raises NotHeld if it is being released."""
        return await self._change(lease, number(lease, prefer), "numbered")

    async def detach(self, lease: LeaseState, ttl_ms: int) -> bool:
        """Extend a lease to ``ttl_ms`` from now, and leave it to another client. Return False if it was lost."""
        if not await self.extend(lease, ttl_ms):
            return False
        try:
            lease.let_go(monotonic())
            lease.owner.remove(lease)
            self._report_end(lease)
        except BaseException:  # an interrupt
            if lease.is_released:  # by now no caller gets the lease
                lease.owner.remove(lease)
                lease.owner.renewer.clean_up(release(lease, by_holder=False))
            raise
        return True

    async def adopt(self, detached: DetachedLease, request: PermitRequest, label: str | None) -> LeaseState:
        """Hold a lease acquired by another client, and have it shown under a label; None leaves the label unchanged.

        The caller must call `forget` on any exception.
        """
        from handfast._protocol.detached import adopt

        context = self._context(request.name)
        shown = None if label is None else (context.control, label)
        lease = await run(context, adopt(request, detached, context, shown), request.name)
        self._check_open(request.name)
        # sync only: lease.thread = threading.get_native_id()
        context.renewer.add(lease)
        self.events.acquired(lease)
        return lease

    def forget(self, detached: DetachedLease) -> None:
        """Stop renewing an adopted lease that did not reach the caller. It runs out, unless the token is used later."""
        if (context := self._running_context()) is not None:
            _stop_renewing(context, detached.token)

    def stop_renewing(self, lease: LeaseState) -> bool:
        """Let a lease run out whose holder dropped it. Return whether it was renewed until now.

        May be called at any point of any thread, by the garbage collector.
        """
        owner = lease.parts[0].owner
        renewed = [part for part in lease.parts if owner.leases.pop(part.token, None) is not None]
        return bool(renewed) and not self._closed and not owner.is_closed

    def perform_later(self, lease: LeaseState, steps: Steps[object]) -> None:
        """Perform a protocol on the side of a lease, in the background, for as long as an undo goes on at most.

        May be called from any thread.
        """
        lease.owner.perform_later(steps)

    async def finish(self, steps: Callable[[], Steps[T]], name: str, error: BaseException | None = None) -> T | None:
        """Perform a protocol that may run twice. It goes on in the background if it does not end here.

        ``error`` ended the block in which the protocol is performed. After an interrupt or a cancellation an outage is
        not waited for; in a closed coroutine, nothing is. Raises ClientClosed where the coroutine's event loop has
        ended.
        """
        if error is not None and not isinstance(error, Exception):
            there = self._running_context()
            if there is None:
                raise ClientClosed(name)
            waits = may_wait(error)
            await clean_up(there, [steps] * waits, name, apart=[steps] * (not waits))
            return None
        context = self._context(name)
        try:
            return await run(context, steps(), name)
        except GOES_ON_ALONE:
            context.renewer.clean_up(steps())
            raise
        except BaseException:
            await clean_up(context, [steps], name)
            raise

    async def run(self, steps: Steps[T], name: str, attempt: BaseAttempt | None = None) -> T:
        """Perform a protocol which leaves behind only traces that the undo of an attempt takes back."""
        try:
            return await run(self._context(name), steps, name)
        except GeneratorExit:
            if attempt is not None:
                attempt.is_unanswered = True  # a coroutine that is closed may not wait for its undo
            raise

    async def look(self, steps: Steps[T], name: str, timeout: float | None = None) -> T:
        """Perform a protocol without changes, for ``timeout`` seconds at most.

        It is not tried again in an outage.
        """
        return await run(self._context(name), steps, name, _soon(timeout), retry_for=0)

    def _report_end(self, lease: LeaseState) -> None:
        """Report the end of a lease to listeners, and a loss to the lost callbacks, unless the renewer has done so."""
        if (dispatcher := self.events.dispatcher) is not None:
            dispatcher.ended(lease)
        if lease.loss is not None and lease.callbacks:
            run_lost_callbacks(lease)

    async def _busy(self, attempt: Attempt, timeout: float) -> AcquireTimeout:
        """Return the error for an acquire that took too long, and ask who has the name."""
        name, status = attempt.request.name, None
        with contextlib.suppress(*OWN_ERRORS):
            name, status = await self.look(who_is_there(attempt.request), name, UNDO_WAIT)
        return AcquireTimeout(attempt.request.name, timeout, status, attempt.position, name)

    async def _change(self, lease: LeaseState, steps: Steps[T], change: str) -> T | Literal[False]:
        context = self._context(lease.request.name)
        if (result := await run(context, steps, lease.request.name, lease.deadline)) and lease.loss is None:
            return result
        if lease.owner.leases.get(lease.token) is lease:
            lease.owner.lose(lease, gone(change))
        if lease.loss is None:
            raise NotHeld(lease.request.name)
        return False

    def _hold(self, attempt: Attempt, grant: Any) -> LeaseState:
        """Return the lease of a grant, which is renewed from now on. `Found` is returned as it is."""
        if type(grant) is not Grant:
            return grant  # type: ignore[no-any-return]  # of `once` alone, which knows
        if self._closed:
            raise ClientClosed(attempt.request.name)
        lease = LeaseState(attempt.request, attempt.token, grant, attempt.owner, attempt.asked_at)
        # sync only: lease.thread = attempt.caller
        attempt.owner.renewer.add(lease)
        if self.events.dispatcher is not None or is_logged(DEBUG, True):
            self.events.acquired(lease, attempt)
        if attempt.told is not None:  # asyncio only
            attempt.owner.renewer.tell(lease, attempt.told)  # asyncio only
        return lease


def _stop_renewing(context: Context, token: bytes) -> LeaseState | None:
    """Let go a lease that did not reach the caller, and return it; None if there is no such lease."""
    lease = context.leases.get(token)
    if lease is not None:
        context.remove(lease)
        lease.let_go(monotonic())
    return lease


def _soon(timeout: float | None) -> float | None:
    """Return the moment ``timeout`` seconds from now, or None: each reply then has the response timeout."""
    return None if timeout is None else monotonic() + timeout
