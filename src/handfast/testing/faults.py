"""Faults: what is to happen to whom and how often, and the handle by which a test hears that it did.

Nothing in here does I/O. A `Rule` is what the proxy's connections ask; a `Fault` is what a test sees of it. The `Board` is
what all connections of a proxy share.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Literal, TypeAlias

from handfast.testing.commands import Command, Match, anything

__all__ = ["Direction", "Fault", "Kind", "Rule", "Rules"]

Kind = Literal["before", "lose reply", "lose request", "delay", "duplicate", "cut after", "lose push"]

Direction: TypeAlias = Literal["to server", "to client"]


class Rule:
    """One fault as the connections see it. What changes is guarded by ``changed``, and waited for on it."""

    __slots__ = (
        "action",
        "changed",
        "cleared",
        "direction",
        "happened",
        "kind",
        "left",
        "match",
        "ordered",
        "seconds",
        "skip",
    )

    def __init__(
        self,
        changed: threading.Condition,
        kind: Kind,
        match: Match = anything,
        *,
        times: int | None = 1,
        skip: int = 0,
        seconds: float = 0.0,
        direction: Direction = "to server",
        action: Callable[[Command], object] = anything,
    ) -> None:
        if times is not None and times < 1:
            raise ValueError(f"times must be at least 1, or None for every time, not {times!r}")
        if skip < 0:
            raise ValueError(f"a fault can skip 0 or more, not {skip!r}")
        if not 0 <= seconds < threading.TIMEOUT_MAX:
            raise ValueError(f"seconds must be 0 or more, not {seconds!r}")
        self.changed = changed
        self.kind = kind
        self.match = match
        self.ordered = times
        """How often it is to happen; None for every time."""
        self.left = times
        """How many more commands it may take."""
        self.skip = skip
        """Of matches, how many are let off first; of ``cut after``, how many bytes."""
        self.seconds = seconds
        self.direction = direction
        self.action = action
        self.happened = 0
        self.cleared = False

    @property
    def is_over(self) -> bool:
        """Whether it will not happen any more. One that has taken a command may still get it back."""
        return self.cleared or (self.ordered is not None and self.happened >= self.ordered)

    def takes(self, asked: Command) -> bool:
        """Whether it hits this command; then one of its times is used up."""
        if self.cleared or self.left == 0 or not self.match(asked):
            return False
        with self.changed:  # between the look and this, another connection may have come first
            if self.cleared or self.left == 0:
                return False
            if self.skip:
                self.skip -= 1
                return False
            if self.left is not None:
                self.left -= 1
            return True

    def give_back(self) -> None:
        """It took a command and did not happen after all."""
        with self.changed:
            if self.left is not None:
                self.left += 1

    def count(self) -> None:
        """It happened."""
        with self.changed:
            self.happened += 1
            self.changed.notify_all()


class Fault:
    """A fault that was ordered. It can be asked, waited for and called off from any thread."""

    __slots__ = ("_rule",)

    def __init__(self, rule: Rule) -> None:
        self._rule = rule

    def __repr__(self) -> str:
        ordered = "every time" if self._rule.ordered is None else f"{self._rule.ordered} times"
        return f"<Fault {self._rule.kind!r}, ordered for {ordered}, happened {self.happened} times>"

    @property
    def happened(self) -> int:
        """How often it happened so far."""
        return self._rule.happened

    @property
    def spent(self) -> bool:
        """Whether it happened as often as it was ordered. One that is to happen every time never is."""
        return self._rule.ordered is not None and self._rule.happened >= self._rule.ordered

    def wait(self, timeout: float = 10.0, *, times: int = 1) -> bool:
        """Wait until it has happened that many times, for at most ``timeout`` seconds; whether it has."""
        with self._rule.changed:
            return self._rule.changed.wait_for(lambda: self._rule.happened >= times, timeout)

    def clear(self) -> None:
        """Call it off: from now on it hits nothing. Requests that it holds back go on at once."""
        with self._rule.changed:
            self._rule.cleared = True
            self._rule.changed.notify_all()


@dataclass
class Rules:
    """What all connections of a proxy share."""

    changed: threading.Condition = field(default_factory=threading.Condition)
    rules: tuple[Rule, ...] = ()
    """Replaced as a whole, so that it can be read without the lock."""
    commands: list[Command] | None = field(default_factory=list)
    holes: dict[Direction, int] = field(default_factory=lambda: {"to server": 0, "to client": 0})
    """How many blocks want a direction to swallow what it is given."""
    dribbles: list[float] = field(default_factory=list)
    """For each block that wants bytes one by one, the seconds between two of them."""
    error: BaseException | None = None
    """The first error that a match or an action of the user's raised."""

    def add(self, rule: Rule) -> Fault:
        """Let a rule count from now on, behind those that are there."""
        with self.changed:
            self.rules = (*(old for old in self.rules if not old.is_over), rule)
        return Fault(rule)

    def fail(self, error: BaseException) -> None:
        """Keep an error of the user's code until the proxy is closed."""
        with self.changed:
            self.error = self.error or error

    def wait(self, condition: Callable[[], bool], seconds: float | None = None) -> bool:
        """Wait for a condition that ``changed`` tells of, or that many seconds; whether it holds."""
        until = None if seconds is None else monotonic() + seconds
        with self.changed:
            return self.changed.wait_for(condition, None if until is None else until - monotonic())
