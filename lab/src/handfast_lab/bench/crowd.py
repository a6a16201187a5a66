"""A crowd at one lock: very many tasks of one client wait for it, and then each takes it once and gives it up at once.

It shows what a line costs when it is long: in the client the memory and the connection, in the server the time of each
script, which has to stay what it is with a short one. A server of our own is told to log every command with its time (its
slow log, with nothing too fast for it); that log is read when all is over, in one piece, since it can't be had from a
place onwards. Keeping it costs the server a little of every command, so the rate is rather a little too low.
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
"""Acquires a second below which the crowd is given up."""

ENTRIES = 40
"""Log entries to make room for, for each waiter: old servers log what a script calls as well."""


class Crowd(NamedTuple):
    """What was seen of the crowd."""

    connections: int
    grown: int | None
    """Bytes of memory that the process has grown by while they came to wait."""
    seconds: float
    """From the release to the end of the last task."""
    order: list[int]
    """Who got in, by the number of coming."""


@dataclass(frozen=True, slots=True)
class ScriptTimes:
    """How long one script took within the server, in microseconds."""

    script: str
    calls: int
    p50: float
    p99: float
    p999: float
    longest: float


class CrowdJob(NamedTuple):
    """Let so many tasks come to wait, and then in."""

    url: str
    name: str
    waiters: int

    def do(self, start: Start) -> Crowd:
        """Ready when all wait; over when all have been in."""
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
                await end(tasks, patience=0)
        return Crowd(connections, None if before is None or after is None else after - before, seconds, order)


def run(url: str, name: str, waiters: int) -> tuple[Crowd | None, list[str]]:
    """Let them come, in a process of their own; or what went wrong."""
    with ClientPool() as pool:
        _, crowds, trouble = pool.do(CrowdJob(url, name, waiters), 1, 10 + waiters / SLOWEST)
    return (crowds[0] if crowds else None), trouble


def inversions(order: Iterable[int]) -> int:
    """How many pairs of them are the wrong way round."""
    seen: list[int] = []
    found = 0
    for number in order:
        found += len(seen) - bisect(seen, number)
        insort(seen, number)
    return found


def load_scripts(url: str) -> None:
    """Have the server know the scripts, so that no call is logged twice, the first time as a failure."""
    with redis.Redis.from_url(url) as client:
        for script in map(load, SCRIPTS):
            client.script_load(script.source)


def logging_all(waiters: int) -> tuple[str, ...]:
    """What a server is to be started with so that no script call is missing from its log."""
    return "--slowlog-log-slower-than", "0", "--slowlog-max-len", str(1000 + ENTRIES * waiters)


def script_times(url: str) -> list[ScriptTimes]:
    """What such a server has logged of our scripts."""
    with redis.Redis.from_url(url) as client:
        entries: Any = client.slowlog_get(int(client.slowlog_len()))
    found = []
    for script in map(load, SCRIPTS):
        head = f"EVALSHA {script.digest} ".encode()
        times = sorted(float(entry["duration"]) for entry in entries if entry["command"].startswith(head))
        p50, p99, p999, longest = (quantile(times, share) or 0.0 for share in (0.5, 0.99, 0.999, 1.0))
        found.append(ScriptTimes(script.name, len(times), p50, p99, p999, longest))
    return found
