"""What all protocols of objects without leases have in common: to change something, and to wait for an answer.

The driver tells an attempt of its copies and refusals: see `BaseAttempt.answered`.
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
"""How often who waits for a message asks in any case, in seconds."""

WATCH_MS = round(3 * WATCH_POLL_S * 1000)
"""For how long the server keeps a message for who has not asked again, in ms."""

T = TypeVar("T")


class ObjectAttempt(BaseAttempt):
    """One call of an object without leases."""

    __slots__ = ()

    request: ObjectRequest


def reply_to(call: Call) -> Steps[Any]:
    """Make one call, and return its reply."""
    answer: Answer = yield call
    return answer.reply


def in_batches(make_call: Callable[[Sequence[T]], Call], items: Sequence[T]) -> Steps[None]:
    """Make the call for all items, batch by batch, so that none occupies the server for long."""
    for batch in batches(items):
        yield make_call(batch)


def batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Cut items into pieces of at most BATCH."""
    return (items[start : start + BATCH] for start in range(0, len(items), BATCH))


def change(make_call: Callable[[], Call]) -> Steps[list[Any]]:
    """Change something, in as many calls as that takes: the last number of a reply says whether there is more to do.

    Return the numbers of the last reply.
    """
    while True:
        answer: Answer = yield make_call()
        _, *numbers = answer.fields
        if not numbers[-1]:
            return numbers


def watch(attempt: ObjectAttempt, verb: str, until: float) -> Steps[Answer]:
    """Ask until the reply is another than ``waits``, or that moment is over. Return the last reply.

    A message says to look again; each call asks for one, for the time that is left. As it may be lost, the call is
    repeated in any case. There is nothing to take back: the server forgets in time who wanted a message.
    """
    now = attempt.asked_at
    while True:
        wait_ms = round(min(WATCH_MS, 1000 * max(0.0, until - now)))
        answer: Answer = yield attempt.request.call(verb, attempt.token, wait_ms=wait_ms)
        if answer.fields[0] != b"waits" or answer.sent_at >= until:
            return answer
        waking: Waking = yield Park(attempt.token, min(until, answer.sent_at + WATCH_POLL_S))
        now = waking.woke_at
        if now >= until:
            return answer
