"""Performs protocols in the caller's own thread.

Whatever ends an operation early (a timeout of the network, Ctrl-C, an error of our own), what it may have left on the
server is undone: the undo is itself a protocol, given along with the operation. It runs on a fresh session, and the
original exception always wins.

Scripts are idempotent, so a call whose reply got lost is simply sent again, on a new connection, with growing pauses.
A server that was never reached fails at once; one that was there before is given some seconds to come back.
"""

from __future__ import annotations

import itertools
import logging
import os
import secrets
import time
import weakref
from functools import partial
from math import inf
from time import monotonic
from typing import TypeVar, cast

from redis.exceptions import AuthenticationError, RedisError
from redis.exceptions import ConnectionError as ServerGone
from redis.exceptions import TimeoutError as ServerSilent

from holdfast.drivers.recipe import Recipe
from holdfast.drivers.sync.keeper import Keeper
from holdfast.drivers.sync.pool import Pool
from holdfast.drivers.sync.session import Session
from holdfast.protocol.acquiring import Attempt, Grant, acquire, cancel, try_acquire
from holdfast.protocol.holding import Holding, Ledger, release, renew
from holdfast.wire.effects import Answer, Call, Steps
from holdfast.wire.keys import home_channel, inbox_channel
from holdfast.wire.permits import Permits
from holdfast.wire.refusals import passing, refusal
from holdfast.wire.resp import ErrorReply
from holdfast.words.errors import AcquireTimeout, HoldfastError, ServerRefused

__all__ = ["SyncDriver"]

logger = logging.getLogger("holdfast")

T = TypeVar("T")

PATIENCE = 10.0
"""Seconds that a server which was there before is given to come back."""

UNDO_PATIENCE = 2.0
"""Seconds that cleaning up may take when the server does not answer."""

PAUSES = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8)
"""Seconds before each further try; the last one goes on."""

_drivers: weakref.WeakSet[SyncDriver] = weakref.WeakSet()


