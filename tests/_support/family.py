"""What the tests of the relatives of the lock share: visitors who stay until they are told to leave, and what was sent."""

from __future__ import annotations

import asyncio
from collections import defaultdict

from tests._support.apis import in_line
from tests._support.helpers import comes_true

NOWHERE = "redis://127.0.0.1:1/0"
"""An address where nobody listens: whoever wants to talk to it fails."""


async def listens(raw, homes=1):
    """Wait until that many clients hear of what an operator does to their leases."""
    await comes_true(lambda: len(raw.pubsub_channels("hf:home:*")) >= homes)


def scripts_run(raw):
    """How many scripts the server has run so far, for whomever."""
    told = raw.info("commandstats")
    return sum(told.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("eval", "evalsha"))


class House:
    """Visitors come in turn, and each stays inside until it is told to leave."""

    def __init__(self, tasks, watched):
        self._tasks = tasks
        self._watched = watched
        self._told = defaultdict(asyncio.Event)
        self.inside = []
        self.fences = {}
        self.visits = {}

    async def comes(self, who, wanted, **options):
        """Somebody asks to be let in, and has a place in line when this returns."""
        before = (await self._watched.status()).waiting
        self.visits[who] = self._tasks.create_task(self._visit(who, wanted, options))
        await in_line(self._watched, before + 1)

    async def leaves(self, who):
        """Somebody who is inside leaves, and has left when this returns."""
        self._told[who].set()
        await self.visits[who]

    async def has(self, *inside):
        """Wait until just these are inside."""
        await comes_true(lambda: sorted(self.inside) == sorted(inside))

    async def _visit(self, who, wanted, options):
        async with wanted.acquire(timeout=20, **options) as lease:
            self.inside.append(who)
            self.fences[who] = lease.fence
            await self._told[who].wait()
            self.inside.remove(who)
