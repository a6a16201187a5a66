"""One RESP3 connection that sends scripts and hears its own inbox.

The connection is made by the client library; from then on the session reads its socket itself, since replies and
pushes arrive interleaved and in either order: a push that a script causes to its own connection comes before the
script's reply up to Redis 7.0 and after it from 7.2 on, and both may come in one piece.

A session belongs to one thread at a time. After any exception it is closed, never reused: a reply may still be on its way.
"""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Callable
from time import monotonic
from typing import Any, cast

from redis.connection import AbstractConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from handfast._drivers.sync.connect import SyncConnector
from handfast._engine.effects import Answer, Call, GrantMessage, Park, Waking
from handfast._engine.messages import Granted, Revoked, parse_message
from handfast._engine.resp import INCOMPLETE, ErrorReply, Push, Reader, bulk
from handfast._engine.server_errors import is_noscript, is_transient, subscribe_denied

__all__ = ["Session"]

SHORTEST_LIMIT = 0.02
"""Seconds that the server is given for a reply even when the caller's time is all but over."""


class Session:
    """One connection and its inbox. ``address`` is what the server is told about its owner."""

    def __init__(
        self, recipe: SyncConnector, inbox: str, address: str, on_revoked: Callable[[bytes, str], None] | None = None
    ) -> None:
        self._recipe = recipe
        self._inbox = inbox
        self._address = bulk(address)
        self._on_revoked = on_revoked
        self._connection: AbstractConnection | None = None
        self._bells: dict[bytes, GrantMessage] = {}

    @property
    def is_open(self) -> bool:
        """Whether there is a connection, as far as is known."""
        return self._connection is not None

    def open(self, within: float | None = None) -> None:
        """Connect and subscribe to the inbox, each step within that many seconds."""
        limit = self._recipe.response_timeout if within is None else within
        try:
            connection = self._recipe.connect(max(limit, SHORTEST_LIMIT))
        except ResponseError as error:
            if is_transient(str(error)):
                raise RedisConnectionError(f"the server is not ready: {error}") from error
            raise
        self._connection = connection
        # The client library has no public way to its socket.
        self._socket = cast("socket.socket", connection._sock)  # noqa: SLF001
        self._limited = 0.0
        self._reader = Reader()
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._bells.clear()
        with self._closing_on_error():
            self._limit(limit)
            # The confirmation of a subscription is a push, so the reply to wait for is that of a PING behind it.
            self._socket.sendall(b"*2\r\n" + bulk("SUBSCRIBE") + bulk(self._inbox) + b"*1\r\n" + bulk("PING"))
            reply = self._reply()
            if isinstance(reply, ErrorReply):
                raise RedisConnectionError(str(reply)) if is_transient(reply) else subscribe_denied(reply, self._inbox)

    def close(self) -> None:
        """Let go of the connection, whatever state it is in."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.disconnect()  # type: ignore[no-untyped-call]  # the client library's

    def fileno(self) -> int:
        """The socket's, for those who wait on several things at once."""
        return self._socket.fileno()

    def call(self, call: Call, within: float) -> Answer | ErrorReply:
        """Run a script and wait that many seconds for its reply, opening the session first if need be.

        An error of the server's is returned, one of the network's raised.
        """
        if self._connection is None:
            self.open(within)
        head, tail, waiter, _ = call
        if waiter:
            tail += self._address
        try:  # the hot path: without the context manager that does the same elsewhere
            if within != self._limited:
                self._limit(within)
            sent_at = monotonic()
            self._socket.sendall(head.evalsha + tail)
            reply = self._reply()
            if type(reply) is ErrorReply and is_noscript(reply):
                sent_at = monotonic()
                self._socket.sendall(head.eval_source + tail)
                reply = self._reply()
        except OSError as error:
            self.close()
            raise _translated(error) from error
        except BaseException:
            self.close()
            raise
        if type(reply) is ErrorReply:
            return reply
        self._bells.clear()  # what rang before the server answered was for a grant that is over
        return Answer(sent_at, reply)

    def send(self, calls: list[Call], *, sources: bool, within: float) -> float:
        """Send several scripts at once and say when; their `replies` are to come within that many seconds."""
        with self._closing_on_error():
            self._limit(within)
            sent_at = monotonic()
            heads = ((call.head.eval_source if sources else call.head.evalsha) + call.tail for call in calls)
            self._socket.sendall(b"".join(heads))
        return sent_at

    def replies(self, count: int) -> list[Any]:
        """The replies to what was sent, errors among them."""
        with self._closing_on_error():
            return [self._reply() for _ in range(count)]

    def park(self, park: Park) -> Waking:
        """Wait for the inbox to ring. A connection that breaks ends the wait too: whoever waits asks again then."""
        token, until = park
        try:
            while True:
                self._hear_all()  # what came in one piece with a reply is here already: no poll tells of it
                bell = self._bells.pop(token, None)
                now = monotonic()
                if bell is not None or now >= until:
                    return Waking(now, bell)
                self._bells.clear()  # what rang for others rang too late: they are gone
                self._await_bytes(until - now)
        except (OSError, RedisConnectionError):
            self.close()
            return Waking(monotonic(), None)
        except BaseException:
            self.close()
            raise

    def listen(self) -> None:
        """Take in what has arrived, without waiting."""
        with self._closing_on_error():
            self._await_bytes(0)
            self._hear_all()

    def _await_bytes(self, seconds: float) -> None:
        pending = getattr(self._socket, "pending", None)  # what TLS has decrypted already, no poll tells of
        if (pending and pending()) or self._poll.poll(seconds * 1000):
            self._receive()

    def _hear_all(self) -> None:
        while (frame := self._reader.frame()) is not INCOMPLETE:
            self._hear(frame)

    def _reply(self) -> Any:
        """The next frame that is no push; the pushes before it are heard."""
        while True:
            frame = self._reader.frame()
            if frame is INCOMPLETE:
                self._receive()
            elif type(frame) is Push:
                self._hear(frame)
            else:
                return frame

    def _receive(self) -> None:
        data = self._socket.recv(16384)
        if not data:
            raise RedisConnectionError("the server closed the connection")
        self._reader.feed(data)

    def _limit(self, within: float) -> None:
        """Let no send and no receive last longer than that."""
        self._limited = within
        self._socket.settimeout(max(within, SHORTEST_LIMIT))

    def _hear(self, frame: Any) -> None:
        match parse_message(frame):
            case Granted(token, bell):
                self._bells[token] = bell
            case Revoked(token, reason) if self._on_revoked is not None:
                self._on_revoked(token, reason)

    @contextlib.contextmanager
    def _closing_on_error(self) -> Any:
        try:
            yield
        except OSError as error:
            self.close()
            raise _translated(error) from error
        except BaseException:
            self.close()
            raise


def _translated(error: OSError) -> RedisConnectionError | RedisTimeoutError:
    """The client library's own errors for a socket that fails, as its users know them."""
    if isinstance(error, TimeoutError | BlockingIOError):
        return RedisTimeoutError("the server did not answer in time")
    return RedisConnectionError(f"the connection to the server broke: {error}")
