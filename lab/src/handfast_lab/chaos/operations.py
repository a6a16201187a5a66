"""The calls of Handfast's asyncio API that a trial cancels at a point of its choice.

`PRIMITIVES` makes what can be acquired. `Operations` prepares single calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from handfast_lab.chaos.apis import Api, settled

__all__ = ["BLOCKERS", "LIMIT", "PRIMITIVES", "RETRY_FOR", "Call", "OperationKind", "Operations", "nothing", "second"]

LIMIT = 3
"""Permits of a semaphore."""

RETRY_FOR = 10.0
"""Seconds after which an operation is given up."""


def second(name: str) -> str:
    """Return the second name of a pair that is locked together."""
    return f"{name}-too"


PRIMITIVES: Mapping[str, Callable[..., Any]] = {
    "lock": lambda client, name, **options: client.lock(name, **options),
    "rlock": lambda client, name, **options: client.rlock(name, **options),
    "semaphore": lambda client, name, **options: client.semaphore(name, LIMIT, **options),
    "reader": lambda client, name, **options: client.rwlock(name, **options).read(),
    "writer": lambda client, name, **options: client.rwlock(name, **options).write(),
    "lock_all": lambda client, name, **options: client.lock_all([name, second(name)], **options),
}
"""What can be acquired, by kind: functions of a client, a name and the options of the primitive."""

BLOCKERS: Mapping[str, Callable[[Any, str], Any]] = {
    "lock": lambda client, name: client.lock(name).acquire(),
    "rlock": lambda client, name: client.lock(name).acquire(),
    "semaphore": lambda client, name: client.semaphore(name, LIMIT).acquire(permits=LIMIT),
    "reader": lambda client, name: client.rwlock(name).write().acquire(),
    "writer": lambda client, name: client.rwlock(name).read().acquire(),
    "lock_all": lambda client, name: client.lock(second(name)).acquire(),
}
"""By kind, the acquire with which another client makes its callers wait."""


class Call(NamedTuple):
    """A call that is ready to be made, on one name."""

    make: Callable[[], Any]
    """Returns an awaitable."""
    undo: Callable[[Any], Awaitable[object]]
    """Called with the result of the call, or None. Afterwards nothing may remain on the server."""


class OperationKind(NamedTuple):
    """A kind of operation."""

    name: str
    prepare: Callable[[str], Awaitable[Call]]
    """Prepares the call on the given name."""


async def nothing(_result: Any) -> None:
    """Undo nothing: what was stopped is not called again."""


async def release(lease: Any) -> None:
    """Release what an acquire has returned, if anything."""
    if lease is not None:
        await settled(lease.release())


@dataclass(frozen=True)
class Operations:
    """All operations of Handfast that send requests, made by one client while another one is in the way."""

    api: Api
    mine: Any
    other: Any
    ttl: float
    """Lease duration, in seconds."""
    timeout: float
    """Timeout of an acquire that fails, in seconds."""
    handoff: float
    """Seconds after which the other client releases the lock for which an acquire waits."""

    def all(self) -> list[OperationKind]:
        """Return the operations."""
        kinds = {kind: kind.replace("_", " ") for kind in PRIMITIVES}
        return [
            *(OperationKind(f"acquire, {text}", partial(self._acquire, kind)) for kind, text in kinds.items()),
            *(
                OperationKind(f"acquire, {text}, timing out", partial(self._time_out, kind))
                for kind, text in kinds.items()
            ),
            *(
                OperationKind(f"acquire, {text}, handed over", partial(self._wait, kind))
                for kind, text in kinds.items()
            ),
            *(
                OperationKind(f"with, {text}, handed over", partial(self._wait_in_block, kind))
                for kind, text in kinds.items()
            ),
            OperationKind("with", self._enter),
            OperationKind("try_acquire", self._try_acquire),
            OperationKind("release", partial(self._release, "lock")),
            OperationKind("release, lock all", partial(self._release, "lock_all")),
            OperationKind("release, others wait", self._hand_over),
            OperationKind("extend", self._extend),
            OperationKind("downgrade", self._downgrade),
            OperationKind("force_release", self._force_release),
            OperationKind("status", self._status),
        ]

    def _thing(self, kind: str, name: str) -> Any:
        return PRIMITIVES[kind](self.mine, name, ttl=self.ttl)

    async def _acquire(self, kind: str, name: str) -> Call:
        thing = self._thing(kind, name)
        return Call(thing.acquire, release)

    async def _try_acquire(self, name: str) -> Call:
        lock = self._thing("lock", name)
        return Call(lock.try_acquire, release)

    async def _time_out(self, kind: str, name: str) -> Call:
        thing, lease = self._thing(kind, name), await settled(BLOCKERS[kind](self.other, name))

        async def undo(got: Any) -> None:
            await release(got)
            await release(lease)

        return Call(lambda: thing.acquire(timeout=self.timeout), undo)

    async def _wait(self, kind: str, name: str) -> Call:
        thing, handoff = self._thing(kind, name), await self._handoff(kind, name)

        async def undo(got: Any) -> None:
            await release(got)
            await handoff()

        return Call(lambda: thing.acquire(timeout=RETRY_FOR), undo)

    async def _wait_in_block(self, kind: str, name: str) -> Call:
        handoff = await self._handoff(kind, name)

        async def undo(_result: Any) -> None:
            await handoff()

        return self._block(self._thing(kind, name), undo)

    async def _enter(self, name: str) -> Call:
        return self._block(self._thing("lock", name), nothing)

    def _block(self, thing: Any, undo: Callable[[Any], Awaitable[object]]) -> Call:
        async def block() -> None:
            async with thing:
                await asyncio.sleep(0)

        return Call(block, undo)

    async def _handoff(self, kind: str, name: str) -> Callable[[], Awaitable[object]]:
        """Let the other client hold the name and soon release it. Return a function that waits for the release."""
        lease = await settled(BLOCKERS[kind](self.other, name))

        async def hand_over() -> None:
            await self.api.sleep(self.handoff)
            await release(lease)

        handoff = self.api.start(hand_over)
        return partial(self.api.late, [handoff], RETRY_FOR)

    async def _release(self, kind: str, name: str) -> Call:
        lease = await settled(self._thing(kind, name).acquire())
        return Call(lease.release, nothing)

    async def _hand_over(self, name: str) -> Call:
        lease, other = await settled(self._thing("lock", name).acquire()), self.other.lock(name)

        async def wait() -> None:
            await release(await settled(other.acquire(timeout=RETRY_FOR)))

        async def is_queued() -> bool:
            return bool((await settled(other.status())).waiting)

        waiter = self.api.start(wait)
        await self.api.eventually(is_queued)

        async def undo(_result: Any) -> None:
            await self.api.late([waiter], RETRY_FOR)

        return Call(lease.release, undo)

    async def _extend(self, name: str) -> Call:
        lease = await settled(self._thing("lock", name).acquire())
        return Call(lambda: lease.extend(2 * self.ttl), lambda _: release(lease))

    async def _downgrade(self, name: str) -> Call:
        lease = await settled(self._thing("writer", name).acquire())
        return Call(lease.downgrade, lambda _: release(lease))

    async def _force_release(self, name: str) -> Call:
        lock, lease = self._thing("lock", name), await settled(self.other.lock(name).acquire())
        return Call(lock.force_release, lambda _: release(lease))

    async def _status(self, name: str) -> Call:
        lock, lease = self._thing("lock", name), await settled(self.other.lock(name).acquire())
        return Call(lock.status, lambda _: release(lease))
