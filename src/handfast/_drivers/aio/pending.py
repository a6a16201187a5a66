"""The calls that a session has to send: single calls, and calls for many locks in a common batch."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable
from math import inf
from typing import Any, TypeAlias

from handfast._drivers.failures import copy_exception
from handfast._engine.batches import join
from handfast._engine.effects import Answer, Call
from handfast._engine.exchange import Aside
from handfast._engine.resp import ErrorReply

__all__ = ["Outcome", "PendingBatch", "PendingCall"]

Outcome: TypeAlias = Answer | ErrorReply


class PendingCall:
    """A call in progress, and the future for the reply."""

    __slots__ = (
        "again",
        "asking",
        "by_source",
        "call",
        "future",
        "give_up_at",
        "is_spared",
        "number",
        "on_answer",
        "redirections",
        "retry_for",
        "sent_at",
    )

    number: int
    """Sequence number on its session, set when it is sent."""
    sent_at: float
    """When it was sent."""

    def __init__(
        self, call: Call, future: Future[Outcome], retry_for: float, on_answer: Callable[[Answer], object] | None
    ) -> None:
        self.call = call
        self.future = future
        self.retry_for = retry_for
        self.on_answer = on_answer
        self.give_up_at = inf
        self.by_source = False
        """Whether it is sent with the source of its script, which the server did not know."""
        self.again = False
        """Whether it was sent before, without a reply of its own."""
        self.asking = False
        """Whether it is for a slot of a cluster that its server is only about to get."""
        self.redirections = 0
        """How often a node of the cluster has sent it to another one."""
        self.is_spared = False
        """Whether it waits for the first connection after the one that broke under it: its time may be over by then."""

    def fail(self, error: Exception) -> None:
        """End it with a copy of the error, also if no task waits for it any more."""
        self.future.set_exception(copy_exception(error))
        self.future.exception()  # marks it as retrieved


class PendingBatch(Aside):
    """Requests in a common batch. The reply to the batch ends all of them."""

    __slots__ = ("by_source", "call")

    calls: list[PendingCall]

    def __init__(self, calls: list[PendingCall], sent_at: float) -> None:
        self.calls = calls
        self.call = join([request.call for request in calls])
        self.by_source = False
        for request in calls:
            request.sent_at = sent_at

    def take(self, frame: Any, user: Any) -> None:
        user.on_batch(self, frame)
