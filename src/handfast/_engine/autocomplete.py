"""An autocomplete index: the format of the entries, and the calls.

All entries have score 0 in one sorted set, so the server sorts them by their bytes. Entries that begin with a prefix
are adjacent, and one ZRANGEBYLEX reads them. UTF-8 keeps the order of code points and never contains the byte 255, so a
prefix followed by 255 is the end of its range.

With ``fold_case`` an entry is the folded name, a zero byte and the name as given. The zero byte sorts a name before all
longer names that begin with it. A zero byte of the folded name itself is followed by 255: so it differs from the
separator and sorts after it. With ``ranked`` a second sorted set has the same entries by rank.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from handfast._engine.effects import Call
from handfast._engine.keys import KeySet
from handfast._engine.objects import ObjectRequest
from handfast._engine.validate import utf8

__all__ = ["AutocompleteRequest"]

BORDER = rb"\x00(?!\xff)"
"""Separates the folded name from the name."""

END = b"\xff"
"""Sorts after every continuation of a prefix."""

MAX_READ_BYTES = 25_000_000
MAX_ENTRY_BYTES = 16 * 1024

FOLDED = 4
"""How much longer an entry of a folded name may be: the folded form takes up to three times the bytes of the name."""


class AutocompleteRequest(ObjectRequest):
    """The calls of an index."""

    __slots__ = ("_fold_case", "most", "ranked")

    def __init__(self, place: KeySet, *, fold_case: bool, ranked: bool) -> None:
        # Clients with different options use different keys, and so cannot misread each other's entries.
        form = ("folded" if fold_case else "exact") + ("_ranked" if ranked else "")
        super().__init__(place, names=form, ranks=f"{form}:ranks")
        self.ranked: bool = ranked
        self.most: int = MAX_READ_BYTES // (MAX_ENTRY_BYTES * FOLDED if fold_case else MAX_ENTRY_BYTES)
        """The most entries in a reply: entries of the greatest length still fit."""
        self._fold_case = fold_case

    def keyed(self, parts: tuple[str, ...]) -> AutocompleteRequest:
        """Return the same request for a name with these parts behind it."""
        return AutocompleteRequest(self.place.keyed(parts), fold_case=self._fold_case, ranked=self.ranked)

    def entry(self, name: str) -> bytes:
        """Return the entry of a name.

        Raises:
            TypeError: The name is not a str.
            ValueError: The name is empty, longer than 16 KiB of UTF-8, or not valid Unicode.
        """
        exact = utf8(name, "a name")
        return folded(name) + b"\x00" + exact if self._fold_case else exact

    def prefix(self, text: str) -> bytes:
        """Return the first bytes of all entries whose names begin with a text.

        Every name begins with the empty text.
        """
        if text == "":
            return b""
        exact = utf8(text, "a prefix")
        return folded(text) if self._fold_case else exact

    def name_of(self, entry: bytes) -> str:
        """Return the name of an entry."""
        return (re.split(BORDER, entry, maxsplit=1)[1] if self._fold_case else entry).decode()

    def add(self, entries: Sequence[bytes]) -> Call:
        """Add entries. In a ranked index a new entry gets score 0, and an existing entry keeps its score."""
        if self.ranked:
            return self.call("rank", more=[part for entry in entries for part in (entry, "0")], how="keep")
        return self.command("ZADD", "names", *(part for entry in entries for part in (0, entry)))

    def rank(self, scores: Sequence[tuple[bytes, float]]) -> Call:
        """Add entries with scores, or set the scores of existing ones."""
        ranks = [part for entry, score in scores for part in (entry, repr(0.0 - score))]
        return self.call("rank", more=ranks, how="set")

    def remove(self, entries: Sequence[bytes]) -> Call:
        """Remove entries."""
        return self.call("unrank", more=entries) if self.ranked else self.command("ZREM", "names", *entries)

    def first(self, prefix: bytes, limit: int, after: bytes = b"") -> Call:
        """Read at most ``limit`` entries that begin with a prefix: the first ones, or the next after ``after``."""
        span = (b"(" + after if after else b"[" + prefix, b"(" + prefix + END)
        return self.command("ZRANGEBYLEX", "names", *span, "LIMIT", 0, limit)

    def clear(self) -> Call:
        """Delete the index."""
        return self.command("UNLINK", "names", self.place.key(self.fixed["ranks"]))

    def best(self, prefix: bytes, limit: int, way: str = "any", *, start: int = 0, after: bytes = b"") -> Call:
        """Read names in order of rank: a step of the scan or walk described in ``names_best.lua``."""
        return self.call("best", prefix=prefix, limit=min(limit, self.most), way=way, start=start, after=after)


def folded(text: str) -> bytes:
    """Return the first bytes of the entries whose folded names begin with the folded text."""
    return fold(text).encode().replace(b"\x00", b"\x00\xff")


def fold(text: str) -> str:
    """Return a text without differences of case, and of composed and decomposed accents.

    The result is that of Unicode's canonical caseless matching (The Unicode Standard, 3.13). An accent follows the
    letter in it, so a prefix that ends before the accent matches too: "e" matches "élan", and 하 matches 한.
    """
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", text).casefold())
