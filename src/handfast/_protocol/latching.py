"""A latch: note what is done, and see how far it has come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from handfast._engine.effects import Answer, Steps
from handfast._engine.objects import ObjectRequest
from handfast._protocol.asking import batches, change

if TYPE_CHECKING:
    from handfast.records import LatchStatus

__all__ = ["done", "forget", "status"]

SHOWN = 1000
"""Parts that a status lists."""


def done(request: ObjectRequest, parts: Sequence[str]) -> Steps[int]:
    """Note that parts are done, and wake who waits. Return how many are left."""
    left = 0
    for batch in batches(parts):
        left, _ = yield from change(lambda batch=batch: request.call("done", more=batch))  # type: ignore[misc]
    return left


def forget(request: ObjectRequest) -> Steps[bool]:
    """Close a latch. Return whether a part was done."""
    answer: Answer = yield request.command("DEL", "parts")
    return bool(answer.reply) or answer.again


def status(request: ObjectRequest) -> Steps[LatchStatus]:
    """Read which parts are done, and how many wait."""
    from handfast.records import LatchStatus

    answer: Answer = yield request.call("inspect", shown=SHOWN)
    _, done, waiting, names = answer.fields
    return LatchStatus(tuple(name.decode() for name in names), max(0, request.fixed["count"] - done), waiting)
