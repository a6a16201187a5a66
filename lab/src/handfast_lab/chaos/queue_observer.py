"""Who certainly stood in line since when, as somebody sees it who looks at the server all the time.

Clients don't know when exactly they came to stand in line, and the order of the line can only be checked where that is
known. So the lines are looked at many times a second: a token that is seen in one stood there by the end of that look.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic

import redis

from handfast._engine.keys import KeySet

__all__ = ["Sightings", "watching"]

EVERY = 0.001
"""Seconds between two looks."""


@dataclass
class Sightings:
    """What was seen."""

    since: dict[str, float] = field(default_factory=dict)
    """By token: the moment by which it stood in every line that it has to stand in."""
    moved: set[str] = field(default_factory=set)
    """Tokens that lost their place and took another one."""
    _tickets: dict[tuple[str, str], float] = field(default_factory=dict)

    def queued(self, token: str | None) -> float | None:
        """Since when it certainly stood in line with the place that it had to the end; None where that is not known."""
        return None if token is None or token in self.moved else self.since.get(token)

    def see(self, lines: Iterable[tuple[str, list[tuple[str, float]]]], moment: float) -> None:
        """What the lines were, at that moment at the latest."""
        for key, line in lines:
            for token, ticket in line:
                if self._tickets.setdefault((key, token), ticket) != ticket:
                    self.moved.add(token)
                self.since.setdefault(token, moment)


@contextmanager
def watching(admin: redis.Redis, places: Iterable[KeySet]) -> Iterator[Sightings]:
    """Look at the lines of these places while the block runs."""
    keys = [place.key("queue") for place in places]
    sightings, over = Sightings(), threading.Event()

    def look() -> None:
        while not over.wait(EVERY):
            with contextlib.suppress(redis.RedisError):  # the server is down, or out of its mind: nothing is seen
                pipe = admin.pipeline(transaction=True)
                for key in keys:
                    pipe.zrange(key, 0, -1, withscores=True)
                sightings.see(zip(keys, pipe.execute(), strict=True), monotonic())

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield sightings
    finally:
        over.set()
        thread.join()
