"""Listen for releases while waiting, on a connection of the waiter's own.

The connection has the settings of the user's client but is not from its pool, which may be small. It exists only while a
caller waits. A message is a hint to ask again, no more; without a connection (the user may not subscribe, the server has no
more connections, the client is a fake of a test) the waiter asks every ``sleep`` seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Iterable
from math import inf
from time import monotonic
from typing import Any, cast

import redis
import redis.asyncio
from redis.exceptions import ConnectionError as RedisConnectionError

from handfast._drivers.aio.connect import AsyncConnector
from handfast._drivers.aio.transport import FrameTransport
from handfast._drivers.sync.connect import SyncConnector
from handfast._drivers.sync.handlers import raise_from_handler
from handfast._engine.resp import INCOMPLETE, ErrorReply, Push, Reader, bulk
from handfast._engine.server_errors import is_transient

__all__ = ["AsyncReleaseListener", "ReleaseListener"]

logger = logging.getLogger("handfast.compat")

MIN_TIMEOUT_S = 0.001
"""Shortest timeout of a socket, in seconds: 0 would make it non-blocking."""

STEADY = 1.0
"""Seconds after which a connection counts as stable: when it ends then, the waiter asks and connects again at once."""

PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""Seconds before the next try to connect, after each failed one; the last pause repeats."""


class _Listener:
    """What both APIs share: when to connect, and what a frame means."""

    def __init__(self, client: Any, key: bytes, channel: bytes) -> None:
        self._client = client
        self._key = key
        self._subscribe = b"*2\r\n" + bulk("SUBSCRIBE") + bulk(channel)
        self._connector: Any = None
        self._opened = inf
        self._retry_at = -inf
        """The moment of the next try to connect."""
        self._failures = 0

    def _may_open(self) -> bool:
        return monotonic() >= self._retry_at

    def _pause(self, until: float) -> float:
        """Return the seconds to wait without a connection: until then, or until the next try to connect."""
        return max(0.0, min(until, self._retry_at) - monotonic())

    def _is_answer(self, frame: Any) -> bool:
        """Return whether this is the reply to SUBSCRIBE. Raises RedisConnectionError if it was refused."""
        if isinstance(frame, ErrorReply):
            if not is_transient(frame):
                self._retry_at = inf  # no permission: further tries would fail, too
            raise RedisConnectionError(frame)
        return isinstance(frame, Push) and frame[:1] == [b"subscribe"]

    def _has_opened(self) -> None:
        self._opened = monotonic()

    def _has_failed(self, error: object) -> None:
        logger.debug("no connection to listen for releases of %r, polling instead: %s", self._key, error)
        now, opened, self._opened = monotonic(), self._opened, inf
        if now - opened >= STEADY:
            self._failures = 0
        else:
            self._retry_at = max(self._retry_at, now + PAUSES[min(self._failures, len(PAUSES) - 1)])
            self._failures += 1


