"""R26: find keys without a TTL, which would stay on the server indefinitely.

All primitives are acquired, waited for, extended, released, abandoned, resized and force-released at random. First one
caller works, and the TTL of every key is read after each of its steps. Then several callers work at once while the TTLs
are read every few milliseconds. Data that a user adds to an index needs no TTL and is not part of this trial.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeAlias

import redis

from handfast import HandfastError
from handfast.testing import ServerController
from handfast_lab.chaos.apis import log_silenced, opened, settled
from handfast_lab.chaos.background import repeating
from handfast_lab.chaos.figures import Figure
from handfast_lab.chaos.operations import LIMIT, PRIMITIVES
from handfast_lab.chaos.trials import Progress
from handfast_lab.chaos.trials.soak import Soak
from handfast_lab.rivals.contender import Contender, keys
from handfast_lab.rivals.verbs import LEASE

__all__ = ["COUNT", "ROWS", "applies", "trial"]

ROWS = ("R26",)
COUNT = 10_000
"""Steps, half of them by several callers at once."""

CALLERS = 6
"""Callers at once."""

NAMES = ("a", "b", "c")

TTLS = (0.02, 0.2, 5.0)
"""Lease durations in seconds; some leases expire while they are held."""

WAIT = 0.004
"""Timeout of an acquire, in seconds."""

EVERY = 0.003
"""Seconds between two reads of all TTLs."""

Step: TypeAlias = Callable[[], Awaitable[Any]]
"""A step of a caller. It returns what it was done with."""

TIMEOUT = 600.0
"""Seconds within which the callers must be done."""


def applies(contender: Contender) -> bool:  # noqa: ARG001 -- required by the Trial protocol
    """Return True: every contender has keys."""
    return True


def trial(contender: Contender, count: int, seed: int, progress: Progress) -> list[Figure]:
    """Run `count` steps."""
    soak = Soak(contender, count, seed, progress)
    with ServerController() as server, log_silenced():
        reader = _TTLReader(server.admin)
        soak.api.run(_run(soak, server.url, reader))
    soak.wrong += [f"{key}, after {when}" for key, when in reader.lasting.items()]
    measured: dict[str, float | str] = {"steps": soak.done, "TTLs read": reader.keys}
    return [soak.figure("R26", "keys without a TTL", "keys", measured, tried=reader.reads)]


class _TTLReader:
    """Reads the TTL of every key, and records the keys without one."""

    def __init__(self, admin: redis.Redis) -> None:
        self._admin = admin
        self.reads = 0
        self.keys = 0
        self.lasting: dict[str, str] = {}
        """By key: the step after which it was first seen without a TTL."""

    def read(self, when: str) -> None:
        """Read all TTLs. ``when`` names the last step."""
        found = keys(self._admin)
        with self._admin.pipeline(transaction=False) as pipeline:
            for key in found:
                pipeline.pttl(key)
            for key, remaining in zip(found, pipeline.execute(), strict=True):
                if remaining == -1:  # -2: deleted since
                    self.lasting.setdefault(key, when)
        self.reads += 1
        self.keys += len(found)


async def _run(soak: Soak, url: str, reader: _TTLReader) -> None:
    ours = soak.contender.is_ours
    caller = _OurCaller if ours else _RivalCaller
    async with soak.api.client(url) if ours else opened(soak.contender, url) as client:
        alone = caller(soak, client, 0)
        for _ in range(soak.count // 2):
            soak.claim()
            reader.read(await alone.step())
            soak.step()
        callers = [caller(soak, client, number) for number in range(1, CALLERS + 1)]
        with repeating(partial(reader.read, "steps of several callers"), lambda: EVERY):
            await soak.run([one.run for one in callers], TIMEOUT)


class _StepCaller(ABC):
    """Runs random steps, and keeps the leases that it holds until its client is closed."""

    def __init__(self, soak: Soak, client: Any, number: int) -> None:
        self._soak, self._client, self._chance = soak, client, soak.chance(number)
        self._held: list[Any] = []

    async def run(self) -> None:
        """Run steps until enough are done."""
        while self._soak.claim() is not None:
            await self.step()
            self._soak.step()

    async def step(self) -> str:
        """Run a random step and describe it."""
        step = self._chance.choice(self._steps())
        name = step.__name__[1:]
        try:
            about = await step()
        except Exception as error:
            if self._soak.contender.is_ours and not isinstance(error, HandfastError):
                raise
            return f"{name}, which failed"  # a rival may raise anything; only its keys count
        return f"{name}: {about!r}" if about is not None else name

    @abstractmethod
    def _steps(self) -> list[Step]:
        """Return the possible steps, the frequent ones several times."""

    def _taken(self) -> Any:
        """Return a lease that the caller will no longer keep."""
        return self._held.pop(self._chance.randrange(len(self._held)))


class _OurCaller(_StepCaller):
    def _steps(self) -> list[Step]:
        steps: list[Step] = [
            self._acquire,
            self._acquire,
            self._try_acquire,
            self._force_release,
            self._resize,
            self._status,
        ]
        if self._held:
            steps += [self._release, self._release, self._extend, self._downgrade, self._abandon]
        return steps

    def _thing(self) -> Any:
        name, kind = self._chance.choice(NAMES), self._chance.choice(list(PRIMITIVES))
        options = {"ttl": self._chance.choice(TTLS), "renew": self._chance.random() < 0.5}
        if kind == "lock_all":
            return self._client.lock_all(NAMES[:2], **options)
        return PRIMITIVES[kind](self._client, name, **options)

    def _semaphore(self) -> Any:
        return self._client.semaphore(self._chance.choice(NAMES), LIMIT)

    async def _acquire(self) -> Any:
        thing = self._thing()
        self._held.append(await settled(thing.acquire(timeout=WAIT)))
        return thing

    async def _try_acquire(self) -> Any:
        thing = self._thing()
        lease = await settled(thing.try_acquire())
        if lease is not None:
            self._held.append(lease)
        return thing

    async def _release(self) -> Any:
        lease = self._taken()
        await settled(lease.release())
        return lease

    async def _extend(self) -> Any:
        lease = self._chance.choice(self._held)
        await settled(lease.extend(self._chance.choice(TTLS)))
        return lease

    async def _downgrade(self) -> Any:
        lease = self._chance.choice(self._held)
        if hasattr(lease, "downgrade"):
            await settled(lease.downgrade())
        return lease

    async def _abandon(self) -> Any:
        """Stop renewing a lease without releasing it, as if its holder had died."""
        lease = self._taken()
        lease._driver.stop_renewing(lease._state)  # noqa: SLF001 -- garbage collection would do the same and warn
        return lease

    async def _force_release(self) -> Any:
        thing = self._chance.choice((self._client.lock, self._client.rwlock))(self._chance.choice(NAMES))
        await settled(thing.force_release(reason="trial"))
        return thing

    async def _resize(self) -> Any:
        semaphore = self._semaphore()
        await settled(semaphore.resize(self._chance.choice((1, 2, 5, None))))
        return semaphore

    async def _status(self) -> Any:
        semaphore = self._semaphore()
        await settled(semaphore.status())
        return semaphore


class _RivalCaller(_StepCaller):
    """Uses locks and, if the rival has them, semaphores."""

    def _steps(self) -> list[Step]:
        steps: list[Step] = [self._acquire, self._acquire]
        if self._held:
            steps += [self._release, self._release, *([self._extend] if self._soak.contender.extends else [])]
        return steps

    async def _acquire(self) -> None:
        contender = self._soak.contender
        name, ttl = self._chance.choice(NAMES), max(contender.shortest_ttl, self._chance.choice(TTLS))
        if "semaphore" in contender.has and self._chance.random() < 0.5:
            lock = self._client.semaphore(name, LIMIT, ttl)
        else:
            lock = self._client.lock(name, ttl)
        longest = WAIT if contender.shortest_wait <= WAIT else 0
        if await settled(lock.acquire(self._chance.choice((0, longest)))):
            self._held.append(lock)

    async def _release(self) -> None:
        await settled(self._taken().release())

    async def _extend(self) -> None:
        await settled(self._chance.choice(self._held).extend(LEASE))
