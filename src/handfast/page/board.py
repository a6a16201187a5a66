"""The rows and lists of the latest look, and the look with which each field changed: pages get the difference to a look.

One thread takes the looks, others answer pages. An answer is made once for all pages with the same look.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from handfast._watch.live import View
from handfast._watch.looker import Outage
from handfast._watch.problems import find_problems, verdict_of
from handfast._watch.rows import Key, Row, gathered
from handfast.page import wire
from handfast.records import AuditEntry

__all__ = ["Board"]

SAMPLE_EVERY_S, SAMPLES = 5.0, 60
"""Of the pictures of the last five minutes: how often a queue's length is noted, and how many of them are kept."""

GONE_KEPT = 600
"""For how many looks names that are gone are remembered. A page that knows an earlier look gets everything."""

LISTED_RESULTS = 1000

PARTS = ("verdict", "problems", "results", "findings", "audit", "minutes")
"""Parts that are sent as a whole, with the look with which they change."""

MOST_GONE = 100_000

MOST_ANSWERS = 8
"""Answers that are kept until the next look: pages know one of the last few looks."""


class Board:
    """The shared contents of all pages."""

    def __init__(self) -> None:
        self.number: int = 0
        """Of the latest look; 0 before the first one."""
        self.is_current: bool = False
        """Whether looks go on: if they have ended, pages wait for the next one."""
        self.is_whole: bool = False
        self.looked_at: float = 0.0
        """When the latest look ended, in seconds of `time.monotonic`."""
        self._run = secrets.token_hex(4)
        """Tells a page that the process has begun anew, or that another process has answered before."""
        self._entries = dict[Key, _Entry]()
        self._numbers = 0
        self._gone = deque[tuple[int, int]]()
        """Looks, and the numbers of the entries that were gone with them."""
        self._forgotten = 0
        """The latest look whose part of that is not kept any more."""
        self._sampled_at = 0.0
        self._sum = dict[str, Any]()
        self._parts = {name: _Part() for name in PARTS}
        self._minutes = deque[tuple[int, int, float, float]](maxlen=SAMPLES)
        """How many waited and held, grants a second and their mean wait, every few seconds."""
        self._audit = deque[dict[str, Any]]()
        self._details = dict[Key, _Part]()
        self._answers = dict[int, bytes]()
        """By the look that a page knows, the answer to it."""
        self._lock = threading.Lock()

    def take(self, view: View, seen: Iterable[Key]) -> None:
        """Take a look; ``seen`` are names whose holders and waiters pages list."""
        # What takes long is computed before the lock, for which pages wait.
        found = find_problems(view)
        problems = wire.steady(self._parts["problems"].value, [wire.problem(one) for one in found])
        rows, counts = wire.recorded(view.results.found, LISTED_RESULTS)
        known = {"counts": counts, "totals": dict(view.results.counts), "refused": view.results.refused}
        with self._lock:
            self.number += 1
            # Answers end with the former look: kept ones would hide this look from pages.
            self._answers.clear()
            is_sample = view.at >= self._sampled_at + SAMPLE_EVERY_S
            if is_sample:
                self._sampled_at = view.at
            self._take_rows(view.rows, is_sample=is_sample)
            verdict = verdict_of(view, found)
            before = self._parts["verdict"].value
            told = verdict._asdict() | {"means": wire.sentence(verdict.means)}
            parts = {"problems": problems, "results": known | {"rows": rows}, "verdict": wire.steady(before, told)}
            if is_sample:
                self._minutes.append((view.waiting, view.held, round(view.rate, 1), round(view.mean or 0.0, 2)))
                parts["minutes"] = [list(one) for one in zip(*self._minutes, strict=True)]
            parts["findings"] = [wire.finding(found) for found in view.findings]
            for name, value in parts.items():
                self._parts[name].set(value, self.number)
            rows_seen = {key: self._opened(self._entries[key].row) for key in seen if key in self._entries}
            # Only of names that are seen now: a name that is opened again gets new details, and no old ones.
            self._details = {key: self._details.get(key) or _Part() for key in rows_seen}
            for key, row in rows_seen.items():
                part = self._details[key]
                part.set(wire.steady(part.value, wire.details(row)), self.number)
            self._sum = {
                "names": len(view.rows),
                "held": view.held,
                "waiting": view.waiting,
                "rate": round(view.rate, 1),
                "mean": None if view.mean is None else round(view.mean, 2),
                "took": round(view.took * 1000),
                "whole": view.is_whole,
                "left_out": view.left_out,
            }
            self.looked_at, self.is_whole, self.is_current = view.at, view.is_whole, True

    def expire(self) -> None:
        """Answer pages with nothing until the next look: looks had ended, and the known state is old."""
        with self._lock:
            self.is_current = False
            self._answers.clear()

    def add_audit(self, entries: Sequence[AuditEntry], most: int) -> None:
        """Add acts of operators, in the order of time. They are shown with the next look."""
        self._audit.extendleft(wire.audited(entry) for entry in entries)
        while len(self._audit) > most:
            self._audit.pop()
        self._parts["audit"].set({"entries": [*self._audit], "refused": ""}, self.number + 1)

    def refuse_audit(self, why: str) -> None:
        """Say with the next look that the audit cannot be read."""
        self._parts["audit"].set({"entries": [], "refused": why}, self.number + 1)

    def answer(self, run: str, after: int, outage: Outage | None, seen: Key | None = None, shown: int = 0) -> bytes:
        """Return the changes since a page's last look, as JSON: everything, if the board does not know this look.

        ``seen`` is the name whose holders and waiters the page lists, ``shown`` the look in which the page got them.
        """
        with self._lock:
            if run != self._run_id or not self._forgotten <= after <= self.number:
                after = 0
            own: dict[str, Any] = {"now": wire.moment(time.monotonic()), "outage": _told(outage)}
            if seen is not None:
                part = self._details.get(seen)
                if part is None or part.number != shown or after == 0:
                    own["details"] = part and {"shown": part.number, **part.value}
            if after not in self._answers:
                while len(self._answers) >= MOST_ANSWERS:
                    del self._answers[next(iter(self._answers))]
                self._answers[after] = json.dumps(self._since(after), separators=(",", ":")).encode()
            head = json.dumps(own, separators=(",", ":")).encode()
            return head[:-1] + b"," + self._answers[after][1:]

    def _opened(self, row: Row) -> Row:
        """Return a row with the items belonging to it."""
        if not row.face.has_items:
            return row
        same = gathered([entry.row for entry in self._entries.values() if entry.row.kind == row.kind])
        return next((one for one in same if one.key == row.key), row)

    @property
    def _run_id(self) -> str:
        return f"{self._run}{os.getpid():x}"

    def _since(self, after: int) -> dict[str, Any]:
        if not self.is_current:
            return {"run": self._run_id, "number": 0}
        found: dict[str, Any] = {
            "run": self._run_id,
            "number": self.number,
            "at": wire.moment(self.looked_at),
            "all": after == 0,
            "sum": self._sum,
            "rows": {entry.number: entry.since(after) for entry in self._entries.values() if entry.changed > after},
            "gone": [number for look, number in self._gone if look > after] if after else [],
        }
        return found | {name: part.value for name, part in self._parts.items() if part.number > after}

    def _take_rows(self, rows: Iterable[Row], *, is_sample: bool) -> None:
        here = set[Key]()
        for row in rows:
            key = row.key
            here.add(key)
            entry = self._entries.get(key)
            if entry is None:
                self._numbers += 1
                entry = self._entries[key] = _Entry(self._numbers, row)
            elif entry.row is row and not (is_sample and (entry.samples is not None or row.facts.waiting)):
                # A name that was not inspected again has the same row, so its fields need not be compared.
                continue
            entry.take(row, self.number, is_sample=is_sample)
        for key in self._entries.keys() - here:
            self._gone.append((self.number, self._entries.pop(key).number))
        # A page that knows only an earlier look than the forgotten
        # one gets everything: it would keep entries that are gone.
        while self._gone and (len(self._gone) > MOST_GONE or self._gone[0][0] <= self.number - GONE_KEPT):
            self._forgotten = self._gone.popleft()[0]


