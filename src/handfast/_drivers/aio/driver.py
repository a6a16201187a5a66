"""Performs protocols for the tasks of an event loop.

Whatever ends an operation early (a cancellation, a timeout, an error of our own), what it may have left on the server is
undone by an errand of the keeper: it is on its way before anything is awaited, and no further cancellation stops it.
The caller waits for it, but not for long and not against another cancellation. The original exception always wins.

Every event loop that a client is used on has a home of its own there; a client may be made before any loop runs.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import sys
import weakref
from asyncio import AbstractEventLoop, Future
from math import inf
from time import monotonic
from typing import TypeVar

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from handfast._drivers.aio.connect import AsyncConnector
from handfast._drivers.aio.loop_context import LoopContext
from handfast._drivers.aio.loops import current_task
from handfast._drivers.aio.runner import perform
from handfast._drivers.aio.session import Outcome
from handfast._drivers.timeouts import UNDO_WAIT
from handfast._engine.calls import PermitRequest, Request
from handfast._engine.effects import Answer, Steps
from handfast._protocol.acquire import Attempt, Grant, acquire, try_acquire
from handfast._protocol.lease import LeaseState, lower, release, renew
from handfast.errors import AcquireTimeout, HandfastError, NotHeld

__all__ = ["AsyncDriver"]

logger = logging.getLogger("handfast")

T = TypeVar("T")

_drivers: weakref.WeakSet[AsyncDriver] = weakref.WeakSet()
_parents: list[LoopContext] = []
"""In a forked child: what its parent has, not to be finalized here."""


class AsyncDriver:
    """Everything of one client that is not words: a home on each event loop."""

    def __init__(self, recipe: AsyncConnector, namespace: str, label: str | None) -> None:
        self._recipe = recipe
        self._namespace = namespace
        self._label = label
        self._closed = False
        self._homes: dict[AbstractEventLoop, LoopContext] = {}
        self._finalizer = weakref.finalize(self, _leave_all, self._homes)
        _drivers.add(self)

    @staticmethod
    def caller() -> object:
        """Who is calling: the current task, if there is one."""
        return current_task()

    @staticmethod
    def is_over(caller: object) -> bool:
        """Whether that task has ended."""
        return isinstance(caller, asyncio.Task) and caller.done()

    def attempt(self, want: Request) -> Attempt:
        """Begin to acquire. Whoever does must call `undo` on any exception."""
        if self._closed:
            raise HandfastError("this client was closed; make a new one", name=want.name)
        return Attempt(want, os.urandom(16).hex().encode())

    async def acquire(self, attempt: Attempt, timeout: float | None) -> LeaseState:
        """Wait for the lease. Raises AcquireTimeout after that many seconds, and QueueFull."""
        until = inf if timeout is None else monotonic() + timeout
        try:
            holding = await self._hold(attempt, acquire(attempt, until), until)
        except (RedisConnectionError, RedisTimeoutError) as error:
            attempt.unanswered = True
            if monotonic() >= until and isinstance(error, RedisTimeoutError):
                raise AcquireTimeout(attempt.want.name, timeout or 0, "the server did not answer") from error
            raise
        if holding is None:
            raise AcquireTimeout(attempt.want.name, timeout or 0)
        return holding

    async def try_acquire(self, attempt: Attempt) -> LeaseState | None:
        """The lease, or None when it is not free. One round trip."""
        holding = await self._hold(attempt, try_acquire(attempt))
        if holding is None:
            await self.undo(attempt)
        return holding

    async def undo(self, attempt: Attempt) -> None:
        """Leave nothing behind: no place in line, no permit, no renewal."""
        errand = self._begin_undo(attempt)
        if errand is not None and not attempt.unanswered:
            await _see_to(errand)

    async def release(self, holding: LeaseState) -> bool:
        """Give a lease up; False when there was nothing left to give up."""
        if holding.given_up:
            return False
        home = self._home(holding.permits.name)
        lost = holding.lost(monotonic())
        owner = self._forget(holding) or home
        try:
            released = await perform(home.session, release(holding), holding.permits.name)
        except (RedisConnectionError, RedisTimeoutError, GeneratorExit):
            home.keeper.clean_up_later(holding.permits.release(holding.token))
            raise
        except BaseException:
            await _see_to(home.keeper.clean_up_later(holding.permits.release(holding.token)))
            raise
        holding.given_up = True
        if not released and not lost:
            owner.lose(holding, "the server no longer had it when it was to be released")
        return released and not lost

    async def leave(self, holding: LeaseState, error: BaseException | None) -> bool:
        """Release at the end of a block that ended with this error; False when the caller is to hear of a loss.

        When the block itself failed, its exception is what matters, and does not wait for a server that is gone. Nor
        does a loss that is known.
        """
        if error is None and not holding.lost(monotonic()):
            return await self.release(holding)
        if not holding.given_up:
            home = self._here()
            owner = self._forget(holding) or home
            holding.given_up = True
            if home is not None and owner is not None:
                errand = home.keeper.clean_up_later(holding.permits.release(holding.token))
                if holding.loss is None and _may_wait(error):
                    await _see_released(owner, holding, errand)
        return error is not None

    async def extend(self, holding: LeaseState, ttl_ms: int) -> bool:
        """Let a lease last that long from now; False when it was lost. Raises NotHeld if it is being given up."""
        return await self._change(holding, renew(holding, ttl_ms), "extended")

    async def lower(self, holding: LeaseState, permits: PermitRequest) -> bool:
        """Keep only these permits of a lease; False when it was lost. Raises NotHeld if it is being given up."""
        return await self._change(holding, lower(holding, permits), "downgraded")

    def let_go(self, holding: LeaseState) -> bool:
        """Renew a lease no more: its holder is gone without a word. Whether it was renewed until now.

        May be called in the middle of anything, by any thread.
        """
        owner = self._owner(holding)
        return owner is not None and owner.ledger.drop(holding) and not self._closed and not owner.loop.is_closed()

    async def ask(self, steps: Steps[T], name: str) -> T:
        """Perform a protocol that leaves nothing behind."""
        return await perform(self._home(name).session, steps, name)

    async def close(self) -> None:
        """Close the connections. Leases that are still held run out by themselves."""
        self._closed = True
        home = self._here()
        if home is not None:
            await home.close(HandfastError("this client was closed meanwhile"))
            self._homes.pop(home.loop, None)
        self._finalizer()

    def forget_parent(self) -> None:
        """This process was forked: the parent's leases, sessions and keepers are none of its business."""
        self._finalizer.detach()
        for home in self._homes.values():
            for holding in home.ledger.all():
                holding.given_up, holding.loss = True, "it belongs to the process that this one was forked from"
            home.session.abandon()
        _parents.extend(self._homes.values())
        self._homes = {}
        self._finalizer = weakref.finalize(self, _leave_all, self._homes)

    async def _change(self, holding: LeaseState, steps: Steps[bool], what: str) -> bool:
        home = self._home(holding.permits.name)
        if await perform(home.session, steps, holding.permits.name, holding.deadline) and holding.loss is None:
            return True
        owner = self._owner(holding)
        if owner is not None:
            owner.lose(holding, f"the server no longer had it when it was to be {what}")
        if holding.loss is None:
            raise NotHeld(holding.permits.name)
        return False

    def _home(self, name: str) -> LoopContext:
        loop = asyncio.get_running_loop()
        home = self._homes.get(loop)
        if home is None:
            if self._closed:
                raise HandfastError("this client was closed; make a new one", name=name)
            for other in list(self._homes.values()):
                if other.loop.is_closed():
                    self._homes.pop(other.loop, None)
                    other.leave()
            label = self._label or f"{os.uname().nodename}:{os.getpid()}"
            home = self._homes[loop] = LoopContext(self._recipe, self._namespace, label)
        return home

    def _here(self) -> LoopContext | None:
        """The home on the running loop, if there are both."""
        try:
            return self._homes.get(asyncio.get_running_loop())
        except RuntimeError:
            return None

    def _owner(self, holding: LeaseState) -> LoopContext | None:
        """The home that keeps this lease."""
        homes = list(self._homes.values())
        return next((home for home in homes if home.ledger.find(holding.token) is holding), None)

    def _forget(self, holding: LeaseState) -> LoopContext | None:
        """Let nobody keep this lease any more. The home that did."""
        owner = self._owner(holding)
        if owner is not None:
            owner.keeper.forget(holding)
        return owner

    async def _hold(self, attempt: Attempt, steps: Steps[Grant | None], until: float = inf) -> LeaseState | None:
        """Perform an acquire, and keep what it grants."""
        home = self._home(attempt.want.name)
        home.session.ears.expect(attempt.token)
        try:
            grant = await perform(home.session, steps, attempt.want.name, until)
        except GeneratorExit:  # the coroutine is closed before its end, and may not wait for anything
            self._begin_undo(attempt)
            attempt.pending = False
            raise
        finally:
            revoked = home.session.ears.forget(attempt.token)
        if grant is None:
            return None
        if self._closed:
            raise HandfastError("this client was closed while it waited", name=attempt.want.name)
        holding = LeaseState(attempt.want, attempt.token, grant)
        home.keeper.watch(holding)
        if revoked is not None:
            home.keeper.lose(holding, revoked)
        return holding

    def _begin_undo(self, attempt: Attempt) -> Future[Outcome | None] | None:
        home = self._here()
        if not attempt.pending or not self._recipe.reached or home is None:
            return None
        holding = home.ledger.find(attempt.token)
        if holding is not None:
            home.keeper.forget(holding)
            holding.given_up = True
        return home.keeper.clean_up_later(attempt.want.cancel(attempt.token))


