"""Which names there are: a SCAN for the keys of their states, and calls that inspect several names at once.

There is no registry of names. It would cost every acquire a write, and it would list names that are gone. A pattern
without wildcards needs no SCAN, unless it has a ``|``: of `once` and of a partition that may stand between the name and its parts, or
within one of them.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Sequence
from typing import get_args

from handfast._engine.calls import INSPECT, PARTS
from handfast._engine.effects import Call
from handfast._engine.keys import SEPARATOR, KeySet, key_pattern, read_key
from handfast._engine.script import command, pack
from handfast._engine.validate import utf8
from handfast._kinds import KINDS
from handfast.arguments import Kind

__all__ = ["INSPECTED", "LIMITS", "SCANNED", "NamePattern", "inspect_all"]

LIMITS: dict[str, int] = {name: kind.limit for name, kind in KINDS.items() if kind.limit is not None}
"""The limit of each kind with leases; 0 where requests bring a limit."""

INSPECTED = 25
"""Names that one call inspects, so that it does not keep the server from others for long."""

SCANNED = 1000
"""Keys that one SCAN looks at: some 0.4 ms of the server's time."""

_WILDCARD = re.compile(r"\*|\?|\[(!?+\]?+[^\]]*)\]")
"""The wildcards of `fnmatch`. A set of one character stands for that character."""


class NamePattern:
    """A shell pattern for the names of some kinds, such as ``order:*``: ``*``, ``?`` and ``[abc]``, as in `fnmatch`."""

    __slots__ = ("_kinds", "_match", "_matches", "_namespace", "exact", "text")

    def __init__(self, namespace: str, text: str, kinds: Iterable[Kind]) -> None:
        utf8(text, "a pattern")
        self.text = text
        self._namespace, self._kinds = namespace, tuple(kinds)
        if isinstance(kinds, str) or not set(self._kinds) <= set(get_args(Kind)):
            raise ValueError(f"kinds must be some of {', '.join(get_args(Kind))}, not {kinds!r}")
        pieces = _literals(text)
        has_parts = SEPARATOR in text and not {"once", "partition"}.isdisjoint(self._kinds)
        self.exact = pieces[0] if len(pieces) == 1 and not has_parts else None
        """The only name that matches; None if there are several, or it may have parts."""
        self._matches = re.compile(fnmatch.translate(text)).match
        self._match = key_pattern(namespace, [word for piece in pieces for word in piece.split(SEPARATOR)], PARTS[0])

    def places(self) -> list[KeySet]:
        """Return the places of the only name that matches, one of each kind."""
        return [KeySet(self._namespace, kind, self.exact or "") for kind in self._kinds]

    def scan(self, cursor: bytes) -> Call:
        """Look for names from a cursor on, which is ``0`` at first.

        Keys of another type than a state's are not ours.
        """
        args = (cursor, "MATCH", self._match, "COUNT", SCANNED, "TYPE", "hash")
        return Call(command("SCAN", len(args)), pack(args))

    def found(self, keys: Iterable[bytes]) -> list[KeySet]:
        """Return the places of those names that match.

        The server's pattern is coarser: a name is encoded there, so that ``?`` may stand for several characters, and a
        part of it may look like a kind.
        """
        places = (read_key(self._namespace, key.decode(errors="replace")) for key in keys)
        return [place for place in places if place and place.kind in self._kinds and self._matches(place.name)]


def inspect_all(places: Sequence[KeySet], max_shown: int) -> Call:
    """Read the states of several names, with so many holders and waiters of each."""
    keys = [place.key(part) for place in places for part in PARTS]
    return Call(INSPECT.prefix_for(len(keys), 1), pack((*keys, max_shown)))


def _literals(pattern: str) -> list[str]:
    """Return what stands between the wildcards of a pattern."""
    pieces, start = [""], 0
    for found in _WILDCARD.finditer(pattern):
        pieces[-1] += pattern[start : found.start()]
        start = found.end()
        if found[1] is not None and len(found[1]) == 1:
            pieces[-1] += found[1]
        else:
            pieces.append("")
    pieces[-1] += pattern[start:]
    return pieces
