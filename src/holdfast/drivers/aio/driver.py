"""Performs protocols for the tasks of an event loop.

Whatever ends an operation early (a cancellation, a timeout, an error of our own), what it may have left on the server is
undone by an errand of the keeper: it is on its way before anything is awaited, and no further cancellation stops it.
The caller waits for it, but not for long and not against another cancellation. The original exception always wins.

Every event loop that a client is used on has a home of its own there; a client may be made before any loop runs.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import sys
import weakref
from asyncio import AbstractEventLoop, Future
from math import inf
from time import monotonic
from typing import TypeVar, cast

from redis.exceptions import ConnectionError as ServerGone
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as ServerSilent

from holdfast.drivers.aio.home import Home
from holdfast.drivers.aio.recipe import AsyncRecipe
from holdfast.drivers.aio.session import Outcome
from holdfast.drivers.patience import PATIENCE, PAUSES, UNDO_PATIENCE
from holdfast.protocol.acquiring import Attempt, Grant, acquire, try_acquire
from holdfast.protocol.holding import Holding, release, renew
from holdfast.wire.effects import Answer, Call, Park, Steps
from holdfast.wire.permits import Permits
from holdfast.wire.refusals import elsewhere, passing, refusal
from holdfast.words.errors import AcquireTimeout, HoldfastError, ServerRefused

__all__ = ["AsyncDriver"]

logger = logging.getLogger("holdfast")

T = TypeVar("T")

_drivers: weakref.WeakSet[AsyncDriver] = weakref.WeakSet()


class AsyncDriver:
    """Everything of one client that is not words: a home on each event loop."""

    def __init__(self, recipe: AsyncRecipe, namespace: str, label: str | None) -> None:
        self._recipe = recipe
        self._namespace = namespace
        self._label = label
        self._closed = False
        self._homes: dict[AbstractEventLoop, Home] = {}
        self._finalizer = weakref.finalize(self, _leave_all, self._homes)
        _drivers.add(self)

    @staticmethod
    def caller() -> object:
        """Who is calling: the current task."""
        return asyncio.current_task()

    def attempt(self, want: Permits) -> Attempt:
        """Begin to acquire. Whoever does must call `undo` on any exception."""
        if self._closed:
            raise HoldfastError("this client was closed; make a new one", name=want.name)
        return Attempt(want, os.urandom(16).hex().encode())

    async def acquire(self, attempt: Attempt, timeout: float | None) -> Holding:
        """Wait for the lease. Raises AcquireTimeout after that many seconds, and QueueFull."""
        until = inf if timeout is None else monotonic() + timeout
        name = attempt.want.name
        home = self._home()
        home.session.expect(attempt.token)
        try:
            grant = await self._run(home, acquire(attempt, until), name, until)
        except (ServerGone, ServerSilent) as error:
            attempt.unanswered = True
            if monotonic() >= until and isinstance(error, ServerSilent):
                raise AcquireTimeout(name, timeout or 0, "the server did not answer") from error
            raise
        finally:
            home.session.forget(attempt.token)
        if grant is None:
            raise AcquireTimeout(name, timeout or 0)
        return self._hold(home, attempt, grant)

    async def try_acquire(self, attempt: Attempt) -> Holding | None:
        """The lease, or None when it is not free. One round trip."""
        home = self._home()
        grant = await self._run(home, try_acquire(attempt), attempt.want.name)
        return None if grant is None else self._hold(home, attempt, grant)

    async def undo(self, attempt: Attempt) -> None:
        """Leave nothing behind: no place in line, no permit, no renewal."""
        home = self._here()
        if attempt.pending and self._recipe.reached and home is not None:
            holding = home.ledger.find(attempt.token)
            if holding is not None:
                home.keeper.forget(holding)
                holding.given_up = True
            errand = home.keeper.run_errand(attempt.want.cancel(attempt.token))
            if not attempt.unanswered:
                await _see_to(errand)

    async def release(self, holding: Holding) -> bool:
        """Give a lease up; False when there was nothing left to give up."""
        if holding.given_up:
            return False
        lost = holding.lost(monotonic())
        self._forget(holding)
        if _is_being_closed():
            self._release_without_waiting(holding)
            return not lost
        home = self._home()
        try:
            released = await self._run(home, release(holding), holding.permits.name)
        except (ServerGone, ServerSilent):
            home.keeper.run_errand(holding.permits.release(holding.token))
            raise
        except BaseException:
            await _see_to(home.keeper.run_errand(holding.permits.release(holding.token)))
            raise
        holding.given_up = True
        if not released and not lost:
            home.keeper.lose(holding, "the server no longer had it when it was to be released")
        return released and not lost

    async def leave(self, holding: Holding, *, failed: bool) -> bool:
        """Release at the end of a block; False when the caller is to hear of a loss.

        When the block itself failed, its exception is what matters: ours are only logged.
        """
        try:
            return await self.release(holding) or failed
        except (RedisError, HoldfastError):
            if not failed:
                raise
            logger.exception("could not release %r after its block had failed", holding.permits.name)
            return True

    async def extend(self, holding: Holding, ttl_ms: int) -> bool:
        """Let a lease last that long from now; False when it was lost."""
        home = self._home()
        if not await self._run(home, renew(holding, ttl_ms), holding.permits.name, holding.deadline):
            home.keeper.lose(holding, "the server no longer had it when it was to be extended")
            return False
        return True

    def let_go(self, holding: Holding) -> bool:
        """Renew a lease no more: its holder is gone without a word. Whether it was renewed until now."""
        kept = [home for home in list(self._homes.values()) if home.ledger.find(holding.token) is holding]
        self._forget(holding)
        return any(not home.loop.is_closed() for home in kept)

    def tell(self, holding: Holding) -> None:
        """Call the callbacks of a lost lease that have not been called."""
        self._home().keeper.tell(holding)

    async def ask(self, steps: Steps[T], name: str) -> T:
        """Perform a protocol that leaves nothing behind."""
        return await self._run(self._home(), steps, name)

    async def close(self) -> None:
        """Close the connections. Leases that are still held run out by themselves."""
        self._closed = True
        home = self._here()
        if home is not None:
            await home.close(HoldfastError("this client was closed meanwhile"))
            self._homes.pop(home.loop, None)
        self._finalizer()

    def forget_parent(self) -> None:
        """This process was forked: the parent's leases, sessions and keepers are none of its business."""
        self._finalizer.detach()
        for home in self._homes.values():
            for holding in home.ledger.all():
                holding.given_up, holding.loss = True, "it belongs to the process that this one was forked from"
            home.session.abandon()
        self._homes = {}
        self._finalizer = weakref.finalize(self, _leave_all, self._homes)

    def _home(self) -> Home:
        loop = asyncio.get_running_loop()
        home = self._homes.get(loop)
        if home is None:
            if self._closed:
                raise HoldfastError("this client was closed; make a new one")
            for gone in [loop for loop in self._homes if loop.is_closed()]:
                self._homes.pop(gone).leave()
            label = self._label or f"{os.uname().nodename}:{os.getpid()}"
            home = self._homes[loop] = Home(self._recipe, self._namespace, label)
        return home

    def _here(self) -> Home | None:
        """The home on the running loop, if there are both."""
        try:
            return self._homes.get(asyncio.get_running_loop())
        except RuntimeError:
            return None

    def _release_without_waiting(self, holding: Holding) -> None:
        holding.given_up = True
        if (home := self._here()) is not None:
            home.keeper.run_errand(holding.permits.release(holding.token))

    def _forget(self, holding: Holding) -> None:
        for home in list(self._homes.values()):
            home.keeper.forget(holding)

    def _hold(self, home: Home, attempt: Attempt, grant: Grant) -> Holding:
        if self._closed:
            raise HoldfastError("this client was closed while it waited", name=attempt.want.name)
        holding = Holding(attempt.want, attempt.token, grant)
        home.keeper.watch(holding)
        return holding

    async def _run(self, home: Home, steps: Steps[T], name: str, until: float = inf) -> T:
        try:
            effect = next(steps)
            while True:
                if isinstance(effect, Park):
                    effect = steps.send(await home.session.park(effect))
                    continue
                try:
                    answer = await self._call(home, effect, name, until)
                except ServerRefused as error:
                    effect = steps.throw(error)
                else:
                    effect = steps.send(answer)
        except StopIteration as end:
            return cast("T", end.value)

    async def _call(self, home: Home, call: Call, name: str, until: float) -> Answer:
        asked_at = monotonic()
        coming = home.session.send(call)
        outcome = await coming if until == inf else await _within(home, coming, _left(until))
        if isinstance(outcome, Answer):
            return outcome
        give_up = monotonic() + min(PATIENCE, _left(until))
        for pause in itertools.chain(PAUSES, itertools.repeat(PAUSES[-1])):
            if not passing(outcome) or monotonic() + pause >= give_up:
                raise refusal(outcome, name)
            if elsewhere(outcome):
                home.session.refresh(asked_at)
            await asyncio.sleep(pause)
            asked_at = monotonic()
            outcome = await _within(home, home.session.send(call), give_up - asked_at)
            if isinstance(outcome, Answer):
                return outcome
        raise AssertionError("the pauses never end")


