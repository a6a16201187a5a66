"""The records of `once`, read a few in each step: which keys have failed, and which began and did not end.

A search finds their places. Each takes a round trip, so a step reads for `PIECE_S`, those first that were never read, and
then the others in turn. Only the beginning of a record is read, which has the text of a failure; a result is not kept.
"""

from __future__ import annotations

import struct
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from handfast._engine.effects import Answer, Steps
from handfast._engine.keys import KeySet
from handfast._engine.names import outcome
from handfast._engine.once import version_of
from handfast._engine.server_facts import TIME
from handfast._protocol import once
from handfast._protocol.names import Search
from handfast._watch.rows import Key, Row
from handfast.errors import ServerRefused, UnknownLayout

if TYPE_CHECKING:
    from handfast import Handfast
    from handfast._engine.once import Record

__all__ = ["Result", "ResultReader", "Results", "State"]

PIECE_S = 0.03
"""For how long a step reads records."""

MOST = 200
"""Records that a step reads at most: some millisecond of the server's time."""

SAME_S = 0.5

WHY_CHARS = 300
"""How much of a failure's text is kept."""

State: TypeAlias = Literal["failed", "left", "unstored", "running", "done"]
"""``left``: its run began and did not end. The others are those of `OnceStatus`."""


class Result(NamedTuple):
    """The record of a key."""

    name: str
    """The name of the `once`."""
    key: str
    """The name with its key, as it is shown."""
    state: State
    recorded_at: float
    """When, in seconds of `time.monotonic`."""
    why: str
    """The text of a failure."""
    version: str = ""
    """The version of the record, for an act."""


@dataclass(frozen=True, slots=True)
class Results:
    """All that is known after a step."""

    found: tuple[Result, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    """How many records there are of each name, about; those that are not read included."""
    refused: str = ""
    """Why none is read: the user has no right to."""


class ResultReader:
    """Reads records with a client."""

    def __init__(self, client: Handfast) -> None:
        self._client = client
        self._places = dict[str, KeySet]()
        """By the beginning of their keys."""
        self._turn = deque[str]()
        """Those of all places, in the order in which they are read."""
        self._known = dict[str, Result]()
        """By the beginning of their keys, those that were read. A run that began is ``left`` here."""
        self._confirmed = set[str]()
        """Those of them whose record was read again when their lease was gone: they have not ended."""
        self._counts: Mapping[str, int] = {}
        self._searched_at = 0.0
        """When the search has begun that has found the places."""
        self._refused = ""

    def take(self, search: Search, searched_at: float) -> None:
        """Take the places that a search has found which began at that moment."""
        self._places, self._counts = dict(search.recorded), dict(search.recorded_by_name)
        self._known = {tag: one for tag, one in self._known.items() if tag in self._places}
        known = [tag for tag in self._turn if tag in self._known]
        self._turn = deque([tag for tag in self._places if tag not in self._known] + known)
        self._searched_at, self._refused = searched_at, ""

    def step(self, rows: Mapping[Key, Row], timeout: float) -> Results:
        """Read some records. Raises the error of a failed call."""
        runs = {row.name: row for row in rows.values() if row.face.has_records}
        try:
            if not self._refused and self._turn:
                self._read_some(self._doubtful(runs), timeout)
        except ServerRefused as error:
            self._refused = str(error)
        found = [
            one._replace(state="running") if one.state == "left" and tag not in self._confirmed else one
            for tag, one in self._known.items()
        ]
        return Results(tuple(found), self._counts, self._refused)

    def _may_run(self, one: Result, runs: Mapping[str, Row]) -> bool:
        """Whether a run that began may go on: it has a lease, or it began after the last look at the lease."""
        row = runs.get(one.key)
        return (
            row.facts.holding > 0 or row.at < one.recorded_at
            if row is not None
            else self._searched_at < one.recorded_at
        )

    def _doubtful(self, runs: Mapping[str, Row]) -> list[str]:
        """Return the keys whose run has no lease any more: whether it has ended is read before anyone learns of it."""
        left = {tag: one for tag, one in self._known.items() if one.state == "left"}
        self._confirmed &= left.keys()
        return [tag for tag, one in left.items() if tag not in self._confirmed and not self._may_run(one, runs)][:MOST]

    def _read_some(self, first: list[str], timeout: float) -> None:
        driver = self._client._driver  # noqa: SLF001 -- the library has no call for it
        now_us = driver.look(_time(), "the server", timeout)
        began = time.monotonic()
        for tag in first:
            before = self._known[tag]
            self._read(tag, timeout, began, now_us)
            if self._known.get(tag) is before:
                self._confirmed.add(tag)
        for _ in range(min(MOST, len(self._turn))):
            if time.monotonic() > began + PIECE_S:
                break
            tag = self._turn[0]
            self._turn.rotate(-1)
            self._read(tag, timeout, began, now_us)

    def _read(self, tag: str, timeout: float, now: float, now_us: int) -> None:
        """Read a record. A value of other programs at the record's key counts as none."""
        place, before = self._places[tag], self._known.pop(tag, None)
        try:
            stored = self._client._driver.look(_stored(place), place.name, timeout)  # noqa: SLF001 -- as above
            record = once.read_record(place.name, stored) if stored else None
        except (UnknownLayout, struct.error, IndexError, StopIteration, ValueError):
            return
        except ServerRefused as error:
            if "WRONGTYPE" in error.reply:
                return
            raise
        if record is not None:
            found = _result(place, record, version_of(stored), now, now_us)
            if before is not None and _is_same(before, found):
                found = before
            else:
                self._confirmed.discard(tag)
            self._known[tag] = found


def _time() -> Steps[int]:
    answer: Answer = yield TIME
    seconds, micros = answer.reply
    return int(seconds) * 1_000_000 + int(micros)


def _stored(place: KeySet) -> Steps[bytes]:
    answer: Answer = yield outcome(place)
    reply: bytes = answer.reply
    return reply


def _is_same(one: Result, other: Result) -> bool:
    """Whether two reads have found the same record: its age has a round trip in it."""
    return one._replace(recorded_at=other.recorded_at) == other and abs(one.recorded_at - other.recorded_at) < SAME_S


def _result(place: KeySet, record: Record, version: str, now: float, now_us: int) -> Result:
    state: State = "left" if record.outcome == "begun" else record.outcome
    why = record.value.decode(errors="replace")[:WHY_CHARS] if state == "failed" else ""
    return Result(place.whole.name, place.name, state, now - (now_us - record.at_us) / 1e6, why, version)
