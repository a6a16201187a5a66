"""Move clocks: the server's, and those of the clients.

R22  The server's wall clock jumps by a minute or an hour, forward and back, while processes write under a lock.
     Counted: fenced updates that are lost. After a jump forward, leases end early and their holders learn of it. After a
     jump back, the lease of a holder that dies lasts as much longer, as documented; `force_release` ends it.
R23  The clocks of clients are an hour ahead or behind. Counted: anything that differs because of it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count as counting
from time import monotonic
from typing import Any

from handfast.testing import ProcessFailed, ServerController
from handfast.testing.clock import find_compiler
from handfast_lab.chaos.apis import Api, api_of, log_silenced, settled
from handfast_lab.chaos.figures import Figure, examples_of
from handfast_lab.chaos.killable import LockUsers
from handfast_lab.chaos.trials import Progress
from handfast_lab.chaos.writers import FENCED, PLAIN, Count, Writer, counts_of
from handfast_lab.rivals.contender import Contender

__all__ = ["COUNT", "ROWS", "applies", "trial"]

ROWS = ("R22", "R23")
COUNT = 20
"""Jumps of the server's clock while other processes write. A fifth as many holders die after a jump back, and the
clients' clocks are wrong for a quarter of a second per count."""

JUMPS = 60.0, -60.0, 3600.0, -3600.0
HOUR = 3600.0

TTL, LONG = 1.0, 5.0
"""Lease durations in seconds: under a clock that jumps, and under one that does not."""

WRITERS = 3
RETRY_FOR = 20.0
"""Seconds that the trial waits for a process."""


def applies(contender: Contender) -> bool:
    """Return True for Handfast: the other libraries' leases are not tested here."""
    return contender.is_ours


def trial(contender: Contender, count: int, seed: int, progress: Progress) -> list[Figure]:
    """Run all parts, with `count` jumps. Those of the server's clock need a C compiler."""
    chance = random.Random(seed)  # noqa: S311 -- timing, not security
    done = counting(1)

    def tick() -> None:
        progress(next(done))

    figures = []
    with log_silenced():
        if find_compiler() is not None:
            figures += [_jumps(contender, count, chance, tick), _stretched(contender, max(1, count // 5), tick)]
        figures.append(_wrong_clients(contender, count / 4, tick))
    return [replace(figure, seed=seed) for figure in figures]


def _jumps(contender: Contender, count: int, chance: random.Random, tick: Callable[[], None]) -> Figure:
    steps = [(chance.uniform(0.2, 0.6), chance.choice(JUMPS)) for _ in range(count)]
    total, fenced, wrong = Count(), 0, list[str]()
    with ServerController(clock=True) as server, LockUsers(server.url, Writer) as users:
        try:
            writers = users.new(contender, WRITERS)
            until = monotonic() + sum(pause for pause, _ in steps) + TTL
            for writer in writers:
                writer.order("write", "counter", TTL, until)
            for pause, jump in steps:
                time.sleep(pause)
                server.shift_clock(jump)
                tick()
            total = counts_of(writers, RETRY_FOR)
            fenced = int(server.admin.get(FENCED) or 0)
        except ProcessFailed as error:
            wrong.append(str(error))
        plain = int(server.admin.get(PLAIN) or 0)
    if total.fenced != fenced:
        wrong.append(f"{total.fenced - fenced} of {total.fenced} fenced updates were lost")
    if total.errors:
        wrong.append(f"{total.errors} errors, the last of them {total.error}")
    return Figure(
        id="R22",
        what="server clock jumps by 60 s and 1 h: fenced updates",
        contender=contender.name,
        tried=total.fenced,
        bad=abs(total.fenced - fenced) + bool(total.errors) + (not total.fenced),
        unit="lost updates",
        measured={
            "jumps": count,
            "late writes refused by their fence": total.refused,
            "updates lost without a fence": total.plain - plain,
            "leases lost": total.lost,
            "longest wait for the lock, s": round(total.longest_wait, 2),
        },
        examples=examples_of(wrong),
    )


def _stretched(contender: Contender, count: int, tick: Callable[[], None]) -> Figure:
    """Kill a holder after the clock has stepped back, and free the lock with `force_release`."""
    api, wrong = api_of(contender), list[str]()
    longest = 0.0
    with ServerController(clock=True) as server, LockUsers(server.url) as users:
        for number in range(count):
            name = f"stretched-{number}"
            try:
                (holder,) = users.new(contender)
                holder.order("acquire", name, TTL)
                holder.expect("acquiring", RETRY_FOR)
                holder.expect("acquired", RETRY_FOR)
            except ProcessFailed as error:
                wrong.append(str(error))
                continue
            server.shift_clock(-HOUR)
            users.discard(holder)
            longest = max(longest, contender.remaining(server.admin, name) / 1000)
            api.run(_freed(api, server, name, wrong))
            server.shift_clock(HOUR)
            tick()
    return Figure(
        id="R22",
        what="clock back 1 h, then the holder dies: freed by force_release",
        contender=contender.name,
        tried=count,
        bad=len(wrong),
        unit="not available",
        measured={"lease of the dead holder, as documented, s": round(longest, 1)},
        examples=examples_of(wrong),
    )


async def _freed(api: Api, server: ServerController, name: str, wrong: list[str]) -> None:
    async with api.client(server.url) as client:
        lock: Any = client.lock(name)
        await settled(lock.force_release(reason="its holder is dead"))
        lease = await settled(lock.try_acquire())
        if lease is None:
            wrong.append(f"{name}: not available after force_release")
        else:
            await settled(lease.release())


def _wrong_clients(contender: Contender, seconds: float, tick: Callable[[], None]) -> Figure:
    total, fenced, plain, wrong = Count(), 0, 0, list[str]()
    with ServerController() as server, LockUsers(server.url, Writer) as users:
        try:
            writers = users.new(contender, WRITERS)
            for writer, ahead in zip(writers, (0.0, HOUR, -HOUR), strict=True):
                writer.order("set the clock", ahead)
                writer.expect("set", RETRY_FOR)
            for writer in writers:
                writer.order("write", "counter", LONG, monotonic() + seconds)
            total = counts_of(writers, seconds + RETRY_FOR)
        except ProcessFailed as error:
            wrong.append(str(error))
        fenced, plain = (int(server.admin.get(key) or 0) for key in (FENCED, PLAIN))
    tick()
    odd = {
        "fenced updates lost": total.fenced - fenced,
        "updates lost without a fence": total.plain - plain,
        "late writes refused": total.refused,
        "leases lost": total.lost,
        "errors": total.errors,
    }
    wrong += [f"{number} {what}" for what, number in odd.items() if number]
    return Figure(
        id="R23",
        what="client clocks 1 h ahead and behind",
        contender=contender.name,
        tried=total.plain,
        bad=sum(map(abs, odd.values())) + (not total.plain),
        unit="differences",
        measured={"longest wait for the lock, s": round(total.longest_wait, 2)},
        examples=examples_of([*wrong, *([total.error] if total.error else [])]),
    )
