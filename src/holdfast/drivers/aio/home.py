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

from holdfast.drivers.aio.keeper import Keeper
from holdfast.drivers.aio.recipe import AsyncRecipe
from holdfast.drivers.aio.session import Session
from holdfast.drivers.patience import UNDO_PATIENCE
from holdfast.protocol.holding import Ledger
from holdfast.wire.keys import home_channel

__all__ = ["Home"]


class Home:
    """Session, keeper and ledger, under an identity of their own. Made within the running loop."""

    def __init__(self, recipe: AsyncRecipe, namespace: str, label: str) -> None:
        self.loop = asyncio.get_running_loop()
        inbox = home_channel(namespace, secrets.token_hex(8))

        def make(on_revoked: Callable[[bytes, str], None], on_gap: Callable[[], None]) -> Session:
            address = f"{inbox} {inbox} {label}"
            return Session(recipe, inbox, address, on_revoked=on_revoked, on_gap=on_gap)

        self.ledger = Ledger()
        self.keeper = Keeper(make, self.ledger)
        self.session = self.keeper.session
        self._farewell = _farewell(self.keeper, self.session)
        _step(self._farewell.__anext__())

    async def close(self, error: Exception) -> None:
        """Let those who wait fail and clean up, and then let go of the connection."""
        self.session.refuse(error)
        until = monotonic() + UNDO_PATIENCE
        try:
            await asyncio.sleep(0)
            while not (self.session.is_idle and self.keeper.is_idle) and monotonic() < until:  # noqa: ASYNC110 -- an event would burden every reply
                await asyncio.sleep(0.001)
        finally:
            self.keeper.end()
            self.session.end(error)
            _step(self._farewell.aclose())
        await asyncio.sleep(0)  # the transport's last word

    def leave(self) -> None:
        """Let go of everything from wherever: the client is gone, or the loop is."""
        if self.loop.is_closed():
            self.session.bury()
        else:
            with contextlib.suppress(RuntimeError):  # it is being closed in another thread
                self.loop.call_soon_threadsafe(_step, self._farewell.aclose())


async def _farewell(keeper: Keeper, session: Session) -> AsyncGenerator[None]:
    try:
        yield
    finally:  # without an await in here, so that a single step ends it
        keeper.end()
        session.end()


def _step(coroutine: object) -> None:
    """Drive a coroutine that awaits nothing to its end."""
    with contextlib.suppress(StopIteration, StopAsyncIteration):
        coroutine.send(None)  # type: ignore[attr-defined]  # an awaitable of an asynchronous generator has it
