"""Clocks that jump: the server's, and those of clients.

R22  the server's wall clock jumps by a minute or an hour, forth and back, while processes write under a lock: fenced
     updates that are lost. Forward, leases end before their time, and their holders are told; back, the lease of a holder
     that dies stays for as long as the clock went back, which is documented: `force_release` ends it
R23  clients believe that it is an hour earlier or later: anything that goes differently for it
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
from handfast_lab.chaos.apis import Api, api_of, hushed, settled
from handfast_lab.chaos.figures import Figure, examples_of
from handfast_lab.chaos.killable import LockUsers
from handfast_lab.chaos.trials import Tell
from handfast_lab.chaos.writers import FENCED, PLAIN, Count, Writer, counts_of
from handfast_lab.rivals.contender import Contender

__all__ = ["COUNT", "ROWS", "applies", "trial"]

ROWS = ("R22", "R23")
COUNT = 20
"""Jumps of the server's clock while others write; a fifth as many holders die after one; and so many times a quarter of a
second the clients' clocks are wrong."""

JUMPS = 60.0, -60.0, 3600.0, -3600.0
HOUR = 3600.0

TTL, LONG = 1.0, 5.0
"""Seconds of a lease: under a clock that jumps, and under one that does not."""

WRITERS = 3
RETRY_FOR = 20.0
"""Seconds that somebody is waited for."""


def applies(contender: Contender) -> bool:
    """The server's clock needs a library that is compiled; the rest is about our leases."""
    return contender.is_ours


def trial(contender: Contender, count: int, seed: int, tell: Tell) -> list[Figure]:
    """So many jumps."""
    chance = random.Random(seed)  # noqa: S311 -- moments are no secrets
    done = counting(1)

    def tick() -> None:
        tell(next(done))

    figures = []
    with hushed():
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
    """A holder dies after the clock has stepped back."""
    api, wrong = api_of(contender), list[str]()
    longest = 0.0
    with ServerController(clock=True) as server, LockUsers(server.url) as users:
        for number in range(count):
            name = f"stretched-{number}"
            try:
                (holder,) = users.new(contender)
                holder.order("acquire", name, TTL)
                holder.expect("asks", RETRY_FOR)
                holder.expect("in", RETRY_FOR)
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
        unit="not to be had",
        measured={"lease of the dead, as documented, s": round(longest, 1)},
        examples=examples_of(wrong),
    )


async def _freed(api: Api, server: ServerController, name: str, wrong: list[str]) -> None:
    async with api.client(server.url) as client:
        lock: Any = client.lock(name)
        await settled(lock.force_release(reason="its holder is dead"))
        lease = await settled(lock.try_acquire())
        if lease is None:
            wrong.append(f"{name}: nobody could have it after force_release")
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
