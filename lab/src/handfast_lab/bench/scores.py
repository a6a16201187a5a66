"""A million scores moved forward: ``hf.scores(...).advance`` against ZADD GT of redis-py, which counts nothing.

Each contender gets the same members with the same scores, in the same batches, which are made before anything counts.
First all members are new; then each of them moves. Rounds are interleaved: contenders take turns at being first, each
with a key of its own, which is gone, its memory given back, before the next one begins. What a contender left on the
server is compared with what must be there.

A pipeline of single ZADDs is what programs do; one ZADD with ten thousand members is the fastest that one command can be,
at the price of a server that answers nobody else meanwhile. ``advance`` sends pieces of some hundreds and counts exactly
what was added, moved and stale, which ZADD GT does not tell apart.
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
from handfast_lab.bench.classic.client import Conn
from handfast_lab.bench.runner import in_turn

__all__ = ["BATCH", "CONTENDERS", "PASSES", "Data", "Pass", "Row", "make_data", "run", "summarize"]

BATCH, SEED = 10_000, 2012

PASSES = ("new", "moved")
"""All members are added; then all move forward."""

PLAIN = "zadd-each"

Batch = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Data:
    """What is sent: for each pass its batches."""

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
        """Members a second."""
        return self.members / self.seconds


@dataclass(frozen=True, slots=True)
class Row:
    """What all rounds say: medians, and the spread of the rate."""

    name: str
    contender: str
    rate: float
    slowest: float
    fastest: float
    to_plain: float | None
    """The rate to that of a pipeline of single ZADDs in the same round."""


class Contender(ABC):
    """Moves batches of members forward, under one key."""

    def __init__(self, url: str, name: str) -> None:
        self.client = Handfast(url)
        self.conn: Conn = redis.Redis.from_url(url)
        self.name = name

    @abstractmethod
    def advance(self, batch: Batch) -> object:
        """Move one batch."""

    @abstractmethod
    def left(self) -> tuple[int, float]:
        """How many members there are, and the largest score."""

    def wrong(self, found: Sequence[object], name: str, members: int) -> list[str]:  # noqa: ARG002 -- a plain ZADD tells nothing
        """What is wrong with what the batches answered."""
        return []

    def clear(self) -> None:
        """Forget all members."""
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
        """One call."""
        return self._scores.advance(batch)

    def left(self) -> tuple[int, float]:
        """By its own reads."""
        return self._scores.size(), max((one.score for one in self._scores.newest(limit=1)), default=0.0)

    def wrong(self, found: Sequence[object], name: str, members: int) -> list[str]:
        """It counts what it does."""
        seen = [one for one in found if isinstance(one, Advance)]
        told = (sum(one.added for one in seen), sum(one.moved for one in seen), sum(one.stale for one in seen))
        right = (members, 0, 0) if name == PASSES[0] else (0, members, 0)
        return [] if told == right else [f"added, moved and stale were told as {told}, not as {right}"]

    def clear(self) -> None:
        """Forget all members."""
        self._scores.clear()


class Plain(Contender):
    """A pipeline of single ZADDs."""

    def advance(self, batch: Batch) -> object:
        """As many commands as members."""
        pipe = self.conn.pipeline(transaction=False)
        for member, score in batch.items():
            pipe.zadd(self.name, {member: score}, gt=True)
        return len(pipe.execute())

    def left(self) -> tuple[int, float]:
        """By plain commands."""
        newest = self.conn.zrange(self.name, 0, 0, desc=True, withscores=True)
        return self.conn.zcard(self.name), max((score for _, score in newest), default=0.0)


class Whole(Plain):
    """One ZADD for the whole batch."""

    def advance(self, batch: Batch) -> object:
        """One command."""
        return self.conn.zadd(self.name, batch, gt=True)


CONTENDERS: Mapping[str, type[Contender]] = {PLAIN: Plain, "zadd-batch": Whole, "handfast": Ours}


def make_data(members: int) -> Data:
    """So many members in no order, each with a score like the time when it was seen, and another one within the hour."""
    chance = random.Random(SEED)  # noqa: S311 -- members to measure with are no secrets
    names = [f"member:{number:07}" for number in range(members)]
    chance.shuffle(names)
    first = {name: 1_700_000_000 + chance.randrange(3_600_000) / 1000 for name in names}
    then = {name: score + chance.randint(1, 3_600_000) / 1000 for name, score in first.items()}
    return Data(members, {name: _batches(scores) for name, scores in zip(PASSES, (first, then), strict=True)})


def run(url: str, data: Data, rounds: int) -> Iterator[Pass]:
    """All passes of all contenders, in every round."""
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


def summarize(found: Sequence[Pass]) -> list[Row]:
    """One row for each pass and contender."""
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
                    Row(name, contender, median(rates), min(rates), max(rates), median(ratios) if ratios else None)
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
    """Wait until the server has given back in the background what it was told to forget."""
    while conn.info("memory").get("lazyfree_pending_objects", 0):
        time.sleep(0.01)
