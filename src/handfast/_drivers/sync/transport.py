"""One RESP3 connection as a thread drives it: bytes out, frames in.

The client library opens the connection. From then on the socket is read here, since replies and pushes arrive
interleaved and in either order: a push that a script causes to its own connection comes before the script's reply up to
Redis 7.0 and after it from 7.2 on, and both may arrive in one segment.
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
from handfast._engine.effects import Call, GrantMessage
from handfast._engine.messages import Subscription, parse_message
from handfast._engine.resp import Push, Reader
from handfast._engine.servers import IDENTITY
from handfast._engine.shards import Shards

__all__ = ["MIN_TIMEOUT_S", "Transport", "translated"]

MIN_TIMEOUT_S = 0.02
"""Time that the server has for a reply even when the caller's time is nearly over, in seconds."""


_NOT_YET = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
"""What a socket that does not block raises instead of waiting."""


class Transport:
    """One connection at a time, and its channels.

    ``subscribe`` makes the subscription of each connection that is opened.
    """

    def __init__(self, connector: SyncConnector, subscribe: Callable[[], Subscription]) -> None:
        self._connector = connector
        self._subscribe = subscribe
        self._connection: AbstractConnection | None = None
        self.owner = b""
        """The owner text of those who wait for a message on this connection."""
        self.shards: Shards | None = None
        """Its sharded inboxes, in a cluster."""

    @property
    def is_open(self) -> bool:
        return self._connection is not None

    def open(self, within: float | None = None) -> None:
        """Connect and subscribe, each step within that many seconds.

        What comes behind the handshake stays in ``frames``.
        """
        timeout = self._connector.response_timeout if within is None else within
        switches = self._connector.switches
        connection = self._connector.connect(max(timeout, MIN_TIMEOUT_S))
        self._socket = cast("socket.socket", connection._sock)  # noqa: SLF001 -- redis-py has no public way to its socket
        self._connection, self._identity = connection, identity(self._socket.fileno())
        self._socket.settimeout(0)  # with a timeout each send and each receive would begin with a poll
        self._has_decrypted = getattr(self._socket, "pending", int)
        self._reader = Reader()
        self.frames = self._reader.frames
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        with self.closing_on_error():
            if switches != self._connector.switches:  # `hang_up` may have been too early
                raise primary_changed()
            subscription = self._subscribe()
            introduction = b"" if self._connector.is_known else IDENTITY
            probe = b"" if self._connector.heard else subscription.probe
            self.write(introduction + subscription.handshake + probe, timeout)
            if introduction:
                self._connector.meet(self._next_reply(timeout), subscription.proof_key)
            failure = handshake_failed(subscription, self._next_reply(timeout))
            if failure is not None:
                raise failure
            if probe:
                self._next_reply(timeout)  # what matters is whether the message comes
            self.owner, self.shards = subscription.owner.encode(), None

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
        """End the connection, from another thread. The thread that uses it then finds it broken."""
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def fileno(self) -> int:
        """Return the socket's, for select and poll."""
        return self._socket.fileno()

    def write(self, data: bytes, within: float) -> None:
        """Send all of it, and wait that many seconds if the system cannot take it at once."""
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

    def owner_of(self, call: Call) -> bytes:
        """Return the owner text for a call that may wait."""
        return self.owner if self.shards is None else self.shards.owner(call)

    def take_push(self, frame: Push) -> None:
        """Take a message, or what the server says of a sharded inbox; what else it pushes says nothing."""
        found = parse_message(frame)
        if found is not None:
            if not self._connector.heard:
                self._connector.note_heard()
            self._on_message(*found)
        elif self.shards is None:
            pass
        elif frame[0] == b"ssubscribe":
            self.shards.take(frame[1])
            self._on_subscribed()
        elif frame[0] == b"sunsubscribe":
            self._on_slot_left(self.shards.drop(frame[1]))

    def subscription_to(self, slot: int) -> bytes:
        """Return the command that subscribes to the sharded inbox of a slot, if it is to be sent."""
        if self.shards is None:
            self.shards = Shards(self.owner)
        return self.shards.subscribe(slot)

    def _on_message(self, token: bytes, message: GrantMessage | str) -> None:
        """Take a grant, or the reason of a revocation."""
        raise NotImplementedError

    def _on_subscribed(self) -> None:
        """Expect no reply to the oldest subscription to a sharded inbox: there is a push in place of one."""
        raise NotImplementedError

    def _on_slot_left(self, slot: int) -> None:
        """Have those ask again who wait in a slot that the server does not have any more."""
        raise NotImplementedError

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

    def _next_reply(self, within: float) -> Any:
        """Return the next frame that is no push, and take the pushes before it."""
        while True:
            while self.frames:
                frame = self.frames.popleft()
                if type(frame) is not Push:
                    return frame
                self.take_push(frame)
            if not self.receive(max(MIN_TIMEOUT_S, within)):
                raise TimeoutError


def translated(error: OSError) -> RedisConnectionError | RedisTimeoutError:
    """Return redis-py's error for a socket error, as its users know it."""
    return server_silent() if isinstance(error, TimeoutError | BlockingIOError) else connection_broke(error)
