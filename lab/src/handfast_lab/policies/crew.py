"""Processes that run a coroutine function and report a list."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

from handfast import AsyncHandfast
from handfast_lab.children import Parent, ProcessFailed, ProcessGroup

__all__ = ["crew"]

LONGEST_S = 1800.0


def member(parent: Parent, url: str, work: Callable[..., Coroutine[Any, Any, list[Any]]], me: str, args: Any) -> None:
    """Work with a client, and report what that returned."""

    async def run() -> list[Any]:
        async with AsyncHandfast(url, label=me) as hf:
            return await work(hf, *args)

    parent.report("done", asyncio.run(run()))
    parent.receive()


def crew(url: str, processes: int, work: Callable[..., Coroutine[Any, Any, list[Any]]], *args: Any) -> list[Any]:
    """Have that many processes work. Return all that they report."""
    began, found, waiting = time.monotonic(), list[Any](), processes
    with ProcessGroup(preload=[work.__module__]) as group:
        for number in range(processes):
            group.start(member, url, work, f"p{number}", args, name=f"p{number}")
        while waiting:
            if time.monotonic() > began + LONGEST_S:
                raise ProcessFailed(f"{waiting} processes are not done within {LONGEST_S:g} s")
            for _, report in group.receive(1.0):
                if report.word == "failed":
                    raise RuntimeError(report.value)
                found += report.value
                waiting -= 1
    return found
