"""The audit: the actions of operators in a namespace, as a stream of the server.

The client of the operator writes an entry after the act. An act whose client died in between has no entry, and an entry
whose reply was lost may be there twice. A client that dies between the two commands of an entry leaves a new stream
without a TTL, until the next entry. The last action of a name, in its state, is written in the same step as the action.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from handfast._engine.effects import Answer, Call, Steps
from handfast._engine.keys import KeySet
from handfast._engine.script import command, pack
from handfast._kinds import AUDIT

if TYPE_CHECKING:
    from handfast.records import AuditEntry

__all__ = ["KIND", "MAX_ENTRIES", "note", "read"]

KIND = AUDIT
"""The kind in the key of the stream."""

MAX_ENTRIES = 10_000
"""How many entries are kept, about."""

NUMBERS = ("count", "fence", "permits", "duration_ms")
"""The fields of an entry that are whole numbers."""

FLAGS = ("now", "single")
"""The fields of an entry that are there or not. Clients pass over fields that they do not know."""

KEPT_MS = 90 * 86_400_000
"""How long they are kept after the last one, in milliseconds."""


def _call(name: str, *args: object) -> Call:
    return Call(command(name, len(args)), pack(args))


def _key(namespace: str) -> str:
    return KeySet(namespace, KIND, "operators").key("log")


def note(namespace: str, fields: dict[str, str | int]) -> Steps[None]:
    """Write an entry."""
    key = _key(namespace)
    words = [word for pair in fields.items() for word in pair]
    yield _call("XADD", key, "MAXLEN", "~", MAX_ENTRIES, "*", *words)
    yield _call("PEXPIRE", key, KEPT_MS)


def read(namespace: str, after: str, count: int, *, newest: bool) -> Steps[list[AuditEntry]]:
    """Return entries in the order in which they were written, with an id above ``after``: the newest ones, or the oldest."""
    key = _key(namespace)
    if newest:
        answer: Answer = yield _call("XREVRANGE", key, "+", f"({after}", "COUNT", count)
        return [_entry(*row) for row in reversed(answer.reply)]
    answer = yield _call("XRANGE", key, f"({after}", "+", "COUNT", count)
    return [_entry(*row) for row in answer.reply]


def _entry(number: bytes, words: list[bytes]) -> AuditEntry:
    from datetime import UTC, datetime

    from handfast.records import AuditEntry

    texts = [word.decode(errors="replace") for word in words]
    fields: dict[str, Any] = dict(zip(texts[::2], texts[1::2], strict=False))
    shown = number.decode()
    at = datetime.fromtimestamp(int(shown.partition("-")[0]) / 1000, UTC)
    plain = {name: fields.get(name, "") for name in ("what", "kind", "name", "by", "why")}
    numbers: dict[str, Any] = {name: int(fields[name]) if fields.get(name, "").isdigit() else None for name in NUMBERS}
    duration_ms = numbers.pop("duration_ms")
    values: dict[str, Any] = {"duration": None if duration_ms is None else duration_ms / 1000}
    values |= {name: name in fields for name in FLAGS}
    return AuditEntry(shown, at, **plain, **numbers, **values, rates=fields.get("rates"))
