"""One RESP3 connection at a time that sends scripts and receives the messages of its own inbox channel.

The client library opens the connection. From then on the session reads the socket itself, since replies and pushes
arrive interleaved and in either order: a push that a script causes to its own connection comes before the script's
reply up to Redis 7.0 and after it from 7.2 on, and both may arrive in one segment.

A session belongs to one thread at a time. After an exception it is closed and not reused: a reply may still be on its way.

The confirmation of a grant is sent without waiting for its reply. The session may change hands before that comes. Replies come
in order, so the next reader takes it before the reply that it waits for itself.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any, cast

from redis.connection import AbstractConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from handfast._drivers.clock import monotonic
from handfast._drivers.failures import connection_broke, handshake_failed, server_silent, server_starting
from handfast._drivers.linger import drop_undelivered
from handfast._drivers.sync.connect import SyncConnector
from handfast._engine.effects import Answer, Call, Confirmation, GrantMessage, Park, Waking, make_answer
from handfast._engine.messages import Subscription, parse_message
from handfast._engine.resp import ErrorReply, Push, Reader
from handfast._engine.server_errors import is_noscript, is_transient

__all__ = ["Session"]

MIN_TIMEOUT_S = 0.02
"""Time that the server has for a reply even when the caller's time is nearly over, in seconds."""


_NOT_YET = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
"""What a socket that does not block raises instead of waiting."""


