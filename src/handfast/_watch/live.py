"""Looks at a server in short steps, once a second: for `handfast top` and the page.

A search goes through all keys. It is done a piece in each step, and then rests for `SEARCH_REST` times as long as it took. In
between, a step inspects again the names that matter: those that are seen, that others wait for, or whose lease ends soon. So
a step takes a small part of the server's time, however many names there are.

A row is made anew when the name is inspected, and never changed: one thread looks, and others read.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from glob import escape
from math import inf
from typing import TYPE_CHECKING, get_args

from handfast._engine.names import INSPECTED, NamePattern
from handfast._protocol.names import Search
from handfast._watch.results import ResultReader, Results
from handfast._watch.rows import Key, Row, rows_of, unread
from handfast.arguments import Kind
from handfast.records import NameStatus, ServerFinding

if TYPE_CHECKING:
    from handfast import Handfast

__all__ = ["Live", "Row", "View"]

TIMEOUT_S = 2.0
"""For how long a call of a step waits for the server."""

SEARCH_REST = 20
"""How many times longer the rest after a search is than the search."""

SEARCH_EVERY_S = 10.0
"""Seconds from the end of a search to the next one, at least."""

PIECE_S = 0.1
"""For how long a step goes on with a search. The first search is done in one step."""

MOST = 400
"""Names that a step inspects again: some 16 ms of the server's time."""

MOST_ROWS = 50_000
"""Rows beyond which idle names have none: each run of `once` leaves a name for an hour."""

LISTED = 100
"""Holders and waiters of each name, the most that the library lists."""

CHECK_EVERY_S = 30.0
"""How often the server is checked; see `Handfast.check_server`."""

REMEMBERED_S = 60.0
"""For how long the counters of a name are remembered."""

RECENT_S = 15.0
"""Over how long grants are counted for a rate."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The counters of a name at a moment."""

    at: float
    grants: int
    waited: float
    waiting: int


@dataclass(frozen=True, slots=True)
class View:
    """All that is known after a step."""

    at: float = 0.0
    """When the step ended, in seconds of `time.monotonic`."""
    took: float = 0.0
    """How long the step took, in seconds."""
    rows: tuple[Row, ...] = ()
    findings: tuple[ServerFinding, ...] = ()
    is_whole: bool = False
    """Whether a search has ended, so that all names are known."""
    results: Results = field(default_factory=Results)
    """The records of `once`; empty if they are not read."""
    left_out: int = 0
    """How many idle names have no row, since there are too many."""
    passed_over: int = 0
    """How many keys have no row, since they can't be read."""

    @property
    def held(self) -> int:
        """How many leases there are."""
        return sum(row.facts.holding for row in self.rows)

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return sum(row.facts.waiting for row in self.rows)

    @property
    def rate(self) -> float:
        """Grants a second."""
        return sum(row.rate for row in self.rows)

    @property
    def mean(self) -> float | None:
        """How long those had waited who were granted of late."""
        rate = sum(row.rate for row in self.rows if row.mean is not None)
        waited = sum(row.rate * row.mean for row in self.rows if row.mean is not None)
        return waited / rate if rate else None


