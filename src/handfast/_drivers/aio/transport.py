"""One connection to the server as the event loop drives it: bytes out, frames in.

The client library opens the connection and completes the handshake. Then `FrameTransport` takes over its transport,
whatever kind it is (plain, TLS, uvloop's), and becomes the protocol that the loop calls. Back-pressure is the loop's
own: while ``paused`` is set, nothing may be written.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from typing import Any, Protocol, Self, cast

from redis.exceptions import ConnectionError as RedisConnectionError

from handfast._drivers.aio.connect import AsyncConnector
from handfast._drivers.failures import primary_changed
from handfast._drivers.linger import drop_undelivered, hang_up
from handfast._engine.resp import Reader

__all__ = ["FrameHandler", "FrameTransport"]

_abandoned: list[object] = []
"""Transports of the parent in a forked child, which may neither use nor finalize them."""


class FrameHandler(Protocol):
    """The owner of a transport, whose methods it calls."""

    def begin(self) -> Reader:
        """Return the reader of a new connection."""

    def on_frames(self, frames: deque[Any]) -> None:
        """Take the arrived frames from the left."""

    def on_writable(self) -> None:
        """Continue to write after back-pressure."""

    def on_disconnect(self, transport: FrameTransport, error: Exception | None) -> None:
        """Note the end of the connection."""


class FrameTransport(asyncio.Protocol):
    """An asyncio transport and the reader of the frames."""

    def __init__(self, connector: AsyncConnector, writer: asyncio.StreamWriter, handler: FrameHandler) -> None:
        self._connector = connector
        self._writer = writer  # keeps the transport alive
        self._transport = cast("asyncio.Transport", writer.transport)
        self._handler = handler
        self._reader = handler.begin()
        self._lost = False
        self.paused = False

    @classmethod
    async def open(cls, connector: AsyncConnector, handler: FrameHandler) -> Self:
        """Connect, and take over the transport."""
        switches = connector.switches
        transport = cls(connector, await connector.connect(), handler)
        if transport._transport.is_closing():
            raise RedisConnectionError("the server closed the connection at once")
        if switches != connector.switches:
            transport.close()
            raise primary_changed()
        transport._transport.set_protocol(transport)
        return transport

    def write(self, data: bytes) -> None:
        self._transport.write(data)

    def receive(self) -> None:
        """Take the bytes that have arrived and the loop has not read yet."""
        data = self._connector.read_arrived(self._writer)
        if data:
            self.data_received(data)

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        self._handler.on_frames(self._reader.frames)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self._handler.on_disconnect(self, exc)

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        self._handler.on_writable()

    def close(self) -> None:
        """Close the connection without waiting for unwritten bytes."""
        self._transport.abort()

    def drop(self) -> None:
        """Close the connection after an error: requests may be on their way."""
        drop_undelivered(self._transport.get_extra_info("socket"))
        self.close()

    def hang_up(self) -> None:
        """Shut the connection down from any thread. The loop notes it when it goes on."""
        hang_up(self._transport.get_extra_info("socket"))

    def close_after_loop(self) -> None:
        """Close the connection of a closed event loop. asyncio has no public way without a warning."""
        with contextlib.suppress(RuntimeError):  # abort() schedules a callback on the closed loop
            self._transport.abort()
        connection_lost = getattr(self._transport, "_call_connection_lost", None)
        if connection_lost is not None and not self._lost:
            connection_lost(None)

    def abandon(self) -> None:
        """Close the connection in a forked child without a byte to the server: it is the parent's."""
        _abandoned.append(self)
        socket = self._transport.get_extra_info("socket")
        if socket is not None and socket.fileno() >= 0:
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, socket.fileno())
            os.close(null)
