"""Everything that one client has on one event loop, and how it ends.

It ends with the client, or with the loop. A loop may go away without a word: `asyncio.run` ends its asynchronous
generators after its last task, and one of them belongs to each home, which so lets go of its connection while there is
a loop to do it with. A loop that was closed without even that leaves a connection to be buried.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator, Callable
from time import monotonic

from redis.exceptions import ConnectionError as RedisConnectionError

from handfast._drivers.aio.connect import AsyncConnector
from handfast._drivers.aio.loops import call_on
from handfast._drivers.aio.renewer import Renewer
from handfast._drivers.aio.session import Session
from handfast._drivers.timeouts import UNDO_WAIT
from handfast._engine.keys import control_channel
from handfast._protocol.lease import LeaseState, LeaseTable
from handfast.errors import HandfastError

__all__ = ["LoopContext"]


class LoopContext:
    """Session, keeper and ledger, under an identity of their own. Made within the running loop."""

    def __init__(self, recipe: AsyncConnector, namespace: str, label: str) -> None:
        self.loop = asyncio.get_running_loop()
        inbox = control_channel(namespace, secrets.token_hex(8))

        def make(on_revoked: Callable[[bytes, str], None], on_gap: Callable[[], None]) -> Session:
            address = f"{inbox} {inbox} {label}"
            return Session(recipe, inbox, address, on_revoked=on_revoked, on_gap=on_gap)

        self.ledger = LeaseTable()
        self.keeper = Renewer(make, self.ledger)
        self.session = self.keeper.session
        self._ended = False
        self._farewell = self._until_the_loop_ends()
        with contextlib.suppress(StopIteration):
            self._farewell.__anext__().send(None)  # to its yield: from then on the loop knows it

    async def close(self, error: Exception) -> None:
        """Let those who wait fail and clean up, and then let go of the connection."""
        self.session.ears.refuse(error)
        try:
            await self._settle()
        finally:
            self._end(error)
        await asyncio.sleep(0)  # the transport's last word

    def _end(self, error: Exception) -> None:
        """Let go of the connection at once."""
        self._ended = True
        self.keeper.retire()
        self.session.end(error)
        with contextlib.suppress(StopIteration, StopAsyncIteration, RuntimeError):  # or it is the farewell that ends us
            self._farewell.aclose().send(None)

    def lose(self, holding: LeaseState, reason: str) -> None:
        """A lease of this home is gone."""
        self.ledger.lose(holding, reason)
        call_on(self.loop, self.keeper.announce, holding)

    def leave(self) -> None:
        """Let go of everything from wherever: the client is gone, or the loop is."""
        if self.loop.is_closed():
            self.session.bury()
        else:
            with contextlib.suppress(RuntimeError):  # it is being closed in another thread
                self.loop.call_soon_threadsafe(self._end, HandfastError("this client was closed meanwhile"))

    async def _settle(self) -> None:
        """Wait until nobody waits for the server any more, but not for long."""
        until = monotonic() + UNDO_WAIT
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        while not (self.session.is_idle and self.keeper.is_idle) and monotonic() < until:  # noqa: ASYNC110 -- an event would burden every reply
            await asyncio.sleep(0.001)

    async def _until_the_loop_ends(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            if not self._ended:
                await self._settle()  # other generators are ended beside this one, and may have something to give back
                self._end(RedisConnectionError("the event loop ended"))
                self.keeper.end()
