"""From a prefix to the names that begin with it.

Names that are not ranked lie side by side on the server, so it is one read. The best ranked of them are looked for in one of
two ways (see ``lua/names_best.lua``), of which the server chooses the one that is likely to be shorter. Nearly always
that is one read too; when it is not, more of them follow, each short, so that nobody else has to wait for long. A walk
that has gone on for longer than the other way would take was the wrong choice, and is given up.

What comes in several reads is no picture of one moment: names that come, go or change their rank between them may be
among the found or not.
"""

from __future__ import annotations

from collections.abc import Iterable

from handfast._engine.autocomplete_calls import AutocompleteCalls
from handfast._engine.effects import Answer, Steps

__all__ = ["complete"]


def complete(index: AutocompleteCalls, prefix: bytes, limit: int) -> Steps[tuple[str, ...]]:
    """At most that many names: the first ones in the order of their bytes, or those of the highest score."""
    if not index.ranked:
        answer: Answer = yield index.first(prefix, limit)
        return tuple(map(index.name_of, answer.reply))
    answer = yield index.best(prefix, limit)
    entries = yield from (_scan if answer.reply[0] == b"scanned" else _walk)(index, prefix, limit, answer)
    return tuple(map(index.name_of, entries))


def _scan(index: AutocompleteCalls, prefix: bytes, limit: int, answer: Answer) -> Steps[Iterable[bytes]]:
    """Go on from a first piece of those that match, and keep the best of all pieces."""
    best: list[tuple[float, bytes]] = []
    while True:
        _, _, ranked, last = answer.reply
        best += zip(map(float, ranked[1::2]), ranked[::2], strict=True)
        best.sort()
        del best[limit:]
        if not last:
            return [entry for _, entry in best]
        answer = yield index.best(prefix, limit, "scan", after=last)


def _walk(index: AutocompleteCalls, prefix: bytes, limit: int, answer: Answer) -> Steps[Iterable[bytes]]:
    """Go on from the best of all ranks to the next ones, until enough of them match."""
    found: dict[bytes, None] = {}
    while True:
        _, matching, entries, following, last = answer.reply
        found.update(dict.fromkeys(entries))
        if not following or len(found) >= min(limit, matching):
            return found
        if following > matching:
            answer = yield index.best(prefix, limit, "scan")
            return (yield from _scan(index, prefix, limit, answer))
        answer = yield index.best(prefix, limit - len(found), "walk", start=following, after=last)
