"""Perform protocols for the tasks of event loops.

When an operation ends early (a cancellation, a timeout, an error), what it may have left on the server is undone by
background cleanup, which is sent before anything is awaited and which no further cancellation stops. The caller waits
for it at most UNDO_WAIT seconds. The original exception always wins.

A client has a `LoopContext` on every event loop that it is used on. It may be made before any loop runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
import os
import sys
import weakref
from asyncio import AbstractEventLoop, Future, get_running_loop
from asyncio import current_task as current_task_of
from binascii import hexlify
from collections.abc import Callable, Coroutine, Hashable
from logging import DEBUG
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from handfast._drivers import log
from handfast._drivers.aio.connect import AsyncConnector
from handfast._drivers.aio.loop_context import LoopContext, current_task
from handfast._drivers.aio.performing import run
from handfast._drivers.clock import monotonic
from handfast._drivers.driver import Driver
from handfast._drivers.failures import (
    OWN_ERRORS,
)
from handfast._engine.calls import PermitRequest, Request
from handfast._engine.effects import Answer, Found, Steps
from handfast._protocol.acquire import Attempt, BaseAttempt, Grant, acquire, cancel, try_acquire
from handfast._protocol.admin import who_is_there
from handfast._protocol.lease import GONE, LeaseState, downgrade, release, renew
from handfast._protocol.retry import UNDO_WAIT
from handfast._protocol.waiting import Watch
from handfast.errors import AcquireTimeout, ClientClosed, NotHeld

if TYPE_CHECKING:
    from handfast._protocol.asking import ObjectAttempt
    from handfast._protocol.detached import DetachedLease

__all__ = ["AsyncDriver"]

T = TypeVar("T")

_parents: list[LoopContext] = []
"""The parent's contexts in a forked child, which may not finalize them."""


