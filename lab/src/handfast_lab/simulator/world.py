"""Virtual time: what happens when, and the processes and tasks that it happens to.

There is one heap of moments and actions, and one source of chance. Of two actions at one moment the one that was entered
first comes first, so that a seed has one course and no other.

A task is a generator. It yields the moment until which it waits, ``inf`` if only a wake ends the wait; it is sent what it
was woken with, or None when the moment came.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from heapq import heappop, heappush
from math import inf
from typing import Any, TypeAlias, TypeVar

__all__ = ["Cancelled", "Process", "Steps", "Task", "World"]

T = TypeVar("T")

Steps: TypeAlias = Generator[float, Any, T]
"""What a task goes through: yields moments to wait for."""


class Cancelled(BaseException):
    """Strikes a task from outside: a cancellation, or Ctrl-C."""


class World:
    """The clock, the chance and what is to come. ``log`` takes what happens, if anybody wants to see it."""

    __slots__ = ("_count", "_heap", "chance", "current", "log", "now", "stopped")

    def __init__(self, seed: int, log: Callable[[str], None] | None = None) -> None:
        self._heap: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._count = 0
        self.chance = random.Random(seed).random  # noqa: S311 -- it is to be the same again
        self.current: Task | None = None
        self.log = log
        self.now = 0.0
        self.stopped = False

    def at(self, moment: float, action: Callable[..., object], *args: Any) -> None:
        """Do this then."""
        self._count += 1
        heappush(self._heap, (moment, self._count, action, args))

    def run(self, until: float) -> None:
        """Let time pass until that moment, or until somebody stops it."""
        heap = self._heap
        while heap and heap[0][0] <= until and not self.stopped:
            self.now, _, action, args = heappop(heap)
            action(*args)
        if not self.stopped and until != inf:
            self.now = until

    def between(self, least: float, most: float) -> float:
        """Some number in between."""
        return least + (most - least) * self.chance()

    def below(self, count: int) -> int:
        """A whole number from 0 on."""
        return int(self.chance() * count)

    def say(self, who: str, words: str) -> None:
        """Note what happened; only to be called where there is a log."""
        if self.log is not None:
            self.log(f"{self.now:12.6f}  {who:<6} {words}")


class Process:
    """What dies and freezes as one. ``offset`` is what its monotonic clock shows at the beginning of time."""

    __slots__ = ("_backlog", "alive", "blocked_until", "frozen", "name", "offset", "world")

    def __init__(self, world: World, name: str, offset: float) -> None:
        self.world = world
        self.name = name
        self.offset = offset
        self.alive = True
        self.frozen = False
        self.blocked_until = 0.0
        """Until when nothing travels to it or from it."""
        self._backlog: list[tuple[Callable[..., object], tuple[Any, ...]]] = []

    def monotonic(self) -> float:
        """What its clock shows."""
        return self.world.now + self.offset

    def meet(self, action: Callable[..., object], *args: Any) -> None:
        """Something reaches the process: at once; when it thaws, if it is frozen; never, if it is dead."""
        if self.frozen:
            self._backlog.append((action, args))
        elif self.alive:
            action(*args)

    def freeze(self) -> None:
        """Nothing of it goes on, and what is to reach it waits."""
        if self.alive:
            self.frozen = True

    def thaw(self) -> None:
        """Go on, with all that has come meanwhile."""
        if self.frozen:
            self.frozen = False
            backlog, self._backlog = self._backlog, []
            for action, args in backlog:
                self.world.at(self.world.now, self.meet, action, *args)

    def die(self) -> None:
        """Nothing of it ever goes on."""
        self.alive = self.frozen = False
        self._backlog.clear()

    def begin(self, steps: Steps[Any]) -> Task:
        """Start a task, now."""
        task = Task(self, steps)
        self.world.at(self.world.now, self.meet, task.alarm, 0)
        return task


class Task:
    """A generator that goes on in virtual time. ``turn`` counts its waits, so that what came too late is known."""

    __slots__ = ("done", "fragile", "number", "process", "steps", "turn")

    def __init__(self, process: Process, steps: Steps[Any]) -> None:
        self.process = process
        self.steps = steps
        self.turn = 0
        self.number = 0
        """Of what it is about, for those who want to strike it only there."""
        self.fragile = 0
        """What wakes it that many times from now strikes it instead; 0 for never."""
        self.done = False

    def go(self, value: Any = None) -> None:
        """Go on with what it was woken with, until it waits again."""
        self.turn += 1
        world = self.process.world
        world.current = self
        try:
            until = self.steps.send(value)
        except StopIteration:
            self.done = True
            return
        if until != inf:
            world.at(until, self.alarm, self.turn)

    def strike(self, error: BaseException) -> None:
        """Raise this where it waits."""
        if self.done:
            return
        self.turn += 1
        world = self.process.world
        world.current = self
        try:
            until = self.steps.throw(error)
        except StopIteration:
            self.done = True
            return
        if until != inf:
            world.at(until, self.alarm, self.turn)

    def alarm(self, turn: int) -> None:
        """The moment that it waits for has come, if it still waits for it."""
        if turn == self.turn and not self.done:
            process = self.process
            if process.frozen:
                process.meet(self.alarm, turn)
            elif process.alive:
                self.go()

    def wake(self, turn: int, value: Any) -> None:
        """End the wait of that turn with this."""
        if turn == self.turn and not self.done:
            self.come(value)

    def come(self, value: Any) -> None:
        """Something has come that it waits for."""
        if self.fragile:
            self.fragile -= 1
            if not self.fragile:
                self.strike(Cancelled())
                return
        self.go(value)
