"""Who waits for a grant on this event loop, and what was heard for whom.

A ring may come before the reply that puts its waiter in line has been looked at, even in one piece with it. So whoever
begins to acquire is expected from then on, and what rings for it is kept until the next reply: the server rings and answers
in one stream, so the order tells what is over by then, whatever becomes of clocks. What rings for anybody else came too late:
that one is gone, and has taken its request back.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Iterator
from time import monotonic
from typing import TypeAlias

from handfast._drivers.timeouts import copy_exception
from handfast._engine.effects import GrantMessage, Park, Waking

__all__ = ["Inbox"]


class _Gap:
    """Instead of a bell: the line was down, and something may have been missed."""


_GAP = _Gap()

Heard: TypeAlias = GrantMessage | _Gap | None


class Inbox:
    """One for each token that is expected."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._heard: dict[bytes, Heard | Future[GrantMessage | None]] = {}
        self._revoked: dict[bytes, str] = {}
        self._refusal: Exception | None = None

    def __len__(self) -> int:
        return len(self._heard)

    def expect(self, token: bytes) -> None:
        """Keep what rings for this token, until `forget`."""
        self._heard[token] = None

    def forget(self, token: bytes) -> str | None:
        """Listen for this token no more. The reason, if it was granted and taken away before anybody could see to it."""
        self._heard.pop(token, None)
        return self._revoked.pop(token, None) if self._revoked else None

    async def park(self, park: Park) -> Waking:
        """Wait for the ring. A gap ends the wait too: whoever waits asks again then."""
        token, until = park
        if self._refusal is not None:
            raise copy_exception(self._refusal)
        heard = self._heard[token]
        left = until - monotonic()
        if heard is None and left > 0:
            ear: Future[GrantMessage | None] = self._loop.create_future()
            self._heard[token] = ear
            alarm = self._loop.call_later(left, _wake, ear)
            try:
                heard = await ear
            finally:
                alarm.cancel()
        self._heard[token] = None
        return Waking(monotonic(), heard if isinstance(heard, GrantMessage) else None)

    def hush(self, token: bytes) -> None:
        """The server has answered for this token. What was heard for it before was about a grant that is over."""
        if token in self._heard:
            self._heard[token] = None
            self._revoked.pop(token, None)

    def granted(self, token: bytes, bell: GrantMessage) -> None:
        """It rang for this token."""
        heard = self._heard.get(token, _GAP)
        if isinstance(heard, Future):
            if not heard.done():
                heard.set_result(bell)
        elif token in self._heard:
            self._heard[token] = bell

    def revoked(self, token: bytes, reason: str) -> None:
        """The grant of this token was taken away again."""
        if token in self._heard:
            self._revoked[token] = reason

    def gap(self) -> None:
        """The line was down: a ring may have been missed. Wake everybody, and whoever is about to wait."""
        for ear in self._waiting():
            ear.set_result(None)
        for token, heard in self._heard.items():
            self._heard[token] = heard or _GAP

    def refuse(self, error: Exception) -> None:
        """Let everybody fail who waits, now or later."""
        self._refusal = error
        for ear in self._waiting():
            ear.set_exception(copy_exception(error))

    def _waiting(self) -> Iterator[Future[GrantMessage | None]]:
        return (ear for ear in list(self._heard.values()) if isinstance(ear, Future) and not ear.done())


def _wake(ear: Future[GrantMessage | None]) -> None:
    if not ear.done():
        ear.set_result(None)
