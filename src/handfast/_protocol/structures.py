"""Read and write the structures beside the locks, and run a user's script.

Long lists are sent in batches, so that no call occupies the server for long.

Completion is one read for names without a rank, which lie side by side on the server. For ranked names the server
chooses the one of two ways that is likely to be shorter (see ``lua/names_best.lua``): to scan all names with the
prefix, or to walk from the best rank down until enough names match. One call is nearly always enough; otherwise further
short calls follow. A walk that took longer than a scan would is abandoned for the scan. The result of several calls is
not a snapshot: names that are added, removed or ranked anew between them may be missing or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from handfast._engine.autocomplete_calls import AutocompleteCalls
from handfast._engine.effects import Answer, Call, Steps
from handfast._engine.score_calls import ScoreCalls
from handfast._engine.script import LuaScript, pack
from handfast._engine.server_errors import script_error
from handfast.errors import ServerRefused

if TYPE_CHECKING:
    from handfast.records import Advance, Scored

__all__ = ["BATCH", "advance", "ask", "complete", "in_batches", "read_scores", "run_script"]

BATCH = 500
"""Entries in one call: about 1 ms of the server's time for a set with a million entries."""

T = TypeVar("T")


def ask(call: Call) -> Steps[Any]:
    """Make one call, and return its reply."""
    answer: Answer = yield call
    return answer.reply


def in_batches(call: Callable[[Sequence[T]], Call], items: Sequence[T]) -> Steps[None]:
    """Make the call for all items, batch by batch."""
    for batch in _batches(items):
        yield call(batch)


def complete(index: AutocompleteCalls, prefix: bytes, limit: int) -> Steps[tuple[str, ...]]:
    """Return at most ``limit`` names with that prefix: the first in byte order, or those of the highest score."""
    if not index.ranked:
        answer: Answer = yield index.first(prefix, limit)
        return tuple(map(index.name_of, answer.reply))
    answer = yield index.best(prefix, limit)
    entries = yield from (_scan if answer.reply[0] == b"scanned" else _walk)(index, prefix, limit, answer)
    return tuple(map(index.name_of, entries))


def advance(board: ScoreCalls, pairs: Sequence[tuple[float, bytes]], token: str) -> Steps[Advance]:
    """Move all members forward, batch by batch, and count the effects."""
    from handfast.records import Advance

    added = moved = stale = 0
    for number, batch in enumerate(_batches(pairs)):
        answer: Answer = yield board.advance(batch, f"{token}:{number}")
        added, moved, stale = added + answer.reply[1], moved + answer.reply[2], stale + answer.reply[3]
    return Advance(added, moved, stale)


def read_scores(call: Call) -> Steps[tuple[Scored, ...]]:
    """Make a call that reads members, and return them with their scores."""
    from handfast.records import Scored

    answer: Answer = yield call
    return tuple(Scored(member.decode(), float(score)) for member, score in _pairs(answer.reply))


def run_script(script: LuaScript, keys: Sequence[Any], args: Sequence[Any]) -> Steps[Any]:
    """Run a user's script and return its reply, texts as bytes. Raises ScriptError if it fails, and ServerRefused.

    It is sent only once, unless its header has a TWICE line, which says what a second run does.
    """
    call = Call(script.prefix_for(len(keys), len(args)), pack((*keys, *args)), once=not script.header.repeatable)
    try:
        answer: Answer = yield call
    except ServerRefused as refused:
        refused.changed_nothing = False  # the script may have written before it failed
        fault = script_error(script, refused.reply)
        if fault is None:
            raise
        raise fault from refused
    return answer.reply


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
        answer = yield index.best(prefix, limit, "scan", after=last)


def _walk(index: AutocompleteCalls, prefix: bytes, limit: int, answer: Answer) -> Steps[Iterable[bytes]]:
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


def _batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[start : start + BATCH] for start in range(0, len(items), BATCH))


def _pairs(reply: list[Any]) -> list[Any]:
    """Return members and scores side by side, however the server groups them."""
    return reply if reply and isinstance(reply[0], list) else list(zip(reply[::2], reply[1::2], strict=True))
