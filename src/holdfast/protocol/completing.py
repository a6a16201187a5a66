"""From a prefix to the names that begin with it."""

from __future__ import annotations

from holdfast.wire.autocomplete import Index
from holdfast.wire.effects import Answer, Steps

__all__ = ["complete"]


def complete(index: Index, prefix: bytes, limit: int) -> Steps[tuple[str, ...]]:
    """At most that many names: the first ones in the order of their code points, or those of the highest score.

    One read; where they are ranked, and the best of all names hardly begin with the prefix, a few more, each of them short.
    Names that are added between those may or may not be among the found.
    """
    if not index.ranked:
        answer: Answer = yield index.first(prefix, limit)
        return tuple(map(index.name_of, answer.reply))
    found: dict[bytes, None] = {}
    start = 0
    while True:
        answer = yield index.best(prefix, limit - len(found), start)
        tag, entries, *rest = answer.reply
        found.update(dict.fromkeys(entries))
        if tag == b"best" or len(found) >= limit:
            return tuple(map(index.name_of, found))
        (start,) = rest