class _Part:
    """A part of the board, and with which look it changed."""

    __slots__ = ("number", "value")

    def __init__(self) -> None:
        self.value: Any = None
        self.number = 0

    def set(self, value: Any, number: int) -> None:
        if value != self.value:
            self.value, self.number = value, number


class _Entry:
    """A name: the fields, and with which look each of them changed."""

    __slots__ = ("changed", "fields", "looks", "number", "row", "samples")

    def __init__(self, number: int, row: Row) -> None:
        self.number, self.row = number, row
        self.fields = dict[str, Any]()
        self.looks = dict[str, int]()
        self.changed = 0
        self.samples: deque[int] | None = None
        """How many waited, every few seconds, from the first waiter on."""

    def take(self, row: Row, look: int, *, is_sample: bool) -> None:
        self.row = row
        if is_sample and (self.samples is not None or row.facts.waiting):
            if self.samples is None:
                self.samples = deque(maxlen=SAMPLES)
            self.samples.append(row.facts.waiting)
            self.samples = self.samples if any(self.samples) else None
        new = wire.fields_of(row, self.samples or ())
        for name in self.fields.keys() | new.keys():
            if not wire.is_same(name, self.fields.get(name), new.get(name)):
                self.fields[name] = new.get(name)
                self.looks[name] = self.changed = look

    def since(self, look: int) -> dict[str, Any]:
        """Return the fields changed since a look; None for those gone."""
        if look == 0:
            return {name: value for name, value in self.fields.items() if value is not None}
        return {name: self.fields[name] for name, changed in self.looks.items() if changed > look}


def _told(outage: Outage | None) -> dict[str, Any] | None:
    if outage is None:
        return None
    return {
        "since": wire.moment(outage.since),
        "now": wire.moment(time.monotonic()),
        "error": outage.text,
        "server": outage.is_of_server,
    }
