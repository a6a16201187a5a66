"""Move clocks: the server's, and those of the clients.

R22  The server's wall clock jumps by a minute or an hour, forward and back, while processes write under a lock.
     Counted: fenced updates that are lost. After a jump forward, leases end early and their holders learn of it. After a
     jump back, the lease of a holder that dies lasts as much longer, as documented; `force_release` ends it.
R23  The clocks of clients are an hour ahead or behind. Counted: anything that differs because of it.
"""

from __future__ import annotations

import random
import time
from dataclasses import replace
from typing import Any

from handfast.testing import ServerController
from handfast_lab.chaos.apis import Api, api_of, log_silenced, settled
from handfast_lab.chaos.figures import Figure, examples_of
from handfast_lab.chaos.killable import LockUsers
from handfast_lab.chaos.trials import Progress, Tick, one_by_one
from handfast_lab.chaos.writers import Task, Writer, write
from handfast_lab.children import ChildProcess, ProcessFailed
from handfast_lab.clocks import ClockedServer, find_compiler
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

RETRY_FOR = 20.0
"""Seconds that the trial waits for a process."""


def applies(contender: Contender) -> bool:
    """Return True for Handfast: the other libraries' leases are not tested here."""
    return contender.is_ours


def trial(contender: Contender, count: int, seed: int, progress: Progress) -> list[Figure]:
    """Run all parts, with `count` jumps. Those of the server's clock need a C compiler."""
    chance, tick = random.Random(seed), one_by_one(progress)  # noqa: S311 -- timing, not security
    figures = []
    with log_silenced():
        if find_compiler() is not None:
            figures += [_jumps(contender, count, chance, tick), _stretched(contender, max(1, count // 5), tick)]
        figures.append(_wrong_clients(contender, count / 4, tick))
    return [replace(figure, seed=seed) for figure in figures]


def _jumps(contender: Contender, count: int, chance: random.Random, tick: Tick) -> Figure:
    steps = [(chance.uniform(0.2, 0.6), chance.choice(JUMPS)) for _ in range(count)]

    def jump(_writers: list[ChildProcess]) -> None:
        for pause, seconds in steps:
            time.sleep(pause)
            server.shift_clock(seconds)
            tick()

    task = Task(sum(pause for pause, _ in steps) + TTL, TTL, RETRY_FOR, disturb=jump)
    with ClockedServer() as server, LockUsers(server.url, Writer) as users:
        total = write(users, contender, task)
    return total.figure(contender, "R22", "server clock jumps by 60 s and 1 h: fenced updates", jumps=count)


def _stretched(contender: Contender, count: int, tick: Tick) -> Figure:
    """Kill a holder after the clock has stepped back, and free the lock with `force_release`."""
    api, wrong = api_of(contender), list[str]()
    longest = 0.0
    with ClockedServer() as server, LockUsers(server.url) as users:
        for number in range(count):
            name = f"stretched-{number}"
            try:
                (holder,) = users.new(contender)
                users.hold(holder, name, TTL, within=RETRY_FOR)
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


def _wrong_clients(contender: Contender, seconds: float, tick: Tick) -> Figure:
    def set_clocks(writers: list[ChildProcess]) -> None:
        for writer, ahead in zip(writers, (0.0, HOUR, -HOUR), strict=True):
            writer.order("set the clock", ahead)
            writer.expect("set", RETRY_FOR)

    with ServerController() as server, LockUsers(server.url, Writer) as users:
        total = write(users, contender, Task(seconds, LONG, RETRY_FOR, prepare=set_clocks))
    tick()
    differences = {
        "fenced updates lost": total.fenced_lost,
        "updates lost without a fence": total.plain_lost,
        "late writes refused": total.refused,
        "leases lost": total.lost,
        "errors": total.errors,
    }
    wrong = [f"{number} {what}" for what, number in differences.items() if number]
    return Figure(
        id="R23",
        what="client clocks 1 h ahead and behind",
        contender=contender.name,
        tried=total.plain,
        bad=sum(map(abs, differences.values())) + len(total.failures),
        unit="differences",
        measured={"longest wait for the lock, s": round(total.longest_wait, 2)},
        examples=examples_of([*total.failures, *wrong, *filter(None, [total.error])]),
    )
