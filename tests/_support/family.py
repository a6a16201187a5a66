"""What the tests of rlock, semaphore and rwlock share: tasks that hold until they are released, and counters of the server."""

from __future__ import annotations

import asyncio
from collections import defaultdict

from tests._support.apis import until_queued
from tests._support.helpers import eventually_async

NOWHERE = "redis://127.0.0.1:1/0"
"""An address where no server listens: every request to it fails."""


async def until_listening(raw, clients=1):
    """Wait until that many clients are subscribed to their control channel, which reports revoked leases."""
    await eventually_async(lambda: len(raw.pubsub_channels("hf:control:*")) >= clients)


def scripts_run(raw):
    """Return how many scripts the server has run so far, for any client."""
    stats = raw.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("eval", "evalsha"))


class Holders:
    """Tasks that acquire in a known order, and hold until the test releases them."""

    def __init__(self, tasks, watched):
        self._tasks = tasks
        self._watched = watched
        self._may_end = defaultdict(asyncio.Event)
        self.current = []
        self.fences = {}
        self.tasks = {}

    async def queue(self, name, wanted, **options):
        """Start a task that acquires; return when it is in the queue."""
        before = (await self._watched.status()).waiting
        self.tasks[name] = self._tasks.create_task(self._hold(name, wanted, options))
        await until_queued(self._watched, before + 1)

    async def release(self, name):
        """Make a task release its lease; return when it has ended."""
        self._may_end[name].set()
        await self.tasks[name]

    async def become(self, *names):
        """Wait until exactly these hold."""
        await eventually_async(lambda: sorted(self.current) == sorted(names))

    async def _hold(self, name, wanted, options):
        async with wanted.acquire(timeout=20, **options) as lease:
            self.current.append(name)
            self.fences[name] = lease.fence
            await self._may_end[name].wait()
            self.current.remove(name)
