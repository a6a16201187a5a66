"""Flush the server's script cache every 10 ms: no caller may notice.

    R19  Errors raised by any operation of any primitive, and leases that are lost, while SCRIPT FLUSH is sent
         repeatedly. `scripts the server did not know` counts the NOSCRIPT errors that were retried.

Some clients run all operations at random on few names, so that they wait for each other. One holds leases that must be
renewed meanwhile.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Any

from handfast import AcquireTimeout, Script
from handfast.fencing import set_if_newer
from handfast.testing import ServerController
from handfast_lab.chaos.apis import Api, api_of, hushed, settled
from handfast_lab.chaos.figures import Figure, examples_of
from handfast_lab.chaos.trials import Tell
from handfast_lab.rivals.contender import Contender

__all__ = ["COUNT", "ROWS", "applies", "trial"]

ROWS = ("R19",)
COUNT = 10_000
"""Operations of all clients together; acquire, use and release count as one."""

EVERY = 0.01
"""Seconds between two flushes."""

PLAYERS = 4
NAMES = 3
LIMIT = 3

SHORT, SOON = 0.2, 0.003
"""Duration of a lease that must be renewed, and timeout of an acquire that must fail, in seconds."""

RETRY_FOR = 20.0
"""Timeout of any other acquire, in seconds."""

SLOWEST = 50
"""Operations per second below which the trial gives up."""

COUNTER = Script("-- KEYS counter\n-- ARGV by\nreturn redis.call('INCRBY', KEYS[1], ARGV[1])", name="counter")


def applies(contender: Contender) -> bool:
    """Return True for Handfast, which has all the primitives."""
    return contender.is_ours


def trial(contender: Contender, count: int, seed: int, tell: Tell) -> list[Figure]:
    """Run `count` operations."""
    api, book = api_of(contender), _Book(count, monotonic() + RETRY_FOR + count / SLOWEST, tell)
    with hushed(), ServerController() as server:
        with server.flushing_scripts(every=EVERY):
            api.run(_play(api, server.url, book, seed))
        unknown = _calls(server, "errorstats", "errorstat_NOSCRIPT")
        flushes = _calls(server, "commandstats", "cmdstat_script|flush") or _calls(
            server, "commandstats", "cmdstat_script"
        )
    return [
        Figure(
            id="R19",
            what=f"SCRIPT FLUSH every {EVERY * 1000:g} ms",
            contender=contender.name,
            tried=book.done,
            bad=len(book.errors),
            unit="errors seen",
            measured={
                "flushes": flushes,
                "scripts the server did not know": unknown,
                "kinds of operations": len(book.kinds),
            },
            seed=seed,
            examples=examples_of(book.errors),
        )
    ]


@dataclass
class _Book:
    count: int
    until: float
    tell: Tell
    done: int = 0
    errors: list[str] = field(default_factory=list)
    kinds: dict[str, int] = field(default_factory=dict)

    @property
    def goes_on(self) -> bool:
        """Return whether operations and time are left."""
        return self.done < self.count and monotonic() < self.until

    def note(self, kind: str, error: str = "") -> None:
        """Count one more operation. Concurrent threads may lose a few counts."""
        self.done += 1
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        if error:
            self.errors.append(f"{kind}: {error}")
        self.tell(self.done)


async def _play(api: Api, url: str, book: _Book, seed: int) -> None:
    async with api.client(url) as client:
        players = [
            api.start(_Player(api, client, book, random.Random(f"{seed}/{number}")).live)  # noqa: S311 -- test data
            for number in range(PLAYERS)
        ]
        players.append(api.start(partial(_keep, api, client, book)))
        late = await api.late(players, book.until - monotonic() + RETRY_FOR)
        book.errors += [f"{player!r} never came to an end" for player in late]
        book.errors += [repr(player.exception()) for player in players if player.done() and player.exception()]


async def _keep(api: Api, client: Any, book: _Book) -> None:
    """Hold short leases that must be renewed."""
    while book.goes_on:
        leases = [await settled(client.lock(f"kept-{number}", ttl=SHORT).acquire()) for number in range(NAMES)]
        await api.sleep(3 * SHORT)
        for lease in leases:
            kept = await settled(lease.release())
            book.note("renewals", "" if kept else "the lease was lost")


class _Player:
    def __init__(self, api: Api, client: Any, book: _Book, chance: random.Random) -> None:
        self._api, self._client, self._book, self._chance = api, client, book, chance
        self._does: dict[str, Callable[[], Awaitable[None]]] = {
            "lock": partial(self._hold, client.lock),
            "rlock": partial(self._hold, client.rlock),
            "semaphore": partial(self._hold, lambda name: client.semaphore(name, LIMIT)),
            "read": partial(self._hold, lambda name: client.rwlock(name).read()),
            "write": partial(self._hold, lambda name: client.rwlock(name).write()),
            "lock_all": partial(self._hold, lambda name: client.lock_all([name, "a-0"])),
            "give up waiting": self._give_up,
            "downgrade": self._downgrade,
            "status": self._status,
            "resize": self._resize,
            "force_release": self._force_release,
            "autocomplete": self._autocomplete,
            "scores": self._scores,
            "fenced write": self._fenced,
            "script of the user's": self._script,
        }
        self._own = f"own-{chance.getrandbits(32)}"

    async def live(self) -> None:
        """Run random operations until enough are done."""
        kinds = list(self._does)
        while self._book.goes_on:
            kind = self._chance.choice(kinds)
            try:
                await self._does[kind]()
            except Exception as error:  # noqa: BLE001 -- any error would reach a user
                self._book.note(kind, f"{type(error).__name__}: {error}")
            else:
                self._book.note(kind)

    def _name(self) -> str:
        return f"a-{self._chance.randrange(NAMES)}"

    async def _hold(self, make: Callable[[str], Any]) -> None:
        thing = make(self._name())
        if self._chance.random() < 0.5:
            lease = await settled(thing.try_acquire())
            if lease is None:
                return
        else:
            lease = await settled(thing.acquire(timeout=RETRY_FOR))
        if self._chance.random() < 0.5:
            await settled(lease.extend(60))
        await _given(lease)

    async def _give_up(self) -> None:
        lock = self._client.lock(self._own)
        lease = await settled(lock.acquire(timeout=RETRY_FOR))
        try:
            late = await settled(lock.acquire(timeout=SOON))
        except AcquireTimeout:
            await _given(lease)
        else:
            raise RuntimeError(f"{late!r} was granted though {lease!r} was there")

    async def _downgrade(self) -> None:
        lease = await settled(self._client.rwlock(self._name()).write().acquire(timeout=RETRY_FOR))
        await settled(lease.downgrade())
        await _given(lease)

    async def _status(self) -> None:
        await settled(self._client.lock(self._name()).status())

    async def _resize(self) -> None:
        await settled(self._client.semaphore(self._name(), LIMIT).resize(self._chance.randint(2, LIMIT)))

    async def _force_release(self) -> None:
        lock = self._client.lock(self._own, renew=False)
        lease = await settled(lock.acquire(timeout=RETRY_FOR))
        await settled(lock.force_release(reason="a trial"))
        if await settled(lease.release()):
            raise RuntimeError("a lease outlived force_release")

    async def _autocomplete(self) -> None:
        names = self._client.autocomplete("names", ranked=True)
        await settled(names.add({self._name(): self._chance.random()}))
        await settled(names.complete("a"))

    async def _scores(self) -> None:
        scores = self._client.scores("scores")
        await settled(scores.advance({self._name(): self._chance.random()}))
        await settled(scores.newest())

    async def _fenced(self) -> None:
        lease = await settled(self._client.lock(self._own).acquire(timeout=RETRY_FOR))
        await settled(set_if_newer(self._client, f"value-{self._own}", "x", lease.fence))
        await _given(lease)

    async def _script(self) -> None:
        await settled(COUNTER(self._client, counter="counter", by=1))


async def _given(lease: Any) -> None:
    """Release the lease; raise RuntimeError if it was lost."""
    if not await settled(lease.release()):
        raise RuntimeError(f"the lease of {lease.name!r} was lost")


def _calls(server: ServerController, section: str, name: str) -> int:
    """Return how many such calls or errors the server counted."""
    found: Any = server.admin.info(section).get(name, {})
    return int(found.get("calls", found.get("count", 0)))