class AsyncDriver(Driver[AsyncConnector]):
    """Performs protocols for one client: it has a `LoopContext` on each event loop."""

    def __init__(
        self, connector: AsyncConnector, namespace: str, label: str | None, retry_for: float, *, release_at_exit: bool
    ) -> None:
        self._closed = False
        self._contexts: dict[AbstractEventLoop, LoopContext] = {}
        self._tasks: dict[int, tuple[int, weakref.ref[Any]]] = {}
        self._numbers = itertools.count(1)
        self._finalizer = weakref.finalize(self, _close_in, os.getpid(), self._contexts)
        super().__init__(connector, namespace, label, retry_for, release_at_exit=release_at_exit)

    caller: staticmethod[[], asyncio.Task[Any] | None] = staticmethod(current_task)

    @staticmethod
    def is_over(caller: object) -> bool:
        """Return whether that task has ended."""
        return isinstance(caller, asyncio.Task) and caller.done()

    def attempt(self, request: Request) -> Attempt:
        """Start to acquire. The caller must call `undo` on any exception."""
        if self._closed:
            raise ClientClosed(request.name)
        loop = get_running_loop()
        context = self._contexts.get(loop)
        if context is None or self._pid != os.getpid():  # asked here, as in `release`: without a frame for it
            context = self._context(request.name)
        task = current_task_of(loop)
        known = self._tasks.get(id(task))
        number = self._number(task) if known is None else known[0]
        return Attempt(request, hexlify(os.urandom(16)), monotonic(), number, context)

    def acquire(self, attempt: Attempt, timeout: float | None) -> Coroutine[Any, Any, LeaseState]:
        """Wait for the lease. Raises AcquireTimeout after ``timeout`` seconds, at once if it is 0; and QueueFull."""
        if timeout == 0:
            return self._acquire_now(attempt)
        until = inf if timeout is None else attempt.asked_at + timeout
        return self._hold(attempt, acquire(attempt, until, self._watch), timeout, until)

    async def acquire_in_turns(self, attempt: Attempt, timeout: float | None, question: Hashable) -> LeaseState | Found:
        """Acquire what many tasks ask for, where an answer that grants nothing is one for all of them."""
        if timeout == 0:
            return await self._acquire_now(attempt)
        until = inf if timeout is None else attempt.asked_at + timeout
        context: LoopContext = attempt.owner
        lease = await context.waits.ask(
            question,
            attempt.asked_at,
            until,
            lambda: self._watch(attempt)(monotonic()),
            lambda: self.acquire(attempt, timeout),
        )
        if lease is None:
            raise await self._busy(attempt, timeout or 0)
        return lease

    async def try_acquire(self, attempt: Attempt, timeout: float | None = None) -> LeaseState | None:
        """Return the lease, or None if it is not free. One round trip, for ``timeout`` seconds at most."""
        lease: LeaseState | None = await self._hold(attempt, try_acquire(attempt), None, _soon(timeout), retry_for=0)
        if lease is None:
            await self.undo(attempt)
        return lease

    async def wait(self, attempt: BaseAttempt, steps: Steps[T], until: float = inf, *, once: bool = False) -> T:
        """Perform the protocol of an attempt that gets no lease, until that moment at most.

        With ``once`` it does not wait for a server that is away. Its messages are of no use afterwards.
        """
        name, retry_for = attempt.request.name, 0 if once else None
        context = self._context(name)
        try:
            result = await run(context, steps, name, None if once else until, retry_for=retry_for, attempt=attempt)
        except GeneratorExit:  # the coroutine is closed, and may not await anything
            self._begin_undo(attempt)
            raise
        except (RedisConnectionError, RedisTimeoutError):
            attempt.is_unanswered = True
            raise
        finally:
            context.session.forget(attempt.token)
        self._check_open(name)
        return result

    async def watch(self, attempt: ObjectAttempt, steps: Callable[[float], Steps[Answer]], until: float) -> Answer:
        """Wait for an answer, until ``until`` at most. Tasks with the same question share a single request."""

        async def ask(until: float) -> Answer:
            return await self.wait(attempt, steps(until), until, once=until <= attempt.asked_at)

        request = attempt.request
        return await self._context(request.name).waits.share(request.question, attempt.asked_at, until, ask)

    async def undo(self, attempt: BaseAttempt) -> None:
        """Leave nothing behind: no queue entry, no permit, no renewal.

        It is begun once; a call in the middle of it does nothing.
        """
        await _wait_for(*self._begin_undo(attempt))

    async def release(self, lease: LeaseState, *, leaves: bool = False) -> bool:
        """Release a lease. Return False if it was lost or released before; with ``leaves`` only if it was lost."""
        lost = lease.lost(monotonic())
        if lease.is_released or (lost and self._closed):
            return leaves and lease.loss is None
        context = self._contexts.get(get_running_loop())
        if context is None or self._pid != os.getpid():
            context = self._context(lease.request.name)
        lease.owner.remove(lease)
        try:
            released = await run(context, release(lease), lease.request.name)
        except (*OWN_ERRORS, GeneratorExit):
            context.renewer.clean_up(release(lease, by_holder=False))
            raise
        except BaseException:
            await _wait_for(context.renewer.clean_up(release(lease, by_holder=False)))
            raise
        if not released and not lost:
            lease.owner.lose(lease, GONE.format("released"))
        if not released or lost or not lease.claim_release():
            return leaves and lease.loss is None
        if log.lease_log.isEnabledFor(DEBUG):
            log.released(lease)
        return True

    def leave(self, lease: LeaseState, error: BaseException | None) -> Coroutine[Any, Any, bool]:
        """Release at the end of a scope that ended with this error. Return False if the caller is to raise LeaseLost.

        If the scope failed, its exception matters, and a server that is gone is not waited for. The same holds after a
        loss that is known.
        """
        lost = lease.lost(monotonic())
        if error is None and not lost:
            return self.release(lease, leaves=True)
        return self._leave_failed(lease, error, lost=lost)

    async def _leave_failed(self, lease: LeaseState, error: BaseException | None, *, lost: bool) -> bool:
        """Release at the end of a scope that failed, or whose lease was lost."""
        context, releases = self._running_context(), list[tuple[LeaseState, Future[Any]]]()
        for part in reversed(lease.parts):
            if not part.is_released:
                part.owner.remove(part)
                part.let_go(monotonic())
                if context is not None:
                    releases.append((part, context.renewer.clean_up(release(part, by_holder=False))))
        if releases and not lost and _may_wait(error):
            await _wait_for_releases(releases)
        return error is not None

    async def extend(self, lease: LeaseState, ttl_ms: int) -> bool:
        """Extend a lease to ``ttl_ms`` from now.

        Return False if it was lost. Raises NotHeld if it is being released.
        """
        return await self._change(lease, renew(lease, ttl_ms), "extended")

    async def downgrade(self, lease: LeaseState, request: PermitRequest) -> bool:
        """Keep only these permits of a lease. Return False if it was lost. Raises NotHeld if it is being released."""
        return await self._change(lease, downgrade(lease, request), "downgraded")

    async def detach(self, lease: LeaseState, ttl_ms: int) -> bool:
        """Extend a lease to ``ttl_ms`` from now, and leave it to another client. Return False if it was lost."""
        if not await self.extend(lease, ttl_ms):
            return False
        lease.let_go(monotonic())
        lease.owner.remove(lease)
        return True

    def _holds(self, token: bytes) -> bool:
        return any(token in context.leases for context in list(self._contexts.values()))

    async def adopt(self, detached: DetachedLease, request: PermitRequest, label: str | None) -> LeaseState:
        """Hold a lease that another client acquired, and have it shown under a label; None leaves that as it is."""
        from handfast._protocol.detached import adopt

        context = self._context(request.name)
        shown = None if label is None else (context.control, label)
        lease = await run(context, adopt(request, detached, context, shown), request.name)
        if self._closed:
            raise ClientClosed(request.name)
        context.renewer.add(lease)
        return lease

    def forget(self, detached: DetachedLease) -> None:
        """Do nothing: an adoption is interrupted only where it awaits the driver, before the lease is renewed."""

    def stop_renewing(self, lease: LeaseState) -> bool:
        """Let a lease run out whose holder dropped it. Return whether it was renewed until now.

        May be called at any point of any thread, by the garbage collector.
        """
        owner: LoopContext = lease.parts[0].owner
        renewed = [part for part in lease.parts if owner.leases.pop(part.token, None) is not None]
        return bool(renewed) and not self._closed and not owner.loop.is_closed()

    async def run(self, steps: Steps[T], name: str, attempt: BaseAttempt | None = None) -> T:
        """Perform a protocol that leaves nothing behind but what the undo of an attempt takes back."""
        try:
            return await run(self._context(name), steps, name)
        except GeneratorExit:  # the coroutine is closed, and may not await anything
            if attempt is not None:
                self._begin_undo(attempt)
            raise

    async def look(self, steps: Steps[T], name: str, timeout: float | None = None) -> T:
        """Perform a protocol that changes nothing, for ``timeout`` seconds at most.

        It is not tried again in an outage.
        """
        return await run(self._context(name), steps, name, _soon(timeout), retry_for=0)

    async def close(self, *, release: bool | None) -> None:
        """Close the connections. Release what is held on this loop, or let it run out."""
        self._closed = True
        context = self._running_context()
        if context is not None:
            await context.close(gives_up=self._release_at_exit if release is None else release)
            self._contexts.pop(context.loop, None)
        self._finalizer()

    def disown_parent(self) -> None:
        """Start anew in a forked child: leases, sessions and renewers are the parent's."""
        self._finalizer.detach()
        for context in self._contexts.values():
            context.abandon()
        _parents.extend(self._contexts.values())
        self._contexts = {}
        self._finalizer = weakref.finalize(self, _close_in, os.getpid(), self._contexts)

    def _check_open(self, name: str) -> None:
        if self._closed:
            raise ClientClosed(name)

    async def _acquire_now(self, attempt: Attempt) -> LeaseState:
        lease = await self.try_acquire(attempt)
        if lease is None:
            raise await self._busy(attempt, 0)
        return lease

    async def _busy(self, attempt: Attempt, timeout: float) -> AcquireTimeout:
        """Return the error for an acquire that took too long, and ask who has the name."""
        name, status = attempt.request.name, None
        with contextlib.suppress(*OWN_ERRORS):
            name, status = await self.look(who_is_there(attempt.request), name, UNDO_WAIT)
        return AcquireTimeout(attempt.request.name, timeout, status, attempt.position, name)

    async def _change(self, lease: LeaseState, steps: Steps[bool], change: str) -> bool:
        context = self._context(lease.request.name)
        if await run(context, steps, lease.request.name, lease.deadline) and lease.loss is None:
            return True
        if lease.owner.leases.get(lease.token) is lease:
            lease.owner.lose(lease, GONE.format(change))
        if lease.loss is None:
            raise NotHeld(lease.request.name)
        return False

    def _watch(self, attempt: Attempt) -> Watch:
        request = attempt.request
        return Watch(request, attempt.owner.leases, _is_of_running_task, log.own_wait, held=attempt.held)

    def _number(self, task: asyncio.Task[Any] | None) -> int:
        """Return a number for a task: tasks are numbered in the order in which they first acquire; 0 without a task."""
        if task is None:
            return 0
        tasks, key, number = self._tasks, id(task), next(self._numbers)
        tasks[key] = number, weakref.ref(task, lambda _: tasks.pop(key, None))
        return number

    def _context(self, name: str) -> LoopContext:
        """Return the context of the running loop, which is made at first use."""
        if self._pid != os.getpid():  # asked here, without a frame for it
            self._in_this_process()
        loop = asyncio.get_running_loop()
        context = self._contexts.get(loop)
        if context is None:
            if self._closed:
                raise ClientClosed(name)
            for other in list(self._contexts.values()):
                if other.loop.is_closed():
                    self._contexts.pop(other.loop, None)
                    other.close_now()
            context = self._contexts[loop] = LoopContext(
                self._connector, self._namespace, self.label, self._retry_for, release_at_end=self._release_at_exit
            )
        return context

    def _running_context(self) -> LoopContext | None:
        """Return the context of the running loop, if both exist."""
        try:
            return self._contexts.get(asyncio.get_running_loop())
        except RuntimeError:
            return None

    async def _hold(
        self,
        attempt: Attempt,
        steps: Steps[Any],
        timeout: float | None,
        until: float | None,
        *,
        retry_for: float | None = None,
    ) -> Any:
        """Perform an acquire, and renew the lease. Return the lease, or `Found`, or None."""
        context: LoopContext = attempt.owner
        try:
            grant = await run(context, steps, attempt.request.name, until, retry_for=retry_for, attempt=attempt)
        except GeneratorExit:  # the coroutine is closed, and may not await anything
            self._begin_undo(attempt)
            raise
        except (RedisConnectionError, RedisTimeoutError):
            attempt.is_unanswered = True
            raise
        finally:
            revoked = context.session.forget(attempt.token)
        if type(grant) is not Grant:
            if grant is None and timeout is not None:
                raise await self._busy(attempt, timeout)
            return grant  # `Found`, or None
        if self._closed:
            raise ClientClosed(attempt.request.name)
        lease = LeaseState(attempt.request, attempt.token, grant, context, attempt.asked_at)
        context.renewer.add(lease)
        if log.lease_log.isEnabledFor(DEBUG):
            log.acquired(lease)
        if revoked is not None:
            context.renewer.lose(lease, revoked)
        return lease

    def _begin_undo(self, attempt: BaseAttempt) -> list[Future[Any]]:
        """Begin an undo, if there is anything to undo.

        Return what to wait for: nothing if the server does not answer.
        """
        context, waits = self._running_context(), not attempt.is_unanswered
        if not attempt.needs_undo or not self._connector.reached or context is None:
            return []
        lease = context.leases.get(attempt.token)
        if lease is not None:
            context.remove(lease)
            lease.let_go(monotonic())
        cleanup = context.renewer.clean_up(cancel(attempt))
        attempt.is_left = True
        return [cleanup] * waits


