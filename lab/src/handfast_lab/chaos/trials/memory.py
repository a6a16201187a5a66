"""Fill the server's memory with eviction off: leases can still be released, and no new lease is granted.

    R17  At maxmemory with noeviction, every release, extension, handoff and cancellation must succeed. An acquire must
         raise ServerRefused or report that the lock is held, and must leave the keys of that name unchanged, byte for
         byte (DUMP).

Every kind of lock is tried on names that are free, were used before, are held, are held with waiters, or were held by
an expired lease. Semaphores, readers and lock_all are also tried on names of which another client holds a part.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Any

import redis

from handfast import AcquireTimeout, ServerRefused
from handfast._protocol.acquire import HEAD_POLL_S
from handfast.testing import ServerController
from handfast_lab.chaos.apis import Api, Started, api_of, log_silenced, settled
from handfast_lab.chaos.figures import Figure, Tally
from handfast_lab.chaos.operations import LIMIT, PRIMITIVES
from handfast_lab.chaos.trials import Progress, one_by_one
from handfast_lab.rivals.contender import Contender

__all__ = ["COUNT", "ROWS", "applies", "trial"]

ROWS = ("R17",)
COUNT = 40
"""Rounds. In each, the server runs out of memory once, and every kind of lock is tried."""

RETRY_FOR, SOON, SHORT = 10.0, 0.4, 0.02
"""Timeouts in seconds: of a waiter to be granted, of one that is to time out, and of an acquire that must fail."""

OVER = 0.003
"""Duration of a lease that is to expire, in seconds."""

WHOLE: dict[str, Callable[..., Any]] = {
    **PRIMITIVES,
    "semaphore": lambda client, name, **options: _AllPermits(PRIMITIVES["semaphore"](client, name, **options)),
}
"""What is acquired, by kind."""

BLOCKERS: dict[str, Callable[..., Any]] = WHOLE | {"reader": WHOLE["writer"]}
"""What another client holds to block it, by kind."""

PARTS: dict[str, Callable[..., Any]] = {
    "semaphore": PRIMITIVES["semaphore"],
    "reader": PRIMITIVES["reader"],
    "lock_all": PRIMITIVES["lock"],
}
"""What another client holds of it, where a part can be held."""


class _AllPermits:
    """A semaphore of which every acquire acquires all permits."""

    def __init__(self, semaphore: Any) -> None:
        self._semaphore = semaphore
        self.status = semaphore.status

    def acquire(self, timeout: float | None = None) -> Any:
        return self._semaphore.acquire(permits=LIMIT, timeout=timeout)

    def try_acquire(self) -> Any:
        return self._semaphore.try_acquire(permits=LIMIT)


def applies(contender: Contender) -> bool:
    """Return True for Handfast: the other libraries do not promise this."""
    return contender.is_ours


def trial(contender: Contender, count: int, seed: int, progress: Progress) -> list[Figure]:
    """Run out of memory `count` times with every kind of lock."""
    api, tallies = api_of(contender), _Tallies()
    with log_silenced(), ServerController() as server:
        api.run(_rounds(api, server, count, tallies, progress))
    return [
        tallies.releases.figure(
            "R17", "no memory: release, extend, hand-off, cancel", contender.name, "failed", seed=seed
        ),
        tallies.acquires.figure("R17", "no memory: acquire", contender.name, "not refused, or left a trace", seed=seed),
    ]


@dataclass
class _Tallies:
    releases: Tally = field(default_factory=Tally)
    acquires: Tally = field(default_factory=Tally)


async def _rounds(api: Api, server: ServerController, count: int, tallies: _Tallies, progress: Progress) -> None:
    tick = one_by_one(progress)
    with redis.Redis.from_url(server.url) as raw:
        async with api.client(server.url) as one, api.client(server.url) as other:
            for _ in range(count):
                tests = [_KindTest(api, raw, one, other, kind, tallies) for kind in WHOLE]
                for test in tests:
                    await test.prepare()
                await api.sleep(OVER)
                for test in tests:
                    await test.queue_short()
                with server.out_of_memory():
                    waiting = [not test.leaving.done() for test in tests]
                    for test, still_waits in zip(tests, waiting, strict=True):
                        await test.try_all(still_waits=still_waits)
                server.admin.flushall()
                tick()


@dataclass
class _KindTest:
    """Everything that is tried with one kind while the memory is full."""

    api: Api
    raw: redis.Redis
    one: Any
    other: Any
    kind: str
    tallies: _Tallies

    async def prepare(self) -> None:
        """Acquire and queue everything that the tests need."""
        self.begun = monotonic()
        names = "release", "extend", "hand-off", "held", "wanted", "cancel"
        self.held = {name: await self.hold(name) for name in names}
        self.refused = ["free", "used", "expired", "held", "wanted"]
        await settled((await self.hold("used")).release())
        await settled(BLOCKERS[self.kind](self.other, self.name("expired"), ttl=OVER, renew=False).acquire())
        if self.kind in PARTS:
            self.held["part"] = await settled(PARTS[self.kind](self.other, self.name("part"), renew=False).acquire())
            self.refused.append("part")
        self.handed = {name: await self.queue(name, RETRY_FOR) for name in ("hand-off", "wanted")}

    async def queue_short(self) -> None:
        """Queue a waiter whose timeout ends while the memory is full."""
        self.leaving = await self.queue("cancel", SOON)

    async def try_all(self, *, still_waits: bool) -> None:
        """Try everything while the memory is full.

        ``still_waits``: whether the waiter for the cancellation is still queued.
        """
        for name in self.refused:
            await self.refuse(name)
        await self.succeed("extend", partial(self.extended, self.held["extend"]))
        for name, waiter in self.handed.items():
            await self.succeed("hand-off", partial(self.handed_over, self.held.pop(name), waiter))
        if still_waits:
            await self.succeed("cancel", partial(self.cancelled, self.leaving))
        for lease in self.held.values():
            await self.succeed("release", partial(self.released, lease))

    def name(self, what: str) -> str:
        """Return the name of the lock for a test."""
        return f"{self.kind}-{what}"

    async def hold(self, name: str) -> Any:
        """Acquire as the other client."""
        return await settled(BLOCKERS[self.kind](self.other, self.name(name), renew=False).acquire(timeout=RETRY_FOR))

    async def queue(self, name: str, timeout: float) -> Started:
        """Start a waiter and return once it is queued."""

        async def wait() -> bool:
            try:
                lease = await settled(WHOLE[self.kind](self.one, self.name(name), renew=False).acquire(timeout=timeout))
            except AcquireTimeout:
                return False
            return bool(await settled(lease.release()))

        async def is_queued() -> bool:
            return bool((await settled(self.status(name))).waiting)

        started = self.api.start(wait)
        await self.api.eventually(is_queued)
        return started

    def status(self, name: str) -> Any:
        """Return the status of the named lock."""
        thing = WHOLE["lock" if self.kind == "lock_all" else self.kind](self.other, self.name(name))
        return thing.status()

    async def refuse(self, name: str) -> None:
        """Check that no acquire of this name succeeds or changes its keys."""
        kinds = PARTS if name == "part" and self.kind == "semaphore" else WHOLE
        for verb, options in (("try_acquire", {}), ("acquire", {"timeout": SHORT})):
            before = self.state(name)
            self.tallies.acquires.tried += 1
            answer: object
            try:
                answer = await settled(
                    getattr(kinds[self.kind](self.one, self.name(name), renew=False), verb)(**options)
                )
            except ServerRefused as error:
                answer = "refused" if error.changed_nothing else error
            except Exception as error:  # noqa: BLE001 -- any other answer is wrong
                answer = error
            others_may_hold = name in ("held", "wanted") or (name == "part" and self.kind == "lock_all")
            if answer is None and others_may_hold:
                answer = "reported as held"
            if isinstance(answer, str):
                self.tallies.acquires.count(answer)
            else:
                self.tallies.acquires.wrong.append(f"{self.kind}, {name}, {verb}: the answer was {answer!r}")
            after = self.state(name)
            if after != before and name == "wanted" and monotonic() > self.begun + HEAD_POLL_S - SOON:
                self.tallies.acquires.count("a waiter may have polled")
            elif after != before:
                changed = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
                self.tallies.acquires.wrong.append(f"{self.kind}, {name}, {verb}: it changed {b', '.join(changed)!r}")

    async def succeed(self, what: str, action: Callable[[], Awaitable[str]]) -> None:
        """Run an action that must succeed although the memory is full."""
        self.tallies.releases.tried += 1
        try:
            trouble = await action()
        except Exception as error:  # noqa: BLE001 -- any error is a failure
            trouble = f"{type(error).__name__}: {error}"
        if trouble:
            self.tallies.releases.wrong.append(f"{self.kind}, {what}: {trouble}")
        else:
            self.tallies.releases.count(what)

    async def released(self, lease: Any) -> str:
        """Release a lease."""
        return "" if await settled(lease.release()) else "reported as lost"

    async def extended(self, lease: Any) -> str:
        """Extend a lease."""
        before = lease.remaining()
        await settled(lease.extend(60))
        return "" if lease.remaining() > before else "it lasts no longer"

    async def handed_over(self, lease: Any, waiter: Started) -> str:
        """Release a lease to a waiter, which releases it in turn."""
        if not await settled(lease.release()):
            return "reported as lost"
        if await self.api.late([waiter], RETRY_FOR):
            return "the waiter did not acquire"
        return "" if waiter.result() else "the waiter did not acquire, or lost the lease"

    async def cancelled(self, waiter: Started) -> str:
        """Check that the waiter times out and leaves the queue."""
        if await self.api.late([waiter], RETRY_FOR):
            return "it waits still"
        if waiter.result():
            return "it acquired a held lock"
        waiting = (await settled(self.status("cancel"))).waiting
        return f"{waiting} still queued" if waiting else ""

    def state(self, name: str) -> dict[bytes, Any]:
        """Return the DUMP of every key of that name."""
        names = list(self.raw.scan_iter(f"*:{self.name(name)}*", count=1000))
        with self.raw.pipeline(transaction=False) as pipe:
            for key in names:
                pipe.dump(key)
            return dict(zip(names, pipe.execute(), strict=True))
