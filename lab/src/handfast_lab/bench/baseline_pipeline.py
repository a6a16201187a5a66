"""The floor of `bench async`: the work of many tasks over one bare connection, without tasks.

The state of a client is its latest token. A client that is granted its lock releases it, and a client that has released
requests again, so each client has one request in flight or waits for its grant message. Everything triggered by one
piece of input leaves in one write. Replies arrive in the order of the requests, so a queue of clients identifies the
recipient of each. Grant messages carry their token; depending on the server they arrive before or after the reply to
the release that caused them.

The first bytes of a message alone determine its type and its size. See `handfast_lab.bench.baseline` for
what this omits.
"""

from __future__ import annotations

import os
from array import array
from collections import deque
from collections.abc import Sequence
from time import monotonic

from handfast_lab.bench.baseline import NUMBERS_SIZE, QUEUED_SIZE, RELEASED_SIZE, TOKEN_SIZE, Bare
from handfast_lab.bench.figures import Notes

__all__ = ["Pipeline"]

BATCH = 1 << 16
"""Bytes to receive at once; a larger buffer would make the allocator request memory from the system each time."""

TOKEN_AT = TOKEN_SIZE + NUMBERS_SIZE + len(" \r\n")
"""How long before its end the token of a grant message begins."""


class Pipeline:
    """Many clients on one connection, one for each name in ``names``."""

    def __init__(self, bare: Bare, names: Sequence[str]) -> None:
        self._socket = bare.socket
        self._push_size = bare.push_size
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
        data = self._rest + data
        at, end, asked = 0, len(data), self._asked
        while at + 3 <= end:
            head = data[at : at + 3]
            if head[:1] == b":":
                until = data.find(b"\r\n", at) + 2
                if until == 1:
                    break
                self._hold(asked.popleft())
            elif head == b"$17":
                until = at + RELEASED_SIZE
                if until > end:
                    break
                self._acquire(asked.popleft())
            elif head == b"$39":
                until = at + QUEUED_SIZE
                if until > end:
                    break
                client = asked.popleft()
                self._waiting[self._tokens[client]] = client
            elif head == b">3\r":
                until = at + self._push_size
                if until > end:
                    break
                self._hold(self._waiting.pop(data[until - TOKEN_AT : until - TOKEN_AT + TOKEN_SIZE]))
            else:
                raise RuntimeError(f"the floor cannot go on after {data[at:]!r:.1000}")
            at = until
        self._rest = data[at:]

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