async def _wait_for(*cleanups: Future[Any]) -> None:
    """Wait for cleanups, at most UNDO_WAIT seconds. A cancellation ends the wait and not the cleanups."""
    if cleanups:
        await asyncio.wait(cleanups, timeout=UNDO_WAIT)


async def _wait_for_releases(releases: list[tuple[LeaseState, Future[Any]]]) -> None:
    await _wait_for(*(cleanup for _, cleanup in releases))
    for lease, cleanup in releases:
        released = cleanup.result() if cleanup.done() else None
        if released is None:
            log.unfinished_cleanup(lease.request.name, "the server did not answer in time")
        elif not released:
            lease.owner.lose(lease, GONE.format("released"))
        elif log.lease_log.isEnabledFor(DEBUG):
            log.released(lease)


def _soon(timeout: float | None) -> float | None:
    """Return the moment in so many seconds; None for the time that the server has for each reply."""
    return None if timeout is None else monotonic() + timeout


def _may_wait(error: BaseException | None) -> bool:
    """Return whether the caller, which handles this error, may await: a closed coroutine may not, an async generator may."""
    if not isinstance(error, GeneratorExit):
        return True
    frame = sys._getframe(1)  # noqa: SLF001 -- documented, and nothing else tells the two apart
    while frame.f_back is not None and frame.f_code.co_flags & inspect.CO_COROUTINE:
        frame = frame.f_back
    return bool(frame.f_code.co_flags & inspect.CO_ASYNC_GENERATOR)


def _is_of_running_task(block: object) -> bool:
    """Return whether the running task entered a block, and so leaves it."""
    return block is current_task()


def _close_in(pid: int, contexts: dict[AbstractEventLoop, LoopContext]) -> None:
    """Close what is of this process, and not what its parent had."""
    if os.getpid() != pid:
        return
    for context in list(contexts.values()):
        context.close_now()
    contexts.clear()
