"""Perform protocols in the caller's own thread.

When an operation ends early (a timeout of the network, Ctrl-C, an error), what it may have left on the server is
undone: by the calling thread if that takes at most UNDO_WAIT seconds, and by background cleanup in the renewal thread
after that. The original exception always wins.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import threading
import weakref
from binascii import hexlify
from collections.abc import Callable, Hashable
from functools import partial
from logging import DEBUG
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from handfast._drivers import log
from handfast._drivers.clock import monotonic
from handfast._drivers.driver import Driver
from handfast._drivers.failures import (
    OWN_ERRORS,
)
from handfast._drivers.losses import run_lost_callbacks
from handfast._drivers.sync.callbacks import CallbackThread
from handfast._drivers.sync.connect import SyncConnector
from handfast._drivers.sync.entries import Entry
from handfast._drivers.sync.foreign import ForeignThread
from handfast._drivers.sync.performing import Performer, loop_runs
from handfast._drivers.sync.pool import Pool
from handfast._drivers.sync.renewer import Renewer
from handfast._drivers.sync.session import Session
from handfast._drivers.sync.shared import SharedConnections
from handfast._engine.calls import PermitRequest, Request
from handfast._engine.effects import Answer, Found, Steps
from handfast._engine.keys import control_channel, inbox_channel
from handfast._engine.messages import Subscription
from handfast._engine.records import owner_text
from handfast._protocol.acquire import Attempt, BaseAttempt, Grant, acquire, cancel, try_acquire
from handfast._protocol.admin import who_is_there
from handfast._protocol.lease import (
    GONE,
    LeaseState,
    LeaseTable,
    downgrade,
    release,
    renew,
)
from handfast._protocol.retry import UNDO_WAIT
from handfast._protocol.waiting import Watch
from handfast.arguments import CancelEvent
from handfast.errors import (
    AcquireCancelled,
    AcquireTimeout,
    ClientClosed,
    NotHeld,
)

if TYPE_CHECKING:
    from handfast._drivers.sync.primary_watch import PrimaryWatch
    from handfast._drivers.sync.renewers import Renewers
    from handfast._protocol.asking import ObjectAttempt
    from handfast._protocol.detached import DetachedLease

__all__ = ["SyncDriver"]

T = TypeVar("T")


class SyncDriver(Driver[SyncConnector]):
    """Performs protocols for one client: it has its connections, its leases and its renewal thread."""

    def __init__(
        self,
        connector: SyncConnector,
        namespace: str,
        label: str | None,
        retry_for: float,
        max_sessions: int,
        *,
        release_at_exit: bool,
    ) -> None:
        if max_sessions < 1:
            raise ValueError(f"max_sessions must be at least 1, not {max_sessions!r}")
        super().__init__(connector, namespace, label, retry_for, release_at_exit=release_at_exit)
        self._max_sessions = max_sessions
        self._start()

    def _start(self) -> None:
        """Start empty, under a new client id: at first, and again in a forked child."""
        client_id = secrets.token_hex(8)
        label = self.label
        connector, namespace = self._connector, self._namespace  # so that nothing below keeps this driver alive
        self._control = control = control_channel(namespace, client_id)
        numbers = itertools.count(1)

        def subscribe() -> Subscription:
            if watch is not None:
                watch.start()
            inbox = inbox_channel(namespace, client_id, next(numbers))
            return Subscription((inbox,), owner_text(inbox, control, label))

        self.callbacks: CallbackThread = CallbackThread()

        def make(connector: SyncConnector) -> Session:
            return Session(connector, subscribe)

        def listen(connector: SyncConnector, on_revoked: Callable[[bytes, str], object]) -> Session:
            return Session(connector, partial(Subscription, (control,)), on_revoked)

        self._leases = LeaseTable()
        shared = SharedConnections(subscribe, make)
        self._pool: Pool[Any]
        self._renewer: Renewer | Renewers
        watch: PrimaryWatch | None = None
        if connector.seeds:
            from handfast._drivers.sync.renewers import Renewers
            from handfast._drivers.sync.routed import RoutedSession
            from handfast._drivers.sync.routes import Routes

            routes = Routes(connector)
            self._pool = routed = Pool[Any](
                partial(RoutedSession, routes, make),
                self._max_sessions,
                partial(RoutedSession, routes, shared.seat, is_seat=True),
                shared,
            )
            self._renewer = Renewers(routes, listen, routed, self._leases)
        else:
            self._pool = pool = Pool[Any](
                partial(make, connector), self._max_sessions, partial(shared.seat, connector), shared
            )
            self._renewer = renewer = Renewer(
                partial(listen, connector), pool, self._leases, connector.response_timeout
            )
            if connector.service is not None:
                from handfast._drivers.sync.primary_watch import PrimaryWatch

                watch = PrimaryWatch(connector, pool.hang_up, renewer.hang_up)
        self._watch = watch
        self._performer = Performer(connector, self._pool, self._retry_for)
        self._finalizer = weakref.finalize(
            self, _close_in, os.getpid(), self._renewer, self._pool, watch, gives_up=self._release_at_exit
        )

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
        if self._pid != os.getpid():  # asked here, without a frame for it
            self._in_this_process()
        if self._pool.closed:
            raise ClientClosed(request.name)
        return Attempt(request, hexlify(os.urandom(16)), monotonic(), threading.get_native_id())

    def acquire(self, attempt: Attempt, timeout: float | None, cancel: CancelEvent | None = None) -> LeaseState:
        """Wait for the lease.

        Raises AcquireTimeout after ``timeout`` seconds, at once if it is 0; QueueFull; AcquireCancelled.
        """
        if cancel is not None and cancel.is_set():
            raise AcquireCancelled(attempt.request.name)
        if timeout == 0:
            lease = self.try_acquire(attempt)
            if lease is None:
                raise self._busy(attempt, 0)
            return lease
        until = inf if timeout is None else attempt.asked_at + timeout
        make_watch = self._make_watch if cancel is None else partial(self._make_watch, cancel=cancel)
        try:
            grant = self._performer.run(
                acquire(attempt, until, make_watch), attempt.request.name, until, attempt=attempt
            )
        except (RedisConnectionError, RedisTimeoutError):
            attempt.is_unanswered = True
            raise
        if grant is None:
            raise self._busy(attempt, timeout or 0)
        return self._hold(attempt, grant)

    def acquire_in_turns(self, attempt: Attempt, timeout: float | None, _question: Hashable) -> LeaseState | Found:
        """Acquire. Threads ask each for itself: a thread that waits has a connection, and wakes up by itself."""
        return self.acquire(attempt, timeout)

    def try_acquire(self, attempt: Attempt, timeout: float | None = None) -> LeaseState | None:
        """Return the lease, or None if it is not free. One round trip, for ``timeout`` seconds at most."""
        try:
            grant = self._performer.run_once(try_acquire(attempt), attempt.request.name, timeout, attempt)
        except (RedisConnectionError, RedisTimeoutError):
            attempt.is_unanswered = True
            raise
        if grant is None:
            self.undo(attempt)
            return None
        return self._hold(attempt, grant)

    def wait(self, attempt: BaseAttempt, steps: Steps[T], until: float = inf, *, once: bool = False) -> T:
        """Perform the protocol of an attempt that gets no lease, until that moment at most.

        With ``once`` it does not wait for a server that is away.
        """
        name = attempt.request.name
        try:
            if once:
                result = self._performer.run_once(steps, name, None, attempt)
            else:
                result = self._performer.run(steps, name, until, attempt=attempt)
        except (RedisConnectionError, RedisTimeoutError):
            attempt.is_unanswered = True
            raise
        if self._pool.closed:
            raise ClientClosed(name)
        return result

    def watch(self, attempt: ObjectAttempt, steps: Callable[[float], Steps[Answer]], until: float) -> Answer:
        """Wait for an answer, until ``until`` at most. Each thread asks by itself, as in `acquire_in_turns`."""
        return self.wait(attempt, steps(until), until, once=until <= attempt.asked_at)

    def undo(self, attempt: BaseAttempt) -> None:
        """Leave nothing behind: no queue entry, no permit, no renewal."""
        if attempt.needs_undo and self._connector.reached:
            lease = self._leases.get(attempt.token)
            if lease is not None:
                self._renewer.remove(lease)
                lease.let_go(monotonic())
            if attempt.is_unanswered:
                self._renewer.clean_up(cancel(attempt))
            else:
                self._clean_up(partial(cancel, attempt), attempt.request.name)

    def release(self, lease: LeaseState, until: float = inf) -> bool:
        """Release a lease. Return False if it was lost or released before."""
        try:
            if self._pid != os.getpid():
                self._in_this_process()
            lost = lease.lost(monotonic())
            if lease.is_released:
                return False
            self._renewer.remove(lease)
            released = self._performer.run(release(lease), lease.request.name, until)
        except OWN_ERRORS:
            self._renewer.clean_up(release(lease, by_holder=False))
            raise
        except BaseException:
            if not lease.is_released:
                self._renewer.remove(lease)  # which the interrupt may have prevented
                self._clean_up(partial(release, lease, by_holder=False), lease.request.name)
                lease.let_go(monotonic())
            raise
        if not released and not lost:
            self._renewer.lose(lease, GONE.format("released"))
        if not released or lost or not lease.claim_release():
            return False
        if log.lease_log.isEnabledFor(DEBUG):
            log.released(lease)
        return True

    def leave(self, lease: LeaseState, error: BaseException | None) -> bool:
        """Release at the end of a scope that ended with this error. Return False if the caller is to raise LeaseLost.

        If the scope failed, its exception matters: errors of the release are only logged, and a server that is gone is
        not waited for. Nor is it after a loss that is known.
        """
        self._in_this_process()
        if lease.lost(monotonic()) and not lease.is_released:
            for part in reversed(lease.parts):
                if not part.is_released:
                    self._renewer.remove(part)
                    self._renewer.clean_up(release(part, by_holder=False))
                    part.let_go(monotonic())
            return error is not None
        try:
            self.release(lease, inf if error is None else monotonic() + UNDO_WAIT)
            return lease.loss is None or error is not None
        except OWN_ERRORS as failure:
            if error is None:
                raise
            lease.let_go(monotonic())
            log.unfinished_cleanup(lease.request.name, failure)
            return True

    def extend(self, lease: LeaseState, ttl_ms: int) -> bool:
        """Extend a lease to ``ttl_ms`` from now.

        Return False if it was lost. Raises NotHeld if it is being released.
        """
        return self._change(lease, renew(lease, ttl_ms), "extended")

    def downgrade(self, lease: LeaseState, request: PermitRequest) -> bool:
        """Keep only these permits of a lease. Return False if it was lost. Raises NotHeld if it is being released."""
        return self._change(lease, downgrade(lease, request), "downgraded")

    def detach(self, lease: LeaseState, ttl_ms: int) -> bool:
        """Extend a lease to ``ttl_ms`` from now, and leave it to another client. Return False if it was lost."""
        if not self.extend(lease, ttl_ms):
            return False
        try:
            lease.let_go(monotonic())
            self._renewer.remove(lease)
        except BaseException:
            if lease.is_released:  # by now no caller gets the lease
                self._renewer.remove(lease)
                self._renewer.clean_up(release(lease, by_holder=False))
            raise
        return True

    def _holds(self, token: bytes) -> bool:
        return token in self._leases

    def adopt(self, detached: DetachedLease, request: PermitRequest, label: str | None) -> LeaseState:
        """Hold a lease that another client acquired, and have it shown under a label; None leaves that as it is.

        The caller must call `forget` on any exception.
        """
        from handfast._protocol.detached import adopt

        self._in_this_process()
        shown = None if label is None else (self._control, label)
        lease = self.run(adopt(request, detached, self._pool, shown), request.name)
        self._check_open(request.name)
        lease.thread = threading.get_native_id()
        self._renewer.add(lease)
        return lease

    def forget(self, detached: DetachedLease) -> None:
        """Renew an adopted lease no more that did not reach its caller. It runs out, unless its token is used again."""
        lease = self._leases.get(detached.token)
        if lease is not None:
            lease.let_go(monotonic())
            self._renewer.remove(lease)

    def stop_renewing(self, lease: LeaseState) -> bool:
        """Let a lease run out whose holder dropped it. Return whether it was renewed until now.

        May be called at any point of any thread, by the garbage collector.
        """
        renewed = [part for part in lease.parts if self._leases.pop(part.token, None) is not None]
        return bool(renewed) and not self._pool.closed

    def run(self, steps: Steps[T], name: str, _attempt: BaseAttempt | None = None) -> T:
        """Perform a protocol that leaves nothing behind but what the undo of an attempt takes back."""
        self._check_open(name)
        return self._performer.run(steps, name)

    def look(self, steps: Steps[T], name: str, timeout: float | None = None) -> T:
        """Perform a protocol that changes nothing, for ``timeout`` seconds at most.

        It is not tried again in an outage.
        """
        self._check_open(name)
        return self._performer.run_once(steps, name, timeout)

    def close(self, *, release: bool | None) -> None:
        """Close the sessions, wake the threads that wait, and end the renewal thread.

        Release what is held, or let it run out.
        """
        self._in_this_process()
        if self._finalizer.detach() is not None:
            gives_up = self._release_at_exit if release is None else release
            for lease in _close_all(self._renewer, self._pool, self._watch, gives_up=gives_up):
                run_lost_callbacks(lease)

    def disown_parent(self) -> None:
        """Start anew in a forked child: leases, sessions and the renewal thread are the parent's."""
        for lease in self._leases.all():
            lease.disown(monotonic())
        self._finalizer.detach()
        self._renewer.abandon()
        self._pool.abandon()
        if self._watch is not None:
            self._watch.abandon()
        if not self._pool.closed:
            self._start()

    def _check_open(self, name: str) -> None:
        self._in_this_process()
        if self._pool.closed:
            raise ClientClosed(name)

    def _change(self, lease: LeaseState, steps: Steps[bool], change: str) -> bool:
        self._in_this_process()
        if self._performer.run(steps, lease.request.name, lease.deadline) and lease.loss is None:
            return True
        if self._leases.get(lease.token) is lease:
            self._renewer.lose(lease, GONE.format(change))
        if lease.loss is None:
            raise NotHeld(lease.request.name)
        return False

    def _make_watch(self, attempt: Attempt, cancel: CancelEvent | None = None) -> Watch:
        thread = attempt.caller if loop_runs() else None
        return Watch(
            attempt.request, self._leases, Entry.is_around, log.own_wait, cancel, held=attempt.held, loop_thread=thread
        )

    def _hold(self, attempt: Attempt, grant: Any) -> LeaseState:
        """Return the lease of a grant, which is renewed from now on. `Found` is returned as it is."""
        if type(grant) is not Grant:
            return grant  # type: ignore[no-any-return]  # of `once` alone, which knows
        if self._pool.closed:
            raise ClientClosed(attempt.request.name)
        lease = LeaseState(attempt.request, attempt.token, grant, self._pool, attempt.asked_at)
        lease.thread = attempt.caller
        self._renewer.add(lease)
        if log.lease_log.isEnabledFor(DEBUG):
            log.acquired(lease)
        return lease

    def _busy(self, attempt: Attempt, timeout: float) -> AcquireTimeout:
        """Return the error for an acquire that took too long, and ask who has the name."""
        name, status = attempt.request.name, None
        with contextlib.suppress(*OWN_ERRORS):
            name, status = self._performer.run_once(who_is_there(attempt.request), name, UNDO_WAIT)
        return AcquireTimeout(attempt.request.name, timeout, status, attempt.position, name)

    def _clean_up(self, make_steps: Callable[[], Steps[object]], name: str) -> None:
        """Perform an undo: in this thread for UNDO_WAIT seconds, and in the background after that."""
        try:
            self._performer.run(make_steps(), name, until=monotonic() + UNDO_WAIT)
        except OWN_ERRORS as error:
            log.unfinished_cleanup(name, error)
            self._renewer.clean_up(make_steps())
        except BaseException:
            self._renewer.clean_up(make_steps())
            raise


def _close_all(
    renewer: Renewer | Renewers,
    pool: Pool[Any],
    watch: PrimaryWatch | None,
    *,
    gives_up: bool,
) -> list[LeaseState]:
    pool.close()  # first: threads that wait then leave the queue while the renewal thread still finishes cleanups
    if watch is not None:
        watch.stop()
    return renewer.stop(gives_up=gives_up)


def _close_in(
    pid: int, renewer: Renewer | Renewers, pool: Pool[Any], watch: PrimaryWatch | None, *, gives_up: bool
) -> None:
    """Close what is of this process.

    A child that was forked without Python's hooks, and has not called since, has nothing of its own.
    """
    if os.getpid() == pid:
        _close_all(renewer, pool, watch, gives_up=gives_up)
