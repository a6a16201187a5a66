"""A connection to a Sentinel that names a new primary, on one event loop.

A task opens it and ends. From then on a transport delivers the arriving frames, and a timer checks that some arrive.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Any

from redis.exceptions import ResponseError

from handfast._drivers.aio.connect import AsyncConnector
from handfast._drivers.aio.transport import FrameTransport
from handfast._drivers.failures import OWN_ERRORS, connection_broke, server_silent
from handfast._drivers.primary_watch import ASK_EVERY_S, PAUSE_S, News
from handfast._engine.resp import Reader

__all__ = ["PrimaryWatch"]


class PrimaryWatch:
    """Calls ``on_switch`` when another server is the primary. It begins with the first `start`."""

    def __init__(self, connector: AsyncConnector, on_switch: Callable[[], object]) -> None:
        self._connector = connector
        self._on_switch = on_switch
        self._news = News(connector)
        self._loop = asyncio.get_running_loop()
        self._untried: list[AsyncConnector] = []
        """The Sentinels that are tried next, in order."""
        self._connecting: asyncio.Task[None] | None = None
        self._transport: FrameTransport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_due = False
        """Whether an answer is."""
        self._stopped = False

    def start(self) -> None:
        """Begin to listen, unless this has begun."""
        if self._connecting is None and not self._stopped:
            self._begin()

    def stop(self) -> None:
        """Stop to listen, for good."""
        self._stopped = True
        for one in (self._connecting, self._timer):
            if one is not None:
                one.cancel()
        if (transport := self._take_transport()) is not None:
            transport.close()

    def close_after_loop(self) -> None:
        """Close the connection of a closed event loop."""
        if (transport := self._take_transport()) is not None:
            transport.close_after_loop()

    def abandon(self) -> None:
        """Drop the connection in a forked child: it is the parent's."""
        if (transport := self._take_transport()) is not None:
            transport.abandon()

    # --- called by the transport

    def begin(self) -> Reader:
        """Return the reader of a new connection."""
        return Reader()

    def on_frames(self, frames: deque[Any]) -> None:
        """Read the messages and answers of the Sentinel."""
        self._is_due = False
        try:
            while frames:
                if self._news.is_switch(frames.popleft()):
                    self._on_switch()
        except ResponseError as error:
            self._end(error)

    def on_writable(self) -> None:
        """Do nothing: too little is written for it ever to wait."""

    def on_disconnect(self, transport: FrameTransport, error: Exception | None) -> None:
        """Open another connection."""
        if transport is self._transport:
            self._end(connection_broke(error or "it was closed at the other end"))

    # --- from one Sentinel to the next

    def _begin(self) -> None:
        self._untried = self._connector.sentinels()
        self._try_next()

    def _try_next(self) -> None:
        if self._untried:
            # In an empty context: the task that happens to be first lends none of its context variables.
            self._connecting = self._loop.create_task(self._connect(self._untried.pop(0)), context=Context())
        else:
            self._news.warn()
            self._timer = self._loop.call_later(ASK_EVERY_S, self._begin)

    async def _connect(self, sentinel: AsyncConnector) -> None:
        greeting = self._news.greet()
        try:
            self._transport = await FrameTransport.open(sentinel, self)
        except (*OWN_ERRORS, OSError) as error:
            self._news.note_failure(error)
            self._try_next()
            return
        if self._stopped:  # asyncio.wait_for swallows a cancellation now and then, before Python 3.12
            self.stop()
        else:
            self._send(greeting)

    def _send(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)
            self._is_due = True
            self._timer = self._loop.call_later(ASK_EVERY_S, self._on_timer)

    def _on_timer(self) -> None:
        if self._is_due:
            self._end(server_silent())
        else:
            self._send(self._news.question)

    def _end(self, failure: Exception) -> None:
        """Drop this connection, and turn to the next Sentinel, or after a pause to the first."""
        if (transport := self._take_transport()) is not None:
            transport.close()
        if self._timer is not None:
            self._timer.cancel()
        self._news.note_failure(failure)
        if self._news.has_answered:
            self._timer = self._loop.call_later(PAUSE_S, self._begin)
        else:
            self._try_next()

    def _take_transport(self) -> FrameTransport | None:
        transport, self._transport = self._transport, None
        return transport
