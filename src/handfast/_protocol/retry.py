"""Retry: which failures are worth another try, after which pause, until when, and with which error to give up.

Scripts are idempotent. So a call is sent again, with growing pauses, if the reply was lost, or if the server refused
the call for a reason that passes in seconds. A `Retry` judges the failures of a call; the driver performs the
verdict::

    retry = Retry(name, monotonic(), retry_for)
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

from handfast._engine.constants import REPEAT_MS
from handfast._engine.effects import Answer, Call, Steps
from handfast._engine.resp import ErrorReply
from handfast._engine.server_errors import is_cut_off, is_failover, is_on_the_move, is_transient, refusal

__all__ = [
    "CLEANUP_FOR",
    "CLEANUP_PAUSE_S",
    "MIN_REPLY_S",
    "SLOT_MOVE_S",
    "UNDO_WAIT",
    "Cleanup",
    "Retry",
    "Verdict",
    "pause_before",
    "pauses",
    "time_left",
]

MIN_REPLY_S = 0.25
"""Time that the server has for a reply however little time the caller has, in seconds: else every short timeout would
look like an outage."""

UNDO_WAIT = 1.0
"""How long, in seconds, a caller waits for the undo of its operation. After that it goes on in the background."""

CLEANUP_FOR = REPEAT_MS / 1000
"""Background cleanup gives up after this many seconds, the lifetime of a tombstone on the server."""

CLEANUP_PAUSE_S = 0.5
"""Pause before a background cleanup that the server refused is tried again, in seconds."""

SLOT_MOVE_S = 2.0
"""A slot of a cluster that moves to another primary refuses calls meanwhile. For so many seconds such a call is tried
again in any case, also one that would not be tried again in an outage."""

PAUSES = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8)
"""Seconds before each further try; the last pause repeats."""


def pause_before(retry: int) -> float:
    """Return the seconds to pause before a retry, counted from 0."""
    return PAUSES[min(retry, len(PAUSES) - 1)]


def pauses() -> Iterator[float]:
    """Yield the seconds to pause before each retry, without end."""
    return map(pause_before, itertools.count())


def time_left(until: float, now: float, call: Call) -> float:
    """Return the seconds that the server has for a reply.

    Past the caller's time only an undo goes on, which gets separate time.

    A server that waits for replicas gets the time for the wait as well.
    """
    asked = call.acknowledgement
    least = MIN_REPLY_S if asked is None else MIN_REPLY_S + asked.timeout_ms / 1000
    return max(until - now, least) if until > now else max(UNDO_WAIT, least)


class Verdict(NamedTuple):
    """The next step after a failure: raise ``error`` unless it is None, else send again after ``pause`` seconds."""

    error: Exception | None
    pause: float = 0.0
    reconnect: bool = False
    """Whether another server may be the primary by now, so that the connection has to be made anew."""


class Retry:
    """Judges the failures of a call for the lock ``name``, on the driver's clock.

    It is tried again for ``retry_for`` seconds from now, and until the moment ``until`` at most. Even if ``retry_for``
    is 0, a broken connection is replaced once: it may have been idle for long. ``once`` forbids a second try: the call
    is a user's script that is not idempotent.
    """

    __slots__ = (
        "_give_up_at",
        "_may_reconnect",
        "_moved_by",
        "_once",
        "_pauses",
        "_until",
        "may_have_run",
        "name",
        "retry_for",
    )

    def __init__(self, name: str, now: float, retry_for: float, until: float = inf, *, once: bool = False) -> None:
        self.name = name
        self.retry_for = retry_for
        self._give_up_at = min(now + retry_for, until)
        self._until = until
        self._moved_by = min(now + SLOT_MOVE_S, until)
        self._once = once
        self._pauses = pauses()
        self._may_reconnect = True
        self.may_have_run = False
        """Whether a copy of the call had no reply, so that the server may have run it or may still do so; or was cut
        off."""

    def time_left(self, now: float) -> float:
        """Return the seconds that the server has for the reply to the next try."""
        return (self._give_up_at if now < self._give_up_at else self._until) - now

    def after_refusal(self, text: str, now: float) -> Verdict:
        """Judge an error reply."""
        pause, reconnect = next(self._pauses), is_failover(text)
        self.may_have_run = self.may_have_run or is_cut_off(text)
        goes_on = self._goes_on(now + pause, reconnect=reconnect) or (
            is_on_the_move(text) and now + pause < self._moved_by
        )
        if self._once or not is_transient(text) or not goes_on:
            return Verdict(refusal(text, self.name, again=self.may_have_run), reconnect=reconnect)
        return Verdict(None, pause, reconnect)

    def after_break(self, error: Exception, now: float, *, may_recover: bool, silent: bool = False) -> Verdict:
        """Judge a broken connection, or a missing reply if ``silent``.

        ``may_recover``: the server was there before, and had let us in.

        So a refused password may be in the middle of a replacement.
        """
        pause = next(self._pauses)
        self.may_have_run = True
        if self._once or not may_recover or not self._goes_on(now + pause, reconnect=not silent):
            return Verdict(error)
        return Verdict(None, pause)

    def _goes_on(self, moment: float, *, reconnect: bool) -> bool:
        """Return whether to try again at the moment."""
        is_first, self._may_reconnect = self._may_reconnect, False
        return moment < self._give_up_at or (is_first and reconnect and moment < self._until)


class Cleanup:
    """An undo in progress: a protocol whose effects are calls only, such as `cancel` or `release`.

    The driver sends ``call`` and passes each reply to `settle`, until ``call`` is None.
    """

    __slots__ = ("_give_up_at", "_pauses", "_steps", "_was_cut_off", "call", "due_at", "result")

    def __init__(self, steps: Steps[Any], give_up_at: float) -> None:
        self._steps = steps
        self._give_up_at = give_up_at
        self._pauses = pauses()
        self.call: Call | None = next(steps)  # type: ignore[assignment]  # an undo never parks
        """The call to send next; None once the cleanup is finished or was given up."""
        self._was_cut_off = False
        """Whether the script of the call was, and has done some of its work."""
        self.due_at = -inf
        """Not to be sent before this moment."""
        self.result: Any = None
        """What the protocol returned; None if the cleanup was given up."""

    def time_left(self, now: float) -> float:
        """Return the seconds until it is given up."""
        return max(0.0, self._give_up_at - now)

    def sent(self, now: float) -> None:
        """Note that the call is sent now. If it has no reply, it is due again after a pause, which grows each time."""
        self.due_at = now + next(self._pauses)

    def settle(self, outcome: Answer | ErrorReply, now: float) -> bool:
        """Take the reply to the call. Return whether the next call needs a new connection, to find the new primary."""
        self.due_at = now
        if isinstance(outcome, ErrorReply):
            self.due_at += CLEANUP_PAUSE_S
            self._was_cut_off = self._was_cut_off or is_cut_off(outcome)
        else:
            answer = outcome._replace(again=outcome.again or self._was_cut_off)
            self._was_cut_off, self._pauses = False, pauses()
            try:
                self.call = self._steps.send(answer)  # type: ignore[assignment]  # an undo never parks
            except StopIteration as end:
                self.call, self.result = None, end.value
        self.expire(now)
        return isinstance(outcome, ErrorReply) and is_failover(outcome)

    def expire(self, now: float) -> None:
        """Give the cleanup up if the time is over. The protocol learns of the end by GeneratorExit."""
        if now >= self._give_up_at and self.call is not None:
            self.call = None
            self._steps.close()
