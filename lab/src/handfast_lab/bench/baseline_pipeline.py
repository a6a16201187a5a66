"""The floor of `bench async`: the work of many tasks over one bare connection, without tasks.

The state of a client is its latest token. A client that is granted its lock releases it, and a client that has released
requests again, so each client has one request in flight or waits for its grant message. Everything triggered by one
piece of input leaves in one write. Replies arrive in the order of the requests, so a queue of clients identifies the
recipient of each. Grant messages carry their token; depending on the server they arrive before or after the reply to
the release that caused them.

The first line of a message alone determines its type and its number of lines. See `handfast_lab.bench.baseline` for
what this omits.
"""

from __future__ import annotations

import os
from array import array
from collections import deque
from collections.abc import Sequence
from time import monotonic

from handfast_lab.bench.baseline import Bare
from handfast_lab.bench.figures import Notes

__all__ = ["Pipeline"]

BATCH = 1 << 16
"""Bytes to receive at once; a larger buffer would make the allocator request memory from the system each time."""

TOKEN_AT, TOKEN_END = len("granted "), len("granted ") + 32
"""Position of the token in a grant message."""


class Pipeline:
    """Many clients on one connection, one for each name in ``names``."""

    def __init__(self, bare: Bare, names: Sequence[str]) -> None:
        self._socket = bare.socket
        self._templates = [bare.templates(name) for name in names]
        self._tokens = [b""] * len(names)
        self._asked: deque[int] = deque()
        self._waiting: dict[bytes, int] = {}
        self._rest = b""
        self._pieces: list[bytes] = []
        self._notes = [Notes(0, array("d"), array("d")) for _ in names]

    def contend(self, until: float) -> list[Notes]:
        """Let all clients acquire and release until then. Outstanding leases and requests expire on the server."""
        for client in range(len(self._tokens)):
            self._acquire(client)
        while monotonic() < until:
            if self._pieces:
                self._socket.sendall(b"".join(self._pieces))
                self._pieces.clear()
            self._take(self._socket.recv(BATCH))
        return self._notes

    def _take(self, data: bytes) -> None:
        if not data:
            raise ConnectionError("the server closed the connection")
        lines = (self._rest + data).split(b"\r\n")
        at, end = 0, len(lines) - 1  # text after the last line end is an incomplete line
        asked = self._asked
        while at < end:
            head = lines[at]
            size = _LINES.get(head, 0)
            if at + size > end:
                break
            if head == b"*2" and lines[at + 2] == b"released":
                self._acquire(asked.popleft())
            elif head == b"*3" and lines[at + 2] == b"granted":
                self._hold(asked.popleft())
            elif head == b"*5" and lines[at + 2] == b"queued":
                client = asked.popleft()
                self._waiting[self._tokens[client]] = client
            elif head == b">3" and lines[at + 2] == b"message":
                self._hold(self._waiting.pop(lines[at + 6][TOKEN_AT:TOKEN_END]))
            else:
                raise RuntimeError(f"the floor cannot go on after {lines[at:]!r:.1000}")
            at += size
        self._rest = b"\r\n".join(lines[at:])

    def _acquire(self, client: int) -> None:
        before, after = self._templates[client][0]
        self._tokens[client] = token = os.urandom(16).hex().encode()
        self._pieces += (before, token, after)
        self._asked.append(client)

    def _hold(self, client: int) -> None:
        """Record the hold of this client and release its lock."""
        notes = self._notes[client]
        notes.succeeded.append(monotonic())
        before, after = self._templates[client][1]
        notes.released.append(monotonic())
        self._pieces += (before, self._tokens[client], after)
        self._asked.append(client)


_LINES = {b"*2": 4, b"*3": 5, b"*4": 6, b">3": 7}
"""Number of lines of a message, by its first line."""
