"""Lose every message that wakes a waiter: the queue moves on all the same, because waiters poll.

    R15  The time from a release to the next hold, with all pushes lost. It must not exceed the poll interval of the next
         waiter: one second, and 20 ms more for each waiter that was ahead of it. Every waiter must acquire, with a lease
         that is still valid.

Scripts run and their replies arrive; only push messages are dropped. Several waiters queue at each lock behind a proxy
that drops the messages. Each releases the lock as soon as it has it, which starts the next handoff. At half of the
locks the first waiter receives its messages, so that the next one's position has changed since it last polled. Half of
the locks are released as soon as all are queued, the others later.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from time import monotonic
from typing import Any, NamedTuple

from handfast._protocol.acquire import HEAD_POLL_S, POLL_STAGGER_S
from handfast.testing import FaultProxy, ServerController
from handfast_lab.bench.crowd import inversions
from handfast_lab.bench.figures import quantile
from handfast_lab.chaos.apis import Api, api_of, hushed, settled
from handfast_lab.chaos.figures import Figure, examples_of
from handfast_lab.chaos.trials import Tell
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


def applies(contender: Contender) -> bool:
    """Return True for Handfast, which hands locks over with messages."""
    return contender.is_ours


def trial(contender: Contender, count: int, seed: int, tell: Tell) -> list[Figure]:
    """Lose the messages of `count` handoffs."""
    api, notes = api_of(contender), _Notes()
    chance = random.Random(seed)  # noqa: S311 -- timing, not security
    with hushed(), ServerController() as server, FaultProxy(server.url, record=False) as proxy:
        lost = proxy.lose_pushes()

        async def play() -> None:
            async with api.client(server.url) as near, api.client(proxy.url) as far:
                await _batches(_Scene(api, near, far, notes), count, chance, tell)

        api.run(play())
        return [_figure(contender, notes, lost.happened, seed)]


class _Hold(NamedTuple):
    """One hold of a lock: when it began, and when its release began."""

    place: int
    entered: float
    left: float
    kept: bool
    """Whether the lease was valid until its release."""


@dataclass
class _Notes:
    delays: list[float] = field(default_factory=list)
    """Seconds from each release to the next hold."""
    late: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    overtaken: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    """Leases that had ended before their new holder released them."""


@dataclass(frozen=True)
class _Scene:
    api: Api
    near: Any
    """A client that receives messages."""
    far: Any
    """A client whose messages are lost."""
    notes: _Notes


async def _batches(scene: _Scene, count: int, chance: random.Random, tell: Tell) -> None:
    api, notes = scene.api, scene.notes
    for batch in range(ceil(count / (LOCKS * WAITERS))):
        rounds = []
        for number in range(min(LOCKS, ceil(count / WAITERS))):
            pause = 0.0 if number % 2 else chance.uniform(0, HEAD_POLL_S)
            hears = number % 4 < 2
            rounds.append(api.start(partial(_round, scene, f"lock-{batch}-{number}", pause, first_hears=hears)))
        notes.stuck += [f"{late!r} never came to an end" for late in await api.late(rounds, 2 * RETRY_FOR)]
        notes.stuck += [repr(over.exception()) for over in rounds if over.done() and over.exception() is not None]
        tell(len(notes.delays))


async def _round(scene: _Scene, name: str, pause: float, *, first_hears: bool) -> None:
    """Run one queue at one lock."""
    lock = scene.near.lock(name)
    lease = await settled(lock.acquire())
    started = []
    for place in range(WAITERS):
        client = scene.near if place == 0 and first_hears else scene.far
        started.append(scene.api.start(partial(_wait, client.lock(name), place)))

        async def in_line(place: int = place) -> bool:
            return bool((await settled(lock.status())).waiting > place)

        if not await scene.api.eventually(in_line):
            scene.notes.stuck.append(f"{name}: number {place} did not get in line")
    await scene.api.sleep(pause)
    begun = monotonic()
    await settled(lease.release())
    late = await scene.api.late(started, RETRY_FOR)
    _judge(name, started, late, begun, scene.notes, first_hears=first_hears)


async def _wait(lock: Any, place: int) -> _Hold:
    lease = await settled(lock.acquire(timeout=RETRY_FOR))
    entered = monotonic()
    return _Hold(place, entered, monotonic(), kept=await settled(lease.release()))


def _judge(
    name: str, waiters: Sequence[Any], late: Sequence[Any], free_since: float, notes: _Notes, *, first_hears: bool
) -> None:
    holds = []
    for place, waiter in enumerate(waiters):
        if waiter in late:
            notes.stuck.append(f"{name}: number {place} never came to an end")
        elif (error := waiter.exception()) is not None:
            notes.stuck.append(f"{name}: number {place}: {type(error).__name__}: {error}")
        else:
            holds.append(waiter.result())
    holds.sort(key=lambda hold: hold.entered)
    for hold in holds:
        delay = hold.entered - free_since
        bound = HEAD_POLL_S + POLL_STAGGER_S * hold.place
        if not (hold.place == 0 and first_hears):
            notes.delays.append(delay)
        if delay > bound + SLACK:
            notes.late.append(
                f"{name}: number {hold.place} held {delay:.3f} s after the release, not within {bound:g} s"
            )
        if not hold.kept:
            notes.lost.append(f"{name}: the lease of number {hold.place} was over at once")
        free_since = hold.left
    order = [hold.place for hold in holds]
    if inversions(order):
        notes.overtaken.append(f"{name}: they got in as {order}")


def _figure(contender: Contender, notes: _Notes, lost: int, seed: int) -> Figure:
    delays = sorted(notes.delays)
    quantiles = {"p50": 0.5, "p99": 0.99, "longest": 1.0}
    return Figure(
        id="R15",
        what="every wake-up message lost",
        contender=contender.name,
        tried=len(delays) + len(notes.stuck),
        bad=len(notes.late) + len(notes.stuck) + len(notes.lost),
        unit="late, stuck, or over at once",
        measured={
            **{
                f"{word} from release to hold, s": round(quantile(delays, share) or 0.0, 3)
                for word, share in quantiles.items()
            },
            "stuck": len(notes.stuck),
            "leases over at once": len(notes.lost),
            "lines out of order": len(notes.overtaken),
            "messages lost": lost,
        },
        seed=seed,
        examples=examples_of(notes.stuck + notes.late + notes.lost + notes.overtaken),
    )
