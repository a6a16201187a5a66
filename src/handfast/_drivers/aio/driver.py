"""Perform protocols for the tasks of event loops.

When an operation ends early (a cancellation, a timeout, an error), what it may have left on the server is undone by
background cleanup, which is sent before anything is awaited and which no further cancellation stops. The caller waits for
it at most UNDO_WAIT seconds. The original exception always wins.

A client has a `LoopContext` on every event loop that it is used on. It may be made before any loop runs.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import os
import sys
import weakref
from asyncio import AbstractEventLoop, Future
from collections.abc import Coroutine
from math import inf
from typing import Any, TypeVar

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from handfast._drivers.aio.connect import AsyncConnector
from handfast._drivers.aio.loop_context import LoopContext, current_task
from handfast._drivers.aio.session import Outcome, Session
from handfast._drivers.clock import monotonic
from handfast._drivers.failures import (
    client_closed,
    closed_while_waiting,
    log_unfinished_cleanup,
    server_silent,
    timed_out,
)
from handfast._engine.calls import PermitRequest, Request
from handfast._engine.effects import Answer, Call, Park, Steps
from handfast._engine.resp import ErrorReply
from handfast._engine.server_errors import refusal
from handfast._protocol.acquire import Attempt, AttemptEvent, Grant, acquire, cancel, try_acquire
from handfast._protocol.lease import GONE, LOST, LeaseState, downgrade, release, renew
from handfast._protocol.retry import RETRY_FOR, UNDO_WAIT, Retry, time_left
from handfast.errors import AcquireTimeout, NotHeld, ServerRefused

__all__ = ["AsyncDriver"]

T = TypeVar("T")

_drivers: weakref.WeakSet[AsyncDriver] = weakref.WeakSet()
_parents: list[LoopContext] = []
"""The parent's contexts in a forked child, which may not finalize them."""


