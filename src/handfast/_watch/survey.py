"""A look at all names of a server at once: for the exporter, which counts them all."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, get_args

from handfast._engine.names import NamePattern
from handfast._protocol.names import Search
from handfast._watch.live import View
from handfast._watch.rows import rows_of
from handfast.arguments import Kind
from handfast.errors import UnknownLayout

if TYPE_CHECKING:
    from handfast import Handfast
    from handfast.records import NameStatus, ServerFinding

__all__ = ["LISTED", "REST", "SLOW_S", "Survey"]

REST = 20
"""How many times longer the rest after a survey is than the survey, which goes through all keys."""

SLOW_S = 60.0
"""After how many seconds a survey in progress counts as failed: the latest result is old by then."""

CHECK_EVERY_S = 60.0
"""How often the server is checked, in seconds: see `Handfast.check_server`."""

LISTED = 100
"""Holders and waiters that are asked for of each name, the most that the library lists."""


class Survey:
    """Looks at all names with a client."""

    def __init__(self, client: Handfast) -> None:
        self._client = client
        self._findings: tuple[ServerFinding, ...] = ()
        self._checked_at = -CHECK_EVERY_S

    def step(self) -> View:
        """Look once. Raises the error of a failed call."""
        began = time.monotonic()
        names: list[NameStatus] = []
        pattern = NamePattern(self._client._namespace, "*", get_args(Kind))  # noqa: SLF001 -- `names()` does not count
        search = Search(pattern, LISTED, keeps=False)
        with contextlib.suppress(UnknownLayout):  # it comes after all others
            names.extend(self._client._names(search, "*"))  # noqa: SLF001 -- as above
        if began >= self._checked_at + CHECK_EVERY_S:
            self._findings, self._checked_at = self._client.check_server(), began
        now = time.monotonic()
        rows = tuple(rows_of(names, now))
        return View(now, now - began, rows, self._findings, is_whole=True, passed_over=search.passed_over)
