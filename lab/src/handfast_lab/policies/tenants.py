"""Tenants under a limit each and a limit in all, taken together: the narrow one first, or the wide one."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from handfast import AsyncHandfast
from handfast_lab.ownership.spans import spread
from handfast_lab.policies.crew import crew

__all__ = ["measure"]

EACH, ALL, JOB_S = 2, 8, 0.02


async def work(hf: AsyncHandfast, jobs: int, others: int, narrow: bool) -> list[tuple[str, float, int]]:  # noqa: FBT001 -- passed on to a process
    """Have one tenant bring many jobs, and others a few. Return each tenant, wait, and how many of its jobs ran at once."""
    found: list[tuple[str, float, int]] = []
    running: dict[str, int] = {}

    async def job(tenant: str) -> None:
        each, everyone = hf.semaphore(f"tenant:{tenant}", EACH), hf.semaphore("all", ALL)
        asked = time.monotonic()
        async with hf.together(*((each, everyone) if narrow else (everyone, each))):
            waited = time.monotonic() - asked
            running[tenant] = running.get(tenant, 0) + 1
            running["all"] = running.get("all", 0) + 1
            found.append((tenant, waited, max(running[tenant] - EACH, running["all"] - ALL)))
            await asyncio.sleep(JOB_S)
            running[tenant] -= 1
            running["all"] -= 1

    busy = [asyncio.create_task(job("busy")) for _ in range(jobs)]
    await asyncio.sleep(JOB_S)
    quiet = [asyncio.create_task(job(f"other{number % others}")) for number in range(jobs // 2)]
    await asyncio.gather(*busy, *quiet)
    return found


def measure(url: str, *, jobs: int, others: int) -> list[dict[str, Any]]:
    """Measure both orders."""
    figures = []
    for name, narrow in (("tenant, then all", True), ("all, then tenant", False)):
        began = time.monotonic()
        found = crew(url, 1, work, jobs, others, narrow)
        waits = spread([wait for tenant, wait, _ in found if tenant != "busy"])
        figures.append(
            {
                "order": name,
                "jobs": len(found),
                "seconds": round(time.monotonic() - began, 2),
                "others' wait p50 ms": waits["p50"],
                "p99 ms": waits["p99"],
                "above a limit": sum(above > 0 for *_, above in found),
            }
        )
    return figures