class AsyncDriver:
    """What one client has behind its API."""

    def __init__(self, connector: AsyncConnector, namespace: str, label: str | None) -> None:
        self._connector = connector
        self._namespace = namespace
        self._label = label
        self._closed = False
        self._contexts: dict[AbstractEventLoop, LoopContext] = {}
        self._tasks: weakref.WeakKeyDictionary[asyncio.Task[Any], int] = weakref.WeakKeyDictionary()
        self._numbers = itertools.count(1)
        self._finalizer = weakref.finalize(self, _close_all, self._contexts)
        _drivers.add(self)

    @property
    def label(self) -> str:
        """What people call this client: by default its host and process."""
        return self._label or f"{os.uname().nodename}:{os.getpid()}"

    @staticmethod
    def caller() -> object:
        """Return the running task; None outside of any."""
        return current_task()

    @staticmethod
    def is_over(caller: object) -> bool:
        """Return whether that task has ended."""
        return isinstance(caller, asyncio.Task) and caller.done()

    def attempt(self, request: Request) -> Attempt:
        """Start to acquire. The caller must call `undo` on any exception."""
        if self._closed:
            raise client_closed(request.name)
        try:
            number = self._tasks[asyncio.current_task()]  # type: ignore[index]  # a TypeError outside of any task
        except (KeyError, TypeError, RuntimeError):
            number = self._number_task()
        return Attempt(request, os.urandom(16).hex().encode(), number)

    def acquire(self, attempt: Attempt, timeout: float | None) -> Coroutine[Any, Any, LeaseState]:
        """Wait for the lease. Raises AcquireTimeout after ``timeout`` seconds, at once if it is 0; and QueueFull."""
        if timeout == 0:
            return self._acquire_now(attempt)
        until = inf if timeout is None else monotonic() + timeout
        return self._hold(attempt, acquire(attempt, until), timeout, until)  # type: ignore[return-value]  # it raises instead of None

    async def try_acquire(self, attempt: Attempt) -> LeaseState | None:
        """Return the lease, or None if it is not free. One round trip."""
        lease = await self._hold(attempt, try_acquire(attempt))
        if lease is None:
            await self.undo(attempt)
        return lease

    async def undo(self, attempt: Attempt) -> None:
        """Leave nothing behind: no queue entry, no permit, no renewal."""
        cleanup = self._begin_undo(attempt)
        if cleanup is not None and not attempt.is_unanswered:
            await _wait_for(cleanup)

    async def release(self, lease: LeaseState) -> bool:
        """Release a lease. Return False if it was lost or released before."""
        if lease.is_released:
            return False
        context = self._context(lease.request.name)
        lost = lease.status_at(monotonic()) is LOST
        lease.owner.remove(lease)
        try:
            released = await run(context.session, release(lease), lease.request.name)
        except (RedisConnectionError, RedisTimeoutError, GeneratorExit):
            context.renewer.clean_up(release(lease, by_holder=False))
            raise
        except BaseException:
            await _wait_for(context.renewer.clean_up(release(lease, by_holder=False)))
            raise
        if not released and not lost:
            lease.owner.lose(lease, GONE.format("released"))
        return released and not lost and lease.claim_release()

    async def leave(self, lease: LeaseState, error: BaseException | None) -> bool:
        """Release at the end of a scope that ended with this error. Return False if the caller is to raise LeaseLost.

        If the scope failed, its exception matters, and a server that is gone is not waited for. The same holds after a
        loss that is known.
        """
        lost = lease.lost(monotonic())
        if error is None and not lost:
            return await self.release(lease) or lease.loss is None
        if not lease.is_released:
            context = self._running_context()
            lease.owner.remove(lease)
            lease.let_go()
            if context is not None:
                cleanup = context.renewer.clean_up(release(lease, by_holder=False))
                if not lost and _may_wait(error):
                    await _wait_for_release(lease, cleanup)
        return error is not None

    async def extend(self, lease: LeaseState, ttl_ms: int) -> bool:
        """Extend a lease to that long from now. Return False if it was lost. Raises NotHeld if it is being released."""
        return await self._change(lease, renew(lease, ttl_ms), "extended")

    async def downgrade(self, lease: LeaseState, request: PermitRequest) -> bool:
        """Keep only these permits of a lease. Return False if it was lost. Raises NotHeld if it is being released."""
        return await self._change(lease, downgrade(lease, request), "downgraded")

    def stop_renewing(self, lease: LeaseState) -> bool:
        """Let a lease run out whose holder dropped it. Return whether it was renewed until now.

        May be called at any point of any thread, by the garbage collector.
        """
        owner: LoopContext = lease.owner
        return owner.leases.pop(lease.token, None) is not None and not self._closed and not owner.loop.is_closed()

    async def run(self, steps: Steps[T], name: str) -> T:
        """Perform a protocol that leaves nothing behind."""
        return await run(self._context(name).session, steps, name)

    async def close(self) -> None:
        """Close the connections. Leases that are still held run out."""
        self._closed = True
        context = self._running_context()
        if context is not None:
            await context.close()
            self._contexts.pop(context.loop, None)
        self._finalizer()

    def disown_parent(self) -> None:
        """Start anew in a forked child: leases, sessions and renewers are the parent's."""
        self._finalizer.detach()
        for context in self._contexts.values():
            for lease in context.leases.all():
                lease.disown()
            context.session.abandon()
        _parents.extend(self._contexts.values())
        self._contexts = {}
        self._finalizer = weakref.finalize(self, _close_all, self._contexts)

    async def _acquire_now(self, attempt: Attempt) -> LeaseState:
        lease = await self.try_acquire(attempt)
        if lease is None:
            raise AcquireTimeout(attempt.request.name, 0)
        return lease

    async def _change(self, lease: LeaseState, steps: Steps[bool], change: str) -> bool:
        context = self._context(lease.request.name)
        if await run(context.session, steps, lease.request.name, lease.deadline) and lease.loss is None:
            return True
        if lease.owner.leases.get(lease.token) is lease:
            lease.owner.lose(lease, GONE.format(change))
        if lease.loss is None:
            raise NotHeld(lease.request.name)
        return False

    def _number_task(self) -> int:
        """Return a number for the running task: tasks are numbered in the order in which they first acquire; 0 outside of any."""
        task = current_task()
        if task is None:
            return 0
        number = self._tasks[task] = next(self._numbers)
        return number

    def _context(self, name: str) -> LoopContext:
        """Return the context of the running loop, which is made at first use."""
        loop = asyncio.get_running_loop()
        context = self._contexts.get(loop)
        if context is None:
            if self._closed:
                raise client_closed(name)
            for other in list(self._contexts.values()):
                if other.loop.is_closed():
                    self._contexts.pop(other.loop, None)
                    other.close_now()
            context = self._contexts[loop] = LoopContext(self._connector, self._namespace, self.label)
        return context

    def _running_context(self) -> LoopContext | None:
        """Return the context of the running loop, if both exist."""
        try:
            return self._contexts.get(asyncio.get_running_loop())
        except RuntimeError:
            return None

    async def _hold(
        self, attempt: Attempt, steps: Steps[Grant | None], timeout: float | None = None, until: float = inf
    ) -> LeaseState | None:
        """Perform an acquire, and renew what it grants."""
        context = self._context(attempt.request.name)
        try:
            grant = await run(context.session, steps, attempt.request.name, until)
        except GeneratorExit:  # the coroutine is closed, and may not await anything
            if self._begin_undo(attempt) is not None:
                attempt.apply(AttemptEvent.CLEAN_UP)
            raise
        except (RedisConnectionError, RedisTimeoutError) as error:
            attempt.apply(AttemptEvent.SILENCE)
            if (timeout_error := timed_out(error, attempt.request.name, timeout, until)) is not None:
                raise timeout_error from error
            raise
        finally:
            revoked = context.session.inbox.unregister(attempt.token)
        if grant is None:
            if timeout is not None:
                raise AcquireTimeout(attempt.request.name, timeout)
            return None
        if self._closed:
            raise closed_while_waiting(attempt.request.name)
        lease = LeaseState(attempt.request, attempt.token, grant, context)
        context.renewer.add(lease)
        if revoked is not None:
            context.renewer.lose(lease, revoked)
        return lease

    def _begin_undo(self, attempt: Attempt) -> Future[Any] | None:
        context = self._running_context()
        if not attempt.needs_undo or not self._connector.reached or context is None:
            return None
        lease = context.leases.get(attempt.token)
        if lease is not None:
            context.remove(lease)
            lease.let_go()
        return context.renewer.clean_up(cancel(attempt))


