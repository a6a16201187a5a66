"""Protocols of an election: read and observe the leader, announce terms, and read their history."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING
from urllib.parse import unquote

from handfast._engine.calls import PermitRequest
from handfast._engine.effects import Answer, Steps
from handfast._engine.objects import ObjectRequest
from handfast._engine.records import encode_label, printable, read_record
from handfast._protocol.admin import read_status
from handfast._protocol.asking import tell

if TYPE_CHECKING:
    from handfast.records import Leader, Term

__all__ = ["NOTHING", "announce", "history", "leader", "look", "text_of"]

NOTHING = -1
"""The fence of an unknown leader."""

KEEP_MS = 30 * 86_400_000
"""How long terms are kept after the last announcement, in milliseconds."""

_TIME = Struct("<d")


def look(request: PermitRequest) -> Steps[Leader | None]:
    """Read who leads."""
    from handfast.records import Leader

    answer: Answer = yield request.inspect(1)
    status = read_status(answer.fields, request.limit)
    for one in status.holders:
        times = one.held_for, one.remaining
        return Leader(one.value, one.label, one.fence, *times, status.grants, status.waiting)
    return None


def leader(answer: Answer) -> Leader | None:
    """Return the leader of a reply; None without a leader."""
    from handfast.records import Leader

    tag, now_us, *rest = answer.fields
    if tag != b"leads":
        return None
    ends_us, grants, waiting, text = rest
    record = read_record(text)
    if record is None:
        return None
    led_for, remaining = max(0, now_us - record.mark) / 1e6, max(0, ends_us - now_us) / 1e6
    return Leader(record.value, record.label, record.mark, led_for, remaining, grants, waiting)


def announce(request: ObjectRequest, fence: int, text: str, *, ends: bool) -> Steps[None]:
    """Note the beginning or the end of a term, and send messages to all observers."""
    yield from tell(lambda: request.call("announce", fence=fence, ends=int(ends), keep_ms=KEEP_MS, text=text))


def text_of(label: str, value: str, why: str = "") -> str:
    """Return the text of a term: who led, and why the term ended."""
    return " ".join(map(encode_label, (label, value, why)))


def history(request: ObjectRequest, limit: int) -> Steps[tuple[Term, ...]]:
    """Read the last terms, the newest first."""
    from datetime import UTC, datetime

    from handfast.records import Term

    answer: Answer = yield request.command("HGETALL", "terms")
    flat = answer.reply if isinstance(answer.reply, list) else [one for pair in answer.reply.items() for one in pair]
    fences = sorted(zip(map(int, flat[::2]), flat[1::2], strict=True), reverse=True)[:limit]
    terms = []
    for fence, noted in fences:
        (ended_us,) = _TIME.unpack_from(noted)
        label, value, why = map(unquote, noted[_TIME.size :].decode(errors="replace").split(" "))
        began, ended = (datetime.fromtimestamp(us / 1e6, UTC) for us in (fence, ended_us))
        terms.append(
            Term(
                value, printable(label), fence, began, ended if ended_us else None, printable(why) if ended_us else None
            )
        )
    return tuple(terms)
