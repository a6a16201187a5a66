"""The wire floor of `bench async`: what many tasks do, without tasks, over one bare connection.

Each of so many clients is no more than its latest token. One that is granted its lock releases it, one that has
released asks again, so each has one request in flight, or waits for the push of its grant; all of them go on together:
what one piece from the server sets off leaves in one write. Replies come in the order of the requests, so a queue of
whose they are tells whom each is for; pushes name their token, and come before or after the reply to the release that
they are due to, depending on the server.

Messages are told apart by their first line alone, which says how many lines they have. See `handfast_lab.bench.baseline` for
what this leaves out.
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
"""Bytes to receive at once: more would make the allocator ask the system for memory each time."""

TOKEN_AT, TOKEN_END = len("granted "), len("granted ") + 32
"""Where the token stands in a push."""


class Pipeline:
    """So many clients on one connection, each with the name of the lock that it wants."""

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
        """Let all acquire and release until then. What is held or asked for by then is left to the server to forget."""
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
        at, end = 0, len(lines) - 1  # what follows the last line end is no line yet
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
            elif head == b"*4" and lines[at + 2] == b"queued":
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
        """It has the lock: note that, and release it."""
        notes = self._notes[client]
        notes.acquired.append(monotonic())
        before, after = self._templates[client][1]
        notes.released.append(monotonic())
        self._pieces += (before, self._tokens[client], after)
        self._asked.append(client)


_LINES = {b"*2": 4, b"*3": 5, b"*4": 6, b">3": 7}
"""The lines of a message, by its first one."""