class SyncDriver:
    """Everything of one client that is not words: sessions, keeper, leases."""

    def __init__(self, recipe: Recipe, namespace: str, label: str | None, max_sessions: int) -> None:
        self._recipe = recipe
        self._namespace = namespace
        self._label = label
        self._max_sessions = max_sessions
        self._closed = False
        self._begin()
        _drivers.add(self)

    def _begin(self) -> None:
        """Start empty, under a new identity: at first, and again in a forked child."""
        client_id = secrets.token_hex(8)
        home = home_channel(self._namespace, client_id)
        label = self._label or f"{os.uname().nodename}:{os.getpid()}"
        numbers = itertools.count(1)

        def make() -> Session:
            inbox = inbox_channel(self._namespace, client_id, next(numbers))
            return Session(self._recipe, inbox, f"{inbox} {home} {label}")

        self._ledger = Ledger()
        self._pool = Pool(make, self._max_sessions)
        self._keeper = Keeper(partial(Session, self._recipe, home, ""), self._ledger, self._recipe.response_timeout)
        self._finalizer = weakref.finalize(self, self._keeper.stop)

    def attempt(self, want: Permits) -> Attempt:
        """Begin to acquire. Whoever does must call `undo` on any exception.

        It must be called from the very frame that returns the lease: an interrupt may strike anywhere before.
        """
        if self._closed:
            raise HoldfastError("this client was closed; make a new one", name=want.name)
        return Attempt(want, secrets.token_hex(16).encode())

    def acquire(self, attempt: Attempt, timeout: float | None) -> Holding:
        """Wait for the lease. Raises AcquireTimeout after that many seconds, and QueueFull."""
        want, grant = attempt.want, None
        until = inf if timeout is None else monotonic() + timeout
        if self._pool.enter(until):
            try:
                grant = self._run(acquire(attempt, until), want.name, until)
            finally:
                self._pool.leave()
        if grant is None:
            raise AcquireTimeout(want.name, timeout or 0)
        return self._hold(attempt, grant)

    def try_acquire(self, attempt: Attempt) -> Holding | None:
        """The lease, or None when it is not free. One round trip."""
        grant = self._run(try_acquire(attempt), attempt.want.name)
        return None if grant is None else self._hold(attempt, grant)

    def undo(self, attempt: Attempt) -> None:
        """Leave nothing behind: no place in line, no permit, no renewal."""
        if attempt.pending:
            holding = self._ledger.find(attempt.token)
            if holding is not None:
                self._keeper.forget(holding)
                holding.given_up = True
            self._clean_up(cancel(attempt), attempt.want.name)

    def release(self, holding: Holding) -> bool:
        """Give a lease up; False when there was nothing left to give up."""
        if holding.given_up:
            return False
        lost = holding.lost(monotonic())
        self._keeper.forget(holding)
        try:
            released = self._run(release(holding), holding.permits.name)
        except BaseException:
            self._clean_up(release(holding), holding.permits.name)
            raise
        holding.given_up = True
        if not released and not lost:
            holding.loss = "the server no longer had it when it was to be released"
        return released and not lost

    def extend(self, holding: Holding, ttl_ms: int) -> bool:
        """Let a lease last that long from now; False when it was lost."""
        if not self._run(renew(holding, ttl_ms), holding.permits.name):
            self._ledger.lose(holding, "the server no longer had it when it was to be extended")
            return False
        return True

    def let_go(self, holding: Holding) -> None:
        """Renew a lease no more: its holder is gone without a word."""
        self._keeper.forget(holding)

    def ask(self, steps: Steps[T], name: str) -> T:
        """Perform a protocol that leaves nothing behind."""
        return self._run(steps, name)

    def close(self) -> None:
        """Close the sessions and end the keeper. Leases that are still held run out by themselves."""
        self._closed = True
        self._finalizer()
        self._pool.close()

    def forget_parent(self) -> None:
        """This process was forked: the parent's leases, sessions and keeper are none of its business."""
        for holding in self._ledger.all():
            holding.given_up, holding.loss = True, "it belongs to the process that this one was forked from"
        self._finalizer.detach()
        self._keeper.abandon()
        self._pool.close()
        self._begin()

    def _hold(self, attempt: Attempt, grant: Grant) -> Holding:
        holding = Holding(attempt.want, attempt.token, grant)
        self._keeper.watch(holding)
        return holding

    def _run(self, steps: Steps[T], name: str, until: float = inf) -> T:
        session = self._pool.take()
        try:
            return self._perform(steps, session, name, until)
        except HoldfastError:
            raise
        except BaseException:
            session.close()
            raise
        finally:
            self._pool.give(session)

    def _perform(self, steps: Steps[T], session: Session, name: str, until: float) -> T:
        try:
            effect = next(steps)
            while True:
                if isinstance(effect, Call):
                    try:
                        answer = self._call(session, effect, name, until)
                    except ServerRefused as error:
                        effect = steps.throw(error)
                    else:
                        effect = steps.send(answer)
                else:
                    effect = steps.send(session.park(effect))
        except StopIteration as end:
            return cast("T", end.value)

    def _call(self, session: Session, call: Call, name: str, until: float) -> Answer:
        try:
            outcome = session.call(call)
        except (ServerGone, ServerSilent) as error:
            return self._insist(session, call, name, until, error)
        if isinstance(outcome, ErrorReply):
            return self._insist(session, call, name, until, outcome)
        return outcome

    def _insist(self, session: Session, call: Call, name: str, until: float, trouble: ErrorReply | Exception) -> Answer:
        """Send a call again after a trouble that may pass; raise what does not."""
        # Past the caller's time only a cancel is still sent: it gets a little time of its own.
        left = until - monotonic()
        give_up = monotonic() + (min(PATIENCE, left) if left > 0 else UNDO_PATIENCE)
        for pause in itertools.chain(PAUSES, itertools.repeat(PAUSES[-1])):
            hopeless = monotonic() + pause > give_up
            if isinstance(trouble, Exception):
                if hopeless or not self._recipe.reached or isinstance(trouble, AuthenticationError):
                    raise trouble
            elif hopeless or not passing(trouble):
                raise refusal(trouble, name)
            session.close()  # a new connection also finds a new primary
            time.sleep(pause)
            try:
                outcome = session.call(call)
            except (ServerGone, ServerSilent) as error:
                trouble = error
            else:
                if not isinstance(outcome, ErrorReply):
                    return outcome
                trouble = outcome
        raise AssertionError("the pauses never end")

    def _clean_up(self, steps: Steps[object], name: str) -> None:
        """Clean up after an operation that ended early, as far as the server can be reached; its ttl does the rest."""
        if not self._recipe.reached:
            return
        try:
            self._run(steps, name, until=monotonic() + UNDO_PATIENCE)
        except (RedisError, HoldfastError) as error:
            logger.warning("could not clean up after %r, its lease will run out by itself: %s", name, error)


def _after_fork_in_child() -> None:
    for driver in list(_drivers):
        driver.forget_parent()


os.register_at_fork(after_in_child=_after_fork_in_child)
