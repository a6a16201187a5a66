"""Who waits for a grant in a client of the asyncio colour; what _drivers/aio/inbox.py is."""

from __future__ import annotations

from typing import Any, cast

from handfast._drivers.timeouts import copy_exception
from handfast._engine.effects import GrantMessage, Park, Waking
from handfast_lab.simulator.client import Client
from handfast_lab.simulator.tasks.coming import Coming
from handfast_lab.simulator.world import Steps, Task

__all__ = ["Inbox"]


class _Gap:
    """Instead of a bell: the line was down, and something may have been missed."""


_GAP = _Gap()


class Inbox:
    """One for each token that is expected."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.heard: dict[bytes, Any] = {}
        self.taken: dict[bytes, str] = {}
        self._refusal: Exception | None = None

    def expect(self, token: bytes) -> None:
        """Keep what rings for this token."""
        self.heard[token] = None

    def forget(self, token: bytes) -> str | None:
        """Listen for this token no more. The reason, if it was granted and taken away before anybody could see to it."""
        self.heard.pop(token, None)
        return self.taken.pop(token, None)

    def park(self, park: Park) -> Steps[Waking]:
        """Wait for the ring."""
        token, until = park
        client = self._client
        if self._refusal is not None:
            raise copy_exception(self._refusal)
        heard = self.heard[token]
        left = until - client.monotonic()
        if heard is None and left > 0:
            ear = self.heard[token] = Coming(client.process)
            task = cast("Task", client.world.current)
            ear.tell(task.wake, task.turn, None)
            yield client.world.now + left
            if ear.error is not None:
                raise ear.error
            heard = ear.value
            ear.settle()
        self.heard[token] = None
        return Waking(client.monotonic(), heard if isinstance(heard, GrantMessage) else None)

    def hush(self, token: bytes) -> None:
        """The server has answered for this token: what was heard before is over."""
        if token in self.heard:
            self.heard[token] = None
            self.taken.pop(token, None)

    def granted(self, token: bytes, bell: GrantMessage) -> None:
        """It rang for this token."""
        heard = self.heard.get(token, _GAP)
        if isinstance(heard, Coming):
            heard.settle(bell)
        elif token in self.heard:
            self.heard[token] = bell

    def revoked(self, token: bytes, reason: str) -> None:
        """The grant of this token was taken away again."""
        if token in self.heard:
            self.taken[token] = reason

    def gap(self) -> None:
        """The line was down: wake everybody, and whoever is about to wait."""
        for token, heard in list(self.heard.items()):
            if isinstance(heard, Coming):
                heard.settle()
            self.heard[token] = heard or _GAP

    def refuse(self, error: Exception) -> None:
        """Let everybody fail who waits, now or later."""
        self._refusal = error
        for heard in list(self.heard.values()):
            if isinstance(heard, Coming):
                heard.settle(error=copy_exception(error))
