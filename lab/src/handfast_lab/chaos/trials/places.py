"""Take waiters out of a queue at a release: each comes back to its place.

R34  Some waiters queue at a lock. Then the connections of the first ones are cut; or the slot of the lock moves, or a
replica takes
     the place of its primary, or the server loses its data, by FLUSHALL or by a restart, which all of them must notice.
     The lock is released before they are back. Counted: waiters that failed, and those that were served before an
     earlier one. One for each release is allowed: it gets what was free while the earlier ones were away, and holds it
     until they are back. Measured: how many more are served before an earlier one if waiters that come back do not show
     their tickets.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Any
from unittest import mock

from redis.exceptions import RedisError

from handfast._engine.calls import PermitRequest
from handfast._engine.effects import Call
from handfast_lab.chaos.apis import log_silenced, opened, settled
from handfast_lab.chaos.disturbances import CUT, DISTURBANCES, Disturbed
from handfast_lab.chaos.figures import Figure, duration
from handfast_lab.chaos.trials import Progress, one_by_one
from handfast_lab.chaos.trials.soak import Soak
from handfast_lab.rivals.contender import Contender
from handfast_lab.stored import read_stored

__all__ = ["COUNT", "ROWS", "applies", "trial"]

ROWS = ("R34",)
COUNT = 100
"""Releases at which connections are cut; a fifth of it for each other disturbance, and as many without tickets."""

LONGEST = 120.0
"""Seconds after which no further queue is made. Some rivals take long to notice."""

AWAY = 0.2
"""Seconds for which the first one to be served holds the lock, where the server does not show who is back."""

ARRIVES = 0.1
"""Seconds after which the last reply has reached its waiter, which else knows no place to come back to."""

SETTLE = 0.03
"""Seconds after which a client is taken to be queued, where the server does not show it."""

RETRY_FOR = 60.0
"""Seconds after which a waiter counts as failed."""


def applies(contender: Contender) -> bool:  # noqa: ARG001 -- required by the Trial protocol
    """Return True: the waiters of every contender have connections."""
    return True


def trial(contender: Contender, count: int, seed: int, progress: Progress) -> list[Figure]:
    """Cut the connections at `count` releases, and disturb Handfast's queues in all other ways."""
    tick = one_by_one(progress)
    with log_silenced():
        return [
            _figure(contender, count if kind == CUT else -(-count // 5), seed, lambda _: tick(), kind)
            for kind in (DISTURBANCES if contender.is_ours else [CUT])
        ]


def _figure(contender: Contender, count: int, seed: int, progress: Progress, kind: str) -> Figure:
    """Disturb `count` queues, and for comparison some more that have no tickets."""
    with DISTURBANCES[kind](seed) as servers:
        test = _Queues(Soak(contender, count, seed, progress, LONGEST), servers)
        test.soak.api.run(test.run("with"))
        without = None
        if contender.is_ours:
            without = _Queues(
                Soak(contender, -(-count // 5) if kind == CUT else count, seed, progress, LONGEST), servers
            )
            with _without_tickets():
                without.soak.api.run(without.run("without"))
    return test.figure(kind, without)


@contextlib.contextmanager
def _without_tickets() -> Iterator[None]:
    """Have waiters that ask again ask as newcomers do."""
    acquire = PermitRequest.acquire

    def ask(request: PermitRequest, token: bytes, _ticket: int = 0, *, caller: int = 0) -> Call:
        return acquire(request, token, caller=caller)

    with mock.patch.object(PermitRequest, "acquire", ask):
        yield


@dataclass
class _Queues:
    soak: Soak
    servers: Disturbed
    failed: int = 0
    overtakers: int = 0
    allowed: int = 0
    """Waiters that were served before an earlier one, as many as may be."""
    seconds: list[float] = field(default_factory=list)
    """From each disturbance until all waiters were served."""

    async def run(self, prefix: str) -> None:
        """Run one queue after the other: a disturbance concerns all of them."""
        async with contextlib.AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(opened(self.soak.contender, url)) for url in self.servers.urls]
            while (number := self.soak.claim()) is not None:
                self.servers.settle()
                await self._queue(f"{prefix}-{number}", clients)
                self.soak.step()

    async def _queue(self, name: str, clients: list[Any]) -> None:
        soak, order, count = self.soak, list[int](), len(self.servers.waiters)
        blocker = clients[-1].lock(name)
        await settled(blocker.acquire())

        async def wait(client: Any, place: int) -> None:
            lock = client.lock(name)
            if not await settled(lock.acquire(RETRY_FOR)):
                raise TimeoutError(f"waiter {place} was not served within {RETRY_FOR:g} s")
            order.append(place)
            if len(order) == 1:  # the server has noticed by now who is away, or never will
                await self._until_queued(name, count - 1, AWAY)
            await settled(lock.release())

        waiters = []
        for place, client in enumerate(self.servers.waiters):
            waiters.append(soak.api.start(partial(wait, clients[client], place)))
            await self._until_queued(name, place + 1, SETTLE)
        await soak.api.sleep(ARRIVES)
        self.servers.disturb(name)
        begun = monotonic()
        await settled(blocker.release())
        failures = await soak.api.failures(waiters, 2 * RETRY_FOR)
        self.seconds.append(monotonic() - begun)
        self.failed += len(failures)
        overtakers = [place for number, place in enumerate(order) if any(later < place for later in order[number:])]
        self.allowed += bool(overtakers)
        self.overtakers += len(overtakers[1:])
        soak.wrong += [f"{name}: {text}" for text in failures]
        if overtakers[1:]:
            soak.wrong.append(f"{name}: served in the order {order}")

    async def _until_queued(self, name: str, waiting: int, otherwise: float) -> None:
        """Wait until so many waiters are in the queue and can be reached; for a rival, some time."""
        if self.soak.contender.is_ours:
            await self.soak.api.eventually(lambda: self._are_queued(name, waiting))
        else:
            await self.soak.api.sleep(otherwise)

    def _are_queued(self, name: str, waiting: int) -> bool:
        try:
            admin = self.servers.admin(name)
            stored = read_stored(admin, f"{{hf:lock:{name}}}")
            inboxes = {stored.records[token].inbox for token in stored.queue if token in stored.records}
            sharded = {inbox for inbox in inboxes if "{" in inbox}
            found = admin.pubsub_numsub(*inboxes - sharded)
            if sharded:
                found += admin.pubsub_shardnumsub(*sharded)
        except RedisError:  # its slot moves, or its primary is being replaced
            return False
        return len(stored.queue) >= waiting and all(count for _, count in found)

    def figure(self, kind: str, without: _Queues | None) -> Figure:
        """Return the figure, with what happened without tickets."""
        measured: dict[str, float | str] = {
            "waiters that failed": self.failed,
            "served before an earlier one": self.overtakers,
            "served while the earlier ones were away, as allowed": self.allowed,
            "median until all were served, s": duration(self.seconds, 0.5, "s"),
            "longest until all were served, s": duration(self.seconds, 1.0, "s"),
        }
        places = len(self.servers.waiters)
        if without is not None:
            measured["waiters without tickets"] = without.soak.done * places
            measured["of these served before an earlier one"] = without.overtakers
        tried, bad = self.soak.done * places, self.failed + self.overtakers
        return self.soak.figure("R34", kind, "failed or served too early", measured, tried=tried, bad=bad)
