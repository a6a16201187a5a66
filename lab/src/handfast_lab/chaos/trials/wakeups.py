"""Lose every message that wakes a waiter: the queue moves on nevertheless, because waiters poll.

    R15  The time from a release to the next hold, with all pushes lost. It must not exceed the poll interval of the next
         waiter: one second, and 20 ms more for each waiter that was ahead of it. Every waiter must acquire, with a lease
         that is still valid.

Scripts run and their replies arrive; only push messages are dropped. Several waiters queue at each lock behind a proxy
that drops the messages. Each releases the lock as soon as it has it, which starts the next handoff. At half of the
locks the first waiter receives its messages, so that the next one's position has changed since it last polled. Half of
the locks are released as soon as all are queued, the others later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from time import monotonic
from typing import Any, NamedTuple

from handfast._protocol.acquire import HEAD_POLL_S, POLL_STAGGER_S
from handfast.testing import FaultProxy, ServerController, containing
from handfast_lab.bench.crowd import inversions
from handfast_lab.chaos.apis import Started, log_silenced, settled
from handfast_lab.chaos.figures import Figure, durations
from handfast_lab.chaos.trials import Progress
from handfast_lab.chaos.trials.soak import Soak
from handfast_lab.rivals.contender import Contender

__all__ = ["COUNT", "ROWS", "applies", "trial"]

ROWS = ("R15",)
COUNT = 400
"""Handoffs."""

LOCKS, WAITERS = 16, 4
"""Locks that are handed over in parallel, and the waiters of each."""

SLACK = 0.05
"""Tolerance beyond the bound for delays of the machine, in seconds."""

RETRY_FOR = 60.0
"""Seconds after which a waiter counts as stuck."""


is_probe = containing(b"granted - ")
"""The message that a client sends to itself."""


def applies(contender: Contender) -> bool:
    """Return True for Handfast, which hands locks over with messages."""
    return contender.is_ours


def trial(contender: Contender, count: int, seed: int, progress: Progress) -> list[Figure]:
    """Lose the messages of `count` handoffs."""
    test = _LostMessages(Soak(contender, count, seed, progress))
    with log_silenced(), ServerController() as server, FaultProxy(server.url, record=False) as proxy:
        # A client that never heard of anything would ask more often.
        lost = proxy.lose_pushes(lambda message: not is_probe(message))
        test.soak.api.run(test.run(server.url, proxy.url))
        return [test.figure(lost.happened)]


class _Hold(NamedTuple):
    """One hold of a lock: when it began, and when its release began."""

    place: int
    entered: float
    left: float
    kept: bool
    """Whether the lease was valid until its release."""


@dataclass
class _LostMessages:
    soak: Soak
    """Its violations are stuck waiters."""
    delays: list[float] = field(default_factory=list)
    """Seconds from each release to the next hold."""
    late: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    """Leases that had ended before their new holder released them."""
    overtaken: list[str] = field(default_factory=list)

    async def run(self, url: str, deaf_url: str) -> None:
        """Run all queues, in batches."""
        soak, chance = self.soak, self.soak.chance()
        async with soak.api.client(url) as self.hearing, soak.api.client(deaf_url) as self.deaf:
            for batch in range(ceil(soak.count / (LOCKS * WAITERS))):
                queues = []
                for number in range(min(LOCKS, ceil(soak.count / WAITERS))):
                    pause = 0.0 if number % 2 else chance.uniform(0, HEAD_POLL_S)
                    name = f"lock-{batch}-{number}"
                    queues.append(partial(self._queue, name, pause, first_hears=number % 4 < 2))
                await soak.run(queues, 2 * RETRY_FOR)
                soak.progress(len(self.delays))

    async def _queue(self, name: str, pause: float, *, first_hears: bool) -> None:
        """Run one queue at one lock."""
        api, lock, waiters = self.soak.api, self.hearing.lock(name), list[Started]()
        lease = await settled(lock.acquire())
        for place in range(WAITERS):
            client = self.hearing if place == 0 and first_hears else self.deaf
            waiters.append(api.start(partial(_wait, client.lock(name), place)))

            async def is_queued(place: int = place) -> bool:
                return bool((await settled(lock.status())).waiting > place)

            if not await api.eventually(is_queued):
                self.soak.wrong.append(f"{name}: waiter {place} was not queued")
        await api.sleep(pause)
        begun = monotonic()
        await settled(lease.release())
        stuck = await api.failures(waiters, RETRY_FOR)
        self.soak.wrong += [f"{name}: {text}" for text in stuck]
        holds = [waiter.result() for waiter in waiters if waiter.done() and not waiter.exception()]
        self._judge(name, sorted(holds, key=lambda hold: hold.entered), begun, first_hears=first_hears)

    def _judge(self, name: str, holds: Sequence[_Hold], free_since: float, *, first_hears: bool) -> None:
        for place, entered, left, kept in holds:
            delay, bound = entered - free_since, HEAD_POLL_S + POLL_STAGGER_S * place
            free_since = left
            if place or not first_hears:
                self.delays.append(delay)
            if delay > bound + SLACK:
                self.late.append(f"{name}: waiter {place} held after {delay:.3f} s, not within {bound:g} s")
            if not kept:
                self.lost.append(f"{name}: the lease of waiter {place} ended at once")
        order = [hold.place for hold in holds]
        if inversions(order):
            self.overtaken.append(f"{name}: the order of the holds was {order}")

    def figure(self, messages: int) -> Figure:
        """Return the figure. Overtaking is reported and is not counted: waiters poll independently."""
        stuck = len(self.soak.wrong)
        self.soak.wrong += self.late + self.lost
        bad = len(self.soak.wrong)
        self.soak.wrong += self.overtaken
        measured: dict[str, float | str] = {
            **durations(self.delays, "from release to hold", "s"),
            "stuck": stuck,
            "leases that ended at once": len(self.lost),
            "queues out of order": len(self.overtaken),
            "messages lost": messages,
        }
        what, unit = "every wake-up message lost", "late, stuck, or ended at once"
        return self.soak.figure("R15", what, unit, measured, tried=len(self.delays) + stuck, bad=bad)


async def _wait(lock: Any, place: int) -> _Hold:
    lease = await settled(lock.acquire(timeout=RETRY_FOR))
    entered = monotonic()
    return _Hold(place, entered, monotonic(), kept=await settled(lease.release()))
