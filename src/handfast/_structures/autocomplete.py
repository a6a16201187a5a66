"""An autocomplete index: the format of its entries, its calls, and how it is completed.

All entries have score 0 in one sorted set, so the server sorts them by their bytes. Entries that begin with a prefix
are adjacent, and one ZRANGEBYLEX reads them. UTF-8 keeps the order of code points and never contains the byte 255, so a
prefix followed by 255 is the end of its range.

With ``fold_case`` an entry is the folded name, a zero byte and the name as given. The zero byte sorts a name before all
longer names that begin with it. A zero byte of the folded name itself is followed by 255: so it differs from the
separator and sorts after it. With ``ranked`` a second sorted set has the same entries by rank.

Completion is one read of names without a rank, which lie side by side on the server, or a few where many are wanted: a
server ends a connection that has more than 32 MB to read. For ranked names the server
chooses the one of two ways that is likely to be shorter (see ``names_best.lua``): to scan all names with the prefix, or
to walk from the best rank down until enough names match. One call is nearly always enough; otherwise further short
calls follow. A walk that took longer than a scan would is abandoned for the scan. The result of several calls is not a
snapshot: names that are added, removed or ranked anew between them may be missing or not.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

from handfast._engine.effects import Answer, Call, Steps
from handfast._engine.keys import KeySet
from handfast._engine.script import command, load, pack
from handfast._engine.validate import utf8

__all__ = ["AutocompleteCalls", "complete"]

BORDER = rb"\x00(?!\xff)"
"""Separates the folded name from the name."""

END = b"\xff"
"""Sorts after every continuation of a prefix."""

MAX_READ_BYTES = 25_000_000
MAX_ENTRY_BYTES = 16 * 1024

FOLDED = 4
"""How much longer an entry of a folded name may be: the folded form takes up to three times the bytes of the name."""

RANK, UNRANK, BEST = load("names_rank"), load("names_unrank"), load("names_best")


class AutocompleteCalls:
    """The calls of one index, ready to be sent."""

    __slots__ = ("_fold_case", "_names", "_ranks", "most", "name", "ranked")

    def __init__(self, place: KeySet, *, fold_case: bool, ranked: bool) -> None:
        # Clients that disagree on the options use different keys, so that none misreads the entries of another.
        form = ("folded" if fold_case else "exact") + ("_ranked" if ranked else "")
        self.name: str = place.name
        self.ranked: bool = ranked
        self.most: int = MAX_READ_BYTES // (MAX_ENTRY_BYTES * FOLDED if fold_case else MAX_ENTRY_BYTES)
        """The most entries that a call reads: entries of the greatest length fit into a reply."""
        self._fold_case = fold_case
        self._names = place.key(form)
        self._ranks = place.key(f"{form}:ranks")

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
        """Add entries. In a ranked index a new entry gets score 0, and an existing one keeps its score."""
        if self.ranked:
            return self._rank("keep", [part for entry in entries for part in (entry, "0")])
        head = command("ZADD", 1 + 2 * len(entries))
        return Call(head, pack([self._names, *(part for entry in entries for part in (0, entry))]))

    def rank(self, scores: Sequence[tuple[bytes, float]]) -> Call:
        """Add entries with scores, or set the scores of existing ones."""
        return self._rank("set", [part for entry, score in scores for part in (entry, repr(0.0 - score))])

    def remove(self, entries: Sequence[bytes]) -> Call:
        """Remove entries."""
        if self.ranked:
            return Call(UNRANK.prefix_for(2, len(entries)), pack([self._names, self._ranks, *entries]))
        return Call(command("ZREM", 1 + len(entries)), pack([self._names, *entries]))

    def first(self, prefix: bytes, limit: int, after: bytes = b"") -> Call:
        """Read the first entries that begin with a prefix, at most ``limit``; or those behind one of them."""
        span = (b"(" + after if after else b"[" + prefix, b"(" + prefix + END)
        return Call(command("ZRANGEBYLEX", 6), pack([self._names, *span, "LIMIT", 0, limit]))

    def best(self, prefix: bytes, limit: int, way: str = "any", *, start: int = 0, after: bytes = b"") -> Call:
        """Read names in order of rank: one step of the scan or walk that ``names_best.lua`` describes."""
        return Call(BEST.prefix, pack([self._names, self._ranks, prefix, limit, way, start, after]))

    def size(self) -> Call:
        """Count the entries."""
        return Call(command("ZCARD", 1), pack([self._names]))

    def clear(self) -> Call:
        """Delete the index."""
        return Call(command("UNLINK", 2), pack([self._names, self._ranks]))

    def _rank(self, how: str, parts: Sequence[Any]) -> Call:
        return Call(RANK.prefix_for(2, 1 + len(parts)), pack([self._names, self._ranks, how, *parts]))


def folded(text: str) -> bytes:
    """Return the first bytes of the entries whose folded names begin with the folded text."""
    return fold(text).encode().replace(b"\x00", b"\x00\xff")


def fold(text: str) -> str:
    """Return a text without differences of case, and of composed and decomposed accents.

    The result is that of Unicode's canonical caseless matching (The Unicode Standard, 3.13). An accent follows its
    letter in it, so a prefix that ends before the accent matches too: "e" matches "élan", and 하 matches 한.
    """
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", text).casefold())


def complete(index: AutocompleteCalls, prefix: bytes, limit: int) -> Steps[tuple[str, ...]]:
    """Return at most ``limit`` names with that prefix: the first in byte order, or those of the highest score."""
    if not index.ranked:
        return (yield from _first(index, prefix, limit))
    answer: Answer = yield index.best(prefix, min(limit, index.most))
    entries = yield from (_scan if answer.reply[0] == b"scanned" else _walk)(index, prefix, limit, answer)
    return tuple(map(index.name_of, entries))


def _first(index: AutocompleteCalls, prefix: bytes, limit: int) -> Steps[tuple[str, ...]]:
    """Read the names in their order, batch by batch."""
    found: list[bytes] = []
    while len(found) < limit:
        wanted = min(index.most, limit - len(found))
        answer: Answer = yield index.first(prefix, wanted, after=found[-1] if found else b"")
        found += answer.reply
        if len(answer.reply) < wanted:
            break
    return tuple(map(index.name_of, found))


def _scan(index: AutocompleteCalls, prefix: bytes, limit: int, answer: Answer) -> Steps[Iterable[bytes]]:
    """Continue a scan after its first batch, keeping the best entries of all batches."""
    best: list[tuple[float, bytes]] = []
    while True:
        _, _, ranked, last = answer.reply
        best += zip(map(float, ranked[1::2]), ranked[::2], strict=True)
        best.sort()
        del best[limit:]
        if not last:
            return [entry for _, entry in best]
        answer = yield index.best(prefix, min(limit, index.most), "scan", after=last)


def _walk(index: AutocompleteCalls, prefix: bytes, limit: int, answer: Answer) -> Steps[Iterable[bytes]]:
    """Continue a walk from the best rank down, until enough names match."""
    found: dict[bytes, None] = {}
    while True:
        _, matching, entries, following, last = answer.reply
        found.update(dict.fromkeys(entries))
        if not following or len(found) >= min(limit, matching):
            return found
        if following > matching:
            answer = yield index.best(prefix, min(limit, index.most), "scan")
            return (yield from _scan(index, prefix, limit, answer))
        answer = yield index.best(prefix, min(limit - len(found), index.most), "walk", start=following, after=last)