async def _see_to(errand: Future[Outcome | None]) -> None:
    """Wait until an errand is done, but not for long. It goes on whatever becomes of the waiting."""
    await asyncio.wait((errand,), timeout=UNDO_WAIT)


def _may_wait(error: BaseException | None) -> bool:
    """Whether the caller, who handles this error, may wait: a coroutine that is closed may not, an async generator may."""
    if not isinstance(error, GeneratorExit):
        return True
    frame = sys._getframe(1)  # noqa: SLF001 -- documented, and nothing else tells the two apart
    while frame.f_back is not None and frame.f_code.co_flags & inspect.CO_COROUTINE:
        frame = frame.f_back
    return bool(frame.f_code.co_flags & inspect.CO_ASYNC_GENERATOR)


async def _see_released(owner: LoopContext, holding: LeaseState, errand: Future[Outcome | None]) -> None:
    await _see_to(errand)
    outcome = errand.result() if errand.done() else None
    if not isinstance(outcome, Answer):
        logger.warning("could not release %r yet after its block had failed", holding.permits.name)
    elif outcome.reply[0] == b"lost":
        owner.lose(holding, "the server no longer had it when it was to be released")


def _leave_all(homes: dict[AbstractEventLoop, LoopContext]) -> None:
    for home in list(homes.values()):
        home.leave()
    homes.clear()


def _after_fork_in_child() -> None:
    for driver in list(_drivers):
        driver.forget_parent()


os.register_at_fork(after_in_child=_after_fork_in_child)
