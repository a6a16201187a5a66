"""A look at all names of a server at once: for the exporter, which counts them all."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, get_args

from handfast._engine.names import NamePattern
from handfast._protocol.names import Search
from handfast._watch.live import View
from handfast._watch.rows import Row, rows_of, unread
from handfast.arguments import Kind
from handfast.errors import UnknownLayout

if TYPE_CHECKING:
    from handfast import Handfast
    from handfast.records import ServerFinding

__all__ = ["LISTED", "REST", "SLOW_S", "Survey", "rows_found"]

REST = 20
"""How many times longer the rest after a survey is than the survey, which goes through all keys."""

SLOW_S = 60.0
"""After how many seconds a survey in progress counts as failed: the latest result is old by then."""

CHECK_EVERY_S = 60.0
"""How often the server is checked, in seconds: see `Handfast.check_server`."""

LISTED = 100
"""Holders and waiters that are asked for of each name, the most that the library lists."""


def rows_found(client: Handfast, search: Search, pattern: str, *, warns: bool = False) -> Iterator[Row]:
    """Yield the rows of all names that a search finds, those last that this version cannot read."""
    at = time.monotonic()
    with contextlib.suppress(UnknownLayout):  # it comes after all others
        yield from rows_of(client._names(search, pattern, warns=warns), at)  # noqa: SLF001 -- `names()` does not count
    yield from unread(search, at)


class Survey:
    """Looks at all names with a client."""

    def __init__(self, client: Handfast) -> None:
        self._client = client
        self._findings: tuple[ServerFinding, ...] = ()
        self._checked_at = -CHECK_EVERY_S

    def step(self) -> View:
        """Look once. Raises the error of a failed call."""
        began = time.monotonic()
        pattern = NamePattern(self._client._namespace, "*", get_args(Kind))  # noqa: SLF001 -- as above
        search = Search(pattern, LISTED, keeps=False)
        rows = tuple(rows_found(self._client, search, "*"))
        if began >= self._checked_at + CHECK_EVERY_S:
            self._findings, self._checked_at = self._client.check_server(), began
        now = time.monotonic()
        return View(now, now - began, rows, self._findings, is_whole=True, passed_over=search.passed_over)
