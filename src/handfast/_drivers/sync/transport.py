"""One RESP3 connection as a thread drives it: bytes out, frames in.

The client library opens the connection. From then on the socket is read here, since replies and pushes arrive
interleaved and in either order. A push that a script causes to its own connection comes before the script's reply up
to Redis 7.0 and after it from 7.2 on. Both may arrive in the same segment.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
from collections.abc import Callable, Iterator
from typing import Any, cast

from redis.connection import AbstractConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from handfast._drivers.descriptors import identity
from handfast._drivers.failures import (
    connection_broke,
    handshake_failed,
    primary_changed,
    server_silent,
)
from handfast._drivers.linger import drop_undelivered
from handfast._drivers.sync.connect import SyncConnector
from handfast._drivers.sync.handlers import raise_from_handler
from handfast._drivers.trace import new_exchange
from handfast._engine.exchange import User
from handfast._engine.messages import Subscription
from handfast._engine.resp import Push
from handfast._engine.servers import IDENTITY

__all__ = ["MIN_TIMEOUT_S", "Transport", "translated"]

MIN_TIMEOUT_S = 0.02
"""Time that the server has for a reply even when the caller's time is nearly over, in seconds."""


_NOT_YET = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
"""What a socket that does not block raises instead of waiting."""


class Transport(User):
    """One connection at a time. ``subscribe`` makes the subscription of each new connection."""

    def __init__(self, connector: SyncConnector, subscribe: Callable[[], Subscription]) -> None:
        self._connector = connector
        self._subscribe = subscribe
        self._connection: AbstractConnection | None = None
        self.exchange = new_exchange(connector)

    @property
    def is_open(self) -> bool:
        return self._connection is not None

    def open(self, within: float | None = None) -> None:
        """Connect and subscribe, each step within ``within`` seconds.

        Frames that come behind the handshake stay in ``frames``.
        """
        timeout = self._connector.response_timeout if within is None else within
        switches = self._connector.switches
        connection = self._connector.connect(max(timeout, MIN_TIMEOUT_S))
        self._socket = cast("socket.socket", connection._sock)  # noqa: SLF001 -- redis-py has no public way to its socket
        self._connection, self._identity = connection, identity(self._socket.fileno())
        self._socket.settimeout(0)  # with a timeout each send and each receive would begin with a poll
        self._has_decrypted = getattr(self._socket, "pending", int)
        self._reader = self.exchange.open()
        self.frames = self._reader.frames
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        with self.closing_on_error():
            if switches != self._connector.switches:  # `hang_up` may have been too early
                raise primary_changed()
            subscription = self._subscribe()
            introduction = b"" if self._connector.is_known else IDENTITY
            probe = b"" if self._connector.heard else subscription.probe
            reply = self.ask(introduction + subscription.handshake + probe, timeout)
            if introduction:
                self._connector.meet(reply, subscription.proof_key)
                reply = self.ask(b"", timeout)
            failure = handshake_failed(subscription, reply)
            if failure is not None:
                raise failure
            if probe:
                self.ask(b"", timeout)  # what matters is whether the message comes
            self.exchange.owner = subscription.owner.encode()
            if (dispatcher := self._connector.events.dispatcher) is not None:
                dispatcher.connected(self._connector.address)

    def close(self) -> None:
        """Close the connection, whatever state it is in."""
        connection, self._connection = self._connection, None
        if connection is not None:
            if identity(self._socket.fileno()) != self._identity:
                self._socket.detach()  # it was closed elsewhere, and its number may be another file's
            try:
                connection.disconnect()  # type: ignore[no-untyped-call]  # redis-py's
            except Exception as error:  # noqa: BLE001 -- it is closed
                raise_from_handler(error)

    def drop(self) -> None:
        """Close the connection after an error: requests may be on their way."""
        if self._connection is not None and identity(self._socket.fileno()) == self._identity:
            drop_undelivered(self._socket)
        self.close()

    def hang_up(self) -> None:
        """End the connection, from another thread. The thread using it then finds it broken."""
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def fileno(self) -> int:
        """Return the socket's, for select and poll."""
        return self._socket.fileno()

    def write(self, data: bytes, within: float) -> None:
        """Send all of the data. If the system cannot take it at once, wait ``within`` seconds at most."""
        try:
            sent = self._socket.send(data)
        except _NOT_YET:
            sent = 0
        if sent < len(data):
            self._socket.settimeout(max(within, MIN_TIMEOUT_S))
            self._socket.sendall(data[sent:])
            self._socket.settimeout(0)

    def has_bytes(self) -> bool:
        """Return whether bytes have arrived that a poll of the socket does not see: TLS had them decrypted."""
        return bool(self._has_decrypted())

    def receive(self, seconds: float) -> bool:
        """Receive the bytes that arrive first within ``seconds``. Return False if no bytes arrive."""
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

    def take_frames(self) -> None:
        """Take the arrived frames. Messages may stand in one segment with a reply, where no poll sees them."""
        frames, take = self.frames, self.exchange.take
        while frames:
            take(frames.popleft(), self)

    @contextlib.contextmanager
    def closing_on_error(self) -> Iterator[None]:
        """Close the connection if the body fails, and raise redis-py's errors for those of the socket."""
        try:
            yield
        except OSError as error:
            self.drop()
            raise_from_handler(error)
            raise translated(error) from error
        except BaseException:
            self.drop()
            raise

    def ask(self, data: bytes, within: float) -> Any:
        """Send a command, and return the reply. Without data, return the next reply.

        This is the next frame which is no push and no reply to an earlier call. All frames before it are taken.
        """
        try:  # as in `write`: a call less on the hot path
            sent = self._socket.send(data) if data else 0
        except _NOT_YET:
            sent = 0
        if sent < len(data):
            self.write(data[sent:], within)
        exchange, frames = self.exchange, self.frames
        while True:
            while not frames:
                if not self.receive(max(MIN_TIMEOUT_S, within)):
                    raise TimeoutError
            frame = frames.popleft()
            if type(frame) is Push:
                exchange.take_push(frame, self)
            elif exchange.due:
                exchange.take(frame, self)
            else:
                return frame


def translated(error: OSError) -> RedisConnectionError | RedisTimeoutError:
    """Return redis-py's error for a socket error: users of redis-py know it."""
    return server_silent() if isinstance(error, TimeoutError | BlockingIOError) else connection_broke(error)
