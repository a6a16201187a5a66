"""R9: interrupt the sync API anywhere, as a Ctrl-C or a raising signal handler does; check that nothing is left.

Each operation is first interrupted at every point at which CPython may run a signal handler, as far as these points can
be counted. Then it is interrupted many times at random by a real signal, which also strikes while a call waits for the
server. Afterwards the caller gives back what it was given: an interrupted acquire returned nothing, an interrupted
release is called again. No holder and no waiter may remain then, and at the end no extra thread and no extra
connection.

One case cannot be guarded in Python. While a ``with`` block is being left, an interrupt can come before any code of the
library runs, and the caller does not call release again. Such a lease is no longer renewed and expires. The trial
counts these cases separately.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import random
import re
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import redis

from handfast import AcquireTimeout, Handfast
from handfast.testing import ServerController
from handfast.testing.injection import Run, interrupt_after, interrupt_at
from handfast_lab.chaos.figures import Figure, examples_of
from handfast_lab.chaos.operations import OperationKind, Operations
from handfast_lab.chaos.rival_operations import native_operations
from handfast_lab.chaos.trials import Progress
from handfast_lab.chaos.trials.stopping import StopTest
from handfast_lab.children import run_in_subprocess
from handfast_lab.rivals.contender import Contender

__all__ = ["COUNT", "ROWS", "applies", "trial"]

ROWS = ("R9",)
COUNT = 10_000
"""Interrupts at random moments, and the maximum number at counted points, of which there are fewer."""

NEVER = 1 << 30
"""A step number beyond the last point of any operation."""

TTL = 2.0
"""Lease duration for Handfast, in seconds. A lease that is no longer renewed expires soon after the trial."""

LONGEST = 0.0008
"""Latest moment of a random interrupt, in seconds after the start: longer than most operations take."""

WAIT = 0.0015
"""Seconds that an acquire waits while another client holds the lock."""

REST = 1.0
"""Seconds that background cleanup may take."""

OURS = ("handfast._api", "handfast._drivers", "handfast._protocol", "handfast._engine", "handfast.records", "redis")
"""Packages interrupted for Handfast: all code of the library and of redis-py, but not the trial."""

PACKAGES = {
    "redis": ("redis",),
    "python-redis-lock": ("redis_lock", "redis"),
    "pottery": ("pottery", "redis"),
    "py-redis-semaphore": ("redis_semaphore", "redis"),
}
"""Packages interrupted for each rival, by distribution."""


def applies(contender: Contender) -> bool:
    """Return True if the contender has a sync API.

    Asyncio turns an interrupt into a cancellation: see `cancellations`.
    """
    return contender.sync is not None


def trial(contender: Contender, count: int, seed: int, progress: Progress) -> list[Figure]:
    """Interrupt each operation at every point, then `count` times at random."""
    figures: list[Figure] = []
    for at_random in (False, True):
        interrupt = partial(_interrupt, at_random=at_random)
        with ServerController() as server:
            figures.append(run_in_subprocess(interrupt, contender, server.url, count, seed, on_progress=progress))
    return figures


# --- in the process that is interrupted


def _interrupt(contender: Contender, url: str, times: int, seed: int, progress: Progress, *, at_random: bool) -> Figure:
    """Interrupt at `times` random moments, or at every point."""
    with redis.Redis.from_url(url, decode_responses=True) as admin:
        test = _Interrupts(contender, admin, progress)
        return test.api.run(test.run(url, times, seed, at_random=at_random))


@dataclass
class _Interrupts(StopTest):
    left: dict[str, str] = field(default_factory=dict)
    """By name, the operation that left a lease or a queue entry, and the point at which it was interrupted."""
    leaving: dict[str, str] = field(default_factory=dict)
    """The same for blocks that were interrupted while they were left, the known limit."""
    points: dict[str, int] = field(default_factory=dict)
    """Number of points by operation, where they were counted."""

    async def run(self, url: str, times: int, seed: int, *, at_random: bool) -> Figure:
        """Interrupt, and return the figure."""
        async with self._operations(url) as operations:
            for operation in operations:  # warm up, so that connections, scripts and threads exist
                await self._interrupt(operation, _undisturbed)
            threads, connections = threading.active_count(), len(self.admin.client_list())
            if at_random:
                chance = random.Random(seed)  # noqa: S311 -- timing, not security
                while self.struck < times:
                    moment = chance.uniform(1e-5, LONGEST)
                    await self._interrupt(chance.choice(operations), partial(interrupt_after, seconds=moment))
            else:
                await self._everywhere([operation for operation in operations if operation.is_steady], times)
            what = "interrupt at random" if at_random else "interrupt at every point"
            return await self._figure(what, seed, threads, connections)

    @contextlib.asynccontextmanager
    async def _operations(self, url: str) -> AsyncIterator[list[OperationKind]]:
        if not self.contender.is_ours:
            with native_operations(self.contender, url) as operations:
                yield operations
            return
        with Handfast(url) as mine, Handfast(url) as other:
            with mine.lock("warm", ttl=1.0), other.lock("warm too", ttl=1.0):
                await self.api.sleep(0.5)  # by now the renewal thread has its connection
            yield Operations(self.api, mine, other, TTL, WAIT, LONGEST / 2).all()

    async def _everywhere(self, operations: list[OperationKind], most: int) -> None:
        """Interrupt at every point, or at `most` points spread evenly over all operations."""
        packages = OURS if self.contender.is_ours else PACKAGES[self.contender.distribution]
        within = [importlib.import_module(name) for name in packages]
        for operation in operations:
            points = (await self._interrupt(operation, partial(interrupt_at, step=NEVER, within=within))).reached
            self.points[operation.name] = points
            for step in range(1, points + 1, max(1, -(-points * len(operations) // most))):
                await self._interrupt(operation, partial(interrupt_at, step=step, within=within))

    async def _interrupt(self, operation: OperationKind, stop: Callable[[Callable[[], Any]], Run[Any]]) -> Run[Any]:
        """Run an operation once, interrupt it, and check what it left."""
        name, call, run = await self.stop(operation, stop)
        left = self.leaving if call.has_entered() else self.left
        if await self._remains(name, 0.1 if call.has_entered() else REST):
            left[name] = f"{operation.name}, at {_short(run.place)}"
            if not self.contender.is_ours:
                self.admin.flushall()  # count each leftover once
        self.progress(self.struck)
        return run

    async def _remains(self, name: str, within: float) -> bool:
        """Return whether the name still has a holder or a waiter. Only Handfast cleans up in the background."""
        return not await self.api.eventually(lambda: not self.is_left(name), within if self.contender.is_ours else 0)

    async def _figure(self, what: str, seed: int, threads: int, connections: int) -> Figure:
        """Return the figure. By now no client holds the leases that were left."""
        gc.collect()
        immortal: list[str] = []
        found = self.left | self.leaving
        if self.contender.is_ours and found:
            await self.api.sleep(1.5 * TTL)
            immortal = [f"beyond its ttl: {text}" for name, text in found.items() if self.is_left(name)]
        await self.api.eventually(
            lambda: len(self.admin.client_list()) <= connections and threading.active_count() <= threads,
            REST if self.contender.is_ours else 0,
        )
        threads = max(0, threading.active_count() - threads)
        connections = max(0, len(self.admin.client_list()) - connections)
        return Figure(
            id="R9",
            what=what,
            contender=self.contender.name,
            tried=self.struck,
            bad=len(self.left) + len(immortal) + threads + connections,
            unit="leaks",
            measured={
                **({"operations": len(self.points)} if self.points else {}),
                "left to expire while a block was left": len(self.leaving),
                "still there after the ttl": len(immortal),
                "threads left": threads,
                "connections left": connections,
            },
            seed=seed,
            examples=examples_of([*self.left.values(), *immortal]),
            details={f"points in {name}": points for name, points in self.points.items()},
        )


def _undisturbed(make: Callable[[], Any]) -> Run[Any]:
    try:
        return Run((), 0, 0, "finished", make())
    except AcquireTimeout as error:
        return Run((), 0, 0, "failed", None, error)


def _short(place: str | None) -> str:
    """Shorten a code location to the part below the import root."""
    return re.sub(r"^.*/(?:site-packages|src|python\d[.\d]*)/", "", place or "nowhere")