class Live:
    """The names of a client's namespace, as they were inspected last.

    With ``results`` it also reads the records of `once`, for which the user needs the right.
    """

    def __init__(self, client: Handfast, *, results: bool = False) -> None:
        self._client = client
        self._reader = ResultReader(client) if results else None
        self._rows = dict[Key, Row]()
        self._samples = dict[Key, deque[Sample]]()
        """Of names that have changed."""
        self._search = self._known = self._new_search()
        self._slots: list[int | None] = []
        """Those of the primaries that the search has still to look at."""
        self._cursor = b"0"
        self._search_began = 0.0
        self._spent = 0.0
        """How long the search has taken until now."""
        self._left_out = 0
        """How many idle names it has found beyond `MOST_ROWS`."""
        self._search_at = self._check_at = -inf
        self._findings: tuple[ServerFinding, ...] = ()
        self._is_whole = False

    def step(self, seen: Collection[Key] = ()) -> View:
        """Look, first at the names that are seen. Raises the error of a failed call, and keeps all rows then."""
        began = time.monotonic()
        for key in seen:
            if key not in self._rows and self._is_whole:
                self._find(key)
        self._inspect_again(self._wanted(seen, began))
        self._go_on(began)
        results = Results() if self._reader is None else self._reader.step(self._rows, TIMEOUT_S)
        if began >= self._check_at:
            self._findings, self._check_at = self._client.check_server(timeout=TIMEOUT_S), began + CHECK_EVERY_S
        now = time.monotonic()
        rows, passed_over = (*self._rows.values(),), self._known.passed_over
        return View(
            now, now - began, rows, self._findings, self._is_whole, results, self._left_out, passed_over=passed_over
        )

    def _wanted(self, seen: Collection[Key], now: float) -> list[Key]:
        """Return the names to inspect again, the most important ones first."""
        wanted = dict.fromkeys(key for key in seen if key in self._known.places)
        wanted |= dict.fromkeys(key for key, row in self._rows.items() if row.facts.waiting)
        wanted |= dict.fromkeys(key for key, row in self._rows.items() if _is_lively(row, now))
        return [*wanted][:MOST]

    def _inspect_again(self, keys: list[Key]) -> None:
        driver = self._client._driver  # noqa: SLF001 -- the library has no call for it
        for start in range(0, len(keys), INSPECTED):
            batch = keys[start : start + INSPECTED]
            steps = self._known.again(batch, is_cluster=driver.is_cluster)
            for key in set(batch).difference(self._take(driver.look(steps, "names", TIMEOUT_S))):
                self._forget(key)

    def _find(self, key: Key) -> None:
        """Inspect a name that is not known yet, if that needs no search."""
        kind, name = key
        try:
            pattern = NamePattern(self._client._namespace, escape(name), (kind,))  # noqa: SLF001 -- as above
        except ValueError:  # no name at all, such as one that is too long
            return
        if pattern.scan(b"0") is None:
            search = Search(pattern, LISTED)
            _, found = self._client._driver.look(search.look(b"0"), "names", TIMEOUT_S)  # noqa: SLF001 -- as above
            self._known.places.update(search.places)
            self._take(found)

    def _go_on(self, now: float) -> None:
        """Go on with the search, or begin one if it is time."""
        if not self._slots:
            if now < self._search_at:
                return
            self._search, self._cursor, self._spent = self._new_search(), b"0", 0.0
            self._search_began, self._left_out = now, 0
            self._slots = [*self._client._slots_of_primaries()]  # noqa: SLF001 -- as above
        began = now = time.monotonic()
        # The first search runs to its end, since a view without all names says too little. Later ones run in
        # pieces, between which the names at hand are inspected again.
        while self._slots and (not self._is_whole or now < began + PIECE_S):
            steps = self._search.look(self._cursor, self._slots[0])
            try:
                self._cursor, found = self._client._driver.look(steps, "names", TIMEOUT_S)  # noqa: SLF001 -- as above
            except BaseException:
                self._slots, self._search_at = [], -inf  # a search does not return a key twice: begin anew
                raise
            self._take(found)
            if self._cursor == b"0":
                self._slots.pop(0)
            now = time.monotonic()
        self._spent += now - began
        if not self._slots:
            # Only a whole search shows that a name is gone.
            for key in [key for key in self._rows if key not in self._search.places]:
                self._forget(key)
            for row in unread(self._search, now):
                self._rows[row.key] = row
            self._known, self._is_whole = self._search, True
            if self._reader is not None:
                self._reader.take(self._search, self._search_began)
            # A rest in proportion to the cost: a search of many
            # names takes a bounded share of the server's time.
            self._search_at = now + max(SEARCH_EVERY_S, SEARCH_REST * self._spent)

    def _new_search(self) -> Search:
        is_read = self._reader is not None
        pattern = NamePattern(self._client._namespace, "*", get_args(Kind), recorded=is_read)  # noqa: SLF001 -- as above
        return Search(pattern, LISTED, reads=False)

    def _take(self, found: Iterable[NameStatus]) -> list[Key]:
        """Make rows of names. Return their keys."""
        taken = []
        for row in rows_of(found, time.monotonic()):
            key = row.key
            taken.append(key)
            if len(self._rows) >= MOST_ROWS and key not in self._rows and row.facts.is_idle:
                self._search.places.pop(key, None)
                self._left_out += 1
                continue
            if self._known is not self._search and key not in self._known.places and key in self._search.places:
                self._known.places[key] = self._search.places[key]
            self._rows[key] = self._moving(key, row)
        return taken

    def _moving(self, key: Key, row: Row) -> Row:
        """Return the row with the latest changes."""
        facts, now, before = row.facts, row.at, self._rows.get(key)
        if (samples := self._samples.get(key)) is None:
            if before is None:
                return row
            old = before.facts
            if old.grants == facts.grants and old.waiting == facts.waiting:  # most names: they need no samples
                return replace(row, known_since=before.known_since)
            # The counters were the same from the first look to
            # the last one, so both ends of that time are samples.
            since = max(before.known_since, now - REMEMBERED_S - 1)
            samples = self._samples[key] = deque(
                Sample(at, old.grants, old.waited, old.waiting) for at in sorted({since, before.at})
            )
        if facts.grants < samples[-1].grants:  # the server has forgotten the name in between
            samples.clear()
        if not samples or now >= samples[-1].at + 1:
            samples.append(Sample(now, facts.grants, facts.waited, facts.waiting))
        while samples and samples[0].at < now - REMEMBERED_S - 1:
            samples.popleft()
        then = next((one for one in samples if one.at >= now - RECENT_S), samples[-1])
        grown, passed = facts.grants - then.grants, now - then.at
        rate = grown / passed if passed > 1 else 0.0
        mean = max(0.0, facts.waited - then.waited) / grown if grown > 0 else None
        # None until the samples reach back that far: a queue that
        # is only known for a short time does not count as new.
        waited_then = samples[0].waiting if samples[0].at <= now - REMEMBERED_S + 1 else None
        return replace(row, rate=rate, mean=mean, before=waited_then)

    def _forget(self, key: Key) -> None:
        self._rows.pop(key, None)
        self._samples.pop(key, None)
        self._known.places.pop(key, None)


def _is_lively(row: Row, now: float) -> bool:
    """Whether a name is looked at in each step: it was granted lately, or its age alone would make an alarm of it."""
    facts = row.facts
    if row.rate or (facts.granted_at is not None and now - facts.granted_at < RECENT_S):
        return True
    return facts.doubtful_at is not None and now > facts.doubtful_at
