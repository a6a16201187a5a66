"""A group whose members die.

Processes have some members each. Every few seconds a process is killed, and another starts. An observer lists the
members five times a second, and watches them.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any

from handfast import AsyncHandfast
from handfast_lab.children import ChildProcess, Parent, ProcessGroup
from handfast_lab.ownership.spans import spread

__all__ = ["measure"]

LOOK_S = 0.2
"""Seconds between two lists of the observer."""


def members(parent: Parent, url: str, count: int, ttl: float, me: str) -> None:
    """Be so many members."""

    async def run() -> None:
        async with AsyncHandfast(url, label=me) as hf:
            joined = [await hf.group("bench", ttl=ttl).join(value=me) for _ in range(count)]
            parent.report("joined", [one.fence for one in joined])
            await asyncio.Event().wait()

    asyncio.run(run())


def observer(parent: Parent, url: str) -> None:
    """Report each list of members, with the moments before and after, and each change seen."""

    async def look(hf: AsyncHandfast) -> None:
        while True:
            before = time.monotonic()
            listed = await hf.group("bench").members()
            parent.report("listed", (before, frozenset(one.fence for one in listed)))
            await asyncio.sleep(LOOK_S)

    async def watch(hf: AsyncHandfast) -> None:
        async for listed in hf.group("bench").watch():
            parent.report("saw", frozenset(one.fence for one in listed))

    async def run() -> None:
        async with AsyncHandfast(url) as hf:
            await asyncio.gather(look(hf), watch(hf))

    asyncio.run(run())


def measure(url: str, *, processes: int, count: int, ttl: float, seconds: float, every: float) -> dict[str, Any]:
    """Kill a process every so many seconds, for so long. Return figures."""
    joined: dict[int, tuple[str, float]] = {}
    died: dict[str, float] = {}
    late: list[float] = []
    told: list[float] = []
    missing = lists = 0
    numbers = itertools.count(1)
    with ProcessGroup(preload=["handfast_lab.ownership.groups"]) as group:
        children: list[ChildProcess] = []
        watched: dict[int, float] = {}

        def start() -> None:
            name = f"m{next(numbers)}"
            children.append(group.start(members, url, count, ttl, name, name=name))

        def follow(duration: float) -> None:
            nonlocal missing, lists
            until = time.monotonic() + duration
            while time.monotonic() < until:
                for child, report in group.receive(0.01):
                    if report.word == "failed":
                        raise RuntimeError(report.value)
                    if report.word == "joined":
                        joined.update((fence, (child.name, report.at)) for fence in report.value)
                    elif report.word == "listed":
                        before, listed = report.value
                        lists += 1
                        late.extend(
                            before - died[joined[one][0]] for one in listed if one in joined and joined[one][0] in died
                        )
                        alive = [one for one, (name, at) in joined.items() if name not in died and at < before]
                        missing += sum(one not in listed for one in alive)
                    else:
                        for one in report.value - watched.keys():
                            watched[one] = report.at

        for _ in range(processes):
            start()
        follow(10.0)
        observing = group.start(observer, url, name="observer")
        follow(3.0)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            victim = children.pop(0)
            died[victim.name] = time.monotonic()
            victim.kill()
            group.discard(victim)
            start()
            follow(every)
        follow(2 * ttl)
        group.discard(observing)
        told += [watched[one] - at for one, (_, at) in joined.items() if one in watched and at > min(died.values())]
    return {
        "members": processes * count,
        "ttl": ttl,
        "killed": len(died) * count,
        "lists": lists,
        "live_and_missing": missing,
        "dead_listed_for_s": round(max(late, default=0.0), 3),
        "that_less_ttl_ms": round(1000 * (max(late, default=0.0) - ttl), 1),
        "seen_after_joining_ms": spread(told),
    }
