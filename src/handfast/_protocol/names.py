"""Find the names that the server knows, and inspect them.

A search leaves out a name whose keys can't be read, counts it, and finds the other names.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple, cast

from handfast._engine.effects import Answer, Steps
from handfast._engine.keys import KeySet
from handfast._engine.limits import Window, announced
from handfast._engine.names import INSPECTED, LIMITS, NamePattern, at_once, inspect_all, outcome
from handfast._kinds import KINDS
from handfast._protocol import limiting, once
from handfast._protocol.admin import read_status
from handfast.arguments import Kind
from handfast.errors import ServerRefused, UnknownLayout
from handfast.records import NameStatus, OnceStatus

__all__ = ["Search"]


FENCE, GRANTS = 2, 7
"""Places in the reply of ``permit_inspect``. If all from the one to the other is 0, the server does not know the
name."""


MOST_RECORDED = 10_000
"""Records of `once` whose places a search collects: there may be millions."""

MOST_UNREADABLE = 10_000
"""Names that a search counts as not readable."""

_OF_VALUES = ("WRONGTYPE", "attempt to", "bad argument", "stored in")
"""Words in the error of a script that fails because of stored values: from the server, from Lua, and from our scripts."""

_UNREADABLE = (ArithmeticError, LookupError, TypeError, ValueError, struct.error)
"""Errors from reading a reply with impossible values, such as a time in the year 300,000."""


class Place(NamedTuple):
    """Where a name is stored."""

    keys: KeySet
    windows: Sequence[Window] = ()
    """Of a limiter."""


class Search:
    """A search for the names that match a pattern. Each is found once, however often a SCAN returns the keys.

    Where the pattern asks for records of `once`, they are read with the names; with ``reads=False`` only their places are
    collected, in `recorded`. With ``keeps=False`` the names can't be inspected `again`, and take less memory.
    """

    def __init__(self, pattern: NamePattern, listed: int, *, reads: bool = True, keeps: bool = True) -> None:
        self._pattern, self._listed, self._reads, self._keeps = pattern, listed, reads, keeps
        self._limiters = dict[str, tuple[KeySet, set[Window]]]()
        """By the beginning of their keys, limiters and their windows: inspected at the end of a SCAN."""
        self._announced = dict[str, bytes]()
        """By the beginning of their keys, the rates that clients have announced of limiters."""
        self._direct = [Place(keys) for keys in pattern.places()]
        """The places that need no SCAN."""
        self._seen = {place.keys.mark for place in self._direct}
        self.places = dict[tuple[str, str], Place | KeySet]()
        """By kind and name, where each name that was found is stored, without windows its keys; empty with ``keeps=False``."""
        self.recorded = dict[str, KeySet]()
        """By the beginning of their keys, the keys of `once` with a record, `MOST_RECORDED` at most."""
        self.recorded_by_name = Counter[str]()
        """How many records there are of each name of `once`, about: a SCAN may return a key twice."""
        self.refused: UnknownLayout | None = None
        """The error for a name in another layout."""
        self.newer = dict[tuple[str, str], str]()
        """By kind and name, the layouts of names in another layout."""
        self.unreadable = set[tuple[str, str]]()
        """Kinds and names that can't be read, `MOST_UNREADABLE` at most."""

    def look(self, cursor: bytes, slot: int | None = None) -> Steps[tuple[bytes, list[NameStatus]]]:
        """Look for names from a cursor on. Return the next cursor, which is ``0`` at the end, and the names that were found.

        In a cluster those of the primary that has this slot. A name that the server does not know is left out.
        """
        places, self._direct = self._direct, []
        scan = self._pattern.scan(cursor)
        if scan is None:
            cursor = b"0"
        else:
            scanned: Answer = yield scan._replace(slot=slot)
            cursor = scanned.reply[0]
            places += self._new(scanned.reply[1])
        size = INSPECTED if slot is None else 1  # one call can't inspect names of several slots
        found = list[NameStatus]()
        if cursor == b"0":
            places += [Place(keys, sorted(windows)) for keys, windows in self._limiters.values()]
            self._limiters.clear()
        for some in _together(places, size):
            found += yield from self._inspected(some)
        return cursor, found

    def again(self, names: Sequence[tuple[str, str]], *, is_cluster: bool) -> Steps[list[NameStatus]]:
        """Inspect names that were found before. Those that the server does not know any more are left out."""
        size = 1 if is_cluster else INSPECTED
        found = list[NameStatus]()
        for some in _together([_place(self.places[name]) for name in names], size):
            found += yield from self._inspected(some)
        return found

    def _new(self, keys: Sequence[bytes]) -> list[Place]:
        """Return the places that these keys show for the first time; limiters are kept for later."""
        places = []
        for place, part, window in self._pattern.found(keys):
            if part == "result" and not self._reads:
                if place.tag not in self.recorded:
                    self.recorded_by_name[place.whole.name] += 1
                    if len(self.recorded) < MOST_RECORDED:
                        self.recorded[place.tag] = place
            elif place.kind == "limiter":
                windows = self._limiters.setdefault(place.tag, (place, set()))[1]
                windows |= set() if window is None else {window}
            elif place.mark not in self._seen:
                self._seen.add(place.mark)
                places.append(Place(place))
        return places

    @property
    def strange(self) -> set[tuple[str, str]]:
        """Kinds and names of the kinds that this version does not know."""
        return self._pattern.strange

    @property
    def passed_over(self) -> int:
        """How many keys, and names with their records, were passed over until now, since they can't be read."""
        return self._pattern.passed_over + len(self.unreadable)

    def _inspected(self, places: Sequence[Place]) -> Steps[list[NameStatus]]:
        """Inspect places in one call; if that fails because of stored values, each place alone."""
        try:
            return (yield from self._read(places))
        except ServerRefused as error:
            if not any(words in error.reply for words in _OF_VALUES):
                raise
            trouble: Exception = error
        except _UNREADABLE as error:
            trouble = error
        if len(places) == 1:
            self._pass_over(places[0].keys, trouble)
            return []
        found = list[NameStatus]()
        for place in places:
            found += yield from self._inspected([place])
        return found

    def _pass_over(self, keys: KeySet, trouble: Exception) -> None:
        if isinstance(trouble, UnknownLayout):
            self.refused = UnknownLayout(keys.name, trouble.layout, reply=trouble.reply)
            self.newer[keys.kind, keys.name] = trouble.layout
        elif len(self.unreadable) < MOST_UNREADABLE:
            self.unreadable.add((keys.kind, keys.name))

    def _read(self, places: Sequence[Place]) -> Steps[list[NameStatus]]:
        """Inspect places in one call. Raises ServerRefused or an error of `_UNREADABLE` if a place can't be read."""
        answer: Answer = yield inspect_all(
            [place.keys for place in places], self._listed, [place.windows for place in places]
        )
        found = list[NameStatus]()
        # The script returns the state of a single name as it is, and of several names as an array.
        for place, fields in zip(places, [answer.reply] if len(places) == 1 else answer.reply, strict=True):
            keys, record, rates = place.keys, None, b""
            # The record is read after the lease, as in `once.status`:
            # a run that ended in between is recorded by then.
            if self._pattern.recorded and self._reads and keys.kind == "once":
                record = yield from self._record(keys, fields)
            # The rates that count are asked for only where no
            # window tells them: it costs a round trip per name.
            if keys.kind == "limiter" and not (fields[limiting.SET_RATES] or fields[limiting.FIRST_RATES]):
                rates = yield from self._rates(keys)
            status = _status(keys.kind, fields, place.windows, rates)
            # A key of `once` has a record long after its lease is forgotten, so one of the two is enough.
            if status is not None or record is not None:
                if self._keeps:
                    self.places[keys.kind, keys.name] = place if place.windows else keys  # there may be very many
                kind = cast("Kind", keys.kind)
                found.append(NameStatus(kind, keys.name, status or read_status(fields, 1), record))
        return found

    def _rates(self, place: KeySet) -> Steps[bytes]:
        """Read the rates that a client has announced of a limiter; empty if none has."""
        tag = place.whole.tag
        if tag not in self._announced:
            answer: Answer = yield announced(place)
            self._announced[tag] = answer.reply or b""
        return self._announced[tag]

    def _record(self, place: KeySet, fields: list[Any]) -> Steps[OnceStatus | None]:
        """Read the record of a key of `once`; None if there is none."""
        answer: Answer = yield outcome(place)
        try:
            return once.outcome(fields, once.read_record(place.name, answer.reply)) if answer.reply else None
        except UnknownLayout as error:
            self.refused = error
            return None


def _place(kept: Place | KeySet) -> Place:
    return kept if isinstance(kept, Place) else Place(kept)


def _together(places: Sequence[Place], size: int) -> list[list[Place]]:
    """Cut places into the batches of one call: all kinds with leases together, each other kind apart."""
    groups = dict[str, list[Place]]()
    for place in places:
        groups.setdefault("" if place.keys.kind in LIMITS else place.keys.kind, []).append(place)
    cut = []
    for kind, some in groups.items():
        most = min(size, at_once(kind)) if kind else size
        cut += [some[start : start + most] for start in range(0, len(some), most)]
    return cut


def _status(kind: str, fields: list[Any], windows: Sequence[Window] = (), rates: bytes = b"") -> Any:
    """Read the reply of a script that inspects; None if the server does not know the name."""
    if kind in LIMITS:
        return read_status(fields, LIMITS[kind]) if any(fields[FENCE:GRANTS]) else None
    return _reader(kind)(fields, windows, rates)


@cache
def _reader(kind: str) -> Callable[..., Any]:
    """Return the function ``found`` of a kind: it gets a reply, and of a limiter its windows and announced rates."""
    reader: Callable[..., Any] = import_module(f"handfast._protocol.{KINDS[kind].reads}").found
    return reader
