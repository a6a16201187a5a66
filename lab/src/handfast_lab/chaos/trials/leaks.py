"""R25: locks are taken and given back very often; what there is more of afterwards, on the server and in the process.

Most of it is one caller after the other, a part of it several callers who wait for each other. Before anything is counted
all of it is done for a while, so that what is kept once is there: connections, threads, buffers, the state of a name. Then
keys, connections, channels, threads, tasks and file descriptors are counted, and counted again at the end, when whatever
ends a little later has had the time to. What memory grows with every operation is the slope of a line through many samples.

It happens in a process of its own, since memory is a process's.
"""

from __future__ import annotations

import asyncio
import gc
import math
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple

import redis

from handfast.testing import ServerController, run_in_subprocess
from handfast_lab.chaos.figures import Figure, examples_of
from handfast_lab.chaos.trials import Tell
from handfast_lab.checker.leaks import MemoryWatch, resident_memory, snapshot
from handfast_lab.rivals.contender import Contender
from handfast_lab.rivals.verbs import AioClient, Client

__all__ = ["COUNT", "ROWS", "applies", "trial"]

ROWS = ("R25",)
COUNT = 100_000
"""Times that a lock is taken and given back. Rivals do a fifth of it."""

TTL = 30.0
"""Seconds of a lease."""

NAMES = ("one", "two", "three", "four")

CHUNKS = 10
"""Samples of memory."""

CONTENDED = 0.2
"""The share of it for which callers wait for each other."""

HANDS = 4
"""Callers who do."""

LIMIT = 5.0
"""Seconds for the contended part of a chunk in all: who waits by asking now and then gets less done."""

REST = 5.0
"""Seconds that things are given to end."""

SLOPE, NOISE = 1.0, 1 << 18
"""Bytes an operation that are too many, if they come to more in all than memory goes up and down by anyway."""

WARM, WARM_TTL = "warm", 0.5
"""A lock that is held at first until it was renewed, and the seconds of its lease: whatever renews is there from then on."""


def applies(contender: Contender) -> bool:  # noqa: ARG001 -- every trial has this one: it is asked about somebody
    """Everybody may leak."""
    return True


class Counts(NamedTuple):
    """What came of it."""

    operations: int
    more: dict[str, int]
    """Of each kind of thing, how many more there are."""
    examples: list[str]
    slope: float


