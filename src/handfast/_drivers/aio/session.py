"""One RESP3 connection for all tasks of an event loop: it sends their scripts and receives their grants.

All requests of one turn of the loop leave in one write, but the first request on a quiet connection leaves at once.
Replies come in the order of the requests, grant messages by token; both reach their waiters through futures. A
cancelled task cancels only its future. The request keeps its place among the replies, so no reply is taken for the
reply to another request.

A broken connection is opened again, see `connection`, and all requests without a reply are sent again: scripts are
idempotent. `outbox` says for how long. If the server was never reached, all requests fail at once. Waiters are woken,
since a grant message may have been lost; they ask again. A server that sends nothing although a reply is due counts as
gone: see `silence`.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections import deque
from collections.abc import Callable, Coroutine
from math import inf
from typing import Any

from redis.exceptions import ConnectionError as RedisConnectionError

from handfast._drivers.aio.connect import AsyncConnector
from handfast._drivers.aio.connection import Connection
from handfast._drivers.aio.inbox import Inbox
from handfast._drivers.aio.outbox import Outbox
from handfast._drivers.aio.pending import Outcome, PendingBatch, PendingCall
from handfast._drivers.aio.silence import SilenceWatch
from handfast._drivers.aio.transport import FrameTransport
from handfast._drivers.clock import monotonic
from handfast._drivers.failures import (
    connection_broke,
    primary_changed,
    server_silent,
)
from handfast._drivers.known_scripts import KnownScripts
from handfast._drivers.trace import new_exchange
from handfast._engine.batches import replies, split
from handfast._engine.effects import Answer, Call, Confirmation, GrantMessage, Park, Waking, make_answer
from handfast._engine.exchange import Aside
from handfast._engine.messages import Message, Subscription, Told
from handfast._engine.resp import ErrorReply, Push, Reader
from handfast._engine.server_errors import is_noscript, may_have_written

__all__ = ["Session"]

BATCH = 128
"""Requests in one write; between two writes the session checks for back-pressure."""

BATCH_PAUSE_S = 1.0
"""After the server refused a batch, the next one is made no sooner, in seconds: a user may lack the right to run its
script."""


class Session:
    """The connection of a client on one event loop. ``subscribe`` makes the subscription of each new connection.

    ``retry_for`` is for how many seconds a call is retried, unless the call says otherwise. The owner sets four
    callbacks. ``on_told`` is called with token and reason; ``on_break`` with the error when the connection broke;
    ``on_unreachable`` with the error when no connection could be opened. ``on_refused`` is called with a request and
    the error reply to it, and returns whether it took the request over. In a cluster ``slot_of`` returns the slot of a
    call, and ``on_slot_left`` is called with a slot that has left the server.
    """

    def __init__(self, connector: AsyncConnector, subscribe: Callable[[], Subscription], retry_for: float) -> None:
        self._connector = connector
        self.retry_for = retry_for
        self._loop = asyncio.get_running_loop()
        self.on_told: Callable[[bytes, Told], object] = lambda _token, _told: None
        self.on_break: Callable[[Exception], object] = lambda _error: None
        self.on_unreachable: Callable[[Exception], object] = lambda _error: None
        self.on_refused: Callable[[PendingCall, ErrorReply], bool] = lambda _request, _reply: False
        self.on_slot_left: Callable[[int], object] = lambda _slot: None
        self.slot_of: Callable[[Call], int | None] | None = None
        self.inbox = Inbox(self._confirm)
        self.forget = self.inbox.unregister
        self._outbox = Outbox()
        self.exchange = new_exchange(connector)
        self._count = 0
        self._scripts = KnownScripts()
        self._flush_scheduled = False
        self._reading = False
        """Whether frames are being delivered."""
        self._hurries = False
        """Whether the outbox is to be sent once the frames at hand are delivered."""
        self._batches_from = -inf
        """The server refused a batch: there is none before this moment."""
        self._probe: Future[Outcome] | None = None
        """The latest request that is to find out whether the server takes scripts from this user."""
        self._silence = SilenceWatch(
            connector.response_timeout, self._is_reply_due, lambda: self._break(server_silent())
        )
        self._connection = Connection(connector, subscribe, self)
        self.breaks = 0
        """How many connections broke so far."""

    @property
    def is_open(self) -> bool:
        return self._connection.is_open

    @property
    def trouble(self) -> Exception | None:
        """Why there is no connection; None while there is one, or while none was asked for yet."""
        return self._outbox.trouble

    @property
    def is_stuck(self) -> bool:
        """Whether a call waits for a connection that could not be opened."""
        return self._outbox.is_stuck

    @property
    def is_idle(self) -> bool:
        """Whether no task waits for a reply or a grant."""
        return not (self.exchange.due or self._outbox or self.inbox)

    def send(
        self,
        call: Call,
        retry_for: float | None = None,
        on_answer: Callable[[Answer], object] | None = None,
        *,
        by_source: bool = False,
    ) -> Future[Outcome]:
        """Send a call. The future gets the reply, or the network's error after a break of ``retry_for`` seconds.

        ``on_answer`` is called with a reply, unless this is an error, in the step that reads it, before any other
        callback. Cancel the future to withdraw the call: it is not sent from then on, neither for the first time nor
        again.
        """
        future: Future[Outcome] = Future(loop=self._loop)
        request = PendingCall(call, future, self.retry_for if retry_for is None else retry_for, on_answer)
        if by_source:
            request.by_source = True
        self._outbox.append(request)
        if not self._flush_scheduled:
            self.schedule()
        return future

    def adopt(self, request: PendingCall) -> None:
        """Send a call that was sent elsewhere before, or had to wait."""
        self._outbox.append(request)
        self.schedule()

    def withdraw(self) -> list[PendingCall]:
        """Give back the calls to be sent once there is a connection."""
        return [] if self.is_open else self._outbox.withdraw()

    def park(self, park: Park) -> Coroutine[Any, Any, Waking]:
        """Wait for the grant message."""
        if not self._connector.heard:
            park = self._connector.unheard(park)
        if (
            park.confirm is None
            or self._connector.sends_scripts is not None
            or not self.is_open
            or not (self._probe is None or self._probe.done())
        ):
            return self.inbox.park(park)
        return self._park_first(park, park.confirm)

    def use_shard(self, slot: int) -> None:
        """Have messages for the waiters of a slot come to a sharded inbox, as soon as the server has the inbox."""
        transport = self._connection.transport
        if transport is not None and self.is_open and (command := self.exchange.subscribe(slot)):
            transport.write(command)

    async def _park_first(self, park: Park, confirm: Call) -> Waking:
        """Wait for the grant message. Try beforehand how to send the confirmation: for a waiter it changes nothing."""
        self._probe = probe = self.send(confirm, by_source=True)
        try:
            return await self.inbox.park(park)
        finally:
            probe.cancel()  # nothing is sent for a token after its end

    def note_told(self, token: bytes, told: Told) -> None:
        """Keep a message for a holder that has not seen the grant yet."""
        self.inbox.note_told(token, told)

    def fail_waiters(self, error: Exception) -> None:
        """Fail all tasks waiting for a grant, now and later."""
        self.inbox.fail_all(error)

    def receive(self) -> None:
        """Deliver the bytes that arrived while the loop was blocked, unless a delivery is in progress."""
        if self._connection.transport is not None and not self._reading:
            self._connection.transport.receive()

    def reconnect(self, breaks: int | None = None) -> bool:
        """Open a new connection: another server may be the primary.

        Do nothing if more than ``breaks`` connections broke by now. Return whether a new connection is opened.
        """
        if self._connection.transport is None or breaks not in (None, self.breaks):
            return False
        self._break(primary_changed())
        return True

    def make_room(self, _call: Call) -> None:
        """Shut the connection down, from any thread: the server has no room for another connection."""
        if (transport := self._connection.transport) is not None:
            transport.hang_up()

    def end(self, error: Exception) -> None:
        """Close the connection for good. Pending requests and waiters fail with the error."""
        self._flush_scheduled = False
        self._connection.end(error)
        self._silence.end()
        self.inbox.fail_all(error)
        self._fail(error, inf)
        self._outbox.end()

    def close_after_loop(self) -> None:
        """Close the connection of a closed event loop."""
        self._connection.close_after_loop()

    def abandon(self) -> None:
        """Drop the connection in a forked child: it is the parent's."""
        self._connection.abandon()

    # --- called by the transport

    def begin(self) -> Reader:
        """Return the reader of a new connection."""
        return self.exchange.open()

    def on_frames(self, frames: deque[Any]) -> None:
        """Deliver each reply and each message, and send the calls that follow from them at once in a single write."""
        self._silence.ticks = 0
        self._reading = True
        exchange, connection = self.exchange, self._connection
        due = exchange.due
        try:
            while frames:
                frame = frames.popleft()
                if type(frame) is Push:
                    exchange.take_push(frame, self)
                elif connection.handshake is not None:
                    if not connection.handshake.done():
                        connection.handshake.set_result(frame)
                    elif due:
                        due.popleft()
                elif not due:
                    self._break(RedisConnectionError(f"the server sent a reply without a request: {frame!r:.100}"))
                    break
                elif isinstance(request := due.popleft(), Aside):
                    request.take(frame, self)
                else:
                    if self._scripts.asked:
                        self._hurries = True
                        self._scripts.learn(request.call.prefix.digest, frame)
                    self.deliver(request, frame)
        finally:
            self._reading = False
        if self._hurries:
            self._hurries = False
            self._flush()

    def deliver(self, request: PendingCall, frame: Any, replicas: int = 0) -> None:
        """Take the reply to a call."""
        future, call = request.future, request.call
        if future.done():
            return
        # Also for an error: the reply to a script sent in full tells whether the user may send one.
        if request.by_source:
            self._connector.note_source(frame)
        if type(frame) is not ErrorReply:
            self._connection.tries = 0
            if call.waiter:
                # In the step that reads the reply: the next frame may be the message for this token. A
                # message from before the reply was of a grant that is over, and is not taken for a new one.
                self.inbox.register(call.waiter)
                if call.joining is not None:
                    # A grant for the whole ttl shows that the name
                    # was free: its next request may join a batch.
                    call.joining.is_free = type(frame) is int or frame[:8] == b"admitted"
            answer = make_answer((request.sent_at, frame, request.again, replicas))
            if request.on_answer is not None:
                request.on_answer(answer)
            future.set_result(answer)
        elif is_noscript(frame) and not request.by_source:
            # A call that brought its source has run, so the error is one of the script itself.
            self._send_source(request)
        elif not self.on_refused(request, frame):
            future.set_result(frame)

    def refuse(self, request: PendingCall, error: ErrorReply) -> None:
        """Take the refusal of `ASKING` for the reply to the call. Other calls of the script wait for this reply."""
        self._hurries = True
        self._scripts.learn(request.call.prefix.digest, error)
        self.deliver(request, error)

    def on_batch(self, batch: PendingBatch, frame: Any) -> None:
        """Deliver the replies to the calls of a batch. Calls not served by the batch leave alone, without delay."""
        self._hurries = True
        if type(frame) is not ErrorReply:
            for request, reply in zip(batch.calls, replies(batch.call, frame), strict=True):
                if not reply:
                    if request.call.joining is not None:
                        request.call.joining.is_free = False
                    self._outbox.append(request)
                else:
                    self.deliver(request, reply)
            return
        if is_noscript(frame) and not batch.by_source:
            self._scripts.unknown.add(batch.call.prefix.digest)
        else:
            self._batches_from = monotonic() + BATCH_PAUSE_S
            for request in batch.calls:
                request.again = request.again or may_have_written(frame)
        self._outbox += batch.calls

    def on_writable(self) -> None:
        self._flush()

    def on_disconnect(self, transport: FrameTransport, error: Exception | None) -> None:
        if transport is self._connection.transport:
            self._break(connection_broke(error or "it was closed at the other end"))

    def on_message(self, message: Message) -> None:
        """Hand a grant to the waiter, or another message to the holder."""
        token, said = message
        if isinstance(said, GrantMessage):
            self.inbox.dispatch(token, said)
        else:
            self.on_told(token, said)

    # --- called by the connection

    def has_work(self) -> bool:
        return self._outbox.has_work()

    def on_connected(self) -> None:
        self._scripts.reconnect()
        self._batches_from = -inf
        self._silence.ticks = 0

    def on_probe(self) -> None:
        self.exchange.due.append(Aside())

    def on_open(self, subscription: Subscription) -> None:
        self.exchange.owner = subscription.owner.encode()
        self._outbox.trouble = None

    def on_failure(self, error: Exception, *, may_recover: bool) -> None:
        self._outbox.trouble = error
        self.on_unreachable(error)
        self._fail(error, monotonic() if may_recover else inf)

    # --- sending

    def schedule(self) -> None:
        """Have the outbox sent: at once, at the end of this turn of the loop, or after a connect."""
        connection = self._connection
        if connection.ended is not None:
            self._fail(connection.ended, inf)
        elif connection.opening is not None:
            return
        elif connection.transport is None:
            connection.open()
        elif not self.exchange.due and not self._flush_scheduled:
            self._flush()  # nothing else is in progress: to wait for the end of the turn would only cost a turn
        elif not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _confirm(self, call: Call) -> Confirmation:
        """Send a confirmation within this step of the loop: the next step may take long."""
        confirmation = Confirmation()
        confirmation.pending = self.send(
            call, on_answer=confirmation.settle, by_source=self._connector.confirms_in_full
        )
        if self._reading:
            self._hurries = True
        else:
            self._flush()
        return confirmation

    def _flush(self) -> None:
        self._flush_scheduled = False
        outbox, scripts, connection, exchange = self._outbox, self._scripts, self._connection, self.exchange
        known, transport = scripts.known, connection.transport
        held_back: list[PendingCall] = []
        while outbox and connection.handshake is None and transport is not None and not transport.paused:
            parts: list[bytes] = []
            # Before the write: leases are counted from this moment,
            # and must not seem to last longer (invariant 8).
            now = monotonic()
            requests: list[PendingCall] = []
            batches: list[list[PendingCall]] = []
            for _ in range(min(len(outbox), BATCH)):
                request = outbox.popleft()
                if not request.future.done():
                    requests.append(request)
            if len(requests) > 1 and now >= self._batches_from:
                requests, batches = split(requests, self.slot_of)
            for request in requests:
                digest = request.call.prefix.digest
                # The first call of a script leaves alone. The others wait for its
                # reply, or a server without the script would refuse them all.
                if not (digest in known or request.by_source or scripts.may_leave(digest)):
                    held_back.append(request)
                    continue
                self._count += 1
                request.number, request.sent_at = self._count, now
                # `due` has the calls in the order of their bytes,
                # since a reply does not say to which call it belongs.
                if request.asking:
                    parts.append(exchange.ask(request))
                exchange.due.append(request)
                parts += exchange.pack(request.call, by_source=request.by_source)
            for members in batches:
                batch = PendingBatch(members, now)
                digest = batch.call.prefix.digest
                if digest in scripts.unknown:
                    scripts.unknown.discard(digest)
                    batch.by_source = True
                exchange.due.append(batch)
                parts += exchange.pack(batch.call, by_source=batch.by_source)
            if parts:
                transport.write(b"".join(parts))
        # Behind the loop, which would find them again and never end; and in front, where they stood.
        outbox.extendleft(reversed(held_back))
        if exchange.due and self._silence.timer is None:
            self._silence.tick()

    def _send_source(self, request: PendingCall) -> None:
        """Send a call again after NOSCRIPT: with the source, unless the source left after the call did."""
        if self._scripts.needs_source(request.call.prefix.digest, request.number, self._count):
            request.by_source = True
            self._outbox.appendleft(request)  # before those that wait for it
        else:
            self._outbox.append(request)
        self.schedule()

    def _is_reply_due(self) -> bool:
        return self._connection.transport is not None and bool(self.exchange.due)

    # --- when the connection is gone

    def _break(self, error: Exception) -> None:
        """Drop the connection: wake the waiters, and connect again if requests are pending."""
        self.breaks += 1
        self._flush_scheduled = False
        if not self._connection.drop(error):
            return
        self._outbox.trouble = error
        self._outbox.fail(self.exchange.broken(), error, monotonic(), broke=True)
        self.inbox.on_disconnect()
        self.on_break(error)
        if self._outbox:
            self.schedule()

    def _fail(self, error: Exception, moment: float) -> None:
        """Fail the requests whose retries end by ``moment``; the others are sent on the next connection, in order."""
        self._outbox.fail(self.exchange.broken(), error, moment)
