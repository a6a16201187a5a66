"""The search of views: a key or a record that can't be read costs itself, and is counted.

`Handfast.names` raises for such a record. A view that did would show nothing of all other names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redis.exceptions import RedisError

from handfast._engine.effects import Steps
from handfast._engine.names import NamePattern
from handfast._protocol.names import Place, Search
from handfast.errors import HandfastError, ServerRefused
from handfast.records import NameStatus

__all__ = ["PatientSearch", "is_of_server"]

OF_VALUES = ("attempt to", "bad argument")
"""In the reply to a script that fails by the values of its keys: words of Lua's errors."""

MOST = 10_000
"""How many records that can't be read are counted."""


class PatientSearch(Search):
    """A search that passes over what it can't read."""

    def __init__(self, pattern: NamePattern, listed: int, **options: Any) -> None:
        super().__init__(pattern, listed, **options)
        self._unreadable = set[str]()
        """By the beginning of their keys, the names whose records can't be read."""

    @property
    def passed_over(self) -> int:
        """How many keys, and names with their records, were passed over until now."""
        return self._pattern.passed_over + len(self._unreadable)

    def _inspected(self, places: Sequence[Place]) -> Steps[list[NameStatus]]:
        """Inspect some places; if one can't be read, each alone."""
        try:
            return (yield from super()._inspected(places))
        except Exception as error:
            if not _is_of_values(error):
                raise
        if len(places) == 1:
            if len(self._unreadable) < MOST:
                self._unreadable.add(places[0].keys.tag)
            return []
        found = list[NameStatus]()
        for place in places:
            found += yield from self._inspected([place])
        return found


def _is_of_values(error: Exception) -> bool:
    """Whether an error comes from the values of a name, and not from the server or the user's rights."""
    if isinstance(error, ServerRefused):
        return any(words in error.reply for words in OF_VALUES)
    return not is_of_server(error)


def is_of_server(error: Exception) -> bool:
    """Whether an error is one of the server, or of the way to it: not one of a program."""
    return isinstance(error, HandfastError | RedisError | OSError)
