"""What all protocols of objects without leases have in common: to change something, and to wait for an answer.

The driver tells an attempt of its copies and refusals: see `BaseAttempt.answered`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from handfast._engine.effects import Answer, Call, Park, Steps, Waking
from handfast._engine.objects import ObjectRequest
from handfast._protocol.acquire import MAX_POLL_S, BaseAttempt, cancel

__all__ = ["BATCH", "ObjectAttempt", "batches", "change", "in_batches", "reply_to", "wait"]

BATCH = 500
"""Items in one call: about 1 ms of the server's time for a set with a million members."""

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


def wait(attempt: ObjectAttempt, verb: str, until: float, **values: Any) -> Steps[list[Any] | None]:
    """Ask until the reply is another than ``waits``: by a message, and by polls in case that is lost.

    Return its tag and numbers; None if the moment ``until`` comes first, when the call is withdrawn.
    """
    attempt.may_be_there = True
    while True:
        answer: Answer = yield attempt.request.call(verb, attempt.token, **values)
        fields = answer.fields
        if fields[0] != b"waits":
            attempt.rejected()
            return fields
        attempt.position = 0
        waking: Waking = yield Park(attempt.token, min(until, answer.sent_at + MAX_POLL_S))
        if waking.woke_at >= until:
            yield from cancel(attempt)
            return None
