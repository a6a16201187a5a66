"""R25: acquire and release locks very often, and count what has grown on the server and in the process.

Most operations are sequential; for a part of them several callers compete for one lock. Everything is warmed up first,
so that connections, threads, buffers and keys that are kept exist. Then keys, connections, channels, threads, tasks and
file descriptors are counted, and counted again at the end, after a time for cleanup. The growth of memory per operation
is the slope of a line through many samples.

All this runs in a process of its own, because memory is measured per process.
"""

from __future__ import annotations

import gc
import time
from collections import Counter
from itertools import count as counting

import redis

from handfast.testing import ServerController
from handfast_lab.chaos.apis import is_renewed, opened, settled
from handfast_lab.chaos.figures import Figure
from handfast_lab.chaos.trials import Progress
from handfast_lab.chaos.trials.soak import Soak
from handfast_lab.checker.leaks import MemoryWatch, resident_memory, snapshot
from handfast_lab.children import run_in_subprocess
from handfast_lab.rivals.contender import Contender

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

CONTENDED_NAME = "contended"

CALLERS = 4
"""Callers that compete."""

ARRIVAL = 0.3
"""Seconds for the requests of all callers to reach the server."""

LIMIT = 5.0
"""Seconds for the contended part of all chunks together: rivals that poll do fewer operations in it."""

REST = 5.0
"""Seconds that cleanup, an acquire or the first renewal may take."""

SLOPE, NOISE = 1.0, 1 << 18
"""A leak is more than `SLOPE` bytes per operation and more than `NOISE` bytes in all, the usual fluctuation."""

WARM, WARM_TTL = "warm", 0.5
"""A lock that is held at first until it was renewed, and its ttl in seconds: the renewal thread or task exists from
then on."""


def applies(contender: Contender) -> bool:  # noqa: ARG001 -- required by the Trial protocol
    """Return True: every contender may leak."""
    return True


def trial(contender: Contender, count: int, seed: int, progress: Progress) -> list[Figure]:
    """Acquire and release `count` times, and report what has grown."""
    times = count if contender.is_ours else max(CHUNKS, count // 5)
    with ServerController() as server:
        figure: Figure = run_in_subprocess(_measure, contender, server.url, times, seed, on_progress=progress)
    return [figure]


# --- in the process that is measured


def _measure(contender: Contender, url: str, count: int, seed: int, progress: Progress) -> Figure:
    soak = Soak(contender, count, seed, progress)
    with redis.Redis.from_url(url, decode_responses=True) as admin:
        return soak.api.run(_Churn(soak, admin, max(1, count // CHUNKS)).run(url))


class _Churn:
    def __init__(self, soak: Soak, admin: redis.Redis, chunk: int) -> None:
        self._soak, self._admin, self._chunk = soak, admin, chunk
        self._contended = round(chunk * CONTENDED)

    async def run(self, url: str) -> Figure:
        """Run all chunks and return the figure."""
        async with opened(self._soak.contender, url) as self._client:
            self._locks = [self._client.lock(name, TTL) for name in NAMES]
            await self._warm_up()
            gc.collect()
            gc.freeze()  # exclude what exists now from later collections
            snapshot(self._admin)  # let the snapshot create what it needs itself
            self._before = snapshot(self._admin)
            memory, done = MemoryWatch(resident_memory), 0
            for _ in range(CHUNKS):
                operations = await self._run_chunk()
                memory.sample(operations)
                done += operations
                self._soak.progress(done)
            await self._soak.api.eventually(lambda: not any(self._grown().values()), REST)
            return self._figure(done, memory.slope)

    async def _warm_up(self) -> None:
        """Hold a lease until it was renewed, if the contender renews, and run two chunks."""
        contender = self._soak.contender
        lock = self._client.lock(WARM, max(WARM_TTL, contender.shortest_ttl), renew=True)
        await settled(lock.acquire(0))
        if "renewal" in contender.has:
            await self._soak.api.eventually(is_renewed(contender, self._admin, WARM), REST)
        await settled(lock.release())
        await self._let_all_wait()
        await self._run_chunk()
        await self._run_chunk()

    async def _let_all_wait(self) -> None:
        """Let all callers wait at once, so that each has the connection that it needs for that."""
        held, arrived = self._client.lock(CONTENDED_NAME, TTL), []

        async def wait() -> None:
            lock = self._client.lock(CONTENDED_NAME, TTL)
            arrived.append(lock)
            await settled(lock.acquire(REST))
            await settled(lock.release())

        await settled(held.acquire(0))
        callers = [self._soak.api.start(wait) for _ in range(CALLERS)]
        await self._soak.api.eventually(lambda: len(arrived) == CALLERS, REST)
        await settled(self._soak.api.sleep(ARRIVAL))
        await settled(held.release())
        await self._soak.api.late(callers, CALLERS * REST)

    async def _run_chunk(self) -> int:
        """Run the operations between two samples, and return how many there were."""
        alone = self._chunk - self._contended
        for number in range(alone):
            lock = self._locks[number % len(self._locks)]
            await settled(lock.acquire(0))
            await settled(lock.release())
        numbers, until = counting(), time.monotonic() + LIMIT / CHUNKS

        async def compete() -> int:
            lock, done = self._client.lock(CONTENDED_NAME, TTL), 0
            while next(numbers) < self._contended and time.monotonic() < until:
                await settled(lock.acquire(REST))
                await settled(lock.release())
                done += 1
            return done

        callers = [self._soak.api.start(compete) for _ in range(CALLERS)]
        await self._soak.api.late(callers, CALLERS * self._contended * REST)
        contended: int = sum(caller.result() for caller in callers)
        return alone + contended

    def _grown(self) -> dict[str, Counter[str]]:
        """Return what there is more of than after the warm-up, by kind."""
        after = snapshot(self._admin)
        return {what: things - self._before.get(what, Counter()) for what, things in after.items()}

    def _figure(self, done: int, slope: float) -> Figure:
        grown = self._grown()
        too_steep = slope > SLOPE and slope * done > NOISE
        self._soak.wrong += [f"{what}: {thing}" for what, things in grown.items() for thing in sorted(things)]
        self._soak.wrong += [f"memory: {slope:.2f} bytes an operation"] * too_steep
        totals = {what: things.total() for what, things in grown.items()}
        measured: dict[str, float | str] = {
            **{f"more {what}": number for what, number in totals.items()},
            "memory, bytes an operation": round(slope, 3),
        }
        bad = sum(totals.values()) + too_steep
        return self._soak.figure("R25", "acquire and release", "leaks", measured, tried=done, bad=bad)
