"""The methods of a face: facts of a name, columns, sentences, acts and JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeAlias, TypeVar

from handfast._watch.facts import Column, Facts, Listing, Seen, Sentence
from handfast.records import Holder, OperatorAction, Waiter

if TYPE_CHECKING:
    from handfast import Handfast
    from handfast._protocol.asking import Acted

__all__ = ["Act", "Face", "action_object"]

S = TypeVar("S")

Act: TypeAlias = Literal["release", "hold", "pause", "forget"]
"""What a page may allow: ``hold`` includes unhold, ``pause`` includes resume."""


class Face(Generic[S]):
    """The face of a kind. The class attributes hold for every name of the kind."""

    acts: ClassVar[tuple[Act, ...]] = ()
    has_leases: ClassVar[bool] = False
    has_rates: ClassVar[bool] = False
    """Whether its names are listed among the limits, apart from all others."""
    has_records: ClassVar[bool] = False
    """Whether its keys have a record of the work done."""
    has_values: ClassVar[bool] = False
    """Whether holders and waiters show a value."""
    stands_by: ClassVar[bool] = False
    """Whether its waiters stand by: they wait for as long as another one holds, and that is no problem."""
    has_items: ClassVar[bool] = False
    """Whether a key of a name is an item of this name, and is shown with it."""
    columns: ClassVar[tuple[Column, ...]] = ()
    """Of the table of `handfast ls`. Kinds with the same columns share a table."""

    def facts(self, found: Seen[S]) -> Facts:
        """Return the facts of a name."""
        raise NotImplementedError

    def who(self, found: Seen[S], facts: Facts) -> Sentence:
        """Return who holds a name, for a cell; of a name without leases, how far it is. Empty if no one does."""
        raise NotImplementedError

    def cells(self, found: Seen[S], facts: Facts) -> tuple[Sentence, ...]:
        """Return the cells of a row of `columns`."""
        raise NotImplementedError

    def says(self, found: Seen[S], facts: Facts) -> Sentence:
        """Return the sentence of a name, without a point: how far it is, and who waits."""
        raise NotImplementedError

    def notes(self, found: Seen[S], facts: Facts) -> Iterator[Sentence]:
        """Yield the other facts, each as a sentence."""
        yield from ()

    def listings(self, found: Seen[S]) -> Iterator[Listing]:
        """Yield lists with a title of their own."""
        yield from ()

    def role(self, one: Holder | Waiter) -> str:
        """Return the role of a holder or a waiter."""
        raise NotImplementedError

    def is_usual(self, one: Holder | Waiter) -> bool:
        """Whether the role is the only one of the kind, so that it may be left out."""
        raise NotImplementedError

    def is_strong(self, one: Holder | Waiter) -> bool:
        """Whether a holder or a waiter keeps all others out, as all do but readers."""
        return True

    def summary(self, found: Seen[S]) -> dict[str, Any]:
        """Return the object of `handfast ls --json`, without the fields that every kind has."""
        raise NotImplementedError

    def description(self, found: Seen[S]) -> dict[str, Any]:
        """Return the further fields of `handfast show --json`."""
        return {}

    def version(self, client: Handfast, name: str, parts: tuple[str, ...]) -> str:
        """Return the version of the record of a name; empty without a record. For kinds that can be forgotten."""
        raise NotImplementedError

    def forget(self, client: Handfast, name: str, parts: tuple[str, ...], version: str) -> Acted:
        """Forget the record of this version. Raises ValueError for a text that is no version."""
        raise NotImplementedError

    def recorded(self, client: Handfast, name: str, parts: tuple[str, ...]) -> str:
        """Return the record of a name, for people."""
        raise NotImplementedError


def action_object(last: OperatorAction | None) -> dict[str, Any] | None:
    """Return the last act of an operator as JSON has it."""
    return None if last is None else {"at": last.at.isoformat(), "what": last.what, "by": last.by, "why": last.why}
