"""An index of names as the server keeps it, and the calls that keep it.

All names have score 0 in one sorted set, so the server has them in the order of their bytes, and those that begin with a
prefix stand side by side: one ZRANGEBYLEX reads them. UTF-8 keeps the order of code points, and no byte of it is 255, so
a prefix followed by 255 is the end of its range.

With case folded, an entry is the folded name, a zero byte, and the name as it was given. The zero byte sorts a name before all
longer names that begin with it. A zero byte within the folded name is followed by 255, which no UTF-8 text contains: so it
differs from the separator, and sorts after it. Ranked, a second set has the same entries by rank.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Any

from handfast._engine.effects import Call
from handfast._engine.keys import KeySet
from handfast._engine.script import command, load, pack
from handfast._engine.validate import utf8

__all__ = ["AutocompleteCalls"]

BORDER = re.compile(rb"\x00(?!\xff)")
"""Between the folded name and the name."""

END = b"\xff"
"""Above all that goes on after a prefix."""

RANK, UNRANK, BEST = load("names_rank"), load("names_unrank"), load("names_best")


class AutocompleteCalls:
    """The names under one name, as calls ready to be sent."""

    __slots__ = ("_fold_case", "_names", "_ranks", "name", "ranked")

    def __init__(self, place: KeySet, *, fold_case: bool, ranked: bool) -> None:
        # Clients that disagree on the options see different sets: better than one that half of them misread.
        form = ("folded" if fold_case else "exact") + ("_ranked" if ranked else "")
        self.name = place.name
        self.ranked = ranked
        self._fold_case = fold_case
        self._names = place.key(form)
        self._ranks = place.key(f"{form}:ranks")

    def entry(self, name: str) -> bytes:
        """How a name is kept. Raises TypeError and ValueError for what is no name."""
        exact = utf8(name, "a name")
        return folded(name) + b"\x00" + exact if self._fold_case else exact

    def prefix(self, text: str) -> bytes:
        """How the entries begin that a text is a prefix of; the empty text is one of all."""
        if text == "":
            return b""
        exact = utf8(text, "a prefix")
        return folded(text) if self._fold_case else exact

    def name_of(self, entry: bytes) -> str:
        """The name that an entry is kept for."""
        return (BORDER.split(entry, 1)[1] if self._fold_case else entry).decode()

    def add(self, entries: Sequence[bytes]) -> Call:
        """Put entries in; where they are ranked, a new one has score 0, and the others keep theirs."""
        if self.ranked:
            return self._rank("keep", [part for entry in entries for part in (entry, "0")])
        head = command("ZADD", 1 + 2 * len(entries))
        return Call(head, pack([self._names, *(part for entry in entries for part in (0, entry))]))

    def rank(self, scores: Sequence[tuple[bytes, float]]) -> Call:
        """Put entries in with their scores."""
        return self._rank("set", [part for entry, score in scores for part in (entry, repr(0.0 - score))])

    def remove(self, entries: Sequence[bytes]) -> Call:
        """Take entries out."""
        if self.ranked:
            return Call(UNRANK.prefix_for(2, len(entries)), pack([self._names, self._ranks, *entries]))
        return Call(command("ZREM", 1 + len(entries)), pack([self._names, *entries]))

    def first(self, prefix: bytes, limit: int) -> Call:
        """Read those that come first of the entries that begin with the prefix."""
        span = (b"[" + prefix, b"(" + prefix + END)
        return Call(command("ZRANGEBYLEX", 6), pack([self._names, *span, "LIMIT", 0, limit]))

    def best(self, prefix: bytes, limit: int, way: str = "any", *, start: int = 0, after: bytes = b"") -> Call:
        """Read a piece of those that are ranked best of them."""
        return Call(BEST.prefix, pack([self._names, self._ranks, prefix, limit, way, start, after]))

    def size(self) -> Call:
        """Count the entries."""
        return Call(command("ZCARD", 1), pack([self._names]))

    def clear(self) -> Call:
        """Forget all of them."""
        return Call(command("UNLINK", 2), pack([self._names, self._ranks]))

    def _rank(self, how: str, parts: Sequence[Any]) -> Call:
        return Call(RANK.prefix_for(2, 1 + len(parts)), pack([self._names, self._ranks, how, *parts]))


def folded(text: str) -> bytes:
    """How an entry begins whose name folds to the same as the text."""
    return fold(text).encode().replace(b"\x00", b"\x00\xff")


def fold(text: str) -> str:
    """The text without the difference between capital and small letters, and between the ways to write an accent.

    That is Unicode's canonical caseless matching (The Unicode Standard, 3.13). Accents stand behind their letters in it,
    so a prefix that ends before one finds the letter with it: "e" does "élan", and 하 does 한.
    """
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", text).casefold())
