"""A million scores raised: ``hf.scores(...).advance`` against redis-py's ZADD GT, which does not count.

Each contender receives the same members and scores, in the same batches, which are prepared in advance. In the first
pass all members are new; in the second each of them moves. Rounds are interleaved: the first place rotates among the
contenders. Each has its own key, which is deleted and its memory freed before the next contender begins. The data that
a contender leaves on the server is compared with the expected data.

A pipeline of single ZADDs is common practice; one ZADD with ten thousand members is the fastest command possible, but
blocks the server for all other clients meanwhile. ``advance`` sends chunks of some hundreds and counts exactly what was
added, moved and stale, which ZADD GT does not distinguish.
"""

from __future__ import annotations

import gc
import os
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter

import redis

from handfast import Advance, Handfast
from handfast_lab.bench.runner import in_turn
from handfast_lab.bench.workload import Conn

__all__ = ["BATCH", "CONTENDERS", "PASSES", "Data", "Pass", "ScoresRow", "make_data", "run", "summarize"]

BATCH, SEED = 10_000, 2012

PASSES = ("new", "moved")
"""All members are added; then all move forward."""

PLAIN = "zadd-each"

Batch = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Data:
    """The batches to send in each pass."""

    members: int
    passes: Mapping[str, Sequence[Batch]]


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass of one contender in one round."""

    round: int
    contender: str
    name: str
    members: int
    seconds: float
    trouble: tuple[str, ...]

    @property
    def rate(self) -> float:
        """Members per second."""
        return self.members / self.seconds


@dataclass(frozen=True, slots=True)
class ScoresRow:
    """All rounds: medians, and the spread of the rate."""

    name: str
    contender: str
    rate: float
    slowest: float
    fastest: float
    to_plain: float | None
    """The rate divided by that of a pipeline of single ZADDs in the same round."""


class Contender(ABC):
    """Raises the scores of members under one key, in batches."""

    def __init__(self, url: str, name: str) -> None:
        self.client = Handfast(url)
        self.conn: Conn = redis.Redis.from_url(url)
        self.name = name

    @abstractmethod
    def advance(self, batch: Batch) -> object:
        """Send one batch."""

    @abstractmethod
    def left(self) -> tuple[int, float]:
        """Return the number of members and the largest score."""

    def wrong(self, found: Sequence[object], name: str, members: int) -> list[str]:  # noqa: ARG002 -- a plain ZADD reports no counts
        """Return the errors in the answers to the batches."""
        return []

    def clear(self) -> None:
        """Delete all members."""
        self.conn.delete(self.name)

    def close(self) -> None:
        """Close the connections."""
        self.client.close()
        self.conn.close()


class Ours(Contender):
    """``hf.scores(name).advance``."""

    def __init__(self, url: str, name: str) -> None:
        super().__init__(url, name)
        self._scores = self.client.scores(name)

    def advance(self, batch: Batch) -> Advance:
        return self._scores.advance(batch)

    def left(self) -> tuple[int, float]:
        """Read with Handfast's own calls."""
        return self._scores.size(), max((one.score for one in self._scores.newest(limit=1)), default=0.0)

    def wrong(self, found: Sequence[object], name: str, members: int) -> list[str]:
        """Compare the counts that `advance` returned with the expected ones."""
        seen = [one for one in found if isinstance(one, Advance)]
        told = (sum(one.added for one in seen), sum(one.moved for one in seen), sum(one.stale for one in seen))
        right = (members, 0, 0) if name == PASSES[0] else (0, members, 0)
        return [] if told == right else [f"added, moved and stale were told as {told}, not as {right}"]

    def clear(self) -> None:
        self._scores.clear()


class Plain(Contender):
    """A pipeline of single ZADDs."""

    def advance(self, batch: Batch) -> object:
        """Send one command per member."""
        pipe = self.conn.pipeline(transaction=False)
        for member, score in batch.items():
            pipe.zadd(self.name, {member: score}, gt=True)
        return len(pipe.execute())

    def left(self) -> tuple[int, float]:
        """Read with plain commands."""
        newest = self.conn.zrange(self.name, 0, 0, desc=True, withscores=True)
        return self.conn.zcard(self.name), max((score for _, score in newest), default=0.0)


class Whole(Plain):
    """One ZADD for the whole batch."""

    def advance(self, batch: Batch) -> object:
        """Send a single command."""
        return self.conn.zadd(self.name, batch, gt=True)


CONTENDERS: Mapping[str, type[Contender]] = {PLAIN: Plain, "zadd-batch": Whole, "handfast": Ours}


def make_data(members: int) -> Data:
    """Return ``members`` members in random order, with a timestamp each and a later one within the hour."""
    chance = random.Random(SEED)  # noqa: S311 -- test data, not secrets
    names = [f"member:{number:07}" for number in range(members)]
    chance.shuffle(names)
    first = {name: 1_700_000_000 + chance.randrange(3_600_000) / 1000 for name in names}
    then = {name: score + chance.randint(1, 3_600_000) / 1000 for name, score in first.items()}
    return Data(members, {name: _batches(scores) for name, scores in zip(PASSES, (first, then), strict=True)})


def run(url: str, data: Data, rounds: int) -> Iterator[Pass]:
    """Run all passes of all contenders in every round."""
    for number in range(rounds):
        for name in in_turn(tuple(CONTENDERS), number):
            contender = CONTENDERS[name](url, f"bench-{os.getpid()}-{name}")
            try:
                for which, batches in data.passes.items():
                    yield _pass(contender, number, name, which, batches)
            finally:
                contender.clear()
                _settle(contender.conn)
                contender.close()


def summarize(found: Sequence[Pass]) -> list[ScoresRow]:
    """Return one row for each pass and contender."""
    sound = [one for one in found if not one.trouble]
    plain = {(one.name, one.round): one.rate for one in sound if one.contender == PLAIN}
    rows = []
    for name in PASSES:
        for contender in CONTENDERS:
            mine = [one for one in sound if (one.name, one.contender) == (name, contender)]
            if mine:
                rates = [one.rate for one in mine]
                ratios = [one.rate / plain[name, one.round] for one in mine if (name, one.round) in plain]
                rows.append(
                    ScoresRow(
                        name, contender, median(rates), min(rates), max(rates), median(ratios) if ratios else None
                    )
                )
    return rows


def _batches(scores: Batch) -> list[Batch]:
    items = list(scores.items())
    return [dict(items[start : start + BATCH]) for start in range(0, len(items), BATCH)]


def _pass(contender: Contender, number: int, name: str, which: str, batches: Sequence[Batch]) -> Pass:
    gc.collect()
    begin = perf_counter()
    answers = [contender.advance(batch) for batch in batches]
    seconds = perf_counter() - begin
    members = sum(map(len, batches))
    trouble = contender.wrong(answers, which, members)
    right = members, max(max(batch.values()) for batch in batches)
    if (left := contender.left()) != right:
        trouble.append(f"members and largest score are {left}, not {right}")
    return Pass(number, name, which, members, seconds, tuple(trouble))


def _settle(conn: Conn) -> None:
    """Wait until the server has freed the deleted data in the background."""
    while conn.info("memory").get("lazyfree_pending_objects", 0):
        time.sleep(0.01)
