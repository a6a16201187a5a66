"""Reaching the server in the asyncio colour."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, ClassVar

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from handfast._drivers.connect import Connector

__all__ = ["AsyncConnector"]


class AsyncConnector(Connector):
    """Connects without holding the event loop up."""

    library: ClassVar[Any] = redis.asyncio
    no_retry: ClassVar[Any] = Retry(NoBackoff(), 0)
    other: ClassVar[str] = "Handfast"

    async def connect(self) -> asyncio.StreamWriter:
        """A new connection, through its handshake. The client library's errors pass through."""
        try:
            return await self._connect()
        except RedisConnectionError:
            if self._revive is None:
                raise
            await asyncio.to_thread(self._revive)
            return await self._connect()

    async def _connect(self) -> asyncio.StreamWriter:
        connection: Any = self._make()
        try:
            await connection.connect()
        except BaseException as error:
            with contextlib.suppress(Exception):
                await connection.disconnect(nowait=True)
            if isinstance(error.__cause__, RedisError):  # the client library wraps it up, on some kinds of connection
                raise error.__cause__ from None
            raise
        # The client library has no public way to its streams. It is to forget them: they are ours from now on.
        writer: asyncio.StreamWriter = connection._writer  # noqa: SLF001
        connection._reader = connection._writer = None  # noqa: SLF001
        self.reached = True
        return writer
