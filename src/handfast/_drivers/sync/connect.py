"""Connect to the server from a thread."""

from __future__ import annotations

import contextlib
import select
import threading
import time
from math import inf
from typing import Any, ClassVar

import redis
from redis.backoff import NoBackoff
from redis.connection import AbstractConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError
from redis.retry import Retry

from handfast._drivers.connect import Connector
from handfast._drivers.sync.handlers import raise_from_handler
from handfast._engine.servers import WRITE_PAUSE_S, isolation_proof, not_isolated
from handfast.errors import ServerUnsupported

__all__ = ["SyncConnector"]


class SyncConnector(Connector):
    """Connects in the calling thread."""

    library: ClassVar[Any] = redis
    no_retry: ClassVar[Any] = Retry(NoBackoff(), 0)
    other: ClassVar[str] = "AsyncHandfast"

    @staticmethod
    def _here() -> object:
        return threading.current_thread()

    def meet(self, identity: Any, key: str) -> None:
        """Check which server it is. An engine not known to run scripts alone has to prove that it does.

        ``key`` may be written for the proof. Raises ServerUnsupported.
        """
        if (engine := self._to_be_proven(identity)) is not None:
            script, writes = isolation_proof(key)
            one: Any = self.connect()
            other: Any = self.connect()
            try:
                one.send_packed_command([script])
                for write in writes:
                    other.send_packed_command([write])
                    other.read_response()
                    time.sleep(WRITE_PAUSE_S)
                found: Any = one.read_response()
            except ResponseError as error:
                found = error
            finally:
                one.disconnect()
                other.disconnect()
            if found != 1:
                raise not_isolated(engine, found)
        self.is_known = True

    def connect(self, timeout: float | None = None) -> AbstractConnection:
        """Open a connection and complete the handshake.

        Errors of the client library pass through, or become clearer errors: see `hello_refused`.
        """
        if not hasattr(select, "poll"):
            raise ServerUnsupported(
                "select.poll is missing: eventlet's monkey_patch() takes it away, and Handfast does not work with eventlet; use threads, gevent "
                "or asyncio"
            )
        limits = {} if timeout is None else {"socket_timeout": timeout, "socket_connect_timeout": timeout}
        try:
            return self._connect(limits)
        except RedisConnectionError:
            if self._restart_server is None:
                raise
            self._restart_server()
            return self._connect(limits)

    def _connect(self, limits: dict[str, float]) -> AbstractConnection:
        pools = self._pools_of_sentinels(min(limits.values(), default=inf))
        connection: Any = self._make(**limits)
        try:
            connection.connect()
        except Exception as error:
            raise_from_handler(error)
            with contextlib.suppress(Exception):
                connection.disconnect()
            if (explained := self._explained(error)) is error:
                raise
            raise explained  # noqa: B904 -- it says itself what caused it
        finally:
            for pool in pools:
                pool.disconnect()
        self._note_reached(connection)
        return connection  # type: ignore[no-any-return]  # redis-py's
