"""What users do with rivals: the kinds of operations that every rival has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from handfast_lab.chaos.operations import RETRY_FOR, Call, OperationKind, nothing
from handfast_lab.rivals.contender import Contender
from handfast_lab.rivals.verbs import AioClient, AioLock

__all__ = ["async_operations"]

WAIT = 0.25
"""Timeout of an acquire while another client holds the lock, in seconds: two polls of a rival that polls."""


def async_operations(
    contender: Contender, mine: AioClient, other: AioClient, handoff: float, reset: Callable[[], object]
) -> list[OperationKind]:
    """Return the operations of the asyncio API.

    The other client hands its lock over after `handoff` seconds. `reset` empties the server when a release fails.
    """

    async def release(lock: AioLock, taken: Any) -> None:
        """Release the lock if the stopped task had acquired it: such a lease is not an orphan."""
        if taken:
            try:
                await lock.release()
            except Exception:  # noqa: BLE001 -- a contender may raise anything
                reset()

    async def held(client: AioClient, name: str) -> AioLock:
        lock = client.lock(name)
        await lock.acquire(0)
        return lock

    async def acquire(name: str) -> Call:
        lock = mine.lock(name)
        return Call(lambda: lock.acquire(0), partial(release, lock))

    async def time_out(name: str) -> Call:
        lock, blocker = mine.lock(name), await held(other, name)

        async def undo(taken: Any) -> None:
            await release(lock, taken)
            await blocker.release()

        return Call(lambda: lock.acquire(WAIT), undo)

    async def wait(name: str) -> Call:
        lock, blocker = mine.lock(name), await held(other, name)

        async def hand_over() -> None:
            await asyncio.sleep(handoff)
            await blocker.release()

        handing_over = asyncio.ensure_future(hand_over())

        async def undo(taken: Any) -> None:
            await release(lock, taken)
            await handing_over

        return Call(lambda: lock.acquire(RETRY_FOR), undo)

    async def give_up(name: str) -> Call:
        lock = await held(mine, name)
        return Call(lock.release, nothing)

    async def extend(name: str) -> Call:
        lock = await held(mine, name)
        return Call(lambda: lock.extend(60), lambda _: lock.release())

    return [
        OperationKind("acquire", acquire),
        OperationKind("acquire, timing out", time_out),
        OperationKind("acquire, handed over", wait),
        OperationKind("release", give_up),
        *([OperationKind("extend", extend)] if contender.extends else []),
    ]
