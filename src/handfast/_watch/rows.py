"""A name as all views have it: the facts by its face, how it moves, and how bad the state is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, cast

from handfast._engine.keys import read_shown
from handfast._protocol.names import Search
from handfast._watch.acts import Named
from handfast._watch.faces import face_of
from handfast._watch.faces.face import Face
from handfast._watch.facts import Facts, Seen, Sentence, Unreadable
from handfast._watch.thresholds import FULL_FROM_S, FULL_SHARE, HELD_LONG_S, WAITED_LONG_S, WAITED_TOO_LONG_S
from handfast.arguments import Kind
from handfast.records import NameStatus, RateStatus

__all__ = ["Key", "Level", "Row", "gathered", "is_full", "rows_of", "unread"]

Key: TypeAlias = tuple[Kind, str]
"""A kind and a name."""

Level: TypeAlias = Literal["urgent", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Row(Seen[Any]):
    """A name, as it was at a moment of `time.monotonic`. A row is never changed."""

    rate: float = 0.0
    """Grants a second, of late."""
    mean: float | None = None
    """How long those had waited who were granted of late, in seconds; None without a grant."""
    before: int | None = None
    """How many waited a minute ago; None if that is not known."""
    known_since: float = 0.0
    """Since when the name is known."""
    _facts: Facts | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def key(self) -> Key:
        """The key of the row."""
        return self.kind, self.name

    @property
    def named(self) -> Named:
        """The name, for an act."""
        return Named.of(self.kind, self.name)

    @property
    def face(self) -> Face[Any]:
        """The face of the name's kind."""
        return face_of(self)

    @property
    def facts(self) -> Facts:
        """The facts of the name. They are computed once."""
        if (facts := self._facts) is None:
            facts = face_of(self).facts(self)
            object.__setattr__(self, "_facts", facts)
        return facts

    @property
    def who(self) -> Sentence:
        """Who holds the name, or how far it is, for a cell."""
        return self.face.who(self, self.facts)

    @property
    def is_awaited(self) -> bool:
        """Whether others wait for it to be free: candidates of an election do not."""
        return self.facts.waiting > 0 and not self.face.stands_by

    def held_level(self, now: float) -> Level | None:
        """Return how bad it is that the name has been held for so long."""
        since = self.facts.held_since
        return "urgent" if since is not None and now - since > HELD_LONG_S and self.is_awaited else None

    def wait_level(self, now: float) -> Level | None:
        """Return how bad it is that the first in the queue has waited for so long."""
        since = self.facts.waits_since
        if since is None or now - since <= WAITED_LONG_S or self.face.stands_by:
            return None
        return "urgent" if now - since > WAITED_TOO_LONG_S else "warning"


def is_full(rate: RateStatus) -> bool:
    """Whether a rate is nearly used up, and not by design."""
    return bool(rate.limit) and rate.per >= FULL_FROM_S and rate.used >= FULL_SHARE * rate.limit


def rows_of(found: Iterable[NameStatus], at: float) -> Iterator[Row]:
    """Yield the rows of names that were inspected at a moment."""
    for one in found:
        yield Row(one.kind, one.name, one.status, at, one.recorded, known_since=at)


def unread(search: Search, at: float) -> Iterator[Row]:
    """Yield the rows of names that a search has found and that this version cannot read."""
    for (kind, name), layout in search.newer.items():
        yield Row(cast("Kind", kind), name, Unreadable(f"it is in {layout}, and this version knows layout 1"), at)
    for kind, name in search.strange:
        yield Row(cast("Kind", kind), name, Unreadable(f"this version knows no kind {kind!r}"), at)


def gathered(rows: Sequence[Row]) -> list[Row]:
    """Put names that are items of another one into its row: so a partition with a thousand items is one row."""
    wholes = {row.key for row in rows if row.face.has_items}
    items = defaultdict[Key, list[Row]](list)
    found = []
    for row in rows:
        whole = (row.kind, _whole(row)) if row.face.has_items else row.key
        if whole != row.key and whole in wholes:
            items[whole].append(row)
        else:
            found.append(row)
    if not items:
        return found
    return [
        replace(row, items=tuple(sorted(items[row.key], key=lambda one: one.name))) if row.key in items else row
        for row in found
    ]


def _whole(row: Row) -> str:
    """Return the name of which a key is an item, as it is shown."""
    name, parts = read_shown(row.kind, row.name)
    return Named(row.kind, name).shown if parts else row.name
