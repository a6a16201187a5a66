"""The baseline ("floor" in the tables): our own scripts over a bare blocking socket, with as little Python as possible.

The server does the same work as for the library: the same scripts, a new token each time, an inbox on the same
connection. The client omits everything that makes a library: it parses replies only to distinguish them, renews
nothing, never retries and cancels nothing. The ratio of the library's rate to that of the baseline is therefore the
cost of the library.

`Baseline` is one client of one lock or semaphore; `handfast_lab.bench.baseline_pipeline` does the same for many locks
on one connection.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple, cast

from handfast._drivers.sync.connect import SyncConnector
from handfast._engine.calls import PermitRequest
from handfast._engine.effects import Call
from handfast._engine.keys import KeySet, control_channel, inbox_channel
from handfast._engine.options import LeaseOptions
from handfast._engine.resp import bulk
from handfast._engine.script import load
from handfast_lab.rivals.handfast import OURS
from handfast_lab.rivals.verbs import LEASE, Client

__all__ = ["BASELINE", "Bare", "Baseline", "Template"]

GRANTED, QUEUED, RELEASED = b":", b"$39\r\nqueued ", b"$17\r\nreleased "
"""How the replies begin."""

QUEUED_SIZE, RELEASED_SIZE, TOKEN_SIZE, NUMBERS_SIZE = 46, 24, 32, 24
"""Number of bytes of two replies, and of what is in a grant message: all have the same size every time."""


class Template(NamedTuple):
    """The bytes of a call before and after its token."""

    before: bytes
    after: bytes


class Bare:
    """A connection with loaded scripts and a subscription to its inbox, and its bare socket."""

    def __init__(self, url: str) -> None:
        identity = secrets.token_hex(8)
        inbox, home = inbox_channel("bench", identity, 1), control_channel("bench", identity)
        self._address = f"{inbox} {home} {os.uname().nodename}:{os.getpid()}".encode()
        connection: Any = cast("SyncConnector", SyncConnector.of(url)).connect()  # redis-py's methods are untyped
        for script in map(load, ("permit_acquire", "permit_release")):
            connection.send_command("SCRIPT", "LOAD", script.source)
            connection.read_response()
        self._connection = connection
        self.socket: socket.socket = connection._sock  # noqa: SLF001 -- redis-py has no public access to the socket
        self.socket.settimeout(None)  # fully blocking: a timeout costs a poll before each recv and send
        self.socket.sendall(b"*2\r\n" + bulk("SUBSCRIBE") + bulk(inbox))
        self.receive(b"", len(b">3\r\n" + bulk("subscribe") + bulk(inbox) + b":1\r\n"))
        grant = b"granted %b %b" % (bytes(TOKEN_SIZE), bytes(NUMBERS_SIZE))
        self.push_size = len(b">3\r\n" + bulk("message") + bulk(inbox) + bulk(grant))
        """Number of bytes of a grant message."""

    def templates(self, name: str, limit: int = 1) -> tuple[Template, Template]:
        """Return the calls that acquire and release one of ``limit`` permits of that name."""
        permits = PermitRequest(KeySet("bench", "lock", name), LeaseOptions(30_000), limit=limit)
        token = secrets.token_hex(16).encode()
        return self._template(permits.acquire(token), token), self._template(permits.release(token), token)

    def receive(self, data: bytes, size: int) -> None:
        """Receive until there are that many bytes; a reply and a message may arrive together or in pieces."""
        while len(data) < size:
            more = self.socket.recv(4096)
            if not more:
                raise ConnectionError("the server closed the connection")
            data += more

    def close(self) -> None:
        self._connection.disconnect()

    def _template(self, call: Call, token: bytes) -> Template:
        whole = call.prefix.evalsha + call.packed + (call.record(self._address) if call.waiter else b"")
        return Template(*whole.split(token))


class Baseline:
    """One client of one lock or semaphore."""

    def __init__(self, url: str, name: str, limit: int = 1) -> None:
        self.tries = 0
        self._bare = Bare(url)
        self._socket = self._bare.socket
        self._acquire, self._release = self._bare.templates(name, limit)
        self.close = self._bare.close

    def acquire(self, timeout: float | None = None) -> bool:  # noqa: ARG002 -- it always waits
        """Request the permit and, if queued, wait for the grant message on the same socket."""
        self.tries += 1
        before, after = self._acquire
        self._token = token = secrets.token_hex(16).encode()
        self._socket.sendall(before + token + after)
        data = self._socket.recv(4096)
        if data.startswith(GRANTED):
            while not data.endswith(b"\r\n"):
                data += self._socket.recv(4096)
        elif data.startswith(QUEUED):
            self._bare.receive(data, QUEUED_SIZE + self._bare.push_size)
        else:
            raise RuntimeError(f"the baseline cannot continue after {data!r}")
        return True

    def release(self) -> bool:
        before, after = self._release
        self._socket.sendall(before + self._token + after)
        data = self._socket.recv(4096)
        if not data.startswith(RELEASED):
            raise RuntimeError(f"the baseline cannot continue after {data!r}")
        self._bare.receive(data, RELEASED_SIZE)
        return True

    def extend(self, seconds: float) -> None:
        raise NotImplementedError(f"not by {seconds:g} s: nothing is renewed")


class _Client:
    """Opens a connection for each lock."""

    def __init__(self, url: str, stack: contextlib.ExitStack) -> None:
        self._url = url
        self._stack = stack

    def lock(self, name: str, ttl: float = LEASE, *, renew: bool = False) -> Baseline:  # noqa: ARG002 -- always 30 s
        return self.semaphore(name, 1)

    def semaphore(self, name: str, limit: int, ttl: float = LEASE) -> Baseline:  # noqa: ARG002 -- see above
        return self._stack.enter_context(contextlib.closing(Baseline(self._url, name, limit)))


@contextlib.contextmanager
def _open(url: str) -> Iterator[Client]:
    with contextlib.ExitStack() as stack:
        yield _Client(url, stack)


BASELINE = replace(OURS, name="floor", sync=_open, has=frozenset({"semaphore"}))
"""The baseline as a contender. It is only measured; no trial attacks it."""
