"""Slots of a semaphore whose holders come and die.

Processes acquire permits, ask for their numbers, and hold them for some milliseconds; a lease in ten is never released, as if
the holder had died.
"""

from __future__ import annotations

import asyncio
import random
import time
import warnings
from typing import Any

from handfast import AsyncHandfast
from handfast_lab.children import Parent, ProcessFailed, ProcessGroup
from handfast_lab.ownership.spans import Span, doubles

__all__ = ["measure"]

DEATHS = 0.1
"""The share of leases that are never released."""

DEAD_TTL_S = 0.3
"""Their ttl."""

PROCESSES, LONGEST_S = 4, 1800.0

TASKS = 40
"""Tasks of a process, which together want more permits than there are."""


def holder(parent: Parent, url: str, limit: int, joins: int, me: str) -> None:
    """Acquire so often, and report the spans."""
    warnings.simplefilter("ignore", ResourceWarning)
    left = iter(range(joins))
    spans: list[Span] = []

    async def work(hf: AsyncHandfast, chance: random.Random) -> None:
        dies = hf.semaphore("bench", limit, ttl=DEAD_TTL_S, renew=False)
        lives = hf.semaphore("bench", limit, ttl=30)
        for _ in left:
            is_dead = chance.random() < DEATHS
            lease = await (dies if is_dead else lives).acquire()
            number = await lease.slot(prefer=chance.choice((None, chance.randrange(limit))))
            began = time.monotonic()
            await asyncio.sleep(0.005 * chance.random())
            ended = time.monotonic() + lease.remaining() if is_dead else time.monotonic()
            spans.append(Span(str(number), f"{me}-{lease.fence}", lease.fence, began, ended))
            if not is_dead:
                await lease.release()

    async def run() -> None:
        async with AsyncHandfast(url, label=me) as hf:
            await asyncio.gather(*(work(hf, random.Random(f"{me}-{number}")) for number in range(TASKS)))  # noqa: S311

    asyncio.run(run())
    parent.report("done", spans)
    parent.receive()


def measure(url: str, *, limit: int, joins: int) -> dict[str, Any]:
    """Have permits acquired so often by all processes together. Return figures."""
    began, spans, waiting = time.monotonic(), list[Span](), PROCESSES
    with ProcessGroup(preload=["handfast_lab.ownership.slots"]) as group:
        for number in range(PROCESSES):
            group.start(holder, url, limit, joins // PROCESSES, f"h{number}", name=f"h{number}")
        while waiting:
            if time.monotonic() > began + LONGEST_S:
                raise ProcessFailed(f"{waiting} processes are not done within {LONGEST_S:g} s")
            for _, report in group.receive(1.0):
                if report.word == "failed":
                    raise RuntimeError(report.value)
                spans += report.value
                waiting -= 1
    return {
        "limit": limit,
        "joins": len(spans),
        "seconds": round(time.monotonic() - began, 1),
        "numbers": len({span.thing for span in spans}),
        "largest": max(int(span.thing) for span in spans),
        "doubles": len(doubles(spans)),
    }
