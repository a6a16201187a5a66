"""Protocols that objects without leases share: change an object, and wait for an answer.

The driver notes copies and refusals in the attempt: see `BaseAttempt.answered`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from handfast._engine.effects import Answer, Call, Park, Steps, Waking
from handfast._protocol.acquire import BaseAttempt

if TYPE_CHECKING:
    from handfast._engine.objects import ObjectRequest

__all__ = ["BATCH", "ObjectAttempt", "batches", "change", "in_batches", "reply_to", "watch"]

BATCH = 500
"""Items in one call: about 1 ms of the server's time for a set with a million members."""

WATCH_POLL_S = 5.0
"""Seconds after which a waiting caller asks again, in case of a lost message."""

WATCH_MS = round(3 * WATCH_POLL_S * 1000)
"""Milliseconds for which the server notes a caller that waits."""

T = TypeVar("T")


class ObjectAttempt(BaseAttempt):
    """A call of an object without leases."""

    __slots__ = ()

    request: ObjectRequest


def reply_to(call: Call) -> Steps[Any]:
    """Make a call, and return the reply."""
    answer: Answer = yield call
    return answer.reply


def in_batches(make_call: Callable[[Sequence[T]], Call], items: Sequence[T]) -> Steps[None]:
    """Make a call for each batch of items: a short call does not occupy the server for long."""
    for batch in batches(items):
        yield make_call(batch)


def batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Cut items into pieces of at most BATCH."""
    return (items[start : start + BATCH] for start in range(0, len(items), BATCH))


def change(make_call: Callable[[], Call]) -> Steps[list[Any]]:
    """Repeat a call while the last number of the reply, ``more``, is not 0. Return the numbers of the last reply."""
    while True:
        answer: Answer = yield make_call()
        _, *numbers = answer.fields
        if not numbers[-1]:
            return numbers


def watch(attempt: ObjectAttempt, verb: str, until: float) -> Steps[Answer]:
    """Ask until the server's reply is not ``waits``, or ``until`` has passed. Return the last reply, from after ``until``.

    The server sends a message when the caller should ask again. A message may be lost, so the caller also asks every
    `WATCH_POLL_S` seconds, and once more at the end. No call takes the request back: the server forgets it in time.
    """
    now = attempt.asked_at
    while True:
        wait_ms = round(min(WATCH_MS, 1000 * max(0.0, until - now)))
        answer: Answer = yield attempt.request.call(verb, attempt.token, wait_ms=wait_ms)
        if answer.fields[0] != b"waits" or answer.sent_at >= until:
            return answer
        waking: Waking = yield Park(attempt.token, min(until, answer.sent_at + WATCH_POLL_S))
        now = waking.woke_at
