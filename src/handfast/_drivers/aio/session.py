"""One RESP3 connection for all tasks of an event loop: it sends their scripts and hears the grants for all of them.

What the tasks send within one turn of the loop leaves in one write, but for the first request on a quiet connection,
which leaves at once. Replies come back in the order of the requests, grants by token, and both reach whoever waits
through a future. Whoever stops waiting (a cancelled task) only cancels that future: its request keeps its place among
the replies, so nobody's reply is ever taken for another's.

A connection that breaks is made anew, and everything that was not answered is sent again: scripts are idempotent. That
goes on until the patience of each request is over; one that must not run twice fails at once if it was sent. A server
that was never reached fails all of them at once. Those who wait for a grant are woken, since a ring may have been lost;
they ask again.

The server is given up as silent when nothing at all has come for a while though an answer is due. The time is counted
in ticks of the loop, so that a loop that was blocked blames itself and not the server.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import Context
from math import inf
from time import monotonic
from typing import Any, TypeAlias

from redis.exceptions import AuthenticationError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from handfast._drivers.aio.connect import AsyncConnector
from handfast._drivers.aio.inbox import Inbox
from handfast._drivers.aio.transport import Line
from handfast._drivers.timeouts import PAUSES, RETRY_FOR, copy_exception
from handfast._engine.effects import Answer, Call
from handfast._engine.messages import Granted, Revoked, parse_message
from handfast._engine.resp import ErrorReply, Push, bulk
from handfast._engine.server_errors import is_noscript, is_transient, subscribe_denied

__all__ = ["Outcome", "Session"]

Outcome: TypeAlias = Answer | ErrorReply

BATCH = 128
"""Requests in one write; between two writes the transport is asked whether it can take more."""

TICKS = 5
"""Parts of the response timeout: so many in a row without a byte, and the server counts as silent."""


class _Request:
    """A script on its way, and who waits for its reply."""

    __slots__ = ("call", "eval_source", "future", "give_up_at", "number", "patience", "sent_at", "whole")

    def __init__(self, call: Call, future: Future[Outcome], patience: float) -> None:
        self.call = call
        self.future = future
        self.patience = patience
        self.give_up_at = inf
        self.eval_source = False
        self.whole = False
        self.number = 0
        self.sent_at = 0.0


class Session:
    """The one session of a client on one event loop. ``inbox`` is where it hears of grants and of losses."""

    def __init__(
        self,
        recipe: AsyncConnector,
        inbox: str,
        address: str,
        *,
        on_revoked: Callable[[bytes, str], None],
        on_gap: Callable[[], None],
    ) -> None:
        self._recipe = recipe
        self._inbox = inbox
        self._address = bulk(address)
        self._on_revoked = on_revoked
        self._on_gap = on_gap
        self._loop = asyncio.get_running_loop()
        self.ears = Inbox()
        self._line: Line | None = None
        self._opened_at = -inf
        self._greeting: Future[Any] | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._outbox: deque[_Request] = deque()
        self._sent: deque[_Request] = deque()
        self._count = 0
        self._sources: dict[str, int] = {}
        self._tries = 0
        self._flushing = False
        self._ticker: asyncio.TimerHandle | None = None
        self._silent_ticks = 0
        self._ended = False
        self.breaks = 0
        """How many connections have broken so far. Whatever waited for its reply then is sent a second time."""

    @property
    def is_open(self) -> bool:
        """Whether there is a connection, as far as is known."""
        return self._line is not None and self._greeting is None

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits for anything."""
        return not (self._sent or self._outbox or self.ears)

    def send(self, call: Call, patience: float = RETRY_FOR) -> Future[Outcome]:
        """Send a script. Its reply, or the network's error once a break has lasted for ``patience`` seconds, is to come.

        Cancel the future to withdraw: what is not sent by then never is, and nothing is sent a second time.
        """
        future: Future[Outcome] = self._loop.create_future()
        self._outbox.append(_Request(call, future, patience))
        self._stir()
        return future

    def refresh(self, asked_at: float) -> None:
        """Find the server anew, unless that was done since that moment: another one may be the primary by now."""
        if self.is_open and self._opened_at <= asked_at:
            self._break(RedisConnectionError("the server is no primary any more"))

    def end(self, error: Exception) -> None:
        """Let go of the connection. Whoever still waits for something gets the error."""
        self._ended = True
        self._drop_line()
        if self._connecting is not None:
            self._connecting.cancel()
        if self._ticker is not None:
            self._ticker.cancel()
        self.ears.refuse(error)
        self._fail(error, inf)

    def bury(self) -> None:
        """Let go of the connection of a loop that is closed."""
        line, self._line = self._line, None
        if line is not None:
            line.bury()

    def abandon(self) -> None:
        """Forget the connection: this is a forked child, and it is the parent's."""
        line, self._line = self._line, None
        if line is not None:
            line.abandon()

    # --- what the line says

    def hear(self, frames: Iterable[Any]) -> None:
        """Give each reply and each ring to whom it belongs."""
        self._silent_ticks = 0
        sent = self._sent
        for frame in frames:
            if type(frame) is Push:
                self._ring(frame)
            elif self._greeting is not None:
                if not self._greeting.done():
                    self._greeting.set_result(frame)
            elif not sent:
                self._break(RedisConnectionError(f"the server said what nobody had asked for: {frame!r:.100}"))
                return
            else:
                request = sent.popleft()
                if request.future.done():
                    continue
                if type(frame) is not ErrorReply:
                    self._tries = 0
                    self.ears.hush(request.call.waiter)
                    request.future.set_result(Answer(request.sent_at, frame))
                elif is_noscript(frame) and not request.whole:
                    self._send_whole(request)
                else:
                    request.future.set_result(frame)

    def resume(self) -> None:
        """Write what had to wait."""
        self._flush()

    def hang_up(self, line: Line, error: Exception | None) -> None:
        """Make a new connection, if anybody needs it."""
        if line is self._line:
            self._break(
                RedisConnectionError(f"the connection to the server broke: {error or 'it was closed at the other end'}")
            )

    # --- sending

    def _stir(self) -> None:
        if self._ended:
            self._fail(RedisConnectionError("the session with the server is over"), inf)
        elif self._connecting is not None:
            return
        elif self._line is None:
            # In a context of its own: whoever happens to be first has nothing to do with the rest.
            self._connecting = self._loop.create_task(self._connect(), name="handfast-connect", context=Context())
        elif not self._sent and not self._flushing:
            self._flush()  # nothing else is under way: waiting for the end of the turn would only cost a turn
        elif not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        outbox, sent, line = self._outbox, self._sent, self._line
        while outbox and self.is_open and line is not None and not line.paused:
            pieces: list[bytes] = []
            now = monotonic()
            for _ in range(min(len(outbox), BATCH)):
                request = outbox.popleft()
                if request.future.done():
                    continue
                head, tail, waiter, _ = request.call
                pieces += (head.eval_source if request.eval_source else head.evalsha, tail)
                if waiter:
                    pieces.append(self._address)
                self._count += 1
                request.whole, request.eval_source = request.eval_source, False
                request.number, request.sent_at = self._count, now
                sent.append(request)
            line.write(b"".join(pieces))
        if sent and self._ticker is None:
            self._tick()

    def _send_whole(self, request: _Request) -> None:
        """Send a script that was forgotten again: whole, unless that has been done since it was sent."""
        digest = request.call.head.digest
        if self._sources.get(digest, -1) <= request.number:
            request.eval_source = True
            self._sources[digest] = self._count + 1
        self._outbox.append(request)
        self._stir()

    def _tick(self) -> None:
        self._ticker = None
        if self._line is None or not self._sent:
            self._silent_ticks = 0
        elif self._silent_ticks >= TICKS:
            self._break(RedisTimeoutError("the server did not answer in time"))
        else:
            self._silent_ticks += 1
            self._ticker = self._loop.call_later(self._recipe.response_timeout / TICKS, self._tick)

    # --- connecting

    async def _connect(self) -> None:
        """Make a connection, again and again for as long as somebody needs it."""
        try:
            while True:
                # The pauses grow until a script is answered, so a server that greets only to hang up is asked ever less.
                await asyncio.sleep(PAUSES[min(self._tries, len(PAUSES) - 1)])
                self._tries += 1
                try:
                    await self._open()
                except (RedisConnectionError, RedisTimeoutError) as error:
                    if not self._recipe.reached:
                        self._tries = 0
                    hopeless = not self._recipe.reached or isinstance(error, AuthenticationError)
                    self._fail(error, inf if hopeless else monotonic())
                except Exception as error:  # noqa: BLE001 -- whatever it is, those who wait are told
                    self._fail(error, inf)
                if self.is_open or not self._outbox:
                    break
        finally:
            self._connecting = None
            while self._outbox and self._outbox[0].future.done():
                self._outbox.popleft()  # withdrawn meanwhile
            if self._outbox:
                self._stir()

    async def _open(self) -> None:
        try:
            self._line = await Line.open(self._recipe, self)
        except ResponseError as error:
            if is_transient(str(error)):
                raise RedisConnectionError(f"the server is not ready: {error}") from error
            raise
        self._greeting = self._loop.create_future()
        self._opened_at = monotonic()
        self._sources.clear()
        self._silent_ticks = 0
        try:
            # The confirmation of a subscription is a push, so the reply to wait for is that of a PING behind it.
            self._line.write(b"*2\r\n" + bulk("SUBSCRIBE") + bulk(self._inbox) + b"*1\r\n" + bulk("PING"))
            async with asyncio.timeout(self._recipe.response_timeout):
                reply = await self._greeting
            if isinstance(reply, ErrorReply):
                raise RedisConnectionError(str(reply)) if is_transient(reply) else subscribe_denied(reply, self._inbox)
        except BaseException as error:
            self._greeting = None
            self._drop_line()
            if isinstance(error, TimeoutError):
                raise RedisTimeoutError("the server did not answer in time") from None
            raise
        self._greeting = None

    def _drop_line(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            line.close()

    def _break(self, error: Exception) -> None:
        """The line is dead: wake those who wait, and begin anew if anybody needs it."""
        self.breaks += 1
        self._drop_line()
        if self._greeting is not None:
            if not self._greeting.done():
                self._greeting.set_exception(error)
            return
        self._fail(error, monotonic())
        self.ears.gap()
        self._on_gap()
        if self._outbox:
            self._stir()

    def _fail(self, error: Exception, moment: float) -> None:
        """Let those fail whose patience ends by that moment; the others wait for the next line, in their order."""
        waiting = [(request, request.call.once) for request in self._sent]
        waiting += [(request, False) for request in self._outbox]
        self._sent.clear()
        self._outbox.clear()
        for request, may_not_run_twice in waiting:
            if request.future.done():
                continue
            request.give_up_at = min(request.give_up_at, monotonic() + request.patience)
            if may_not_run_twice or request.give_up_at <= moment:
                request.future.set_exception(copy_exception(error))
                request.future.exception()  # seen, should nobody wait for it any more
            else:
                self._outbox.append(request)

    # --- rings

    def _ring(self, frame: Push) -> None:
        match parse_message(frame):
            case Granted(token, bell):
                self.ears.granted(token, bell)
            case Revoked(token, reason):
                self.ears.revoked(token, reason)
                self._on_revoked(token, reason)
