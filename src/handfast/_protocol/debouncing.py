"""Wait until no other call has come for a while: from a request to whether its caller is the one that runs.

The newest call of a burst knows when it is to run, and asks then. The call before it gets a message that it was
superseded. All ask again when their connection has broken, which also says where they are to be reached from now on, and
three times a minute, should the message be lost.

Each further request carries the ticket of the first reply, by which the server knows which call is newer, however long
its client was away; and the time that is left by the client's clock, so that a server's clock that is set back delays no
call.
"""

from __future__ import annotations

from handfast._engine.effects import Answer, Park, Steps, Waking
from handfast._protocol.acquire import MAX_POLL_S
from handfast._protocol.asking import ObjectAttempt

__all__ = ["wait"]

EARLY_S = 0.0005
"""How long after its time a call asks, in seconds: one that comes too early asks twice."""


def wait(attempt: ObjectAttempt) -> Steps[bool]:
    """Wait until this call is to run, or is superseded by a later one. Return whether it is to run."""
    attempt.may_be_there = True
    left_s, ticket = attempt.request.fixed["quiet_ms"] / 1000, 0
    while True:
        answer: Answer = yield attempt.request.call("enter", attempt.token, left_us=round(left_s * 1e6), ticket=ticket)
        tag, *numbers = answer.fields
        if tag != b"waits":
            return bool(tag == b"runs")
        attempt.position = 0
        now_us, due_us, ticket = numbers
        due_at = answer.sent_at + (due_us - now_us) / 1e6
        waking: Waking = yield Park(attempt.token, min(due_at + EARLY_S, answer.sent_at + MAX_POLL_S))
        if waking.grant is not None:
            return False
        left_s = due_at - waking.woke_at
