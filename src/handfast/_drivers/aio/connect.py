"""Connect to the server from an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Any, ClassVar

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from handfast._drivers.aio.threads import in_thread, looking_up_apart, providing_apart
from handfast._drivers.connect import Connector
from handfast._engine.servers import WRITE_PAUSE_S, isolation_proof, not_isolated

__all__ = ["AsyncConnector"]

READ_SIZE = 1 << 18
"""Most bytes that `read_arrived` takes: more than all that waits to be read, as a rule."""


class AsyncConnector(Connector):
    """Connects without blocking the event loop."""

    library: ClassVar[Any] = redis.asyncio
    no_retry: ClassVar[Any] = Retry(NoBackoff(), 0)
    other: ClassVar[str] = "Handfast"
    unwrapped: ClassVar[tuple[type[Exception], ...]] = (OSError, EOFError)
    takes_threads: ClassVar[bool] = True
    """Whether it connects on event loops of other threads, too. The simulator's has one for everything."""

    @classmethod
    def _adapted(cls, connection_class: type[Any], settings: dict[str, Any]) -> tuple[type[Any], dict[str, Any]]:
        """Return the class and the settings of connections that use neither the loop nor the loop's executor for lookups."""
        if (provider := settings.get("credential_provider")) is not None:
            settings = settings | {"credential_provider": providing_apart(provider)}
        return looking_up_apart(connection_class), settings

    @staticmethod
    def _here() -> object:
        return asyncio.get_running_loop()

    async def meet(self, identity: Any, key: str) -> None:
        """Check which server it is. An engine not known to run scripts alone has to prove that it does.

        ``key`` may be written for the proof. Raises ServerUnsupported.
        """
        if (engine := self._to_be_proven(identity)) is not None:
            script, writes = isolation_proof(key)
            one, other = self._make(), self._make()
            try:
                await asyncio.gather(one.connect(), other.connect())
                await one.send_packed_command([script])
                for write in writes:
                    await other.send_packed_command([write])
                    await other.read_response()
                    await asyncio.sleep(WRITE_PAUSE_S)
                found: Any = await one.read_response()
            except ResponseError as error:
                found = error
            finally:
                await asyncio.gather(one.disconnect(nowait=True), other.disconnect(nowait=True))
            if found != 1:
                raise not_isolated(engine, found)
        self.is_known = True

    async def connect(self) -> asyncio.StreamWriter:
        """Open a connection and complete the handshake.

        Errors of the client library pass through, or become clearer errors: see `hello_refused`.
        """
        try:
            return await self._connect()
        except RedisConnectionError:
            if self._restart_server is None:
                raise
            await in_thread(self._restart_server)
            return await self._connect()

    def read_arrived(self, writer: asyncio.StreamWriter) -> bytes:
        """Return the bytes that have arrived on a connection and the loop has not read yet.

        Nothing over TLS: only the loop can read these bytes.
        """
        socket = writer.get_extra_info("socket")
        if socket is None or writer.get_extra_info("ssl_object") is not None:
            return b""
        try:
            return os.read(socket.fileno(), READ_SIZE)
        except OSError:  # nothing has arrived, or it is closed
            return b""

    async def _connect(self) -> asyncio.StreamWriter:
        pools = self._pools_of_sentinels()
        connection: Any = self._make()
        try:
            await connection.connect()
        except BaseException as error:
            with contextlib.suppress(Exception):
                await connection.disconnect(nowait=True)
            if (explained := self._explained(error)) is error:
                raise
            raise explained  # noqa: B904 -- it says itself what caused it
        finally:
            for pool in pools:
                await pool.disconnect()
        writer: asyncio.StreamWriter = connection._writer  # noqa: SLF001 -- redis-py has no public way to its streams
        connection._reader = connection._writer = None  # noqa: SLF001 -- they belong to the session from here on
        self._note_reached(connection)
        return writer
