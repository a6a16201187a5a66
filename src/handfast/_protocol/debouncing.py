"""Wait until no one has called for a while: from a request to whether its caller is the one that runs.

The newest call of a burst knows when it is to run, and asks then. The one before it gets a message that it was
superseded. All ask again when their connection has broken, which also says where they are to be reached from now on, and
three times a minute, should the message be lost.
"""

from __future__ import annotations

from handfast._engine.debounce import DebounceRequest
from handfast._engine.effects import Answer, Park, Steps, Waking
from handfast._protocol.acquire import MAX_POLL_S, BaseAttempt
from handfast.errors import HandfastError, ServerRefused

__all__ = ["DebounceAttempt", "wait"]

EARLY_S = 0.0005
"""How long after its time a call asks, in seconds: one that comes too early asks twice."""


class DebounceAttempt(BaseAttempt):
    """One call of a debounced name."""

    __slots__ = ()

    request: DebounceRequest


def wait(attempt: DebounceAttempt) -> Steps[bool]:
    """Wait until this call is to run, or is superseded by a later one. Return whether it is to run."""
    request, token = attempt.request, attempt.token
    attempt.may_be_there = True
    call = request.enter(token)
    while True:
        try:
            answer: Answer = yield call
        except ServerRefused as error:
            if error.changed_nothing:
                attempt.refused()
            raise
        if answer.again:
            attempt.copies = True
        tag, *numbers = answer.fields
        if tag == b"runs":
            return True
        if tag == b"superseded":
            return False
        if tag != b"waits":
            raise HandfastError(f"the call of {request.name!r} was over while it waited", name=request.name)
        attempt.position = 0
        now_us, due_us = numbers
        due_at = answer.sent_at + (due_us - now_us) / 1e6 + EARLY_S
        waking: Waking = yield Park(token, min(due_at, answer.sent_at + MAX_POLL_S))
        if waking.grant is not None:
            return False
        call = request.claim(token) if waking.woke_at >= due_at else request.enter(token)
