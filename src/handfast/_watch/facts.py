"""The facts of a name at a moment, in the same words for every kind, and sentences for every view.

Faces make facts (`handfast._watch.faces`); views draw them and know no kind. Moments are in seconds of `time.monotonic`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from handfast._watch.thresholds import SILENT_S
from handfast.arguments import Kind
from handfast.records import Holder, OnceStatus, OperatorAction, RateStatus, Waiter

__all__ = [
    "Column",
    "Facts",
    "Label",
    "Length",
    "Listing",
    "Moment",
    "Part",
    "Period",
    "Seen",
    "Sentence",
    "Stop",
    "Unreadable",
    "count_of",
    "joined",
    "waits",
]

S = TypeVar("S")


class Label(NamedTuple):
    """A part of a sentence: the text of another program, such as a name or the label of a client."""

    text: str


class Moment(NamedTuple):
    """A part of a sentence: how long it is since a moment, or until then."""

    at: float


class Length(NamedTuple):
    """A part of a sentence: a length of time that does not count."""

    seconds: float


class Period(NamedTuple):
    """A part of a sentence: a length of time that someone has chosen, such as the period of a rate."""

    seconds: float


Part: TypeAlias = str | Label | Moment | Length | Period

Sentence: TypeAlias = tuple[Part, ...]


class Column(NamedTuple):
    """A column of the table in which `handfast ls` lists a kind."""

    head: str
    is_flexible: bool = False
    """Whether its cells may be shortened; else they are figures, aligned to the right."""
    is_word: bool = False
    """Whether its cells are words that are never shortened."""
    shows: Literal["", "name", "held", "waits"] = ""
    """The meaning of its cells, where that may be worth a color."""
    is_extra: bool = False
    """Whether it is shown only where idle names are, too."""


class Stop(NamedTuple):
    """An operator's hold or pause, which keeps others out."""

    what: Literal["on hold", "paused"]
    by: str
    why: str
    until: float
    clock: str
    """When it ends, by the server's clock."""
    version: str
    """Tells this stop from others, for an act."""


class Listing(NamedTuple):
    """A list of a name with a separate title, such as the parts of a latch or the items of each worker."""

    title: str
    rows: Sequence[tuple[Sentence, Sequence[str]]]
    """The texts of each row, which are those of others, with a sentence before them."""
    more: int = 0
    """How many texts are left out."""


class Unreadable(NamedTuple):
    """Stands for the status of a name that this version cannot read."""

    why: str


@dataclass(frozen=True, slots=True)
class Seen(Generic[S]):
    """A name as it was inspected at a moment."""

    kind: Kind
    name: str
    status: S
    at: float
    """When it was inspected: the durations of the status are those of that moment."""
    recorded: OnceStatus | None = None
    items: Sequence[Seen[Any]] = ()
    """The names that belong to it, such as the items of a partition."""


@dataclass(frozen=True, slots=True)
class Facts:
    """A name at a moment."""

    waiting: int = 0
    """How many requests wait."""
    waits_since: float | None = None
    """Since when the first of the queue waits; None if no request waits."""
    queue: Sequence[Waiter] = ()
    """The first waiters, in their order."""
    holding: int = 0
    """How many leases there are."""
    limit: int = 0
    """Of a name with a number of permits, that number; else 0."""
    out: int = 0
    """How many of these permits are held."""
    holders: Sequence[Holder] = ()
    """The holders, those first that have held for the longest."""
    soonest: Holder | None = None
    """The holder with the smallest part of its ttl left, if it is renewed."""
    held_since: float | None = None
    """When the oldest lease was granted."""
    kept_since: float | None = None
    """When the oldest lease was granted that its holder has not released."""
    ends_at: float | None = None
    """When the first lease ends unless it is renewed, the hold without a lease ends, or a call runs."""
    stop: Stop | None = None
    """The hold or the pause, if there is one."""
    rates: Sequence[RateStatus] = ()
    share: float | None = None
    """Of a budget, which part of the limit is spent or held: 1 if nothing more fits. None of other kinds."""
    is_idle: bool = False
    """Whether the name was only used of late."""
    doubtful_at: float | None = None
    """From when on the name is worth another look, since its age alone would make an alarm of it; None if it is not."""
    grants: int = 0
    """Grants that the server remembers."""
    waited: float = 0.0
    """How long those had waited for their grants, in seconds, all together."""
    granted_at: float | None = None
    """When the latest grant was."""
    fence: int = 0
    """The fence of the latest grant."""
    version: str = ""
    """Tells the parts of a latch from those of another moment, for an act; empty without parts."""
    last: OperatorAction | None = None
    """The last act of an operator that the server remembers."""

    @property
    def silent(self) -> int:
        """How many of the first waiters are silent."""
        return sum([one.silent_for > SILENT_S for one in self.queue])

    @property
    def used(self) -> float:
        """How full the tightest rate or the budget is: 1 if nothing more fits."""
        if self.share is not None:
            return self.share
        return max([rate.used / rate.limit for rate in self.rates if rate.limit], default=0.0)

    @property
    def rank(self) -> tuple[int, float, float]:
        """Sorts names: the longest queue first, then the longest hold, then the fullest limiter or budget."""
        return -self.waiting, self.held_since if self.held_since is not None else float("inf"), -self.used


def count_of(number: int, noun: str) -> str:
    """Return a number with the noun: ``1 item``, ``2 items``."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def waits(facts: Facts) -> Sentence:
    """Return how many wait, and for how long the first one has, as a clause."""
    if not facts.waiting:
        return ("no one waits",)
    first = () if facts.waits_since is None else (", the first for ", Moment(facts.waits_since))
    return f"{facts.waiting:,} waiting", *first


def joined(*parts: Sentence) -> Sentence:
    """Join clauses with semicolons; empty ones are left out."""
    found: Sentence = ()
    for clause in filter(None, parts):
        found = (*found, *(("; ",) if found else ()), *clause)
    return found
