"""A driver without a server, which runs a protocol against prepared replies, and a clock that is set by hand.

A protocol yields effects (`handfast._engine.effects`) to its driver: a `Call` of a script, or a `Park` until a grant message
arrives. The scripted driver answers each effect with the next item of its script, records the effects, and fails the test if
an item does not fit.

    driver = ScriptedDriver([b"queued", 0, 0, -1, 0], GrantMessage(fence=7, granted_us=0, lease_us=30_000_000))
    grant = driver.perform(acquire(attempt, until=1e9))
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from handfast._engine.effects import Answer, Call, Effect, GrantMessage, Park, Steps, Waking

__all__ = ["FakeClock", "ScriptedDriver"]

T = TypeVar("T")


class FakeClock:
    """A monotonic clock that advances only by its methods. Call it to read it, in seconds.

    Use it in place of `time.monotonic`, and its `sleep` in place of `time.sleep`.

    Args:
        now: What it shows first, in seconds.

    """

    def __init__(self, now: float = 100.0) -> None:
        self._now = now

    def __repr__(self) -> str:
        return f"<FakeClock at {self._now}>"

    def __call__(self) -> float:
        """Return the time in seconds."""
        return self._now

    def sleep(self, seconds: float) -> None:
        """Advance the clock by that many seconds, without waiting.

        Raises:
            ValueError: ``seconds`` is negative.

        """
        if not seconds >= 0:
            raise ValueError(f"a monotonic clock advances by 0 s or more, not by {seconds!r}")
        self._now += seconds

    def go_to(self, moment: float) -> None:
        """Advance the clock to that moment; a moment in the past changes nothing."""
        self._now = max(self._now, moment)


class ScriptedDriver:
    """Runs protocols against a script, whose items answer the effects in order.

    Args:
        script: One item per effect. For a `Call`: the server's reply, or a whole `Answer`. For a `Park`: a `GrantMessage`,
            which arrives at once, None for a wait that ends without a message, or a whole `Waking`. For either: an
            exception, which is raised in the protocol.
        clock: The clock that times the answers; a new `FakeClock` by default. A wait advances it to the end of the wait.

    Attributes:
        clock: The clock.
        effects: The effects so far.

    """

    def __init__(self, *script: Any, clock: FakeClock | None = None) -> None:
        self.clock: FakeClock = clock or FakeClock()
        self.effects: list[Effect] = []
        self._script = script
        self._items = iter(enumerate(script, 1))

    def perform(self, steps: Steps[T]) -> T:
        """Run a protocol to its end and return its result. Exceptions of the protocol propagate.

        Args:
            steps: The protocol: a generator of effects.

        Returns:
            What the protocol returned.

        Raises:
            AssertionError: The script has too few items or too many, or an item does not fit its effect.

        """
        try:
            effect = next(steps)
            while True:
                self.effects.append(effect)
                item = self._next(effect)
                effect = steps.throw(item) if isinstance(item, BaseException) else steps.send(item)
        except StopIteration as end:
            result: T = end.value
        self._check_finished(self._items)
        return result

    def _next(self, effect: Effect) -> Answer | Waking | BaseException:
        number, item = next(self._items, (0, None))
        if not number:
            raise AssertionError(
                f"the script has only {len(self._script)} items, and the protocol yields another effect: {_describe(effect)}"
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
                    f"item {number} of the script is {item!r}, which does not answer {_describe(effect)}"
                )
            self.clock.go_to(item.woke_at)
            return item
        if isinstance(item, Answer):
            self.clock.go_to(item.sent_at)
            return item
        if isinstance(item, GrantMessage | Waking):
            raise AssertionError(  # noqa: TRY004 -- a script that does not fit is a test that fails
                f"item {number} of the script is {item!r}, which does not answer {_describe(effect)}"
            )
        return Answer(self.clock(), item)

    def _check_finished(self, items: Iterator[tuple[int, Any]]) -> None:
        left = next(items, None)
        if left is not None:
            effects = ", ".join(map(_describe, self.effects)) or "nothing"
            raise AssertionError(
                f"the protocol has ended, and item {left[0]} of the script is left: {left[1]!r}; it yielded: {effects}"
            )


def _describe(effect: Effect) -> str:
    if isinstance(effect, Call):
        return f"a call of {effect.prefix.name}"
    return f"a wait until {effect.until:g}"
