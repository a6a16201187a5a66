"""Connect to the server from a thread."""

from __future__ import annotations

from typing import Any, ClassVar

import redis
from redis.backoff import NoBackoff
from redis.connection import AbstractConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.retry import Retry

from handfast._drivers.connect import Connector

__all__ = ["SyncConnector"]


class SyncConnector(Connector):
    """Connects in the calling thread."""

    library: ClassVar[Any] = redis
    no_retry: ClassVar[Any] = Retry(NoBackoff(), 0)
    other: ClassVar[str] = "AsyncHandfast"

    def connect(self, timeout: float | None = None) -> AbstractConnection:
        """Open a connection and complete its handshake. Errors of the client library pass through."""
        limits = {} if timeout is None else {"socket_timeout": timeout, "socket_connect_timeout": timeout}
        connection: AbstractConnection = self._make(**limits)
        try:
            connection.connect()  # type: ignore[no-untyped-call]  # redis-py's
        except RedisConnectionError:
            if self._restart_server is None:
                raise
            self._restart_server()
            connection.connect()  # type: ignore[no-untyped-call]  # redis-py's
        finally:
            for pool in self._sentinels:
                pool.disconnect()
        self.reached = True
        return connection
