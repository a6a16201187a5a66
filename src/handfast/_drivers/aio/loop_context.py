"""Everything that one client has on one event loop, and how it ends.

It ends with the client or with the loop. `asyncio.run` closes its asynchronous generators after the last task, and each
context starts one, so that its connection is closed while there still is a loop to do it with. A loop that is closed
without even that leaves a connection that is closed later, by `LoopContext.close_now`.

What belongs to a loop may only be touched by the thread that runs it: `call_on` sees to that.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
from collections.abc import AsyncGenerator, Callable
from typing import Any

from redis.exceptions import ConnectionError as RedisConnectionError

from handfast._drivers.aio.connect import AsyncConnector
from handfast._drivers.aio.renewer import Renewer
from handfast._drivers.aio.session import Session
from handfast._drivers.clock import monotonic
from handfast._drivers.failures import closed_while_waiting
from handfast._engine.keys import control_channel, inbox_channel
from handfast._engine.messages import Subscription
from handfast._engine.records import owner_text
from handfast._protocol.lease import LeaseState, LeaseTable
from handfast._protocol.retry import UNDO_WAIT

__all__ = ["LoopContext", "call_on", "current_task", "runs_here"]


class LoopContext:
    """Session, renewer and leases, under a client id of their own. Made within the running loop."""

    def __init__(self, connector: AsyncConnector, namespace: str, label: str) -> None:
        self.loop = asyncio.get_running_loop()
        client_id = secrets.token_hex(8)
        control, numbers = control_channel(namespace, client_id), itertools.count(1)

        def subscribe() -> Subscription:
            inbox = inbox_channel(namespace, client_id, next(numbers))
            return Subscription((inbox, control), owner_text(inbox, control, label))

        self.leases = LeaseTable()
        self.session = Session(connector, subscribe)
        self.renewer = Renewer(self.session, self.leases)
        self.session.on_revoked = self._on_revoked
        self.session.on_break = self.renewer.renew_all
        self._ended = False
        self._loop_end = self._at_loop_end()
        with contextlib.suppress(StopIteration):
            self._loop_end.__anext__().send(None)  # up to its yield: from then on the loop knows the generator

    def remove(self, lease: LeaseState) -> None:
        """Stop renewing a lease, from any thread. If this is the loop's, no renewal is sent for it again."""
        self.leases.pop(lease.token, None)
        if lease.token in self.renewer.renewals:
            call_on(self.loop, self.renewer.remove, lease)

    def receive(self, _lease: LeaseState) -> None:
        """Take the replies that have arrived, in case the loop is or was blocked. Other threads than its own cannot."""
        if runs_here(self.loop):
            self.session.receive()

    def lose(self, lease: LeaseState, reason: str) -> None:
        """Note from any thread that a lease of this context is lost."""
        self.leases.lose(lease, reason)
        call_on(self.loop, self.renewer.notify_lost, lease)

    async def close(self) -> None:
        """Fail the waiters, let them clean up, and then close the connection."""
        error = closed_while_waiting()
        self.session.inbox.fail_all(error)
        try:
            await self._settle()
        finally:
            self._end(error)
        await asyncio.sleep(0)  # for the transport's connection_lost

    def close_now(self) -> None:
        """Close the connection from any thread: the client is gone, or the loop is."""
        if self.loop.is_closed():
            self.session.close_after_loop()
        else:
            with contextlib.suppress(RuntimeError):  # another thread is closing the loop
                self.loop.call_soon_threadsafe(self._end, closed_while_waiting())

    def _on_revoked(self, token: bytes, reason: str) -> None:
        """Take a revocation: it concerns a lease that is held, or a grant that its waiter has not seen yet."""
        if not self.renewer.revoked(token, reason):
            self.session.inbox.note_revoked(token, reason)

    def _end(self, error: Exception) -> None:
        self._ended = True
        self.renewer.stop_renewing()
        self.session.end(error)
        with contextlib.suppress(
            StopIteration, StopAsyncIteration, RuntimeError
        ):  # raised if the generator itself ends us
            self._loop_end.aclose().send(None)

    async def _settle(self) -> None:
        """Wait until no task waits for the server any more, at most UNDO_WAIT seconds."""
        until = monotonic() + UNDO_WAIT
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        while not (self.session.is_idle and self.renewer.is_idle) and monotonic() < until:  # noqa: ASYNC110 -- an event would burden every reply
            await asyncio.sleep(0.001)

    async def _at_loop_end(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            if not self._ended:
                await self._settle()  # other generators are closed beside this one, and may have leases to release
                self._end(RedisConnectionError("the event loop ended"))
                self.renewer.end()


def runs_here(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether the calling thread runs that loop."""
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
    """Call a function in the loop's thread: now if that is the calling thread, else soon. A closed loop never does."""
    if runs_here(loop):
        function(*args)
    else:
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(function, *args)
