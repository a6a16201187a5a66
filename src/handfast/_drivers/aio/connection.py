"""The connection of a session: it is opened, again and again while there is something to send, and shakes hands.

The pauses between the tries grow until a script gets a reply: so a server that accepts only to hang up is asked ever
less.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable
from contextvars import Context
from typing import Any, Protocol

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from handfast._drivers.aio.connect import AsyncConnector
from handfast._drivers.aio.transport import FrameHandler, FrameTransport
from handfast._drivers.failures import connection_broke, handshake_failed, server_silent
from handfast._engine.messages import Subscription
from handfast._engine.servers import IDENTITY
from handfast._protocol.retry import pause_before

__all__ = ["Connection", "ConnectionUser"]


class ConnectionUser(FrameHandler, Protocol):
    """The owner of a connection, whose methods it calls."""

    def has_work(self) -> bool:
        """Return whether there is something to send."""

    def on_connected(self) -> None:
        """Note a new connection, on which the handshake begins."""

    def on_probe(self) -> None:
        """Expect an additional reply, without information."""

    def on_open(self, subscription: Subscription) -> None:
        """Note the end of the handshake, and the subscription."""

    def on_failure(self, error: Exception, *, may_recover: bool) -> None:
        """Note a failure to open a connection, and whether a connection may be opened soon."""

    def schedule(self) -> None:
        """Have the waiting calls sent, or another connection opened for them."""


class Connection:
    """The transport of a session, while there is one. ``subscribe`` makes the subscription of each transport."""

    def __init__(self, connector: AsyncConnector, subscribe: Callable[[], Subscription], user: ConnectionUser) -> None:
        self._connector = connector
        self._subscribe = subscribe
        self._user = user
        self._loop = asyncio.get_running_loop()
        self.opening: asyncio.Task[None] | None = None
        """Opens it, while it is being opened."""
        self.transport: FrameTransport | None = None
        self.handshake: Future[Any] | None = None
        """The next reply of the handshake; None before it begins and once it is done."""
        self.tries = 0
        """Tries to open it since a script last got a reply."""
        self.ended: Exception | None = None
        """What all requests get from the end on."""

    @property
    def is_open(self) -> bool:
        return self.transport is not None and self.handshake is None

    def open(self) -> None:
        """Begin to open it."""
        # In an empty context: the task that happens to be first lends none of its context variables to the others.
        self.opening = self._loop.create_task(self._open(), name="handfast-connect", context=Context())

    def drop(self, error: Exception) -> bool:
        """Close the connection after an error. Return whether it was open: otherwise only the handshake fails."""
        if (transport := self._take()) is not None:
            transport.drop()
        if self.handshake is None:
            return True
        if not self.handshake.done():
            self.handshake.set_exception(error)
        return False

    def end(self, error: Exception) -> None:
        """Close it for good."""
        self.ended = error
        self._close()
        if self.opening is not None:
            self.opening.cancel()

    def close_after_loop(self) -> None:
        """Close the connection of a closed event loop."""
        if (transport := self._take()) is not None:
            transport.close_after_loop()

    def abandon(self) -> None:
        """Drop it in a forked child: it is the parent's."""
        if (transport := self._take()) is not None:
            transport.abandon()

    async def _open(self) -> None:
        try:
            while True:
                await asyncio.sleep(pause_before(self.tries))
                self.tries += 1
                try:
                    await self._open_once()
                except Exception as error:  # noqa: BLE001 -- pending requests get every error
                    may_recover = isinstance(error, RedisConnectionError | RedisTimeoutError)
                    if may_recover and not self._connector.reached:
                        self.tries, may_recover = 0, False
                    self._user.on_failure(error, may_recover=may_recover)
                if self.is_open or not self._user.has_work():
                    break
        finally:
            self.opening = None
            if self._user.has_work():
                self._user.schedule()

    async def _open_once(self) -> None:
        self.transport = await FrameTransport.open(self._connector, self._user)
        if self.ended is not None:  # asyncio.wait_for swallows a cancellation now and then, before Python 3.12
            self._close()
            raise self.ended
        self._user.on_connected()
        try:
            await self._shake_hands(self._subscribe())
        except BaseException as error:
            self._close()
            if isinstance(error, TimeoutError):
                raise server_silent() from None
            raise
        finally:
            self.handshake = None

    async def _shake_hands(self, subscription: Subscription) -> None:
        if not self._connector.is_known:
            await self._connector.meet(await self._ask(IDENTITY), subscription.proof_key)
        probe = b"" if self._connector.heard else subscription.probe
        if probe:
            self._user.on_probe()  # what matters is whether the message comes
        failure = handshake_failed(subscription, await self._ask(subscription.handshake + probe))
        if failure is not None:
            raise failure
        self._user.on_open(subscription)
        if (dispatcher := self._connector.events.dispatcher) is not None:
            dispatcher.connected(self._connector.address)

    async def _ask(self, data: bytes) -> Any:
        """Send a part of the handshake, and return the reply to the first command in it that has a reply."""
        self.handshake = self._loop.create_future()
        if self.transport is None:
            raise connection_broke("in the handshake")
        self.transport.write(data)
        async with asyncio.timeout(self._connector.response_timeout):
            return await self.handshake

    def _close(self) -> None:
        if (transport := self._take()) is not None:
            transport.close()

    def _take(self) -> FrameTransport | None:
        transport, self.transport = self.transport, None
        return transport
