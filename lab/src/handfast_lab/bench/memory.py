"""The cost of a waiting task: memory of its process, and connections.

One task holds the lock, so many others wait for it. The growth of the process divided by their number is the cost of a
waiter, including its task and coroutines. Memory elsewhere (kernel buffers, the server's client structures) is not
measured; the number of connections is the only indication of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

from handfast_lab.bench.contenders import LEASE
from handfast_lab.bench.process_metrics import Counter, resident, take_all_files
from handfast_lab.bench.runner import ClientPool, in_turn
from handfast_lab.bench.tasks import end, hush, open_client
from handfast_lab.bench.worker import Start

__all__ = ["Cost", "CostRow", "all_wait", "run", "summarize"]

START_TIMEOUT = 20.0
"""Seconds for all tasks to start waiting, and for their cancellation."""

LOOK, STEADY, LOOKS = 0.2, 3, 40
"""Seconds between two memory readings, steady readings in a row that end the wait, and the largest number of readings.
"""


class Weight(NamedTuple):
    """The cost of all waiters together."""

    bytes: int | None
    connections: int


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one waiter of a contender in one round."""

    round: int
    contender: str
    waiters: int
    bytes_per_waiter: float | None
    """None if it could not be measured."""
    connections: int | None
    trouble: tuple[str, ...]

    @property
    def where(self) -> str:
        """Description of the measurement."""
        return f"{self.contender}, {self.waiters} waiters, round {self.round + 1}"


class CostRow(NamedTuple):
    """All rounds of one contender."""

    contender: str
    waiters: int
    bytes_per_waiter: float | None
    connections: float


class WaitersJob(NamedTuple):
    """Let many tasks wait for a held lock."""

    contender: str
    url: str
    name: str
    waiters: int

    def do(self, start: Start) -> Weight:
        """Measure the memory once all tasks wait."""
        take_all_files()
        with Counter(self.url) as counter:
            return asyncio.run(self._weigh(start, counter))

    async def _weigh(self, start: Start, counter: Counter) -> Weight:
        hush(self.contender)
        async with open_client(self.contender, self.url, self.waiters) as client:
            holder: Any = client.lock(self.name, LEASE)
            await holder.acquire()
            start()
            before = resident()
            tasks = [asyncio.create_task(client.lock(self.name, LEASE).acquire()) for _ in range(self.waiters)]
            try:
                if hasattr(holder, "waiting"):
                    await all_wait(holder.waiting, self.waiters)
                after = await _settle()
                for task in tasks:
                    if task.done():
                        raise RuntimeError(f"a task that was to wait did not, but ended with {task.result()!r}")
                grown = None if before is None or after is None else after - before
                return Weight(grown, counter.count())
            finally:
                await end(tasks, timeout=0)
                await holder.release()


def run(url: str, contenders: tuple[str, ...], waiters: int, rounds: int) -> Iterator[Cost]:
    """Measure all contenders in every round, each in a process of its own."""
    for number in range(rounds):
        for contender in in_turn(contenders, number):
            job = WaitersJob(contender, url, f"bench-memory-{contender}-{number}", waiters)
            with ClientPool() as pool:
                _, weights, trouble = pool.do([job], START_TIMEOUT)
            grown, connections = weights[0] if weights else (None, None)
            per_waiter = None if grown is None else grown / waiters
            yield Cost(number, contender, waiters, per_waiter, connections, tuple(trouble))


def summarize(found: Sequence[Cost]) -> list[CostRow]:
    """Return one row for each contender: the medians of its error-free rounds."""
    groups: dict[str, list[Cost]] = {}
    for one in found:
        if not one.trouble:
            groups.setdefault(one.contender, []).append(one)
    rows = []
    for contender, group in groups.items():
        known = [one.bytes_per_waiter for one in group if one.bytes_per_waiter is not None]
        connections = median(one.connections or 0 for one in group)
        rows.append(CostRow(contender, group[0].waiters, median(known) if known else None, connections))
    return rows


async def all_wait(waiting: Callable[[], Awaitable[int]], count: int) -> None:
    """Return once ``count`` tasks wait. There is no timeout; the parent process ends a client that hangs."""
    while await waiting() < count:  # noqa: ASYNC110 -- only the server has the number
        await asyncio.sleep(LOOK / 4)


async def _settle() -> int | None:
    """Return the resident memory once it stops growing.

    Then the tasks of contenders that cannot report their number of waiters wait too.
    """
    steady, last = 0, resident()
    for _ in range(LOOKS):
        await asyncio.sleep(LOOK)
        now = resident()
        if last is None or now is None or steady == STEADY:
            break
        steady = steady + 1 if now - last < last >> 10 else 0
        last = max(now, last)
    return last
