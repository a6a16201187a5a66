"""Faults: which commands are hit, how often, and the handle by which a test observes a fault.

Nothing here does I/O. A `Rule` is the proxy's view of a fault, a `Fault` the test's. `Rules` is the state shared by all
connections of a proxy.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Literal, TypeAlias

from handfast.testing.commands import Command, Match, anything

__all__ = ["Direction", "Fault", "Kind", "Rule", "Rules"]

Kind: TypeAlias = Literal["before", "lose reply", "lose request", "delay", "duplicate", "cut after", "lose push"]

Direction: TypeAlias = Literal["to server", "to client"]


class Rule:
    """A fault as the connections see it. The state is guarded by ``changed``, which is notified of every change."""

    __slots__ = (
        "action",
        "changed",
        "cleared",
        "direction",
        "happened",
        "kind",
        "match",
        "remaining",
        "seconds",
        "skip",
        "times",
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
        self.changed: threading.Condition = changed
        self.kind = kind
        self.match: Match = match
        self.times: int | None = times
        """How often it happens; None for every match."""
        self.remaining = times
        """How many more commands it may claim."""
        self.skip: int = skip
        """How many matches are skipped first; for ``cut after``, how many bytes."""
        self.seconds: float = seconds
        self.direction = direction
        self.action: Callable[[Command], object] = action
        self.happened: int = 0
        self.cleared: bool = False

    @property
    def is_over(self) -> bool:
        """Whether it cannot happen any more. A rule with a claimed command may still give the command back."""
        return self.cleared or (self.times is not None and self.happened >= self.times)

    def claim(self, sent: Command) -> bool:
        """Return whether the fault hits this command, and use up one of the rule's times if so."""
        if self.cleared or self.remaining == 0 or not self.match(sent):
            return False
        with self.changed:  # another connection may have claimed the last time since the check
            if self.cleared or self.remaining == 0:
                return False
            if self.skip:
                self.skip -= 1
                return False
            if self.remaining is not None:
                self.remaining -= 1
            return True

    def unclaim(self) -> None:
        """Give a claim back: the fault did not happen."""
        with self.changed:
            if self.remaining is not None:
                self.remaining += 1

    def count(self) -> None:
        """Record that the fault happened."""
        with self.changed:
            self.happened += 1
            self.changed.notify_all()


class Fault:
    """A fault injected by a `FaultProxy`. It can be read, awaited and cleared from any thread."""

    __slots__ = ("_rule",)

    def __init__(self, rule: Rule) -> None:
        self._rule = rule

    def __repr__(self) -> str:
        times = "every time" if self._rule.times is None else f"{self._rule.times} times"
        return f"<Fault {self._rule.kind!r}, ordered for {times}, happened {self.happened} times>"

    @property
    def happened(self) -> int:
        """How often the fault has happened so far."""
        return self._rule.happened

    @property
    def spent(self) -> bool:
        """Whether it has happened as often as was ordered. A fault with ``times=None`` is never spent."""
        return self._rule.times is not None and self._rule.happened >= self._rule.times

    def wait(self, timeout: float = 10.0, *, times: int = 1) -> bool:
        """Wait until the fault has happened.

        Args:
            timeout: Seconds to wait.
            times: How often it must have happened.

        Returns:
            Whether it has happened ``times`` times.

        """
        with self._rule.changed:
            return self._rule.changed.wait_for(lambda: self._rule.happened >= times, timeout)

    def clear(self) -> None:
        """Remove the fault: no further command is hit, and delayed requests continue at once."""
        with self._rule.changed:
            self._rule.cleared = True
            self._rule.changed.notify_all()


@dataclass
class Rules:
    """The state shared by all connections of a proxy: the active rules, the modes, and the record of commands."""

    changed: threading.Condition = field(default_factory=threading.Condition)
    active: tuple[Rule, ...] = ()
    """Replaced as a whole, so it can be read without the lock."""
    commands: list[Command] | None = field(default_factory=list)
    """The commands so far; None if they are not recorded."""
    black_holes: dict[Direction, int] = field(default_factory=lambda: {"to server": 0, "to client": 0})
    """How many ``with`` blocks discard the bytes of each direction."""
    dribbles: list[float] = field(default_factory=list)
    """The pause after each byte, in seconds, for each ``with`` block that sends bytes one by one."""
    error: BaseException | None = None
    """The first error that a match or an action of the user raised."""

    def add(self, rule: Rule) -> Fault:
        """Activate a rule, behind the active rules."""
        with self.changed:
            self.active = (*(old for old in self.active if not old.is_over), rule)
        return Fault(rule)

    def fail(self, error: BaseException) -> None:
        """Keep an error of the user's code until the proxy is closed."""
        with self.changed:
            self.error = self.error or error

    def wait(self, condition: Callable[[], bool], seconds: float | None = None) -> bool:
        """Wait until the condition holds or the seconds have passed; return whether it holds."""
        until = None if seconds is None else monotonic() + seconds
        with self.changed:
            return self.changed.wait_for(condition, None if until is None else until - monotonic())
