"""One RESP3 connection that sends scripts and hears its own inbox.

The connection is made by the client library; from then on the session reads its socket itself, since replies and
pushes arrive interleaved and in either order: a push that a script causes to its own connection comes before the
script's reply up to Redis 7.0 and after it from 7.2 on.

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
from redis.exceptions import ConnectionError as ServerGone
from redis.exceptions import TimeoutError as ServerSilent

from holdfast.drivers.recipe import Recipe
from holdfast.wire.effects import Answer, Bell, Call, Park, Waking
from holdfast.wire.refusals import forgotten
from holdfast.wire.resp import INCOMPLETE, ErrorReply, Push, Reader, bulk

__all__ = ["Session"]


class Session:
    """One connection and its inbox. ``address`` is what the server is told about its owner."""

    def __init__(
        self, recipe: Recipe, inbox: str, address: str, on_revoked: Callable[[bytes, str], None] | None = None
    ) -> None:
        self._recipe = recipe
        self._inbox = inbox
        self._address = bulk(address)
        self._on_revoked = on_revoked
        self._connection: AbstractConnection | None = None
        self._bells: dict[bytes, Bell] = {}

    @property
    def is_open(self) -> bool:
        """Whether there is a connection, as far as is known."""
        return self._connection is not None

    def open(self, timeout: float | None = None) -> None:
        """Connect and subscribe to the inbox, each step within the timeout."""
        connection = self._recipe.connect(timeout)
        self._connection = connection
        # The client library has no public way to its socket.
        self._socket = cast("socket.socket", connection._sock)  # noqa: SLF001
        self._socket.settimeout(timeout or self._recipe.response_timeout)  # not every client library does it
        self._reader = Reader()
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._bells.clear()
        try:
            self._socket.sendall(b"*2\r\n" + bulk("SUBSCRIBE") + bulk(self._inbox))
            while (frame := self._frame()) is not None:
                if isinstance(frame, ErrorReply):
                    raise ServerGone(f"the server does not let us listen to {self._inbox!r}: {frame}")
                if frame[0] == b"subscribe":
                    return
        except OSError as error:
            self.close()
            raise _translated(error) from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the connection, whatever state it is in."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.disconnect()  # type: ignore[no-untyped-call]  # the client library's

    def fileno(self) -> int:
        """The socket's, for those who wait on several things at once."""
        return self._socket.fileno()

    def call(self, call: Call) -> Answer | ErrorReply:
        """Run a script and wait for its reply; an error of the server's is returned, one of the network's raised."""
        if self._connection is None:
            self.open()
        script, tail, signed = call
        if signed:
            tail += self._address
        try:
            sent_at = monotonic()
            self._socket.sendall(script.by_digest + tail)
            reply = self._reply()
            if type(reply) is ErrorReply and forgotten(reply):
                sent_at = monotonic()
                self._socket.sendall(script.by_source + tail)
                reply = self._reply()
        except OSError as error:
            self.close()
            raise _translated(error) from error
        except BaseException:
            self.close()
            raise
        return reply if type(reply) is ErrorReply else Answer(sent_at, reply)

    def send(self, calls: list[Call], *, sources: bool, timeout: float) -> float:
        """Send several scripts at once and say when; their `replies` are to be fetched within the timeout."""
        try:
            self._socket.settimeout(timeout)
            sent_at = monotonic()
            heads = ((call.script.by_source if sources else call.script.by_digest) + call.tail for call in calls)
            self._socket.sendall(b"".join(heads))
        except OSError as error:
            self.close()
            raise _translated(error) from error
        except BaseException:
            self.close()
            raise
        return sent_at

    def replies(self, count: int) -> list[Any]:
        """The replies to what was sent, errors among them."""
        try:
            return [self._reply() for _ in range(count)]
        except OSError as error:
            self.close()
            raise _translated(error) from error
        except BaseException:
            self.close()
            raise

    def park(self, park: Park) -> Waking:
        """Wait for the inbox to ring. A connection that breaks ends the wait too: whoever waits asks again then."""
        try:
            while True:
                bell = self._bells.pop(park.token, None)
                now = monotonic()
                if bell is not None or now >= park.until:
                    return Waking(now, bell)
                self._bells.clear()  # what rang for others rang too late: they are gone
                self._listen(park.until - now)
        except (OSError, ServerGone, ServerSilent):
            self.close()
            return Waking(monotonic(), None)
        except BaseException:
            self.close()
            raise

    def listen(self) -> None:
        """Take in what has arrived, without waiting."""
        try:
            self._listen(0)
        except OSError as error:
            self.close()
            raise _translated(error) from error
        except BaseException:
            self.close()
            raise

    def _listen(self, seconds: float) -> None:
        """Wait that long for bytes and take in the pushes among them."""
        pending = getattr(self._socket, "pending", None)  # what TLS has decrypted already, no poll reports
        if (pending and pending()) or self._poll.poll(seconds * 1000):
            self._receive()
            while (frame := self._reader.frame()) is not INCOMPLETE:
                self._hear(frame)

    def _reply(self) -> Any:
        while type(frame := self._frame()) is Push:
            self._hear(frame)
        return frame

    def _frame(self) -> Any:
        while (frame := self._reader.frame()) is INCOMPLETE:
            self._receive()
        return frame

    def _receive(self) -> None:
        data = self._socket.recv(65536)
        if not data:
            raise ServerGone("the server closed the connection")
        self._reader.feed(data)

    def _hear(self, frame: Any) -> None:
        if not isinstance(frame, Push) or frame[0] != b"message":
            return
        kind, token, rest = frame[2].split(b" ", 2)
        if kind == b"granted":
            fence, granted_us, lease_us = map(int, rest.split())
            self._bells[token] = Bell(fence, granted_us, lease_us)
        elif kind == b"revoked" and self._on_revoked is not None:
            self._on_revoked(token, rest.decode(errors="replace"))


def _translated(error: OSError) -> ServerGone | ServerSilent:
    """The client library's own errors for a socket that fails, as its users know them."""
    if isinstance(error, TimeoutError):
        return ServerSilent("the server did not answer in time")
    return ServerGone(f"the connection to the server broke: {error}")
