"""Holds on names under load: what is granted while they last, and when the first grant comes after their end."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from handfast import AsyncHandfast, HeldKind
from handfast_lab.ownership.spans import spread
from handfast_lab.policies.crew import crew

__all__ = ["KINDS", "measure"]

KINDS: tuple[HeldKind, ...] = ("lock", "semaphore", "rwlock", "once")

TASKS, HOLD_S, PAUSE_S = 20, 0.4, 0.2


async def load(hf: AsyncHandfast, kind: HeldKind, holds: int) -> list[tuple[float, float, list[float]]]:
    """Acquire all the time; put the name on hold so often. Return begin and end of each hold, and the grants."""
    grants: list[float] = []
    spans: list[tuple[float, float]] = []
    over = asyncio.Event()

    async def work(number: int) -> None:
        both = hf.rwlock("a")
        made: dict[str, Any] = {
            "lock": hf.lock("a"),
            "semaphore": hf.semaphore("a", 4),
            "once": hf.once("a", keep=0.001),
        }
        made["rwlock"] = both.read() if number % 4 else both.write()
        while not over.is_set():
            async with made[kind]:
                grants.append(time.monotonic())
                await asyncio.sleep(0.001)

    tasks = [asyncio.create_task(work(number)) for number in range(TASKS)]
    for _ in range(holds):
        await asyncio.sleep(PAUSE_S)
        sent = time.monotonic()
        await hf.hold("a", HOLD_S, kind=kind, reason="bench")
        spans.append((time.monotonic(), sent + HOLD_S))
        await asyncio.sleep(HOLD_S + PAUSE_S)
    over.set()
    await asyncio.gather(*tasks)
    return [(began, ended, grants) for began, ended in spans[:1]] + [(began, ended, []) for began, ended in spans[1:]]


def measure(url: str, *, kind: HeldKind, holds: int) -> dict[str, Any]:
    """Measure one kind."""
    found = crew(url, 1, load, kind, holds)
    grants = sorted(at for *_, some in found for at in some)
    inside = sum(began + 0.02 < at < ended for began, ended, _ in found for at in grants)
    after = [min(at for at in grants if at >= ended) - ended for _, ended, _ in found]
    delays = spread(after)
    return {
        "kind": kind,
        "holds": len(found),
        "grants": len(grants),
        "grants inside": inside,
        "first after p50 ms": delays["p50"],
        "max ms": delays["max"],
    }
