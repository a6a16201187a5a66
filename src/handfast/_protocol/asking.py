"""Protocols that objects without leases share: change an object, and wait for an answer.

The driver notes copies and refusals in the attempt: see `BaseAttempt.answered`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from handfast._engine.effects import Answer, Call, Park, Steps, Waking
from handfast._protocol.acquire import BaseAttempt

if TYPE_CHECKING:
    from handfast._engine.objects import ObjectRequest

__all__ = ["BATCH", "Acted", "ObjectAttempt", "batches", "change", "in_batches", "reply_to", "tell", "watch"]

BATCH = 500
"""Items in one call: about 1 ms of the server's time for a set with a million members."""

TOLD = 100
"""Messages of one call, as in ``lib/watchers.lua``."""

WATCH_POLL_S = 5.0
"""Seconds after which a waiting caller asks again, in case of a lost message."""

WATCH_MS = round(3 * WATCH_POLL_S * 1000)
"""Milliseconds for which the server notes a caller that waits."""

EXPIRY_SLACK_S = 0.002
"""Seconds after the end of a lease at which the caller asks."""

Acted: TypeAlias = Literal["done", "nothing", "other", "unknown"]
"""The outcome of an act on a hold, a pause or a record that an operator was shown. ``nothing``: there is none any more.
``other``: another has taken the place, and nothing was done. ``unknown``: the same, and the call was sent twice, so the first
copy may have acted."""

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


def tell(make_call: Callable[[], Call]) -> Steps[list[Any]]:
    """Repeat a call that sends messages to watchers, for those that were there at first. Return the numbers of the last reply.

    A watcher that was told asks again, and so is there again. The last number of each reply is how many are left.
    """
    left: float = inf
    while True:
        answer: Answer = yield make_call()
        _, *numbers = answer.fields
        left = min(left - TOLD, numbers[-1])
        if left <= 0:
            return numbers


def watch(
    attempt: ObjectAttempt, verb: str, until: float, *, has_end: bool = False, pause: float = 0.0
) -> Steps[Answer]:
    """Ask until the server's reply is not ``waits``, or ``until`` has passed. Return the last reply, from after ``until``.

    The server sends a message when the caller should ask again. A message may be lost, so the caller also asks every
    `WATCH_POLL_S` seconds, and once more at the end. No call takes the request back: the server forgets it in time.

    Args:
        attempt: The request, and when the caller came.
        verb: The verb of the call.
        until: The end of the wait, on the clock of the attempt.
        has_end: Whether ``waits`` says in how many microseconds something ends without a message, such as a lease: the
            caller asks again then. 0 stands for no end.
        pause: Seconds between a message and the call, so that several changes cost one call.
    """
    now = attempt.asked_at
    while True:
        wait_ms = round(min(WATCH_MS, 1000 * max(0.0, until - now)))
        answer: Answer = yield attempt.request.call(verb, attempt.token, wait_ms=wait_ms)
        tag, *numbers = answer.fields
        if tag != b"waits" or answer.sent_at >= until:
            return answer
        poll_s = WATCH_POLL_S
        if has_end and numbers[0]:
            poll_s = min(poll_s, numbers[0] / 1e6 + EXPIRY_SLACK_S)
        due = min(until, answer.sent_at + poll_s)
        waking: Waking = yield Park(attempt.token, due)
        now = waking.woke_at
        if pause and now < due:
            waking = yield Park(attempt.token, min(until, now + pause))
            now = waking.woke_at
