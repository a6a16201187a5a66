"""Conversations whose turns are interrupted by the next message, and bursts of which the newest call is kept."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any, NamedTuple

from handfast import AsyncHandfast, LeaseLost, Preempted, Superseded
from handfast_lab.ownership.spans import Span, doubles, spread
from handfast_lab.policies.crew import crew

__all__ = ["measure", "measure_replace"]

GRACE_S, CLEAN_S, WORK_S = 5.0, 0.02, 1.5
"""What a holder is left with, how long it cleans up, and how long a turn takes that is not interrupted."""


class Turn(NamedTuple):
    """A message, and how it ended."""

    conversation: str
    asked: float
    outcome: str
    """``ended``, ``preempted`` or ``superseded``; ``late`` if it lost its lease."""
    fence: int = 0
    began: float = 0.0
    ended: float = 0.0
    """When its block was over, the cleanup included."""
    cleaned: bool = False


async def talk(hf: AsyncHandfast, conversations: int, messages: int, every: float) -> list[Turn]:
    """Send messages to conversations at random."""
    chance = random.Random()  # noqa: S311

    async def turn(conversation: str) -> Turn:
        asked = time.monotonic()
        began, ended, fence, cleaned, outcome = 0.0, 0.0, 0, False, "ended"
        try:
            async with hf.lock(conversation).preempt(grace=GRACE_S, reason="a message") as lease:
                began, fence = time.monotonic(), lease.fence
                try:
                    await asyncio.sleep(WORK_S)
                except asyncio.CancelledError:
                    await asyncio.sleep(CLEAN_S)
                    cleaned = True
                    raise
                finally:
                    ended = time.monotonic()
        except Preempted:
            outcome = "preempted"
        except Superseded:
            outcome = "superseded"
        except LeaseLost:
            outcome = "late"
        return Turn(conversation, asked, outcome, fence, began, ended, cleaned)

    turns = []
    for _ in range(messages):
        turns.append(asyncio.create_task(turn(f"turn:{chance.randrange(conversations)}")))
        await asyncio.sleep(every)
    return list(await asyncio.gather(*turns))


def measure(url: str, *, processes: int, conversations: int, turns: int, every: float) -> dict[str, Any]:
    """Have so many messages sent by all processes together. Return figures."""
    began = time.monotonic()
    found: list[Turn] = crew(url, processes, talk, conversations, turns // processes, every)
    ran = [one for one in found if one.began]
    spans = [Span(one.conversation, "", one.fence, one.began, one.ended) for one in ran]
    newest = {one.conversation: one for one in sorted(found, key=lambda one: one.asked)}
    interrupted = [one for one in ran if one.outcome == "preempted"]
    delays = spread([one.began - one.asked for one in ran])
    counts = {outcome: sum(one.outcome == outcome for one in found) for outcome in ("ended", "preempted", "superseded")}
    return {
        "messages": len(found),
        **counts,
        "lost leases": sum(one.outcome == "late" for one in found),
        "overlaps": len(doubles(spans)),
        "without cleanup": sum(not one.cleaned for one in interrupted),
        "newest did not run": sum(one.outcome != "ended" for one in newest.values()),
        "message to turn p50 ms": delays["p50"],
        "p99 ms": delays["p99"],
        "seconds": round(time.monotonic() - began, 1),
    }


async def burst(hf: AsyncHandfast, calls: int) -> list[str]:
    """Call so often at once. Return how each call ended."""

    async def call() -> str:
        try:
            async with hf.lock("index").replace():
                await asyncio.sleep(0.5)
                return "ran"
        except Superseded:
            return "superseded"

    return list(await asyncio.gather(*(call() for _ in range(calls))))


def measure_replace(url: str, *, calls: int) -> dict[str, Any]:
    """Have so many calls made at once by a process. Return figures."""
    found = crew(url, 1, burst, calls)
    return {"calls": len(found), "ran": found.count("ran"), "superseded": found.count("superseded")}
