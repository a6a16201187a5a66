"""Everything that one client has on one event loop, and how it ends.

It ends with the client or with the loop. `asyncio.run` closes its asynchronous generators after the last task. Each
context starts such a generator, which closes the connection while there still is a loop. If a loop is closed without
closing the generators, the connection is closed later, by `Context.close_now`.

Only the thread that runs a loop may touch the objects of the loop: `call_on` sees to this.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
from asyncio import Future
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Any

from redis.exceptions import ConnectionError as RedisConnectionError

from handfast._drivers import log
from handfast._drivers.aio.connect import AsyncConnector
from handfast._drivers.aio.deadlines import Deadlines
from handfast._drivers.aio.renewer import Renewer
from handfast._drivers.aio.sessions import Sessions
from handfast._drivers.clock import monotonic
from handfast._drivers.losses import heard, run_lost_callbacks
from handfast._engine.effects import Call, Steps
from handfast._engine.keys import control_channel, inbox_channel
from handfast._engine.messages import Subscription, Told
from handfast._engine.records import owner_text
from handfast._protocol.lease import LeaseState, LeaseTable, release
from handfast._protocol.loss import Loss
from handfast._protocol.retry import UNDO_WAIT
from handfast.errors import ClientClosed

if TYPE_CHECKING:
    from handfast._drivers.aio.primary_watch import PrimaryWatch
    from handfast._drivers.aio.router import Router
    from handfast._drivers.aio.session import Session
    from handfast._drivers.aio.shared_waits import SharedWaits

__all__ = ["NO_LOOP", "Context", "call_on", "current_task", "runs_here"]

NO_LOOP = (
    "AsyncHandfast needs a running event loop of asyncio, and there is none here; in trio, call Handfast in a thread: "
    "trio.to_thread.run_sync(…)"
)
"""What is said where none runs."""


class Context:
    """Session, renewer and leases, under a client id of their own. Made within the running loop."""

    def __init__(
        self, connector: AsyncConnector, namespace: str, label: str, retry_for: float, *, release_at_end: bool
    ) -> None:
        self.loop = asyncio.get_running_loop()
        client_id = secrets.token_hex(8)
        control, numbers = control_channel(namespace, client_id), itertools.count(1)

        def subscribe() -> Subscription:
            if self._watch is not None:
                self._watch.start()
            inbox = inbox_channel(namespace, client_id, next(numbers))
            return Subscription((inbox, control), owner_text(inbox, control, label))

        def subscribe_to_nothing() -> Subscription:
            return Subscription((inbox_channel(namespace, client_id, next(numbers)),), "")

        def make_sessions() -> Sessions:
            return Sessions(connector, subscribe_to_nothing, subscribe_to_nothing, retry_for)

        self.connector = connector
        self.control: str = control
        """The channel on which this client hears that a lease was taken away."""
        self.leases = LeaseTable()
        self.deadlines = Deadlines(connector.response_timeout)
        self._waits: SharedWaits | None = None
        self._sessions = Sessions(connector, subscribe, subscribe_to_nothing, retry_for)
        self.session: Session | Router = self._sessions.main
        self.session_for: Callable[[Call], Session | Router] = self._sessions.session_for
        self._watch: PrimaryWatch | None = None
        if connector.service is not None:
            from handfast._drivers.aio.primary_watch import PrimaryWatch

            self._watch = PrimaryWatch(connector, self.reconnect)
        stand_ins = make_sessions if connector.takes_threads else None
        self.renewer = Renewer(self.session_for, self.leases, stand_ins, connector.events)
        self.session.on_told = self._on_told
        self.session.on_break = self.renewer.on_break
        self.session.on_unreachable = self.renewer.on_unreachable
        self._release_at_end = release_at_end
        self._ended = False
        self._loop_end = self._at_loop_end()
        with contextlib.suppress(StopIteration):
            self._loop_end.__anext__().send(None)  # up to its yield: from then on the loop knows the generator

    @property
    def waits(self) -> SharedWaits:
        """The questions that tasks of this loop ask in turns. Made at first use, since few programs need it."""
        if self._waits is None:
            from handfast._drivers.aio.shared_waits import SharedWaits

            self._waits = SharedWaits()
        return self._waits

    def soon(self) -> float:
        """Return the moment until which the server has to reply to a call sent now."""
        return monotonic() + self.connector.response_timeout

    def reconnect(self) -> None:
        """Open new connections: another server is the primary."""
        for session in self._sessions.all():
            session.reconnect()

    def remove(self, lease: LeaseState) -> None:
        """Stop renewing a lease, from any thread. If this is the loop's, no renewal is sent for it again."""
        self.leases.pop(lease.token, None)
        if lease.token in self.renewer.renewals:
            call_on(self.loop, self.renewer.remove, lease)

    def receive(self, _lease: LeaseState) -> None:
        """Take the arrived replies, in case the loop is or was blocked. Only the loop's own thread can do so."""
        if runs_here(self.loop):
            for session in self._sessions.all():
                session.receive()

    def lose(self, lease: LeaseState, loss: Loss) -> None:
        """Note from any thread the loss of a lease of this context."""
        self.leases.lose(lease, loss, monotonic())
        call_on(self.loop, self.renewer.notify_lost, lease)

    @property
    def is_closed(self) -> bool:
        return self._ended or self.loop.is_closed()

    def perform_later(self, steps: Steps[object]) -> None:
        """Perform a protocol for which no caller waits, from any thread."""
        call_on(self.loop, self.renewer.clean_up, steps)

    async def close(self, *, gives_up: bool) -> None:
        """Fail the waiters, let them clean up, and then close the connection.

        Give up the held leases, or let them run out.
        """
        error = ClientClosed()
        self.session.fail_waiters(error)
        try:
            releases = self._give_up() if gives_up else {}
            for lease in releases:
                if (dispatcher := self.connector.events.dispatcher) is not None:
                    dispatcher.lost(lease, lease.loss)
                run_lost_callbacks(lease)
            await self._settle()
            for lease, released in releases.items():
                if not released.done() or released.result() is None:
                    log.unreleased(lease.request.name)
        finally:
            self._end(error)
        await asyncio.sleep(0)  # for the transport's connection_lost

    def close_now(self) -> None:
        """Close the connection from any thread: the client is gone, or the loop is."""
        if self.loop.is_closed():
            for connection in self._connections():
                connection.close_after_loop()
        else:
            with contextlib.suppress(RuntimeError):  # another thread is closing the loop
                self.loop.call_soon_threadsafe(self._end, ClientClosed())

    def abandon(self) -> None:
        """Drop everything in a forked child: it is the parent's."""
        for lease in self.leases.all():
            lease.disown(monotonic())
        for connection in self._connections():
            connection.abandon()
        self.renewer.abandon()

    def _connections(self) -> list[Session | Router | PrimaryWatch]:
        return [*self._sessions.all(), *([] if self._watch is None else [self._watch])]

    def _on_told(self, token: bytes, told: Told) -> None:
        """Take a message for a holder: it concerns a held lease, or a grant that the waiter has not seen yet."""
        if not self.renewer.take(token, told):
            self.session.note_told(token, heard(told))

    def _end(self, error: Exception) -> None:
        self._ended = True
        self.renewer.stop_renewing()
        self._sessions.end(error)
        self.deadlines.end()
        if self._watch is not None:
            self._watch.stop()
        with contextlib.suppress(
            StopIteration, StopAsyncIteration, RuntimeError
        ):  # raised if the generator itself ends us
            self._loop_end.aclose().send(None)

    def _give_up(self) -> dict[LeaseState, Future[Any]]:
        """Begin to release all leases."""
        releases = {}
        for lease in self.leases.give_up(monotonic()):
            self.renewer.remove(lease)
            releases[lease] = self.renewer.clean_up(release(lease, by_holder=False))
        return releases

    async def _settle(self) -> None:
        """Wait until no task waits for the server any more, at most UNDO_WAIT seconds."""
        until = monotonic() + UNDO_WAIT
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        while self._is_busy() and monotonic() < until:  # noqa: ASYNC110 -- an event would burden every reply
            await asyncio.sleep(0.001)

    def _is_busy(self) -> bool:
        return not (self.renewer.is_idle and all(session.is_idle for session in self._sessions.all()))

    async def _at_loop_end(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            if not self._ended:
                if self._release_at_end:
                    self._give_up()
                await self._settle()  # other generators are closed beside this one, and may have leases to release
                self._end(RedisConnectionError("the event loop ended"))
                self.renewer.end()


def runs_here(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether the calling thread runs ``loop``."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def current_task() -> asyncio.Task[Any] | None:
    """Return the running task; None outside of any."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def call_on(loop: asyncio.AbstractEventLoop, function: Callable[..., object], *args: object) -> None:
    """Call a function in the loop's thread: now if this is the calling thread, else soon. A closed loop never does."""
    if runs_here(loop):
        function(*args)
    else:
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(function, *args)
