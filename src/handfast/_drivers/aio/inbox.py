"""Pending wake-ups of one event loop.

A grant message may follow the reply that enqueued the waiter in the same TCP segment, before the waiter parks. So a
token is registered in the step that reads the reply, and a message for it is kept until the next reply, which
supersedes it: the server publishes and replies in one stream, so the order on the connection tells which is newer, and
no clock is needed. Messages for unknown tokens concern earlier grants or cancelled requests, and are dropped.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

from handfast._drivers.clock import monotonic
from handfast._drivers.failures import copy_exception
from handfast._engine.effects import Call, Confirmation, GrantMessage, Park, Waking
from handfast._engine.messages import Told

__all__ = ["Inbox"]


class _Disconnected:
    """In place of a message: the connection broke, and messages may have been missed."""


_DISCONNECTED = _Disconnected()

_Confirmed: TypeAlias = tuple[GrantMessage, Confirmation | None]


class _Parked(NamedTuple):
    """A waiter."""

    waiter: Future[_Confirmed | None]
    confirm: Call | None


class Inbox:
    """The latest message of each registered token, or the waiter. ``confirm`` sends a confirmation."""

    def __init__(self, confirm: Callable[[Call], Confirmation]) -> None:
        self._loop = asyncio.get_running_loop()
        self._confirm = confirm
        self._received: dict[bytes, GrantMessage | _Disconnected | _Parked | None] = {}
        self._told: dict[bytes, Told] = {}
        self._failure: Exception | None = None

    def __len__(self) -> int:
        return len(self._received)

    def __contains__(self, token: bytes) -> bool:
        return token in self._received

    def register(self, token: bytes) -> None:
        """Keep messages for this token from now on, until `unregister`.

        Earlier messages concern an earlier grant.
        """
        self._received[token] = None
        if self._told:
            self._told.pop(token, None)

    def unregister(self, token: bytes) -> Told | None:
        """Drop messages for this token from now on. Return the message that came for the holder meanwhile, if any."""
        self._received.pop(token, None)
        return self._told.pop(token, None) if self._told else None

    async def park(self, park: Park) -> Waking:
        """Wait for the grant message. A broken connection ends the wait, too: the waiter then asks again."""
        token, until, confirm, _ = park
        if self._failure is not None:
            raise copy_exception(self._failure)
        received, confirmed = self._received[token], None
        left = until - monotonic()
        if isinstance(received, GrantMessage):
            confirmed = self._confirmed(received, confirm)
        elif received is None and left > 0:
            waiter: Future[_Confirmed | None] = self._loop.create_future()
            self._received[token] = _Parked(waiter, confirm)
            alarm = self._loop.call_later(left, _wake, waiter)
            try:
                confirmed = await waiter
            finally:
                alarm.cancel()
        self._received[token] = None
        return Waking(monotonic(), *(confirmed or (None, None)))

    def dispatch(self, token: bytes, message: GrantMessage) -> None:
        """Confirm a grant and deliver it to the waiter, or keep it until the waiter parks."""
        received = self._received.get(token, _DISCONNECTED)
        if isinstance(received, _Parked):
            if not received.waiter.done():
                received.waiter.set_result(self._confirmed(message, received.confirm))
        elif token in self._received:
            self._received[token] = message

    def note_told(self, token: bytes, told: Told) -> None:
        """Keep a message for a holder that has not seen the grant yet."""
        if token in self._received:
            self._told[token] = told

    def wake(self, token: bytes) -> None:
        """Wake a waiter, or have it ask again instead of parking: the slot of the name has moved to another node."""
        received = self._received.get(token, _DISCONNECTED)
        if not isinstance(received, _Parked):
            self._received[token] = received or _DISCONNECTED
        elif not received.waiter.done():
            received.waiter.set_result(None)

    def on_disconnect(self) -> None:
        """Wake all waiters, also those about to park: a message may have been missed."""
        for waiter in self._waiters():
            waiter.set_result(None)
        for token, received in self._received.items():
            self._received[token] = received or _DISCONNECTED

    def fail_all(self, error: Exception) -> None:
        """Fail all waiters, present and future."""
        self._failure = error
        for waiter in self._waiters():
            waiter.set_exception(copy_exception(error))

    def _confirmed(self, message: GrantMessage, confirm: Call | None) -> _Confirmed:
        return message, self._confirm(confirm) if confirm is not None and message.lease_us else None

    def _waiters(self) -> Iterator[Future[_Confirmed | None]]:
        parked = (one for one in list(self._received.values()) if isinstance(one, _Parked))
        return (one.waiter for one in parked if not one.waiter.done())


def _wake(waiter: Future[_Confirmed | None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
