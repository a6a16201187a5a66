"""Record since when each waiter has certainly been queued, by polling the server.

A client does not know the exact moment at which it was enqueued, and the order of a queue can only be checked between
known moments. The observer therefore reads the queues about every millisecond: a token seen in a queue was there by the
end of that read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic

import redis

from handfast._engine.keys import KeySet
from handfast_lab.chaos.background import repeating

__all__ = ["QueueTimes", "observing_queues"]

EVERY = 0.001
"""Seconds between two reads."""


@dataclass
class QueueTimes:
    """What the observer saw."""

    since: dict[str, float] = field(default_factory=dict)
    """By token: the end of the read that first saw it in a queue."""
    moved: set[str] = field(default_factory=set)
    """Tokens that left a queue and came back, such as those whose lease ended before they heard of it."""
    _present: dict[str, set[str]] = field(default_factory=dict)
    _left: dict[str, set[str]] = field(default_factory=dict)

    def queued(self, token: str | None) -> float | None:
        """Return since when the token was certainly queued at its final position, or None if that is not known."""
        return None if token is None or token in self.moved else self.since.get(token)

    def record(self, queues: Iterable[tuple[str, list[str]]], moment: float) -> None:
        """Record the contents of the queues, read at `moment` at the latest."""
        for key, queue in queues:
            present, left = set(queue), self._left.setdefault(key, set())
            left |= self._present.get(key, present) - present
            self._present[key] = present
            self.moved |= left & present
            for token in queue:
                self.since.setdefault(token, moment)


@contextmanager
def observing_queues(admin: redis.Redis, key_sets: Iterable[KeySet]) -> Iterator[QueueTimes]:
    """Observe the queues of these keys while the block runs."""
    keys = [key_set.key("tokens") for key_set in key_sets]
    times = QueueTimes()

    def read() -> None:
        with contextlib.suppress(redis.RedisError):  # the server is down or refuses the read: skip this one
            pipe = admin.pipeline(transaction=True)
            for key in keys:
                pipe.zrangebyscore(key, "-inf", "(0")
            times.record(zip(keys, pipe.execute(), strict=True), monotonic())

    with repeating(read, lambda: EVERY):
        yield times
