"""Protocols of a latch: note parts as done, forget them, and read the status."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from handfast._engine.effects import Answer, Steps
from handfast._engine.moments import moment
from handfast._engine.objects import ObjectRequest
from handfast._protocol.asking import Acted, batches, tell

if TYPE_CHECKING:
    from handfast.records import LatchStatus

__all__ = ["done", "forget", "forget_shown", "found", "read_status", "status"]

SHOWN = 1000
"""Parts listed by a status."""


def done(request: ObjectRequest, parts: Sequence[str]) -> Steps[int]:
    """Note parts as done, and wake the waiters of an open latch. Return the number of parts left."""
    left = 0
    for batch in batches(parts):
        left, _ = yield from tell(lambda batch=batch: request.call("done", more=batch))  # type: ignore[misc]
    return left


def forget(request: ObjectRequest) -> Steps[bool]:
    """Forget all parts. Return whether a part was done."""
    answer: Answer = yield request.command("DEL", "parts")
    return bool(answer.reply) or answer.again


def forget_shown(request: ObjectRequest, done: int, changed_us: int) -> Steps[Acted]:
    """Forget all parts if there are so many, and the last one was done at that time."""
    answer: Answer = yield request.call("forget", done=done, changed_us=changed_us)
    if answer.fields[0] == b"forgotten":
        return "done"
    if not answer.again:
        return "other"
    return "unknown" if (yield from status(request)).number else "done"


def status(request: ObjectRequest) -> Steps[LatchStatus]:
    """Read the parts done, and the number of waiters."""
    answer: Answer = yield request.call("inspect", shown=SHOWN)
    return read_status(answer.fields, request.fixed["count"])


def read_status(fields: list[Any], count: int | None) -> LatchStatus:
    """Make the status of a reply of ``latch_inspect``; of a latch that opens with so many parts, if that is known."""
    from handfast.records import LatchStatus

    _, done, waiting, *changed_us, names = fields  # without a server nothing is said of a change
    left = None if count is None else max(0, count - done)
    changed_at = moment(changed_us[0]) if any(changed_us) else None
    return LatchStatus(tuple(name.decode() for name in names), left, waiting, done, changed_at)


def found(fields: list[Any], *_: object) -> LatchStatus | None:
    """Return the status of a latch found by a search; None if the server does not know it."""
    status = read_status(fields, None)
    return status if status.waiting or status.done else None
