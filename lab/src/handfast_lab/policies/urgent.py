"""A semaphore under batch requests and a few urgent ones: in plain order, and with a head start."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from handfast import AsyncHandfast
from handfast_lab.ownership.spans import spread
from handfast_lab.policies.crew import crew

__all__ = ["measure"]

PERMITS, HEAD_START_S = 8, 2.0


async def ask(hf: AsyncHandfast, rate: int, seconds: float, hold: float, head_start: float) -> list[tuple[str, float]]:
    """Make batch requests at a rate, and one urgent request for a hundred of them. Return the waits."""
    waits: list[tuple[str, float]] = []
    semaphore = hf.semaphore("gpu", PERMITS)

    async def request(kind: str, head_start: float) -> None:
        async with semaphore.acquire(head_start=head_start) as lease:
            waits.append((kind, lease.waited))
            await asyncio.sleep(hold)

    tasks, began = [], time.monotonic()
    for number in range(round(rate * seconds)):
        is_urgent = number % 100 == 99
        tasks.append(asyncio.create_task(request("urgent" if is_urgent else "batch", head_start if is_urgent else 0.0)))
        await asyncio.sleep(max(0.0, began + (number + 1) / rate - time.monotonic()))
    await asyncio.gather(*tasks)
    return waits


def measure(url: str, *, rate: int, seconds: float, load: float) -> list[dict[str, Any]]:
    """Measure plain order, and a head start. ``load``: permits that are wanted, as a share of those that there are."""
    figures = []
    for name, head_start in (("plain order", 0.0), (f"head start {HEAD_START_S:g} s", HEAD_START_S)):
        waits = crew(url, 2, ask, rate // 2, seconds, load * PERMITS / rate, head_start)
        one: dict[str, Any] = {"order": name}
        for kind in ("batch", "urgent"):
            found = spread([wait for its_kind, wait in waits if its_kind == kind])
            one |= {
                kind: found["n"],
                f"{kind} p50 ms": found["p50"],
                f"{kind} p99 ms": found["p99"],
                f"{kind} longest": found["max"],
            }
        figures.append(one)
    return figures
