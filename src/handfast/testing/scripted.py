"""A driver without a server: a protocol against replies that were written down before, and a clock that is set by hand.

What a protocol asks of its driver are effects (see `handfast._engine.effects`): a `Call` of a script, and a `Park` until somebody
rings. The scripted driver answers each with the next item of its script, keeps what it was asked, and complains when the two
do not fit.

    driver = ScriptedDriver([b"queued", 0, 0, -1], Bell(fence=7, granted_us=0, lease_us=30_000_000))
    grant = driver.perform(acquire(attempt, until=1e9))
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from handfast._engine.effects import Answer, Call, Effect, GrantMessage, Park, Steps, Waking

__all__ = ["FakeClock", "ScriptedDriver"]

T = TypeVar("T")


class FakeClock:
    """A monotonic clock that stands still until it is told to go on. Call it to read it, in seconds.

    It stands in wherever a function like `time.monotonic` is taken, and its `sleep` for `time.sleep`.
    """

    def __init__(self, now: float = 100.0) -> None:
        self._now = now

    def __repr__(self) -> str:
        return f"<FakeClock at {self._now}>"

    def __call__(self) -> float:
        """The moment that it is."""
        return self._now

    def sleep(self, seconds: float) -> None:
        """Go on by so many seconds, at once. Raises ValueError for less than none: it is monotonic."""
        if not seconds >= 0:
            raise ValueError(f"a monotonic clock goes on by 0 s or more, not by {seconds!r}")
        self._now += seconds

    def go_to(self, moment: float) -> None:
        """Go on to that moment, unless it is over already."""
        self._now = max(self._now, moment)


class ScriptedDriver:
    """Performs protocols by a script: each item answers one effect, in their order.

    To a `Call`, an item is the reply of the server; or a whole `Answer`. To a `Park`, it is the `GrantMessage` that rings, at once; or
    None, when nobody does until the time is over; or a whole `Waking`. An exception is raised in the protocol instead.
    """

    def __init__(self, *script: Any, clock: FakeClock | None = None) -> None:
        self.clock = clock or FakeClock()
        """What the protocol is told of the time. A wait takes it to its end."""
        self.effects: list[Effect] = []
        """What was asked so far."""
        self._script = script
        self._items = iter(enumerate(script, 1))

    def perform(self, steps: Steps[T]) -> T:
        """Perform a protocol to its end, and give its result. What it raises comes through.

        Raises AssertionError when the script is at its end and the protocol is not, when an item answers nothing of the kind that
        was asked, and when the protocol has ended and items are left.
        """
        try:
            effect = next(steps)
            while True:
                self.effects.append(effect)
                item = self._next(effect)
                effect = steps.throw(item) if isinstance(item, BaseException) else steps.send(item)
        except StopIteration as end:
            result: T = end.value
        self._must_be_over(self._items)
        return result

    def _next(self, effect: Effect) -> Answer | Waking | BaseException:
        number, item = next(self._items, (0, None))
        if not number:
            raise AssertionError(
                f"the script has only {len(self._script)} items, and the protocol goes on asking: {_told(effect)}"
            )
        if isinstance(item, BaseException):
            return item
        if isinstance(effect, Park):
            if item is None:
                self.clock.go_to(effect.until)
            if item is None or isinstance(item, GrantMessage):
                return Waking(self.clock(), item)
            if not isinstance(item, Waking):
                raise AssertionError(  # noqa: TRY004 -- a script that does not fit is a test that fails
                    f"item {number} of the script answers no wait: {item!r}, but was asked: {_told(effect)}"
                )
            self.clock.go_to(item.woke_at)
            return item
        if isinstance(item, Answer):
            self.clock.go_to(item.sent_at)
            return item
        if isinstance(item, GrantMessage | Waking):
            raise AssertionError(  # noqa: TRY004 -- a script that does not fit is a test that fails
                f"item {number} of the script answers no call: {item!r}, but was asked: {_told(effect)}"
            )
        return Answer(self.clock(), item)

    def _must_be_over(self, items: Iterator[tuple[int, Any]]) -> None:
        left = next(items, None)
        if left is not None:
            asked = ", ".join(map(_told, self.effects)) or "nothing"
            raise AssertionError(
                f"the protocol has ended, and item {left[0]} of the script is left: {left[1]!r}; it asked: {asked}"
            )


def _told(effect: Effect) -> str:
    if isinstance(effect, Call):
        return f"a call of {effect.head.name}"
    return f"a wait until {effect.until:g}"