class Session:
    """One connection and its inbox. ``subscribe`` makes the subscription of each connection that is opened."""

    def __init__(
        self,
        connector: SyncConnector,
        subscribe: Callable[[], Subscription],
        on_revoked: Callable[[bytes, str], object] | None = None,
    ) -> None:
        self._connector = connector
        self._subscribe = subscribe
        self._owner = b""
        self._on_revoked = on_revoked
        self._connection: AbstractConnection | None = None
        self._grants: dict[bytes, GrantMessage] = {}
        self._confirmations: deque[tuple[Confirmation, float]] = deque()
        """Those without a reply, and when they were sent."""
        self._primed = False
        """Whether the server knows the script of confirmations."""
        self._parked = False
        self._may_park = True

    @property
    def is_open(self) -> bool:
        return self._connection is not None

    def open(self, within: float | None = None) -> None:
        """Connect and subscribe, each step within that many seconds."""
        timeout = self._connector.response_timeout if within is None else within
        try:
            connection = self._connector.connect(max(timeout, MIN_TIMEOUT_S))
        except ResponseError as error:
            if is_transient(str(error)):
                raise server_starting(error) from error
            raise
        self._socket = cast("socket.socket", connection._sock)  # noqa: SLF001 -- redis-py has no public way to its socket
        self._connection = connection
        self._socket.settimeout(0)  # with a timeout each send and each receive would begin with a poll
        self._has_decrypted = getattr(self._socket, "pending", int)
        self._reader = Reader()
        self._frames = self._reader.frames
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._grants.clear()
        self._primed = False
        with self._closing_on_error():
            subscription = self._subscribe()
            self._send(subscription.handshake, timeout)
            failure = handshake_failed(subscription, self._reply(timeout))
            if failure is not None:
                raise failure
            self._owner = subscription.owner.encode()
            self._take_frames()

    def close(self) -> None:
        """Close the connection, whatever state it is in."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.disconnect()  # type: ignore[no-untyped-call]  # redis-py's
        while self._confirmations:
            self._confirmations.popleft()[0].settle(None)

    def _drop(self) -> None:
        """Close the connection after an error: requests may be on their way."""
        if self._connection is not None:
            drop_undelivered(self._socket)
        self.close()

    def fileno(self) -> int:
        """Return the socket's, for select and poll."""
        return self._socket.fileno()

    def call(self, call: Call, within: float) -> Answer | ErrorReply:
        """Run a script and wait that many seconds for its reply, opening the session first if need be.

        An error reply is returned, an error of the network raised.
        """
        if self._connection is None:
            self.open(within)
        head, tail, waiter, wants = call[:4]
        if waiter:
            tail += b"$%d\r\n%b%b\r\n" % (len(wants) + len(self._owner), wants, self._owner)
        try:  # the hot path: written out instead of entering `_closing_on_error`
            sent_at = monotonic()
            self._send(head.evalsha + tail, within)
            reply = self._reply(within)
            if type(reply) is ErrorReply and is_noscript(reply):
                sent_at = monotonic()
                self._send(head.eval_source + tail, within)
                reply = self._reply(within)
        except OSError as error:
            self._drop()
            raise _translated(error) from error
        except BaseException:
            self._drop()
            raise
        if type(reply) is ErrorReply:
            return reply
        self._grants.clear()  # a grant that was published before this reply is over
        return make_answer((sent_at, reply, False))

    def send(self, calls: list[Call], *, sources: bool, within: float) -> float:
        """Send several calls in one write, within that many seconds, and return the moment. `listen` gives their replies."""
        with self._closing_on_error():
            sent_at = monotonic()
            parts = ((call.prefix.eval_source if sources else call.prefix.evalsha) + call.args for call in calls)
            self._send(b"".join(parts), within)
        return sent_at

    def park(self, park: Park) -> Waking:
        """Wait for the grant message, and confirm it. A broken connection ends the wait, too: the waiter then asks again."""
        token, until, confirm = park
        self._parked = True
        try:
            if confirm is not None and not self._primed:
                self._prime(confirm)
            while self._may_park:
                self._take_frames()
                message = self._grants.pop(token, None)
                now = monotonic()
                if message is not None or now >= until:
                    return Waking(now, message, self._confirm(confirm, message))
                self._grants.clear()  # the others are for requests that were cancelled
                self._await_bytes(until - now)
        except (OSError, RedisConnectionError):
            self._drop()
        except BaseException:
            self._drop()
            raise
        finally:
            self._parked = False
        return Waking(monotonic(), None)

    def end_waits(self) -> None:
        """Make `park` return at once, now and later, from another thread. This ends the connection of one that waits."""
        # Note this before looking for a wait; park() does it the other way round. One of the two always sees the other.
        self._may_park = False
        if self._parked and self._connection is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def listen(self, seconds: float = 0) -> list[Any]:
        """Wait that long for bytes; take the messages and the replies to confirmations, and return the other replies.

        Error replies are returned, too.
        """
        with self._closing_on_error():
            self._await_bytes(seconds)
            replies = self._take_frames()
        self._grants.clear()  # only `park` waits for one
        return replies

    def _prime(self, call: Call) -> None:
        """See to it that the server knows the script of a confirmation. For a waiter it changes nothing."""
        for command in (call.prefix.evalsha, call.prefix.eval_source):
            self._send(command + call.args, self._connector.response_timeout)
            reply = self._reply(self._connector.response_timeout)
            if not (type(reply) is ErrorReply and is_noscript(reply)):
                break
        self._primed = True

    def _confirm(self, call: Call | None, message: GrantMessage | None) -> Confirmation | None:
        """Send the confirmation of a grant."""
        if call is None or message is None or not message.lease_us:
            return None
        confirmation = Confirmation(self)
        self._confirmations.append((confirmation, monotonic()))
        self._send(call.prefix.evalsha + call.args, self._connector.response_timeout)
        return confirmation

    def _on_confirmed(self, frame: Any) -> None:
        """Take the reply to the oldest confirmation."""
        confirmation, sent_at = self._confirmations.popleft()
        self._primed = type(frame) is not ErrorReply
        confirmation.settle(Answer(sent_at, frame) if self._primed else None)

    def _await_bytes(self, seconds: float) -> bool:
        """Receive what arrives first within that many seconds. Return False if nothing does."""
        if not self._has_decrypted() and not self._poll.poll(seconds * 1000):
            return False
        try:
            data = self._socket.recv(16384)
        except _NOT_YET:
            return True
        if not data:
            raise RedisConnectionError("the server closed the connection")
        self._reader.feed(data)
        return True

    def _take_frames(self) -> list[Any]:
        """Take the messages that have arrived, also in one segment with a reply, where no poll sees them. Return the replies."""
        replies = []
        while self._frames:
            frame = self._frames.popleft()
            if type(frame) is Push:
                self._on_push(frame)
            elif self._confirmations:
                self._on_confirmed(frame)
            else:
                replies.append(frame)
        return replies

    def _reply(self, within: float) -> Any:
        """Return the next reply that is waited for, and take the pushes and the replies to confirmations before it."""
        while True:
            while not self._frames:
                if not self._await_bytes(max(MIN_TIMEOUT_S, within)):
                    raise TimeoutError
            frame = self._frames.popleft()
            if type(frame) is Push:
                self._on_push(frame)
            elif self._confirmations:
                self._on_confirmed(frame)
            else:
                return frame

    def _send(self, data: bytes, within: float) -> None:
        """Send all of it, and wait that many seconds if the system cannot take it at once."""
        try:
            sent = self._socket.send(data)
        except _NOT_YET:
            sent = 0
        if sent < len(data):
            self._socket.settimeout(max(within, MIN_TIMEOUT_S))
            self._socket.sendall(data[sent:])
            self._socket.settimeout(0)

    def _on_push(self, frame: Any) -> None:
        match parse_message(frame):
            case token, str(reason):
                if self._on_revoked is not None:
                    self._on_revoked(token, reason)
            case token, message:
                self._grants[token] = message

    @contextlib.contextmanager
    def _closing_on_error(self) -> Any:
        try:
            yield
        except OSError as error:
            self._drop()
            raise _translated(error) from error
        except BaseException:
            self._drop()
            raise


def _translated(error: OSError) -> RedisConnectionError | RedisTimeoutError:
    """Return redis-py's error for a socket error, as its users know it."""
    return server_silent() if isinstance(error, TimeoutError | BlockingIOError) else connection_broke(error)
