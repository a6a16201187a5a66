"""Look at all names again and again, without being a burden to the server.

A look goes through all keys. Then the thread rests for `REST` times as long, so looks take a small part of the server's time
however many keys there are. After a failed look the thread looks again soon. A failed look has no names: nothing old stands
in for them. Whatever a look has raised, the next one follows.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, get_args

from redis.exceptions import RedisError

from handfast._engine.names import NamePattern
from handfast._protocol.names import Search
from handfast.arguments import Kind
from handfast.errors import HandfastError, UnknownLayout

if TYPE_CHECKING:
    from handfast import Handfast
    from handfast.records import NameStatus, ServerFinding

__all__ = ["HANGS_S", "Look", "Watch", "is_of_server"]

REST = 20
"""How many times longer the rest after a look is than the look."""

CHECK_EVERY_S = 60.0
"""How often the server is checked, in seconds: see `Handfast.check_server`."""

HANGS_S = 60.0
"""After how many seconds a look in progress counts as failed: the latest result is old by then."""

LISTED = 100
"""Holders and waiters that are asked for of each name, the most that the library lists."""

LOG = logging.getLogger("handfast.watch")


def is_of_server(error: Exception) -> bool:
    """Return whether an error is one of the server, or of the way to it: not one of a program."""
    return isinstance(error, HandfastError | RedisError | OSError)


@dataclass(frozen=True, slots=True)
class Look:
    """The result of one look."""

    at: float
    """When it ended, in seconds of `time.monotonic`."""
    took: float
    """How long it took, in seconds."""
    names: tuple[NameStatus, ...] = ()
    findings: tuple[ServerFinding, ...] = ()
    error: Exception | None = None
    """The error of a failed look; None of any other."""
    passed_over: int = 0
    """How many keys were passed over, since they can't be read."""


@dataclass
class Watch:
    """Looks with a client in a thread of its own.

    Args:
        client: The client.
        every: Seconds from the beginning of a look to that of the next one, at least.
        on_look: Called with each look, in the thread.
        on_change: Called with a look that fails after one that did not, and the other way round.
    """

    client: Handfast
    every: float
    on_look: Callable[[Look], object]
    on_change: Callable[[Look], object]
    _findings: tuple[ServerFinding, ...] = ()
    _checked_at: float = -CHECK_EVERY_S
    _began_at: float | None = None
    """When the look that goes on has begun; None in a rest."""
    _ended: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        """Look from now on."""
        threading.Thread(target=self._run, name="handfast-watch", daemon=True).start()

    def end(self) -> None:
        """Look no more."""
        self._ended.set()

    @property
    def hangs(self) -> bool:
        """Whether the look in progress takes so long that the latest result is old."""
        began_at = self._began_at
        return began_at is not None and time.monotonic() > began_at + HANGS_S

    def look(self) -> Look:
        """Look once."""
        began = time.monotonic()
        names: list[NameStatus] = []
        error: Exception | None = None
        pattern = NamePattern(self.client._namespace, "*", get_args(Kind))  # noqa: SLF001 -- `names()` does not count
        search = Search(pattern, LISTED)
        try:
            with contextlib.suppress(UnknownLayout):  # it comes after all others
                names.extend(self.client._names(search, "*"))  # noqa: SLF001 -- as above
            if began >= self._checked_at + CHECK_EVERY_S:
                self._findings, self._checked_at = self.client.check_server(), began
        except Exception as failure:  # noqa: BLE001 -- a thread that ended would show old figures as new ones
            error, names = failure, []
        now = time.monotonic()
        findings = () if error else self._findings
        return Look(now, now - began, tuple(names), findings, error, search.passed_over)

    def _run(self) -> None:
        failed: bool | None = None
        while not self._ended.is_set():
            self._began_at = time.monotonic()
            look = self.look()
            self._began_at = None
            try:
                look = self._hand_on(look)
                if failed != (look.error is not None):
                    failed = look.error is not None
                    self.on_change(look)
            except Exception:
                LOG.exception("a look is made, and could not be shown")
            self._ended.wait(self.every if look.error else max(self.every - look.took, REST * look.took))

    def _hand_on(self, look: Look) -> Look:
        """Hand a look on. One that can't be shown has failed: what was shown before is old."""
        try:
            self.on_look(look)
        except Exception as failure:  # noqa: BLE001 -- as in `look`
            look = Look(look.at, look.took, error=failure)
            self.on_look(look)
        return look
