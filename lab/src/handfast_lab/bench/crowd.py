"""A crowd at one lock: very many tasks of one client wait for it, and each then acquires and releases it once.

This measures the cost of a long queue: memory and connections of the client, and the time of each script on the server,
which must not grow with the queue. A private server logs every command with its duration in its slow log. The log is
read once at the end and in one piece, because SLOWLOG GET cannot continue from a position. Logging costs the server a
little time for every command, so the measured rate is slightly too low.
"""

from __future__ import annotations

import asyncio
from bisect import bisect, insort
from collections.abc import Iterable
from dataclasses import dataclass
from time import monotonic
from typing import Any, NamedTuple

import redis

from handfast import AsyncHandfast
from handfast._engine.script import load
from handfast_lab.bench.figures import quantile
from handfast_lab.bench.memory import all_wait
from handfast_lab.bench.process_metrics import Counter, resident, take_all_files
from handfast_lab.bench.runner import ClientPool
from handfast_lab.bench.tasks import end
from handfast_lab.bench.worker import Start

__all__ = ["Crowd", "CrowdJob", "ScriptTimes", "inversions", "load_scripts", "logging_all", "run", "script_times"]

SCRIPTS = ("permit_acquire", "permit_release")

SLOWEST = 100
"""Acquires per second below which the run is given up."""

ENTRIES = 40
"""Log entries to allow per waiter: old servers also log the commands that a script calls."""


class Crowd(NamedTuple):
    """The result of a run."""

    connections: int
    grown: int | None
    """Bytes by which the process grew while the tasks enqueued."""
    seconds: float
    """Seconds from the release to the end of the last task."""
    order: list[int]
    """The tasks in the order of their grants, numbered in the order of their requests."""


@dataclass(frozen=True, slots=True)
class ScriptTimes:
    """Durations of one script on the server, in microseconds."""

    script: str
    calls: int
    p50: float
    p99: float
    p999: float
    longest: float


class CrowdJob(NamedTuple):
    """Let many tasks wait for one lock, and then acquire it."""

    url: str
    name: str
    waiters: int

    def do(self, start: Start) -> Crowd:
        """Report ready when all tasks wait; return when all have held the lock."""
        take_all_files()
        with Counter(self.url) as counter:
            return asyncio.run(self._come(start, counter))

    async def _come(self, start: Start, counter: Counter) -> Crowd:
        order: list[int] = []
        async with AsyncHandfast(self.url) as client:
            lock = client.lock(self.name)

            async def waiting() -> int:
                return (await lock.status()).waiting

            async def come(number: int) -> None:
                async with lock:
                    order.append(number)

            async with lock:
                before = resident()
                tasks = [asyncio.create_task(come(number)) for number in range(self.waiters)]
                await all_wait(waiting, self.waiters)
                after, connections = resident(), counter.count()
                until = start().until
                begin = monotonic()
            try:
                async with asyncio.timeout(until - monotonic()):
                    await asyncio.gather(*tasks)
                seconds = monotonic() - begin
            finally:
                await end(tasks, timeout=0)
        return Crowd(connections, None if before is None or after is None else after - before, seconds, order)


def run(url: str, name: str, waiters: int) -> tuple[Crowd | None, list[str]]:
    """Run the tasks in a process of their own. Return the result, or None and the errors."""
    with ClientPool() as pool:
        _, crowds, trouble = pool.do([CrowdJob(url, name, waiters)], 10 + waiters / SLOWEST)
    return (crowds[0] if crowds else None), trouble


def inversions(order: Iterable[int]) -> int:
    """Return the number of pairs that are in the wrong order."""
    seen: list[int] = []
    found = 0
    for number in order:
        found += len(seen) - bisect(seen, number)
        insort(seen, number)
    return found


def load_scripts(url: str) -> None:
    """Load the scripts, so that no call is logged twice: first as NOSCRIPT, then as the retry."""
    with redis.Redis.from_url(url) as client:
        for script in map(load, SCRIPTS):
            client.script_load(script.source)


def logging_all(waiters: int) -> tuple[str, ...]:
    """Return server options that keep every script call in the slow log."""
    return "--slowlog-log-slower-than", "0", "--slowlog-max-len", str(1000 + ENTRIES * waiters)


def script_times(url: str) -> list[ScriptTimes]:
    """Return the durations of our scripts from the slow log of such a server."""
    with redis.Redis.from_url(url) as client:
        entries: Any = client.slowlog_get(int(client.slowlog_len()))
    found = []
    for script in map(load, SCRIPTS):
        head = f"EVALSHA {script.digest} ".encode()
        times = sorted(float(entry["duration"]) for entry in entries if entry["command"].startswith(head))
        p50, p99, p999, longest = (quantile(times, share) or 0.0 for share in (0.5, 0.99, 0.999, 1.0))
        found.append(ScriptTimes(script.name, len(times), p50, p99, p999, longest))
    return found
