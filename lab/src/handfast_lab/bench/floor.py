"""The wire floor: our own scripts over a bare blocking socket, as lean as Python can be.

It has the server do the same work as the library does (the same scripts, a random token each time, an inbox on the same
connection) and leaves out all that makes a library: it parses no replies beyond telling them apart, renews nothing,
never asks twice and undoes nothing. What the library reaches of it is the price of being one.

`Floor` is one client of one lock, or of one semaphore; `handfast_lab.bench.pipeline` is the same for many locks at once on
one connection.
"""

from __future__ import annotations

import os
import secrets
import socket
from typing import Any, NamedTuple

from handfast._drivers.sync.connect import SyncConnector
from handfast._engine.calls import PermitRequest
from handfast._engine.effects import Call
from handfast._engine.keys import KeySet, control_channel, inbox_channel
from handfast._engine.resp import bulk
from handfast._engine.script import load

__all__ = ["Bare", "Floor", "Template"]

GRANTED, QUEUED, RELEASED = b"*3\r\n$7\r\ngranted", b"*4\r\n$6\r\nqueued", b"*2\r\n$8\r\nreleased"

GRANTED_LINES, QUEUED_AND_PUSHED_LINES, RELEASED_LINES, SUBSCRIBED_LINES = 5, 13, 4, 6
"""Where a message ends is known from its lines alone: none of them carries text of others' making."""


class Template(NamedTuple):
    """The bytes of a call around its token."""

    before: bytes
    after: bytes


class Bare:
    """A connection that knows the scripts and hears its own inbox, and its bare socket."""

    def __init__(self, url: str) -> None:
        identity = secrets.token_hex(8)
        inbox, home = inbox_channel("bench", identity, 1), control_channel("bench", identity)
        self._address = bulk(f"{inbox} {home} {os.uname().nodename}:{os.getpid()}")
        connection: Any = SyncConnector.of(url).connect()  # the client library leaves its methods untyped
        for script in map(load, ("permit_acquire", "permit_release")):
            connection.send_command("SCRIPT", "LOAD", script.source)
            connection.read_response()
        self._connection = connection
        self.socket: socket.socket = connection._sock  # noqa: SLF001 -- the client library has no public way to its socket
        self.socket.settimeout(None)  # blocking for real: a timeout costs a poll before each recv and send
        self.socket.sendall(b"*2\r\n" + bulk("SUBSCRIBE") + bulk(inbox))
        self.receive_lines(b"", SUBSCRIBED_LINES)

    def templates(self, name: str, limit: int = 1) -> tuple[Template, Template]:
        """How to acquire and to release one of so many permits of that name."""
        permits = PermitRequest(KeySet("bench", "lock", name), ttl_ms=30_000, renew=True, limit=limit)
        token = secrets.token_hex(16).encode()
        return self._template(permits.acquire(token), token), self._template(permits.release(token), token)

    def receive_lines(self, data: bytes, lines: int) -> None:
        """Receive until there are that many lines; reply and push may come in one piece or in several."""
        while data.count(b"\r\n") < lines:
            more = self.socket.recv(4096)
            if not more:
                raise ConnectionError("the server closed the connection")
            data += more

    def close(self) -> None:
        """Close the connection."""
        self._connection.disconnect()

    def _template(self, call: Call, token: bytes) -> Template:
        whole = call.head.evalsha + call.tail + (self._address if call.waiter else b"")
        return Template(*whole.split(token))


class Floor:
    """One client of the floor."""

    def __init__(self, url: str, name: str, limit: int = 1) -> None:
        self.tries = 0
        self._bare = Bare(url)
        self._socket = self._bare.socket
        self._acquire, self._release = self._bare.templates(name, limit)
        self.close = self._bare.close

    def acquire(self) -> None:
        """Ask, and if put in line, wait for the push on the same socket."""
        self.tries += 1
        before, after = self._acquire
        self._token = token = secrets.token_hex(16).encode()
        self._socket.sendall(before + token + after)
        data = self._socket.recv(4096)
        if data.startswith(GRANTED):
            self._bare.receive_lines(data, GRANTED_LINES)
        elif data.startswith(QUEUED):
            self._bare.receive_lines(data, QUEUED_AND_PUSHED_LINES)
        else:
            raise RuntimeError(f"the floor cannot go on after {data!r}")

    def release(self) -> None:
        """Give the lock up."""
        before, after = self._release
        self._socket.sendall(before + self._token + after)
        data = self._socket.recv(4096)
        if not data.startswith(RELEASED):
            raise RuntimeError(f"the floor cannot go on after {data!r}")
        self._bare.receive_lines(data, RELEASED_LINES)