async def _within(home: Home, coming: Future[Outcome], seconds: float) -> Outcome:
    """Wait for a reply, but no longer than that."""
    alarm = home.loop.call_later(seconds, _give_up, coming)
    try:
        return await coming
    finally:
        alarm.cancel()


def _left(until: float) -> float:
    """Seconds left to the caller. Past its time only taking back goes on, and gets a little time of its own."""
    left = until - monotonic()
    return left if left > 0 else UNDO_PATIENCE


def _give_up(coming: Future[Outcome]) -> None:
    if not coming.done():
        coming.set_exception(ServerSilent("the server did not answer in time"))


async def _see_to(errand: Future[None]) -> None:
    """Wait until an errand is done, but not for long. It goes on whatever becomes of the waiting."""
    if not _is_being_closed():
        await asyncio.wait((errand,), timeout=UNDO_PATIENCE)


def _is_being_closed() -> bool:
    """Whether the calling coroutine is being closed before its end, and therefore may not wait for anything."""
    return isinstance(sys.exception(), GeneratorExit)


def _leave_all(homes: dict[AbstractEventLoop, Home]) -> None:
    for home in list(homes.values()):
        home.leave()
    homes.clear()


def _after_fork_in_child() -> None:
    for driver in list(_drivers):
        driver.forget_parent()


os.register_at_fork(after_in_child=_after_fork_in_child)
