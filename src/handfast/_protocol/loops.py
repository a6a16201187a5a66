"""Loops that run for as long as the process lives: the causes to end them, and the pauses where they go on.

`Election.run`, the functions of a `Partition`, `Election.observe`, `Group.watch` and ``handfast elect`` are such loops. A turn
of a loop ends by a `Cause`, and `RULES` has the consequence of each cause. The driver finds the cause of an error,
and performs the pause.

The server never ends a loop, and neither does anything that ended by another hand: a lease, another client, a task that the
function has awaited. Only three things do: the function's own error where the caller of the loop gets it, the end of the
loop's own client, and an interrupt of the caller.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from math import inf

__all__ = ["FIRST_PAUSE_S", "LONGEST_PAUSE_S", "RULES", "Cause", "Pauses", "Rule"]

FIRST_PAUSE_S = 1.0
"""Seconds before a loop goes on after a failure. The pause doubles with each further failure."""

LONGEST_PAUSE_S = 60.0
"""Upper bound of that pause, in seconds. After a turn that took longer, the pause is the first one again."""

LOG_EVERY_S = 60.0
"""How often, in seconds, a loop logs an outage at most."""


class Cause(Enum):
    """How a turn of a loop ended."""

    INTERRUPTED = "the caller was cancelled or interrupted"
    CLOSED = "the client of the loop was closed"
    TAKEN = "the lease of this turn was lost, or its holder was asked to end"
    OUTAGE = "the server can't be reached, or does not answer"
    REFUSED = "the server refused, for lack of memory or of permissions for example"
    FOREIGN = "something that the function used ended by another hand"
    FAILED = "the function raised an error of its own, or the loop can't go on as it was called"


class Rule(Enum):
    """The consequence of a cause."""

    END = "the caller of the loop gets the error"
    AT_ONCE = "the loop goes on at once"
    SOON = "the loop goes on after the first pause"
    LATER = "the loop goes on after a pause, which doubles with each failure"


RULES: Mapping[Cause, Rule] = {
    Cause.INTERRUPTED: Rule.END,
    Cause.CLOSED: Rule.END,
    Cause.TAKEN: Rule.AT_ONCE,
    Cause.OUTAGE: Rule.SOON,  # a call waits for the server itself, and so does not come more often
    Cause.REFUSED: Rule.LATER,
    Cause.FOREIGN: Rule.LATER,
    Cause.FAILED: Rule.END,  # LATER in a loop that calls its function again
}


class Pauses:
    """The pauses of a loop, on the driver's clock. ``repeats`` calls the function again after its own errors."""

    def __init__(self, *, repeats: bool = False) -> None:
        self._repeats = repeats
        self._next = FIRST_PAUSE_S
        self._began_at = inf
        self._outage_logged_at = -inf

    def begin(self, now: float) -> None:
        """Note that the function is called now: so the server has answered."""
        self._began_at, self._outage_logged_at = now, -inf

    def succeed(self) -> None:
        """Note that the function has returned."""
        self._next, self._outage_logged_at = FIRST_PAUSE_S, -inf

    def after(self, cause: Cause, now: float) -> float | None:
        """Return the seconds until the loop goes on; None if the cause ends the loop."""
        rule = Rule.LATER if cause is Cause.FAILED and self._repeats else RULES[cause]
        if rule is Rule.END:
            return None
        if rule is Rule.AT_ONCE:
            return 0.0
        if rule is Rule.SOON:
            return FIRST_PAUSE_S
        if now - self._began_at > LONGEST_PAUSE_S:
            self._next = FIRST_PAUSE_S
        self._began_at = inf
        pause, self._next = self._next, min(LONGEST_PAUSE_S, 2 * self._next)
        return pause

    def is_news(self, now: float) -> bool:
        """Return whether an outage is to be logged: the last record of it is old."""
        if now < self._outage_logged_at + LOG_EVERY_S:
            return False
        self._outage_logged_at = now
        return True
