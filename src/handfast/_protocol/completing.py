"""Complete a prefix: read the names in an index that begin with the prefix.

Completion is one read of names without a rank, which lie side by side on the server, or a few where many are wanted: a
server ends a connection that has more than 32 MB to read. For ranked names the server chooses the one of two ways that is
likely to be shorter (see ``names_best.lua``): to scan all names with the prefix, or to walk from the best rank down until
enough names match. One call is nearly always enough; otherwise further short calls follow. The result of several calls is
no snapshot: names that are added, removed or ranked anew between them may be missing or not. A walk that took longer than
a scan would is abandoned for the scan.
"""

from __future__ import annotations

from collections.abc import Iterable

from handfast._engine.autocomplete import AutocompleteRequest
from handfast._engine.effects import Answer, Steps

__all__ = ["complete"]


def complete(index: AutocompleteRequest, prefix: bytes, limit: int) -> Steps[tuple[str, ...]]:
    """Return at most ``limit`` names with a prefix: the first in byte order, or the names with the highest scores."""
    if not index.ranked:
        return (yield from _first(index, prefix, limit))
    answer: Answer = yield index.best(prefix, limit)
    entries = yield from (_scan if answer.reply[0] == b"scanned" else _walk)(index, prefix, limit, answer)
    return tuple(map(index.name_of, entries))


def _first(index: AutocompleteRequest, prefix: bytes, limit: int) -> Steps[tuple[str, ...]]:
    """Read the names in their order, batch by batch."""
    found: list[bytes] = []
    while len(found) < limit:
        wanted = min(index.most, limit - len(found))
        answer: Answer = yield index.first(prefix, wanted, after=found[-1] if found else b"")
        found += answer.reply
        if len(answer.reply) < wanted:
            break
    return tuple(map(index.name_of, found))


def _scan(index: AutocompleteRequest, prefix: bytes, limit: int, answer: Answer) -> Steps[Iterable[bytes]]:
    """Continue a scan after the first batch, keeping the best entries of all batches."""
    best: list[tuple[float, bytes]] = []
    while True:
        _, _, ranked, last = answer.reply
        best += zip(map(float, ranked[1::2]), ranked[::2], strict=True)
        best.sort()
        del best[limit:]
        if not last:
            return [entry for _, entry in best]
        answer = yield index.best(prefix, limit, "scan", after=last)


def _walk(index: AutocompleteRequest, prefix: bytes, limit: int, answer: Answer) -> Steps[Iterable[bytes]]:
    """Continue a walk from the best rank down, until enough names match."""
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
