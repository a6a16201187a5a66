"""Performs protocols in the caller's own thread.

Whatever ends an operation early (a timeout of the network, Ctrl-C, an error of our own), what it may have left on the
server is undone: at once on a fresh session, or by the keeper as soon as a silent server speaks again. The original
exception always wins.

Scripts are idempotent, so a call whose reply got lost is simply sent again, on a new connection, with growing pauses.
A server that was never reached fails at once; one that was there before is given some seconds to come back, but never
more than the caller's own time.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import secrets
import threading
import time
import weakref
from functools import partial
from math import inf
from time import monotonic
from typing import TypeVar, cast

from redis.exceptions import AuthenticationError, RedisError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from handfast._drivers.sync.connect import SyncConnector
from handfast._drivers.sync.pool import Pool
from handfast._drivers.sync.renewer import Renewer
from handfast._drivers.sync.session import Session
from handfast._drivers.timeouts import PAUSES, RETRY_FOR, UNDO_WAIT
from handfast._engine.calls import PermitRequest, Request
from handfast._engine.effects import PING, Answer, Call, Steps
from handfast._engine.keys import control_channel, inbox_channel
from handfast._engine.resp import ErrorReply
from handfast._engine.server_errors import is_failover, is_transient, refusal
from handfast._protocol.acquire import Attempt, Grant, acquire, cancel, try_acquire
from handfast._protocol.lease import LeaseState, LeaseTable, lower, release, renew
from handfast.errors import AcquireTimeout, HandfastError, NotHeld, ServerRefused

__all__ = ["OWN_ERRORS", "SyncDriver"]

logger = logging.getLogger("handfast")

OWN_ERRORS = (RedisError, HandfastError)
"""What an operation itself has to say. Whatever else comes out of one has struck it from outside."""

T = TypeVar("T")

_drivers: weakref.WeakSet[SyncDriver] = weakref.WeakSet()


class SyncDriver:
    """Everything of one client that is not words: sessions, keeper, leases."""

    def __init__(self, recipe: SyncConnector, namespace: str, label: str | None, max_sessions: int) -> None:
        if max_sessions < 1:
            raise ValueError(f"max_sessions must be at least 1, not {max_sessions!r}")
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
        label = self._label or f"{os.uname().nodename}:{os.getpid()}"
        recipe, namespace = self._recipe, self._namespace  # what is made below must not keep this driver alive
        home = control_channel(namespace, client_id)
        numbers = itertools.count(1)

        def make() -> Session:
            inbox = inbox_channel(namespace, client_id, next(numbers))
            return Session(recipe, inbox, f"{inbox} {home} {label}")

        self._ledger = LeaseTable()
        self._pool = Pool(make, self._max_sessions)
        self._keeper = Renewer(partial(Session, recipe, home, ""), self._ledger, recipe.response_timeout)
        self._finalizer = weakref.finalize(self, _end, self._keeper, self._pool)

    @staticmethod
    def caller() -> object:
        """Who is calling: the current thread."""
        return threading.current_thread()

    @staticmethod
    def is_over(caller: object) -> bool:
        """Whether that thread has ended."""
        return isinstance(caller, threading.Thread) and not caller.is_alive()

    def attempt(self, want: Request) -> Attempt:
        """Begin to acquire. Whoever does must call `undo` on any exception.

        It must be called from the very frame that returns the lease: an interrupt may strike anywhere before.
        """
        if self._closed:
            raise HandfastError("this client was closed; make a new one", name=want.name)
        return Attempt(want, os.urandom(16).hex().encode())

    def acquire(self, attempt: Attempt, timeout: float | None) -> LeaseState:
        """Wait for the lease. Raises AcquireTimeout after that many seconds, and QueueFull."""
        until = inf if timeout is None else monotonic() + timeout
        try:
            grant, entered = self._enter(attempt, until)
            if entered:
                try:
                    grant = self._run(acquire(attempt, until), attempt.want.name, until)
                finally:
                    self._pool.places.put(None)
        except (RedisConnectionError, RedisTimeoutError) as error:
            attempt.unanswered = True
            if monotonic() >= until and isinstance(error, RedisTimeoutError):
                raise AcquireTimeout(attempt.want.name, timeout or 0, "the server did not answer") from error
            raise
        if grant is None:
            raise AcquireTimeout(attempt.want.name, timeout or 0)
        return self._hold(attempt, grant)

    def try_acquire(self, attempt: Attempt) -> LeaseState | None:
        """The lease, or None when it is not free. One round trip."""
        grant = self._run(try_acquire(attempt), attempt.want.name)
        if grant is None:
            self.undo(attempt)
            return None
        return self._hold(attempt, grant)

    def undo(self, attempt: Attempt) -> None:
        """Leave nothing behind: no place in line, no permit, no renewal."""
        if attempt.pending and self._recipe.reached:
            holding = self._ledger.find(attempt.token)
            if holding is not None:
                self._keeper.forget(holding)
                holding.given_up = True
            call = attempt.want.cancel(attempt.token)
            if attempt.unanswered:
                self._keeper.clean_up_later(call)
            else:
                self._clean_up(cancel(attempt), call, attempt.want.name)

    def release(self, holding: LeaseState, until: float = inf) -> bool:
        """Give a lease up; False when there was nothing left to give up."""
        if holding.given_up:
            return False
        name = holding.permits.name
        try:
            lost = holding.lost(monotonic())
            self._keeper.forget(holding)
            released = self._run(release(holding), name, until)
            holding.given_up = True
        except OWN_ERRORS:
            self._keeper.clean_up_later(holding.permits.release(holding.token))
            raise
        except BaseException:
            self._keeper.forget(holding)  # which it may have struck before
            self._clean_up(release(holding), holding.permits.release(holding.token), name)
            holding.given_up = True
            raise
        if not released and not lost:
            self._keeper.lose(holding, "the server no longer had it when it was to be released")
        return released and not lost

    def leave(self, holding: LeaseState, error: BaseException | None) -> bool:
        """Release at the end of a block that ended with this error; False when the caller is to hear of a loss.

        When the block itself failed, its exception is what matters: ours are only logged, and a server that is gone is
        not waited for. Nor is it after a loss that is known.
        """
        if holding.lost(monotonic()) and not holding.given_up:
            self._keeper.forget(holding)
            self._keeper.clean_up_later(holding.permits.release(holding.token))
            holding.given_up = True
            return error is not None
        try:
            return self.release(holding, inf if error is None else monotonic() + UNDO_WAIT) or error is not None
        except OWN_ERRORS:
            if error is None:
                raise
            holding.given_up = True
            logger.exception("could not release %r after its block had failed", holding.permits.name)
            return True

    def extend(self, holding: LeaseState, ttl_ms: int) -> bool:
        """Let a lease last that long from now; False when it was lost. Raises NotHeld if it is being given up."""
        return self._change(holding, renew(holding, ttl_ms), "extended")

    def lower(self, holding: LeaseState, permits: PermitRequest) -> bool:
        """Keep only these permits of a lease; False when it was lost. Raises NotHeld if it is being given up."""
        return self._change(holding, lower(holding, permits), "downgraded")

    def let_go(self, holding: LeaseState) -> bool:
        """Renew a lease no more: its holder is gone without a word. Whether it was renewed until now.

        May be called in the middle of anything.
        """
        return self._ledger.drop(holding) and not self._closed

    def ask(self, steps: Steps[T], name: str) -> T:
        """Perform a protocol that leaves nothing behind."""
        if self._closed:
            raise HandfastError("this client was closed; make a new one", name=name)
        return self._run(steps, name)

    def close(self) -> None:
        """Close the sessions and end the keeper. Leases that are still held run out by themselves."""
        self._closed = True
        self._finalizer()

    def forget_parent(self) -> None:
        """This process was forked: the parent's leases, sessions and keeper are none of its business."""
        for holding in self._ledger.all():
            holding.given_up, holding.loss = True, "it belongs to the process that this one was forked from"
        self._finalizer.detach()
        self._keeper.abandon()
        self._pool.abandon()
        if not self._closed:
            self._begin()

    def _change(self, holding: LeaseState, steps: Steps[bool], what: str) -> bool:
        if self._run(steps, holding.permits.name, holding.deadline) and holding.loss is None:
            return True
        if self._ledger.find(holding.token) is holding:
            self._keeper.lose(holding, f"the server no longer had it when it was to be {what}")
        if holding.loss is None:
            raise NotHeld(holding.permits.name)
        return False

    def _enter(self, attempt: Attempt, until: float) -> tuple[Grant | None, bool]:
        """Take a place to wait at: a grant if one came meanwhile, and whether a place was taken.

        While there is no place, trying goes on: those who wait may wait for what this very caller holds.
        """
        if self._pool.enter(0):
            return None, True
        for pause in itertools.chain(PAUSES, itertools.repeat(PAUSES[-1])):
            grant = self._run(try_acquire(attempt), attempt.want.name, until)
            if grant is not None:
                return grant, False
            if self._pool.enter(min(pause, until - monotonic())):
                return None, True
            if monotonic() >= until:
                break
        return None, False

    def _hold(self, attempt: Attempt, grant: Grant) -> LeaseState:
        if self._closed:
            raise HandfastError("this client was closed while it waited", name=attempt.want.name)
        holding = LeaseState(attempt.want, attempt.token, grant)
        self._keeper.watch(holding)
        return holding

    def _run(self, steps: Steps[T], name: str, until: float = inf) -> T:
        session = self._pool.take()
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
        except HandfastError:
            raise
        except BaseException:
            session.close()
            raise
        finally:
            self._pool.give(session)

    def _call(self, session: Session, call: Call, name: str, until: float) -> Answer:
        within = self._recipe.response_timeout
        if until != inf:
            now = monotonic()
            if until <= now:  # past its caller's time only taking back goes on, and gets a little time of its own
                until = now + UNDO_WAIT
            within = min(within, until - now)
        if call.once:
            return self._call_once(session, call, name, within)
        try:
            outcome = session.call(call, within)
        except (RedisConnectionError, RedisTimeoutError) as error:
            return self._insist(session, call, name, until, error)
        if isinstance(outcome, ErrorReply):
            return self._insist(session, call, name, until, outcome)
        return outcome

    def _call_once(self, session: Session, call: Call, name: str, within: float) -> Answer:
        """Send a call that must not run twice: the connection is made sure of first, what comes after that is final."""
        if session.is_open:
            with contextlib.suppress(RedisConnectionError, RedisTimeoutError):
                session.listen()  # a connection that ended while nobody used it shows only now, and is closed
        if not session.is_open:
            self._call(session, PING, name, inf)
        outcome = session.call(call, within)
        if isinstance(outcome, ErrorReply):
            if is_failover(outcome):
                session.close()  # a new connection finds the new primary
            raise refusal(outcome, name)
        return outcome

    def _insist(self, session: Session, call: Call, name: str, until: float, trouble: ErrorReply | Exception) -> Answer:
        """Send a call again after a trouble that may pass; raise what does not."""
        unheard = False
        give_up = min(monotonic() + RETRY_FOR, until)
        for pause in itertools.chain(PAUSES, itertools.repeat(PAUSES[-1])):
            hopeless = monotonic() + pause >= give_up
            if isinstance(trouble, Exception):
                unheard = True
                if hopeless or not self._recipe.reached or isinstance(trouble, AuthenticationError):
                    raise trouble
            elif hopeless or not is_transient(trouble):
                raise refusal(trouble, name, again=unheard)
            session.close()  # a new connection also finds a new primary
            time.sleep(pause)
            try:
                outcome = session.call(call, min(self._recipe.response_timeout, give_up - monotonic()))
            except (RedisConnectionError, RedisTimeoutError) as error:
                trouble = error
            else:
                if not isinstance(outcome, ErrorReply):
                    return outcome._replace(again=unheard)
                trouble = outcome
        raise AssertionError("the pauses never end")

    def _clean_up(self, steps: Steps[object], call: Call, name: str) -> None:
        """Take back what an operation that ended early may have left."""
        try:
            self._run(steps, name, until=monotonic() + UNDO_WAIT)
        except OWN_ERRORS as error:
            logger.warning("could not clean up after %r yet, going on with it in the background: %s", name, error)
            self._keeper.clean_up_later(call)


def _end(keeper: Renewer, pool: Pool) -> None:
    keeper.stop()
    pool.close()


def _after_fork_in_child() -> None:
    for driver in list(_drivers):
        driver.forget_parent()


os.register_at_fork(after_in_child=_after_fork_in_child)
