"""A million names: the memory that they take, and the time to complete a prefix.

The names are made of syllables with very different frequencies, so that they share prefixes as real names do: very many
have the same first letter, few the same six. One client adds them in batches, and then completes prefixes of one to six
letters, each taken from a random name, so common prefixes are requested more often. In ranked mode each name has a
score that is independent of its letters. The figures include the time of a PING by redis-py: about that much of each
answer is the round trip.

Memory is the growth of the server's own figure, divided by the number of names. It covers the whole server, so nothing
else may use the server at the same time. Some answers are compared with the correct ones.
"""

from __future__ import annotations

import gc
import os
import random
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from time import perf_counter
from typing import Any

import redis

from handfast import Autocomplete, Handfast
from handfast_lab.bench.figures import Times

__all__ = ["LENGTHS", "MODES", "Keeping", "expected", "make_names", "make_prefixes", "measure"]

MODES = ("unranked", "ranked")

LENGTHS = range(1, 7)
"""Lengths of the prefixes, in letters."""

LIMIT = 10
"""Names per answer."""

SEED, BATCH, WARM_UP, CHECKED = 2012, 10_000, 100, 60

ONSETS = (*"bcdfghjklmnprstvwz", "br", "ch", "dr", "gr", "kl", "sh", "st", "th", "tr")
VOWELS = "aeiou"


@dataclass(frozen=True, slots=True)
class Keeping:
    """The results of one mode."""

    mode: str
    names: int
    load_seconds: float
    bytes: int
    """Server memory for all names."""
    completions: tuple[Times, ...]
    """For all prefixes, and for those of each length."""
    ping: Times
    trouble: tuple[str, ...]
    """Wrong answers."""


def make_names(count: int) -> list[str]:
    """Return ``count`` different names in random order, the same ones in every run."""
    chance = random.Random(SEED)  # noqa: S311 -- test data, not secrets
    syllables = [onset + vowel for onset in ONSETS for vowel in VOWELS]
    chance.shuffle(syllables)
    frequent = [1 / (place + 1) for place in range(len(syllables))]
    names: dict[str, None] = {}
    while len(names) < count:
        words = chance.choices(syllables, frequent, k=3 * BATCH)
        while words and len(names) < count:
            length = chance.randint(2, 5)
            names["".join(words[-length:])] = None
            del words[-length:]
    return list(names)


def make_prefixes(names: Sequence[str], count: int) -> list[str]:
    """Return ``count`` prefixes of names, with the lengths in turn."""
    chance = random.Random(SEED)  # noqa: S311 -- see above
    return [chance.choice(names)[: LENGTHS[number % len(LENGTHS)]] for number in range(count)]


def expected(ordered: Sequence[str], scores: Mapping[str, float], prefix: str) -> tuple[str, ...]:
    """Return the correct answer: by descending score, then by name."""
    found = takewhile(lambda name: name.startswith(prefix), ordered[bisect_left(ordered, prefix) :])
    return tuple(islice(sorted(found, key=lambda name: (-scores.get(name, 0), name)), LIMIT))


def measure(url: str, mode: str, names: Sequence[str], calls: int) -> Keeping:
    """Add all names, complete ``calls`` prefixes, and delete the names."""
    chance = random.Random(SEED)  # noqa: S311 -- see above
    scores = {name: float(chance.randrange(len(names))) for name in names} if mode == "ranked" else {}
    prefixes = make_prefixes(names, calls)
    with Handfast(url) as client, redis.Redis.from_url(url) as conn:
        index = client.autocomplete(f"bench-{os.getpid()}", ranked=mode == "ranked")
        try:
            before = _used(conn)
            load_seconds = _load(index, names, scores)
            grown = _used(conn) - before
            completions, pings = _times(prefixes, index.complete, lambda _: conn.ping())
            return Keeping(
                mode=mode,
                names=len(names),
                load_seconds=load_seconds,
                bytes=grown,
                completions=tuple(_by_length(prefixes, completions)),
                ping=Times.of("PING", pings),
                trouble=tuple(_check(index, names, scores, prefixes)),
            )
        finally:
            index.clear()


def _load(index: Autocomplete, names: Sequence[str], scores: Mapping[str, float]) -> float:
    """Add the names; return the seconds it took."""
    batches: list[Any] = [names[start : start + BATCH] for start in range(0, len(names), BATCH)]
    if scores:
        batches = [{name: scores[name] for name in batch} for batch in batches]
    gc.collect()
    begin = perf_counter()
    for batch in batches:
        index.add(batch)
    return perf_counter() - begin


def _times(prefixes: Sequence[str], *calls: Callable[[str], object]) -> list[list[float]]:
    """Return the duration of each call with each prefix, in microseconds.

    The calls take turns, so that a slow minute affects all of them.
    """
    for prefix in prefixes[:WARM_UP]:
        for call in calls:
            call(prefix)
    gc.collect()
    times: list[list[float]] = [[] for _ in calls]
    for prefix in prefixes:
        for call, mine in zip(calls, times, strict=True):
            begin = perf_counter()
            call(prefix)
            mine.append((perf_counter() - begin) * 1e6)
    return times


def _by_length(prefixes: Sequence[str], times: Sequence[float]) -> Iterator[Times]:
    yield Times.of("all prefixes", times)
    for length in LENGTHS:
        mine = [time for prefix, time in zip(prefixes, times, strict=True) if len(prefix) == length]
        if mine:
            yield Times.of("1 letter" if length == 1 else f"{length} letters", mine)


def _check(
    index: Autocomplete, names: Sequence[str], scores: Mapping[str, float], prefixes: Sequence[str]
) -> Iterator[str]:
    if (size := index.size()) != len(names):
        yield f"there are {size} names, not {len(names)}"
    ordered = sorted(names)
    for prefix in prefixes[:CHECKED]:
        answer, right = index.complete(prefix, limit=LIMIT), expected(ordered, scores, prefix)
        if answer != right:
            yield f"{prefix!r} was completed to {answer}, not to {right}"


def _used(conn: redis.Redis) -> int:
    info: dict[str, Any] = conn.info("memory")
    return int(info["used_memory"])
