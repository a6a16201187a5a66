"""Perform protocols in the caller's own thread.

When an operation ends early (a timeout of the network, Ctrl-C, an error), what it may have left on the server is undone:
by the calling thread if that takes at most UNDO_WAIT seconds, and by background cleanup in the renewal thread after that.
The original exception always wins.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from math import inf
from typing import TypeVar

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from handfast._drivers.clock import monotonic
from handfast._drivers.failures import client_closed, closed_while_waiting, log_unfinished_cleanup, timed_out
from handfast._drivers.sync.callbacks import CallbackThread
from handfast._drivers.sync.connect import SyncConnector
from handfast._drivers.sync.foreign import ForeignThread
from handfast._drivers.sync.pool import Pool
from handfast._drivers.sync.renewer import Renewer
from handfast._drivers.sync.session import Session
from handfast._engine.calls import PermitRequest, Request
from handfast._engine.effects import PROBE, Answer, Call, Park, Steps
from handfast._engine.keys import control_channel, inbox_channel
from handfast._engine.messages import Subscription
from handfast._engine.records import owner_text
from handfast._engine.resp import ErrorReply
from handfast._protocol.acquire import Attempt, AttemptEvent, Grant, acquire, cancel, try_acquire
from handfast._protocol.lease import (
    GONE,
    LOST,
    LOST_RELEASED,
    RELEASED,
    LeaseState,
    LeaseTable,
    downgrade,
    release,
    renew,
)
from handfast._protocol.retry import RETRY_FOR, UNDO_WAIT, Retry, pauses, time_left
from handfast.errors import AcquireTimeout, HandfastError, NotHeld, ServerRefused

__all__ = ["OWN_ERRORS", "SyncDriver"]

OWN_ERRORS = (RedisError, HandfastError)
"""The errors of an operation itself. All others came from outside, such as an interrupt."""

T = TypeVar("T")

_drivers: weakref.WeakSet[SyncDriver] = weakref.WeakSet()


class SyncDriver:
    """What one client has behind its API."""

    def __init__(self, connector: SyncConnector, namespace: str, label: str | None, max_sessions: int) -> None:
        if max_sessions < 1:
            raise ValueError(f"max_sessions must be at least 1, not {max_sessions!r}")
        self._connector = connector
        self._namespace = namespace
        self._label = label
        self._max_sessions = max_sessions
        self._closed = False
        self._start()
        _drivers.add(self)

    def _start(self) -> None:
        """Start empty, under a new client id: at first, and again in a forked child."""
        client_id = secrets.token_hex(8)
        label = self.label
        connector, namespace = self._connector, self._namespace  # so that nothing below keeps this driver alive
        control = control_channel(namespace, client_id)
        numbers = itertools.count(1)

        def subscribe() -> Subscription:
            inbox = inbox_channel(namespace, client_id, next(numbers))
            return Subscription((inbox,), owner_text(inbox, control, label))

        self.callbacks = CallbackThread()
        self._leases = LeaseTable()
        self._pool = Pool(partial(Session, connector, subscribe), self._max_sessions)
        listen = partial(Session, connector, partial(Subscription, (control,)))
        self._renewer = Renewer(listen, self._pool, self._leases, connector.response_timeout)
        self._finalizer = weakref.finalize(self, _close_all, self._renewer, self._pool)

    @property
    def label(self) -> str:
        """What people call this client: by default its host and process."""
        return self._label or f"{os.uname().nodename}:{os.getpid()}"

    @staticmethod
    def caller() -> object:
        """Return the current thread, or what stands for one that Python did not start."""
        thread = threading.current_thread()
        return ForeignThread.current() if type(thread) is threading._DummyThread else thread  # noqa: SLF001 -- no public name

    @staticmethod
    def is_over(caller: object) -> bool:
        """Return whether that thread has ended."""
        return isinstance(caller, threading.Thread | ForeignThread) and not caller.is_alive()

    def attempt(self, request: Request) -> Attempt:
        """Start to acquire. The caller must call `undo` on any exception.

        It must be called from the very frame that returns the lease, since an interrupt may arrive at any point before.
        """
        if self._closed:
            raise client_closed(request.name)
        return Attempt(request, os.urandom(16).hex().encode(), threading.get_native_id())

    def acquire(self, attempt: Attempt, timeout: float | None) -> LeaseState:
        """Wait for the lease. Raises AcquireTimeout after ``timeout`` seconds, at once if it is 0; and QueueFull."""
        if timeout == 0:
            lease = self.try_acquire(attempt)
            if lease is None:
                raise AcquireTimeout(attempt.request.name, 0)
            return lease
        until = inf if timeout is None else monotonic() + timeout
        name = attempt.request.name
        grant, has_place = None, self._pool.enter(attempt)
        try:
            if not has_place:
                grant, has_place = self._poll_for_place(attempt, until)
            if has_place:
                try:
                    grant = self._run(acquire(attempt, until), name, until)
                finally:
                    self._pool.leave(attempt)
        except (RedisConnectionError, RedisTimeoutError) as error:
            attempt.apply(AttemptEvent.SILENCE)
            if (timeout_error := timed_out(error, name, timeout, until)) is not None:
                raise timeout_error from error
            raise
        if grant is None:
            raise AcquireTimeout(name, timeout or 0)
        return self._hold(attempt, grant)

    def try_acquire(self, attempt: Attempt) -> LeaseState | None:
        """Return the lease, or None if it is not free. One round trip."""
        grant = self._run(try_acquire(attempt), attempt.request.name)
        if grant is None:
            self.undo(attempt)
            return None
        return self._hold(attempt, grant)

    def undo(self, attempt: Attempt) -> None:
        """Leave nothing behind: no place to wait, no queue entry, no permit, no renewal."""
        self._pool.leave(attempt)
        if attempt.needs_undo and self._connector.reached:
            lease = self._leases.get(attempt.token)
            if lease is not None:
                self._renewer.remove(lease)
                lease.let_go()
            if attempt.is_unanswered:
                self._renewer.clean_up(cancel(attempt))
            else:
                self._clean_up(partial(cancel, attempt), attempt.request.name)

    def release(self, lease: LeaseState, until: float = inf) -> bool:
        """Release a lease. Return False if it was lost or released before."""
        try:
            status = lease.status_at(monotonic())
            if status is RELEASED or status is LOST_RELEASED:
                return False
            self._renewer.remove(lease)
            released = self._run(release(lease), lease.request.name, until)
        except OWN_ERRORS:
            self._renewer.clean_up(release(lease, by_holder=False))
            raise
        except BaseException:
            if not lease.is_released:
                self._renewer.remove(lease)  # which the interrupt may have prevented
                self._clean_up(partial(release, lease, by_holder=False), lease.request.name)
                lease.let_go()
            raise
        lost = status is LOST
        if not released and not lost:
            self._renewer.lose(lease, GONE.format("released"))
        return released and not lost and lease.claim_release()

    def leave(self, lease: LeaseState, error: BaseException | None) -> bool:
        """Release at the end of a scope that ended with this error. Return False if the caller is to raise LeaseLost.

        If the scope failed, its exception matters: errors of the release are only logged, and a server that is gone is not
        waited for. Nor is it after a loss that is known.
        """
        if lease.lost(monotonic()) and not lease.is_released:
            self._renewer.remove(lease)
            self._renewer.clean_up(release(lease, by_holder=False))
            lease.let_go()
            return error is not None
        try:
            self.release(lease, inf if error is None else monotonic() + UNDO_WAIT)
            return lease.loss is None or error is not None
        except OWN_ERRORS as failure:
            if error is None:
                raise
            lease.let_go()
            log_unfinished_cleanup(lease.request.name, failure)
            return True

    def extend(self, lease: LeaseState, ttl_ms: int) -> bool:
        """Extend a lease to that long from now. Return False if it was lost. Raises NotHeld if it is being released."""
        return self._change(lease, renew(lease, ttl_ms), "extended")

    def downgrade(self, lease: LeaseState, request: PermitRequest) -> bool:
        """Keep only these permits of a lease. Return False if it was lost. Raises NotHeld if it is being released."""
        return self._change(lease, downgrade(lease, request), "downgraded")

    def stop_renewing(self, lease: LeaseState) -> bool:
        """Let a lease run out whose holder dropped it. Return whether it was renewed until now.

        May be called at any point of any thread, by the garbage collector.
        """
        return self._leases.pop(lease.token, None) is not None and not self._closed

    def run(self, steps: Steps[T], name: str) -> T:
        """Perform a protocol that leaves nothing behind."""
        if self._closed:
            raise client_closed(name)
        return self._run(steps, name)

    def close(self) -> None:
        """Close the sessions, wake the threads that wait, and end the renewal thread. Leases that are held run out."""
        self._closed = True
        self._finalizer()

    def disown_parent(self) -> None:
        """Start anew in a forked child: leases, sessions and the renewal thread are the parent's."""
        for lease in self._leases.all():
            lease.disown()
        self._finalizer.detach()
        self._renewer.abandon()
        self._pool.abandon()
        if not self._closed:
            self._start()

    def _change(self, lease: LeaseState, steps: Steps[bool], change: str) -> bool:
        if self._run(steps, lease.request.name, lease.deadline) and lease.loss is None:
            return True
        if self._leases.get(lease.token) is lease:
            self._renewer.lose(lease, GONE.format(change))
        if lease.loss is None:
            raise NotHeld(lease.request.name)
        return False

    def _poll_for_place(self, attempt: Attempt, until: float) -> tuple[Grant | None, bool]:
        """Wait for a place to wait. Return a grant if one came in the meantime, and whether a place was taken.

        Polling goes on without a place: the threads that have one may all wait for a lock that this caller holds.
        """
        for pause in pauses():
            if self._closed:
                raise closed_while_waiting(attempt.request.name)
            grant = self._run(try_acquire(attempt), attempt.request.name, until)
            if grant is not None:
                return grant, False
            if self._pool.enter(attempt, min(pause, until - monotonic())):
                return None, True
            if monotonic() >= until:
                break
        return None, False

    def _hold(self, attempt: Attempt, grant: Grant) -> LeaseState:
        """Renew what an acquire was granted."""
        if self._closed:
            raise closed_while_waiting(attempt.request.name)
        lease = LeaseState(attempt.request, attempt.token, grant, self._pool)
        self._renewer.add(lease)
        return lease

    def _run(self, steps: Steps[T], name: str, until: float = inf) -> T:
        """Perform a protocol on a session of the pool, until that moment at most, and return its result."""
        session, within = self._pool.take(), self._connector.response_timeout
        try:
            effect = next(steps)
            while True:
                if isinstance(effect, Park):
                    waking = session.park(effect)
                    if self._closed:
                        raise closed_while_waiting(name)
                    effect = steps.send(waking)
                    continue
                give_up_at = inf
                if until != inf:
                    give_up_at = (now := monotonic()) + time_left(until, now)
                    within = min(self._connector.response_timeout, give_up_at - now)
                if effect.once:
                    self._ensure_open(session, name)
                try:
                    outcome: Answer | ErrorReply | Exception = session.call(effect, within)
                except (RedisConnectionError, RedisTimeoutError) as error:
                    outcome = error
                if not isinstance(outcome, Answer):
                    try:
                        outcome = self._retry(session, effect, name, give_up_at, outcome)
                    except ServerRefused as error:
                        effect = steps.throw(error)
                        continue
                effect = steps.send(outcome)
        except StopIteration as end:
            result: T = end.value
            return result
        except HandfastError:
            raise
        except BaseException:
            session.close()
            raise
        finally:
            self._pool.give(session)

    def _retry(self, session: Session, call: Call, name: str, until: float, failure: ErrorReply | Exception) -> Answer:
        """Send a call again after a failure that may pass. Raise one that does not."""
        give_up_at = min(monotonic() + RETRY_FOR, until)
        retry = Retry(name, give_up_at, once=call.once)
        while True:
            if isinstance(failure, Exception):
                recovers = self._connector.may_recover(failure)
                verdict = retry.after_break(failure, monotonic(), may_recover=recovers)
            else:
                verdict = retry.after_refusal(failure, monotonic())
            if verdict.reconnect:
                session.close()
            if verdict.error is not None:
                raise verdict.error
            time.sleep(verdict.pause)
            try:
                outcome = session.call(call, min(self._connector.response_timeout, give_up_at - monotonic()))
            except (RedisConnectionError, RedisTimeoutError) as error:
                failure = error
            else:
                if isinstance(outcome, Answer):
                    return outcome._replace(again=retry.may_have_run)
                failure = outcome

    def _ensure_open(self, session: Session, name: str) -> None:
        """Open the session, with retries: the call that comes next is sent only once."""
        if session.is_open:
            with contextlib.suppress(RedisConnectionError, RedisTimeoutError):
                session.listen()  # a connection that ended while it was idle is found out only now, and closed
        if not session.is_open:
            try:
                outcome: Answer | ErrorReply | Exception = session.call(PROBE, self._connector.response_timeout)
            except (RedisConnectionError, RedisTimeoutError) as error:
                outcome = error
            if not isinstance(outcome, Answer):
                self._retry(session, PROBE, name, inf, outcome)

    def _clean_up(self, make_steps: Callable[[], Steps[object]], name: str) -> None:
        """Perform an undo: in this thread for UNDO_WAIT seconds, and in the background after that."""
        try:
            self._run(make_steps(), name, until=monotonic() + UNDO_WAIT)
        except OWN_ERRORS as error:
            log_unfinished_cleanup(name, error)
            self._renewer.clean_up(make_steps())
        except BaseException:
            self._renewer.clean_up(make_steps())
            raise


def _close_all(renewer: Renewer, pool: Pool) -> None:
    pool.close()  # first: threads that wait then leave the queue while the renewal thread still finishes cleanups
    renewer.stop()


def _after_fork_in_child() -> None:
    for driver in list(_drivers):
        driver.disown_parent()


os.register_at_fork(after_in_child=_after_fork_in_child)
