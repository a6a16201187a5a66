"""One connection to the server, as the event loop drives it: bytes out, frames in.

The client library makes the connection and goes through the handshake; then the line takes its transport over, whatever
kind it is (plain, TLS, uvloop's), and is the protocol that the loop calls. Back-pressure is the transport's own: while
it says pause, nothing is to be written.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterable
from typing import Any, Protocol, Self, cast

from redis.exceptions import ConnectionError as RedisConnectionError

from handfast._drivers.aio.connect import AsyncConnector
from handfast._engine.resp import INCOMPLETE, Reader

__all__ = ["FrameHandler", "Line"]

_abandoned: list[object] = []
"""What a forked child must neither use nor finalize."""


class FrameHandler(Protocol):
    """Who talks over a line."""

    def hear(self, frames: Iterable[Any]) -> None:
        """Take the frames that came in one piece."""

    def resume(self) -> None:
        """Go on writing."""

    def hang_up(self, line: Line, error: Exception | None) -> None:
        """Take note that the line is dead."""


class Line(asyncio.Protocol):
    """A transport and the reader of what comes in."""

    def __init__(self, writer: asyncio.StreamWriter, party: FrameHandler) -> None:
        self._writer = writer  # the transport lives no longer than this
        self._transport = cast("asyncio.Transport", writer.transport)
        self._party = party
        self._reader = Reader()
        self.paused = False
        self._dead = False

    @classmethod
    async def open(cls, recipe: AsyncConnector, party: FrameHandler) -> Self:
        """Connect, and take the transport over."""
        line = cls(await recipe.connect(), party)
        if line._transport.is_closing():
            raise RedisConnectionError("the server closed the connection at once")
        line._transport.set_protocol(line)
        return line

    def write(self, data: bytes) -> None:
        """Send, or keep until the transport can."""
        self._transport.write(data)

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        self._reader.feed(data)
        self._party.hear(iter(self._reader.frame, INCOMPLETE))

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        self._dead = True
        self._party.hang_up(self, exc)

    def pause_writing(self) -> None:
        """Called by the event loop."""
        self.paused = True

    def resume_writing(self) -> None:
        """Called by the event loop."""
        self.paused = False
        self._party.resume()

    def close(self) -> None:
        """Let go of the connection at once."""
        self._transport.abort()

    def bury(self) -> None:
        """Let go of the connection when its loop is closed: asyncio has no public way of it that makes no noise."""
        with contextlib.suppress(RuntimeError):  # it wants to be called back by the loop
            self._transport.abort()
        lose = getattr(self._transport, "_call_connection_lost", None)
        if lose is not None and not self._dead:
            lose(None)

    def abandon(self) -> None:
        """Close the connection in a forked child, where it is the parent's, without touching what both of them share."""
        _abandoned.append(self)
        socket = self._transport.get_extra_info("socket")
        if socket is not None and socket.fileno() >= 0:
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, socket.fileno())
            os.close(null)