async def run(session: Session, steps: Steps[T], name: str, until: float = inf) -> T:
    """Perform a protocol on a session, until that moment at most, and return its result."""
    try:
        effect = next(steps)
        while True:
            if isinstance(effect, Park):
                effect = steps.send(await session.park(effect))
                continue
            breaks, sent = session.breaks, session.send(effect)
            give_up_at = inf if until == inf else _end_of_call(until)
            outcome = await sent if give_up_at == inf else await _within(sent, give_up_at)
            if isinstance(outcome, Answer):
                effect = steps.send(outcome)
                continue
            try:
                retry = Retry(name, min(monotonic() + RETRY_FOR, give_up_at), once=effect.once)
                answer = await _call_again(session, effect, outcome, breaks, retry)
            except ServerRefused as error:
                effect = steps.throw(error)
            else:
                effect = steps.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result


async def _call_again(session: Session, call: Call, refused: ErrorReply, breaks: int, retry: Retry) -> Answer:
    """Send a call again while the refusals of the server are transient, and return its reply.

    The session itself sends again after a broken connection; ``breaks`` is how many broke before the call was first sent.
    """
    latest = breaks
    while True:
        retry.may_have_run = session.breaks != breaks
        verdict = retry.after_refusal(refused, monotonic())
        if verdict.reconnect:
            session.reconnect(latest)
        if verdict.error is not None:
            raise verdict.error
        await asyncio.sleep(verdict.pause)
        latest = session.breaks
        try:
            outcome = await _within(session.send(call), retry.give_up_at)
        except (RedisConnectionError, RedisTimeoutError) as error:
            raise refusal(refused, retry.name, again=True) from error
        if isinstance(outcome, Answer):
            return outcome._replace(again=session.breaks != breaks)
        refused = outcome


def _end_of_call(until: float) -> float:
    """Return the moment until which a call of an operation is waited for, which itself ends at ``until``."""
    now = monotonic()
    return now + time_left(until, now)


async def _within(sent: Future[Outcome], until: float) -> Outcome:
    """Wait for a reply until that moment at most."""
    alarm = sent.get_loop().call_later(until - monotonic(), _give_up, sent, until)
    try:
        return await sent
    finally:
        alarm.cancel()


def _give_up(sent: Future[Outcome], until: float) -> None:
    if sent.done():
        return
    early = until - monotonic()  # some event loops round timers to whole milliseconds
    if early > 0:
        sent.get_loop().call_later(early, _give_up, sent, until)
    else:
        sent.set_exception(server_silent())


async def _wait_for(cleanup: Future[Any]) -> None:
    """Wait for a cleanup, at most UNDO_WAIT seconds. A cancellation ends the wait and not the cleanup."""
    await asyncio.wait((cleanup,), timeout=UNDO_WAIT)


async def _wait_for_release(lease: LeaseState, cleanup: Future[Any]) -> None:
    await _wait_for(cleanup)
    released = cleanup.result() if cleanup.done() else None
    if released is None:
        log_unfinished_cleanup(lease.request.name, "the server did not answer in time")
    elif not released:
        lease.owner.lose(lease, GONE.format("released"))


def _may_wait(error: BaseException | None) -> bool:
    """Return whether the caller, which handles this error, may await: a closed coroutine may not, an async generator may."""
    if not isinstance(error, GeneratorExit):
        return True
    frame = sys._getframe(1)  # noqa: SLF001 -- documented, and nothing else tells the two apart
    while frame.f_back is not None and frame.f_code.co_flags & inspect.CO_COROUTINE:
        frame = frame.f_back
    return bool(frame.f_code.co_flags & inspect.CO_ASYNC_GENERATOR)


def _close_all(contexts: dict[AbstractEventLoop, LoopContext]) -> None:
    for context in list(contexts.values()):
        context.close_now()
    contexts.clear()


def _after_fork_in_child() -> None:
    for driver in list(_drivers):
        driver.disown_parent()


os.register_at_fork(after_in_child=_after_fork_in_child)
