"""Retry: which failures are worth another try, after what pause, until when, and with which error to give up.

Scripts are idempotent, so a call whose reply was lost, or that the server refused for a reason that passes in seconds, is
sent again with growing pauses. A `Retry` judges the failures of one call; the driver performs its verdict::

    retry = Retry(name, give_up_at=monotonic() + RETRY_FOR)
    while True:
        ...                                                # send; return if a reply came
        verdict = retry.after_refusal(error_reply, monotonic())
        if verdict.reconnect:
            ...                                            # drop the connection: the next one finds the new primary
        if verdict.error is not None:
            raise verdict.error
        ...                                                # sleep for verdict.pause seconds

`Cleanup` is the other half: an undo that goes on in the background for longer than its caller waits.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from math import inf
from typing import Any, NamedTuple

from handfast._engine.effects import Answer, Call, Steps
from handfast._engine.resp import ErrorReply
from handfast._engine.server_errors import is_failover, is_transient, refusal

__all__ = [
    "CLEANUP_FOR",
    "RETRY_FOR",
    "UNDO_WAIT",
    "Cleanup",
    "Retry",
    "Verdict",
    "pause_before",
    "pauses",
    "time_left",
]

RETRY_FOR = 10.0
"""How long, in seconds, a call is retried after the connection breaks. A server that was never reached is not retried."""

UNDO_WAIT = 1.0
"""How long, in seconds, a caller waits for the undo of its operation. After that it goes on in the background."""

CLEANUP_FOR = 20.0
"""Background cleanup gives up after this many seconds, the lifetime of a tombstone on the server."""

PAUSES = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8)
"""Seconds before each further try; the last pause repeats."""


def pause_before(retry: int) -> float:
    """Return the seconds to pause before that retry, counted from 0."""
    return PAUSES[min(retry, len(PAUSES) - 1)]


def pauses() -> Iterator[float]:
    """Yield the seconds to pause before each retry, without end."""
    return map(pause_before, itertools.count())


def time_left(until: float, now: float) -> float:
    """Return the seconds left to a caller. Past its time only an undo goes on, which gets some time of its own."""
    return until - now if until > now else UNDO_WAIT


class Verdict(NamedTuple):
    """What to do after a failure: raise ``error`` unless it is None, else send again after ``pause`` seconds."""

    error: Exception | None
    pause: float = 0.0
    reconnect: bool = False
    """Whether another server may be the primary by now, so that the connection has to be made anew."""


class Retry:
    """Judges the failures of one call for the lock ``name``, until the moment ``give_up_at`` of the driver's clock.

    ``once`` forbids a second try: the call is a script of the user's that is not idempotent.
    """

    __slots__ = ("_once", "_pauses", "give_up_at", "may_have_run", "name")

    def __init__(self, name: str, give_up_at: float, *, once: bool = False) -> None:
        self.name = name
        self.give_up_at = give_up_at
        self._once = once
        self._pauses = pauses()
        self.may_have_run = False
        """Whether a copy of the call had no reply, so that the server may have run it or may still do so."""

    def after_refusal(self, text: str, now: float) -> Verdict:
        """Judge an error reply."""
        pause, reconnect = next(self._pauses), is_failover(text)
        if self._once or not is_transient(text) or now + pause >= self.give_up_at:
            return Verdict(refusal(text, self.name, again=self.may_have_run), reconnect=reconnect)
        return Verdict(None, pause, reconnect)

    def after_break(self, error: Exception, now: float, *, may_recover: bool) -> Verdict:
        """Judge a broken connection or a missing reply. ``may_recover``: the server was there before and lets us in."""
        pause = next(self._pauses)
        self.may_have_run = True
        if self._once or not may_recover or now + pause >= self.give_up_at:
            return Verdict(error)
        return Verdict(None, pause)


class Cleanup:
    """An undo in progress: a protocol whose effects are calls only, such as `cancel` or `release`.

    The driver sends ``call`` and passes each reply to `settle`, until ``call`` is None.
    """

    __slots__ = ("_give_up_at", "_steps", "call", "due_at", "result")

    def __init__(self, steps: Steps[Any], give_up_at: float) -> None:
        self._steps = steps
        self._give_up_at = give_up_at
        self.call: Call | None = next(steps)  # type: ignore[assignment]  # an undo never parks
        """The call to send next; None once the cleanup is finished or was given up."""
        self.due_at = -inf
        """Not to be sent before this moment; for the driver to set."""
        self.result: Any = None
        """What the protocol returned; None if the cleanup was given up."""

    def time_left(self, now: float) -> float:
        """Return the seconds until it is given up."""
        return max(0.0, self._give_up_at - now)

    def settle(self, outcome: Answer | ErrorReply, now: float) -> bool:
        """Take the reply to the call. Return False if the next call, the same one, is better sent after a pause."""
        if isinstance(outcome, Answer):
            try:
                self.call = self._steps.send(outcome)  # type: ignore[assignment]  # an undo never parks
            except StopIteration as end:
                self.call, self.result = None, end.value
        self.expire(now)
        return self.call is None or isinstance(outcome, Answer)

    def expire(self, now: float) -> None:
        """Give the cleanup up if its time is over."""
        if now >= self._give_up_at:
            self.call = None
