"""R26: find keys without a TTL, which would stay on the server indefinitely.

All primitives are acquired, waited for, extended, released, abandoned, resized and force-released at random. First one
caller works, and the TTL of every key is read after each of its steps. Then several callers work at once while the TTLs
are read every few milliseconds. Data that a user adds to an index needs no TTL and is not part of this trial.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count as counting
from typing import Any

import redis

from handfast import HandfastError
from handfast.testing import ServerController
from handfast_lab.chaos.apis import Api, api_of, settled
from handfast_lab.chaos.figures import Figure, examples_of
from handfast_lab.chaos.trials import Tell
from handfast_lab.rivals.contender import Contender, hushed, keys
from handfast_lab.rivals.verbs import LEASE

__all__ = ["COUNT", "ROWS", "applies", "trial"]

ROWS = ("R26",)
COUNT = 10_000
"""Steps, half of them by several callers at once."""

HANDS = 6
"""Callers at once."""

NAMES = ("a", "b", "c")

TTLS = (0.02, 0.2, 5.0)
"""Lease durations in seconds; some leases expire while they are held."""

WAIT = 0.004
"""Timeout of an acquire, in seconds."""

EVERY = 0.003
"""Seconds between two reads of all TTLs."""

LIMIT = 3
"""Permits of a semaphore."""


def applies(contender: Contender) -> bool:  # noqa: ARG001 -- required by the Trial protocol
    """Return True: every contender has keys."""
    return True


def trial(contender: Contender, count: int, seed: int, tell: Tell) -> list[Figure]:
    """Run `count` steps."""
    api = api_of(contender)
    with ServerController() as server, hushed():
        book = _Book(server.admin, count, seed, tell)
        api.run(_one(contender, api, server.url, book))
        with _Looking(book):
            api.run(_several(contender, api, server.url, book))
    wrong = [f"{key}, after {when}" for key, when in book.immortal.items()]
    measured: dict[str, float | str] = {"steps": book.steps, "looks at a key": book.looked}
    what, unit = "keys without a TTL", "keys"
    return [Figure("R26", what, contender.name, book.looks, len(wrong), unit, measured, seed, examples_of(wrong))]


@dataclass
class _Book:
    """What was done, and the keys without a TTL."""

    admin: redis.Redis
    count: int
    seed: int
    tell: Tell
    steps: int = 0
    looks: int = 0
    looked: int = 0
    immortal: dict[str, str] = field(default_factory=dict)
    """By key: the step after which it was first seen without a TTL."""

    def look(self, when: str) -> None:
        """Read the TTL of every key."""
        found = keys(self.admin)
        with self.admin.pipeline(transaction=False) as pipeline:
            for key in found:
                pipeline.pttl(key)
            for key, remaining in zip(found, pipeline.execute(), strict=True):
                if remaining == -1:  # -2: deleted meanwhile
                    self.immortal.setdefault(key, when)
        self.looks += 1
        self.looked += len(found)

    def step(self) -> None:
        """Count one more step."""
        self.steps += 1
        self.tell(self.steps)


class _Looking:
    """Reads all TTLs every few milliseconds on a connection of its own while the block runs."""

    def __init__(self, book: _Book) -> None:
        self._book = book
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="torture-look", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(EVERY):
            self._book.look("steps of several callers")


async def _one(contender: Contender, api: Api, url: str, book: _Book) -> None:
    async with _hands(contender, api, url, book) as hand:
        steps = hand(0)
        for _ in range(book.count // 2):
            book.look(await steps())
            book.step()


async def _several(contender: Contender, api: Api, url: str, book: _Book) -> None:
    numbers = counting(book.count // 2)
    async with _hands(contender, api, url, book) as hand:

        async def work(number: int) -> None:
            steps = hand(number)
            while next(numbers) < book.count:
                await steps()
                book.step()

        def begin(number: int) -> Any:
            return api.start(lambda: work(number))

        working = [begin(number) for number in range(1, HANDS + 1)]
        await api.late(working, 600)
        for one in working:
            one.result()


Steps = Callable[[], Any]
"""One caller. Each call runs one step and returns its name."""


@contextlib.asynccontextmanager
async def _hands(contender: Contender, api: Api, url: str, book: _Book) -> AsyncIterator[Callable[[int], Steps]]:
    """Yield a function that creates callers.

    Those of Handfast use all primitives; a rival's use locks and, if it has them, semaphores.
    """

    def chance(number: int) -> random.Random:
        return random.Random(f"{book.seed}/{number}")  # noqa: S311 -- test data, not security

    made: list[Any] = []  # keep them, and the leases they hold, until the client is closed

    async with contextlib.AsyncExitStack() as stack:
        client: Any = None
        if contender.is_ours:
            client = await stack.enter_async_context(api.client(url))
        elif contender.sync is not None:
            client = stack.enter_context(contender.sync(url))
        elif contender.aio is not None:
            client = await stack.enter_async_context(contender.aio(url))

        def hand(number: int) -> Steps:
            kind = _Ours if contender.is_ours else partial(_Rival, contender)
            made.append(kind(client, chance(number)))
            steps: Steps = made[-1].step
            return steps

        yield hand


class _Ours:
    """A caller that uses Handfast."""

    def __init__(self, hf: Any, chance: random.Random) -> None:
        self._hf, self._chance = hf, chance
        self._leases: list[Any] = []

    async def step(self) -> str:
        """Run a random step and return its name."""
        verbs = [self._acquire, self._acquire, self._try, self._force, self._resize, self._look]
        if self._leases:
            verbs += [self._release, self._release, self._extend, self._lower, self._forget]
        verb = self._chance.choice(verbs)
        with contextlib.suppress(HandfastError):
            return f"{verb.__name__[1:]}: {await verb()}"
        return f"{verb.__name__[1:]}, in vain"

    def _thing(self) -> Any:
        name, ttl = self._chance.choice(NAMES), self._chance.choice(TTLS)
        options = {"ttl": ttl, "renew": self._chance.random() < 0.5}
        kinds = [
            lambda: self._hf.lock(name, **options),
            lambda: self._hf.rlock(name, **options),
            lambda: self._hf.semaphore(name, LIMIT, **options),
            lambda: self._hf.rwlock(name, **options).read(),
            lambda: self._hf.rwlock(name, **options).write(),
            lambda: self._hf.lock_all(NAMES[:2], **options),
        ]
        return self._chance.choice(kinds)()

    async def _acquire(self) -> str:
        thing = self._thing()
        self._leases.append(await settled(thing.acquire(timeout=WAIT)))
        return repr(thing)

    async def _try(self) -> str:
        thing = self._thing()
        lease = await settled(thing.try_acquire())
        if lease is not None:
            self._leases.append(lease)
        return repr(thing)

    def _lease(self) -> Any:
        return self._leases.pop(self._chance.randrange(len(self._leases)))

    async def _release(self) -> str:
        lease = self._lease()
        await settled(lease.release())
        return repr(lease)

    async def _extend(self) -> str:
        lease = self._chance.choice(self._leases)
        await settled(lease.extend(self._chance.choice(TTLS)))
        return repr(lease)

    async def _lower(self) -> str:
        lease = self._chance.choice(self._leases)
        if hasattr(lease, "downgrade"):
            await settled(lease.downgrade())
        return repr(lease)

    async def _forget(self) -> str:
        """Stop renewing a lease without releasing it, as if its holder had died."""
        lease = self._lease()
        lease._driver.stop_renewing(lease._state)  # noqa: SLF001 -- garbage collection would do the same and warn
        return repr(lease)

    async def _force(self) -> str:
        thing = self._chance.choice((self._hf.lock, self._hf.rwlock))(self._chance.choice(NAMES))
        await settled(thing.force_release(reason="trial"))
        return repr(thing)

    async def _resize(self) -> str:
        semaphore = self._hf.semaphore(self._chance.choice(NAMES), LIMIT)
        await settled(semaphore.resize(self._chance.choice((1, 2, 5, None))))
        return repr(semaphore)

    async def _look(self) -> str:
        semaphore = self._hf.semaphore(self._chance.choice(NAMES), LIMIT)
        await settled(semaphore.status())
        return repr(semaphore)


class _Rival:
    """A caller that uses a rival."""

    def __init__(self, contender: Contender, client: Any, chance: random.Random) -> None:
        self._contender, self._client, self._chance = contender, client, chance
        self._locks: list[Any] = []

    async def step(self) -> str:
        """Run a random step and return its name."""
        verbs = [self._acquire, self._acquire]
        if self._locks:
            verbs += [self._release, self._release]
            if self._contender.extends:
                verbs.append(self._extend)
        verb = self._chance.choice(verbs)
        with contextlib.suppress(Exception):  # a contender may raise anything; only its keys count
            await verb()
            return verb.__name__[1:]
        return f"{verb.__name__[1:]}, in vain"

    async def _acquire(self) -> None:
        name, ttl = self._chance.choice(NAMES), max(self._contender.shortest_ttl, self._chance.choice(TTLS))
        if "semaphore" in self._contender.has and self._chance.random() < 0.5:
            lock = self._client.semaphore(name, LIMIT, ttl)
        else:
            lock = self._client.lock(name, ttl)
        if await settled(lock.acquire(self._chance.choice((0, self._wait)))):
            self._locks.append(lock)

    @property
    def _wait(self) -> float:
        return WAIT if self._contender.shortest_wait <= WAIT else 0

    async def _release(self) -> None:
        await settled(self._locks.pop(self._chance.randrange(len(self._locks))).release())

    async def _extend(self) -> None:
        await settled(self._chance.choice(self._locks).extend(LEASE))