def trial(contender: Contender, count: int, seed: int, tell: Tell) -> list[Figure]:
    """Take a lock and give it back so often."""
    times = count if contender.is_ours else max(CHUNKS, count // 5)
    with ServerController() as server:
        counts: Counts = run_in_subprocess(_churn, contender, server.url, times, on_progress=tell)
    too_steep = counts.slope > SLOPE and counts.slope * counts.operations > NOISE
    wrong = [*counts.examples, *([f"memory: {counts.slope:.2f} bytes an operation"] if too_steep else [])]
    measured: dict[str, float | str] = {
        **{f"more {what}": number for what, number in counts.more.items()},
        "memory, bytes an operation": round(counts.slope, 3),
    }
    bad = sum(counts.more.values()) + too_steep
    what = "acquire and release"
    return [Figure("R25", what, contender.name, counts.operations, bad, "leaks", measured, seed, examples_of(wrong))]


# --- in the process that is measured


def _churn(contender: Contender, url: str, count: int, tell: Tell) -> Counts:
    with redis.Redis.from_url(url, decode_responses=True) as admin:
        if contender.sync is not None:
            with contender.sync(url) as client, ThreadPoolExecutor(HANDS) as threads:
                return _churn_in_threads(_Work(contender, admin, count, tell), client, threads)
        assert contender.aio is not None  # noqa: S101 -- it has one of the two
        return asyncio.run(_churn_in_tasks(_Work(contender, admin, count, tell), contender.aio(url)))


class _Work:
    """How much is to be done, and what there was before."""

    def __init__(self, contender: Contender, admin: redis.Redis, count: int, tell: Tell) -> None:
        self._contender, self._admin, self._tell = contender, admin, tell
        self.warm_ttl = max(WARM_TTL, contender.shortest_ttl)
        self._remaining = math.inf
        self._until = time.monotonic() + REST
        self.done = 0
        self.chunk = max(1, count // CHUNKS)
        self.contended = round(self.chunk * CONTENDED)

    def is_warm(self) -> bool:
        """Whether the lease that is held at first was renewed, where it is; or it is taken to be."""
        before, self._remaining = self._remaining, self._contender.remaining(self._admin, WARM)
        renews = "renewal" in self._contender.has
        return self._remaining > before or not renews or time.monotonic() > self._until

    def begin(self) -> None:
        """It has all been done for a while: from now on it counts."""
        self.done = 0
        gc.collect()
        gc.freeze()  # what is there now is not looked through again for each sample
        snapshot(self._admin)  # so that what the look itself needs is there before
        self._before = snapshot(self._admin)
        self._memory = MemoryWatch(resident_memory)

    def step(self, operations: int) -> None:
        """So many more are done."""
        self.done += operations
        self._memory.sample(operations)
        self._tell(self.done)

    def more(self) -> dict[str, Counter[str]]:
        """What there is more of now, of each kind."""
        after = snapshot(self._admin)
        return {what: things - self._before.get(what, Counter()) for what, things in after.items()}

    def counts(self) -> Counts:
        """What it comes to."""
        more = self.more()
        found = [f"{what}: {thing}" for what, things in more.items() for thing in sorted(things)]
        return Counts(self.done, {what: things.total() for what, things in more.items()}, found, self._memory.slope)


def _shares(contended: int) -> Callable[[], bool]:
    """Asked by each hand whether it is to go on."""
    left, until = iter(range(contended)), time.monotonic() + LIMIT / CHUNKS

    def goes_on() -> bool:
        return next(left, None) is not None and time.monotonic() < until

    return goes_on


def _churn_in_threads(work: _Work, client: Client, threads: ThreadPoolExecutor) -> Counts:
    locks = [client.lock(name, TTL) for name in NAMES]

    def hand(goes_on: Callable[[], bool]) -> int:
        lock, done = client.lock("contended", TTL), 0
        while goes_on():
            lock.acquire(REST)
            lock.release()
            done += 1
        return done

    def chunk() -> int:
        for number in range(work.chunk - work.contended):
            lock = locks[number % len(locks)]
            lock.acquire(0)
            lock.release()
        goes_on = _shares(work.contended)
        contended = sum(threads.map(hand, [goes_on] * HANDS))
        return work.chunk - work.contended + contended

    warm = client.lock(WARM, work.warm_ttl, renew=True)
    warm.acquire(0)
    while not work.is_warm():
        time.sleep(0.02)
    warm.release()
    chunk()
    chunk()
    work.begin()
    for _ in range(CHUNKS):
        work.step(chunk())
    until = time.monotonic() + REST
    while any(work.more().values()) and time.monotonic() < until:
        time.sleep(0.05)
    return work.counts()


async def _churn_in_tasks(work: _Work, opening: AbstractAsyncContextManager[AioClient]) -> Counts:
    async with opening as client:
        locks = [client.lock(name, TTL) for name in NAMES]

        async def hand(goes_on: Callable[[], bool]) -> int:
            lock, done = client.lock("contended", TTL), 0
            while goes_on():
                await lock.acquire(REST)
                await lock.release()
                done += 1
            return done

        async def chunk() -> int:
            for number in range(work.chunk - work.contended):
                lock = locks[number % len(locks)]
                await lock.acquire(0)
                await lock.release()
            goes_on = _shares(work.contended)
            contended = sum(await asyncio.gather(*(hand(goes_on) for _ in range(HANDS))))
            return work.chunk - work.contended + contended

        warm = client.lock(WARM, work.warm_ttl, renew=True)
        await warm.acquire(0)
        while not work.is_warm():  # noqa: ASYNC110 -- nothing tells of it
            await asyncio.sleep(0.02)
        await warm.release()
        await chunk()
        await chunk()
        work.begin()
        for _ in range(CHUNKS):
            work.step(await chunk())
        until = time.monotonic() + REST
        while any(work.more().values()) and time.monotonic() < until:  # noqa: ASYNC110 -- nothing tells of it
            await asyncio.sleep(0.05)
        return work.counts()