class ReleaseListener(_Listener):
    """For a waiting thread."""

    _socket: socket.socket | None = None

    def listen(self, within: float) -> None:
        """Subscribe unless that is done, within these seconds. Failures only mean that the waiter polls."""
        if self._socket is not None or not self._may_open():
            return
        try:
            self._open(within)
        except Exception as error:  # noqa: BLE001 -- polling works without it
            raise_from_handler(error)
            self._has_failed(error)
            self.close()

    def wait(self, seconds: float) -> None:
        """Wait for the message of a release, at most that long."""
        until = monotonic() + seconds
        try:
            while self._socket is not None and (left := until - monotonic()) > 0:
                if self._heard(left):
                    return
        except (OSError, RedisConnectionError) as error:
            raise_from_handler(error)
            self._has_failed(error)
            self.close()
        if self._socket is None:
            time.sleep(self._pause(until))

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket = None
            with contextlib.suppress(Exception):
                self._connection.disconnect()

    def _open(self, within: float) -> None:
        if self._connector is None:
            self._connector = SyncConnector(_sync_pool(self._client, self._key))
        limit = min(self._connector.response_timeout, max(within, MIN_TIMEOUT_S))
        until = monotonic() + limit
        self._connection: Any = self._connector.connect(limit)
        self._socket = cast("socket.socket", self._connection._sock)  # noqa: SLF001 -- it has no public way to its socket
        self._reader = Reader()
        self._socket.sendall(self._subscribe)
        while not self._is_answer(self._frame(until - monotonic())):
            pass
        self._has_opened()

    def _heard(self, within: float) -> bool:
        """Whether the next thing to be heard was a release; False too when nothing was."""
        try:
            heard = _is_message(self._frame(within))
        except TimeoutError as error:
            raise_from_handler(error)
            return False
        while heard and self._reader.frame() is not INCOMPLETE:
            pass  # one look at the lock serves all that was told before it
        return heard

    def _frame(self, within: float) -> Any:
        until = monotonic() + within
        connection = cast("socket.socket", self._socket)
        while (frame := self._reader.frame()) is INCOMPLETE:
            connection.settimeout(max(until - monotonic(), MIN_TIMEOUT_S))
            data = connection.recv(16384)
            if not data:
                raise RedisConnectionError("the server closed the connection")
            self._reader.feed(data)
        return frame


class AsyncReleaseListener(_Listener):
    """For a waiting task."""

    _transport: FrameTransport | None = None

    async def listen(self, within: float) -> None:
        """Subscribe unless that is done, within these seconds. Failures only mean that the waiter polls."""
        if self._transport is not None or not self._may_open():
            return
        try:
            await self._open(within)
        except Exception as error:  # noqa: BLE001 -- polling works without it
            self._has_failed(error)
            self.close()

    async def wait(self, seconds: float) -> None:
        """Wait for the message of a release, at most that long."""
        until = monotonic() + seconds
        if self._transport is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._told.wait()
            self._told.clear()
        if self._transport is None:
            await asyncio.sleep(self._pause(until))

    def close(self) -> None:
        """Close the connection."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()

    async def _open(self, within: float) -> None:
        if self._connector is None:
            self._connector = AsyncConnector(_async_pool(self._client, self._key))
        self._told = asyncio.Event()
        self._answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        async with asyncio.timeout(min(self._connector.response_timeout, within)):
            self._transport = await FrameTransport.open(self._connector, self)
            self._transport.write(self._subscribe)
            await self._answer
        self._has_opened()

    def on_frames(self, frames: Iterable[Any]) -> None:
        """Called by the line."""
        for frame in frames:
            if self._answer.done():
                if _is_message(frame):
                    self._told.set()
                continue
            try:
                if self._is_answer(frame):
                    self._answer.set_result(None)
            except RedisConnectionError as error:
                self._answer.set_exception(error)

    def on_writable(self) -> None:
        """Called by the line. There is never more to write."""

    def on_disconnect(self, transport: FrameTransport, error: Exception | None) -> None:
        """Called by the line: it is dead."""
        if transport is not self._transport:
            return
        gone = RedisConnectionError(f"the connection ended: {error}")
        if not self._answer.done():
            self._answer.set_exception(gone)
        else:
            self._transport = None
            self._has_failed(gone)
            self._told.set()


def _is_message(frame: Any) -> bool:
    return isinstance(frame, Push) and frame[:1] == [b"message"]


def _sync_pool(client: Any, key: bytes) -> Any:
    """What knows how to reach the server: in a cluster, that of the lock's node. Any other would hear as much."""
    if isinstance(client, redis.RedisCluster):
        node = client.get_node_from_key(key)  # type: ignore[no-untyped-call]  # the client library's
        client = client.get_redis_connection(node)
    return client.connection_pool


def _async_pool(client: Any, key: bytes) -> Any:
    """The same. There a cluster's node is its own pool."""
    if isinstance(client, redis.asyncio.RedisCluster):
        return client.get_node_from_key(key)  # type: ignore[arg-type]  # it takes bytes as well
    return client.connection_pool
