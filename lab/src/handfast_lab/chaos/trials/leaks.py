"""R25: acquire and release locks very often, and count what has grown on the server and in the process.

Most operations are sequential; for a part of them several callers compete for one lock. Everything is warmed up first,
so that connections, threads, buffers and keys that are kept exist. Then keys, connections, channels, threads, tasks and
file descriptors are counted, and counted again at the end, after a time for cleanup. The growth of memory per operation
is the slope of a line through many samples.

All this runs in a process of its own, because memory is measured per process.
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
"""Acquires with release. Rivals do a fifth of them."""

TTL = 30.0
"""Lease duration in seconds."""

NAMES = ("one", "two", "three", "four")

CHUNKS = 10
"""Samples of memory."""

CONTENDED = 0.2
"""Fraction of the operations for which callers compete."""

HANDS = 4
"""Callers that compete."""

LIMIT = 5.0
"""Seconds for the contended part of all chunks together: rivals that poll do fewer operations in it."""

REST = 5.0
"""Seconds that cleanup may take."""

SLOPE, NOISE = 1.0, 1 << 18
"""A leak is more than `SLOPE` bytes per operation and more than `NOISE` bytes in all, the usual fluctuation."""

WARM, WARM_TTL = "warm", 0.5
"""A lock that is held at first until it was renewed, and its ttl in seconds: the renewal thread or task exists from
then on."""


def applies(contender: Contender) -> bool:  # noqa: ARG001 -- required by the Trial protocol
    """Return True: every contender may leak."""
    return True


class Counts(NamedTuple):
    """Results of the measurement."""

    operations: int
    more: dict[str, int]
    """By kind of object, how many more there are."""
    examples: list[str]
    slope: float


def trial(contender: Contender, count: int, seed: int, tell: Tell) -> list[Figure]:
    """Acquire and release `count` times, and report what has grown."""
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
    """The amount of work, and the counts before it."""

    def __init__(self, contender: Contender, admin: redis.Redis, count: int, tell: Tell) -> None:
        self._contender, self._admin, self._tell = contender, admin, tell
        self.warm_ttl = max(WARM_TTL, contender.shortest_ttl)
        self._remaining = math.inf
        self._until = time.monotonic() + REST
        self.done = 0
        self.chunk = max(1, count // CHUNKS)
        self.contended = round(self.chunk * CONTENDED)

    def is_warm(self) -> bool:
        """Return True once the first lease was renewed, after `REST` seconds, or if the contender never renews."""
        before, self._remaining = self._remaining, self._contender.remaining(self._admin, WARM)
        renews = "renewal" in self._contender.has
        return self._remaining > before or not renews or time.monotonic() > self._until

    def begin(self) -> None:
        """Start to count, after the warm-up."""
        self.done = 0
        gc.collect()
        gc.freeze()  # exclude what exists now from later collections
        snapshot(self._admin)  # let the snapshot create what it needs itself
        self._before = snapshot(self._admin)
        self._memory = MemoryWatch(resident_memory)

    def step(self, operations: int) -> None:
        """Count `operations` more and take a sample of memory."""
        self.done += operations
        self._memory.sample(operations)
        self._tell(self.done)

    def more(self) -> dict[str, Counter[str]]:
        """Return what has been added since `begin`, by kind."""
        after = snapshot(self._admin)
        return {what: things - self._before.get(what, Counter()) for what, things in after.items()}

    def counts(self) -> Counts:
        """Return the results."""
        more = self.more()
        found = [f"{what}: {thing}" for what, things in more.items() for thing in sorted(things)]
        return Counts(self.done, {what: things.total() for what, things in more.items()}, found, self._memory.slope)


def _shares(contended: int) -> Callable[[], bool]:
    """Return a function that tells each caller whether to go on."""
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
        while not work.is_warm():  # noqa: ASYNC110 -- no event exists for it
            await asyncio.sleep(0.02)
        await warm.release()
        await chunk()
        await chunk()
        work.begin()
        for _ in range(CHUNKS):
            work.step(await chunk())
        until = time.monotonic() + REST
        while any(work.more().values()) and time.monotonic() < until:  # noqa: ASYNC110 -- no event exists for it
            await asyncio.sleep(0.05)
        return work.counts()
