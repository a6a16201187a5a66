"""Cut the connections of waiters at a release: each comes back to its place in the queue.

R34  Some waiters of one client queue at a lock, then some of another. The first client's connections are cut, and the lock
     is released before they are back. Counted: waiters that failed, and those that were served before an earlier one. One
     for each release is allowed: it gets what was free while the earlier ones were away, and holds it until they are back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from itertools import count as counting
from time import monotonic
from typing import Any

from handfast.testing import FaultProxy, ServerController
from handfast_lab.chaos.apis import log_silenced, opened, settled
from handfast_lab.chaos.figures import Figure, duration
from handfast_lab.chaos.trials import Progress
from handfast_lab.chaos.trials.soak import Soak
from handfast_lab.rivals.contender import Contender
from handfast_lab.stored import read_stored

__all__ = ["COUNT", "ROWS", "applies", "trial"]

ROWS = ("R34",)
COUNT = 100
"""Releases at which connections are cut."""

EARLIER, LATER = 6, 3
"""Waiters whose connections are cut, and those that came after them."""

LONGEST = 60.0
"""Seconds after which no further queue is made. Some rivals take long to notice."""

AWAY = 0.2
"""Seconds for which the first one to be served holds the lock, where the server does not show who is back."""

SETTLE = 0.03
"""Seconds after which a client is taken to be queued, where the server does not show it."""

RETRY_FOR = 60.0
"""Seconds after which a waiter counts as failed."""


def applies(contender: Contender) -> bool:  # noqa: ARG001 -- required by the Trial protocol
    """Return True: the waiters of every contender have connections."""
    return True


def trial(contender: Contender, count: int, seed: int, progress: Progress) -> list[Figure]:
    """Cut the connections at `count` releases."""
    soak = Soak(contender, count, seed, progress, LONGEST)
    with log_silenced(), ServerController() as server, FaultProxy(server.url, record=False) as proxy:
        test = _CutQueues(soak, server, proxy)
        soak.api.run(test.run())
    return [test.figure()]


@dataclass
class _CutQueues:
    soak: Soak
    server: ServerController
    proxy: FaultProxy
    failed: int = 0
    overtakers: int = 0
    allowed: int = 0
    """Waiters that were served before an earlier one, as many as may be."""
    seconds: list[float] = field(default_factory=list)
    """From each release until all waiters were served."""

    async def run(self) -> None:
        """Run one queue after the other: a cut concerns all of them."""
        contender = self.soak.contender
        async with opened(contender, self.proxy.url) as cut, opened(contender, self.server.url) as other:
            while (number := self.soak.claim()) is not None:
                await self._queue(f"cut-{number}", cut, other)
                self.soak.step()

    async def _queue(self, name: str, cut: Any, other: Any) -> None:
        soak, order, places = self.soak, list[int](), counting()
        blocker = other.lock(name)
        await settled(blocker.acquire())

        async def wait(client: Any, place: int) -> None:
            lock = client.lock(name)
            if not await settled(lock.acquire(RETRY_FOR)):
                raise TimeoutError(f"waiter {place} was not served within {RETRY_FOR:g} s")
            order.append(place)
            if len(order) == 1:  # the server has noticed the cut by now, or never will
                await self._until_queued(name, EARLIER + LATER - 1, AWAY)
            await settled(lock.release())

        waiters = []
        for client, some in ((cut, EARLIER), (other, LATER)):
            for _ in range(some):
                place = next(places)
                waiters.append(soak.api.start(partial(wait, client, place)))
                await self._until_queued(name, place + 1, SETTLE)
        self.proxy.cut()
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
        admin = self.server.admin

        def are_queued() -> bool:
            stored = read_stored(admin, f"{{hf:lock:{name}}}")
            inboxes = {stored.records[token].inbox for token in stored.queue if token in stored.records}
            return len(stored.queue) >= waiting and all(count for _, count in admin.pubsub_numsub(*inboxes))

        if self.soak.contender.is_ours:
            await self.soak.api.eventually(are_queued)
        else:
            await self.soak.api.sleep(otherwise)

    def figure(self) -> Figure:
        """Return the figure."""
        measured: dict[str, float | str] = {
            "waiters that failed": self.failed,
            "served before an earlier one": self.overtakers,
            "served while the earlier ones were away, as allowed": self.allowed,
            "median until all were served, s": duration(self.seconds, 0.5, "s"),
            "longest until all were served, s": duration(self.seconds, 1.0, "s"),
        }
        what, unit = "connections of waiters cut at a release", "failed or served too early"
        tried = self.soak.done * (EARLIER + LATER)
        return self.soak.figure("R34", what, unit, measured, tried=tried, bad=self.failed + self.overtakers)
