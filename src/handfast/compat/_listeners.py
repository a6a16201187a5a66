"""Hearing of a release while waiting for it, on a connection of the waiter's own.

The connection is like those of the user's client but not from its pool, which may be small. It is there only while
somebody waits, and only a convenience: what it tells is a hint to ask again, and where there is none to be had (the
user may not subscribe, the server has too many connections, the client is an imitation for tests), asking every
``sleep`` seconds goes on without it.
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
from handfast._engine.resp import INCOMPLETE, ErrorReply, Push, Reader, bulk
from handfast._engine.server_errors import is_transient

__all__ = ["AsyncReleaseListener", "ReleaseListener"]

logger = logging.getLogger("handfast.compat")

SHORTEST = 0.001
"""Seconds for which a socket waits at least: 0 would mean that it does not wait at all."""

STEADY = 1.0
"""Seconds that a connection must have lasted for its end to be a reason to ask, and to connect again, at once."""

PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""Seconds before another try to connect, after so many in vain; the last one goes on."""


class _Listener:
    """What is the same in both colours: whether it is worth listening, and what is heard."""

    def __init__(self, client: Any, key: bytes, channel: bytes) -> None:
        self._client = client
        self._key = key
        self._subscribe = b"*2\r\n" + bulk("SUBSCRIBE") + bulk(channel)
        self._recipe: Any = None
        self._opened = inf
        self._again = -inf
        """When it may connect again."""
        self._failures = 0

    def _may_open(self) -> bool:
        return monotonic() >= self._again

    def _nap(self, until: float) -> float:
        """Seconds to wait without an ear: until then, or until there may be one again."""
        return max(0.0, min(until, self._again) - monotonic())

    def _is_answer(self, frame: Any) -> bool:
        """Whether this is what SUBSCRIBE is answered with. Raises RedisConnectionError when the answer is no."""
        if isinstance(frame, ErrorReply):
            if not is_transient(frame):
                self._again = inf  # there is no right to it, and none will come of asking
            raise RedisConnectionError(frame)
        return isinstance(frame, Push) and frame[:1] == [b"subscribe"]

    def _has_opened(self) -> None:
        self._opened = monotonic()

    def _has_failed(self, error: object) -> None:
        logger.debug("nothing is heard of releases of %r, so it is asked for from time to time: %s", self._key, error)
        now, opened, self._opened = monotonic(), self._opened, inf
        if now - opened >= STEADY:
            self._failures = 0
        else:
            self._again = max(self._again, now + PAUSES[min(self._failures, len(PAUSES) - 1)])
            self._failures += 1


class ReleaseListener(_Listener):
    """For the thread that waits."""

    _socket: socket.socket | None = None

    def listen(self, within: float) -> None:
        """Subscribe, if that is possible within these seconds and not yet done."""
        if self._socket is not None or not self._may_open():
            return
        try:
            self._open(within)
        except Exception as error:  # noqa: BLE001 -- whatever is wrong with it, one can wait without
            self._has_failed(error)
            self.close()

    def wait(self, seconds: float) -> None:
        """Wait for a release to be told, that long at most."""
        until = monotonic() + seconds
        try:
            while self._socket is not None and (left := until - monotonic()) > 0:
                if self._heard(left):
                    return
        except (OSError, RedisConnectionError) as error:
            self._has_failed(error)
            self.close()
        if self._socket is None:
            time.sleep(self._nap(until))

    def close(self) -> None:
        """Let go of the connection."""
        if self._socket is not None:
            self._socket = None
            with contextlib.suppress(Exception):
                self._connection.disconnect()

    def _open(self, within: float) -> None:
        if self._recipe is None:
            self._recipe = SyncConnector(_sync_pool(self._client, self._key))
        limit = min(self._recipe.response_timeout, max(within, SHORTEST))
        until = monotonic() + limit
        self._connection: Any = self._recipe.connect(limit)
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
        except TimeoutError:
            return False
        while heard and self._reader.frame() is not INCOMPLETE:
            pass  # one look at the lock serves all that was told before it
        return heard

    def _frame(self, within: float) -> Any:
        until = monotonic() + within
        connection = cast("socket.socket", self._socket)
        while (frame := self._reader.frame()) is INCOMPLETE:
            connection.settimeout(max(until - monotonic(), SHORTEST))
            data = connection.recv(16384)
            if not data:
                raise RedisConnectionError("the server closed the connection")
            self._reader.feed(data)
        return frame


class AsyncReleaseListener(_Listener):
    """For the task that waits."""

    _line: FrameTransport | None = None

    async def listen(self, within: float) -> None:
        """Subscribe, if that is possible within these seconds and not yet done."""
        if self._line is not None or not self._may_open():
            return
        try:
            await self._open(within)
        except Exception as error:  # noqa: BLE001 -- whatever is wrong with it, one can wait without
            self._has_failed(error)
            self.close()

    async def wait(self, seconds: float) -> None:
        """Wait for a release to be told, that long at most."""
        until = monotonic() + seconds
        if self._line is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._told.wait()
            self._told.clear()
        if self._line is None:
            await asyncio.sleep(self._nap(until))

    def close(self) -> None:
        """Let go of the connection."""
        line, self._line = self._line, None
        if line is not None:
            line.close()

    async def _open(self, within: float) -> None:
        if self._recipe is None:
            self._recipe = AsyncConnector(_async_pool(self._client, self._key))
        self._told = asyncio.Event()
        self._answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        async with asyncio.timeout(min(self._recipe.response_timeout, within)):
            self._line = await FrameTransport.open(self._recipe, self)
            self._line.write(self._subscribe)
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
        if transport is not self._line:
            return
        gone = RedisConnectionError(f"the connection ended: {error}")
        if not self._answer.done():
            self._answer.set_exception(gone)
        else:
            self._line = None
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
