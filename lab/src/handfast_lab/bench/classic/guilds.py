"""The second published table: clients that complete prefixes among the members of one guild."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice, takewhile
from string import ascii_lowercase
from time import monotonic

import redis

from handfast import Handfast, classic
from handfast.classic import watch
from handfast_lab.bench.contenders import HANDFAST
from handfast_lab.bench.figures import FIRST, LUA
from handfast_lab.bench.workload import Closing, Conn, MeasuredClient, ProcessWorkload, Scene
from handfast_lab.rivals.listings import WatchCounted

__all__ = ["MEMBERS", "GuildClient", "Guilds", "expected", "members"]

MEMBERS, SEED = 1000, 2012
"""Number of names in the guild, and the seed that makes them the same in every run."""

Complete = Callable[[str], Iterable[str | bytes]]
Listing = Callable[[redis.Redis, str, str], Iterable[str | bytes]]


def members() -> list[str]:
    """Return the names in order; each has four to ten lower-case letters."""
    chance = random.Random(SEED)  # noqa: S311 -- test data, not secrets
    names: set[str] = set()
    while len(names) < MEMBERS:
        names.add("".join(chance.choices(ascii_lowercase, k=chance.randint(4, 10))))
    return sorted(names)


def expected(names: Sequence[str], prefix: str) -> list[str]:
    """Return the correct answer: the first ten of the ordered names with this prefix."""
    return list(islice(takewhile(lambda name: name.startswith(prefix), names[bisect_left(names, prefix) :]), 10))


class GuildClient(MeasuredClient):
    """A client that completes one prefix after the other; its number seeds the choice."""

    def __init__(self, client: Closing, complete: Complete, number: int, *, whole: bool = True) -> None:
        super().__init__(client)
        self._complete = complete
        self._chance = random.Random(SEED + number)  # noqa: S311 -- see above
        self._names = members()
        self._check(whole=whole)

    def act(self) -> None:
        """Complete a prefix of one to three letters."""
        prefix = self._chance.choice(self._names)[: self._chance.randint(1, 3)]
        self._tries += 1
        self._complete(prefix)
        self.succeeded.append(monotonic())

    def _check(self, *, whole: bool) -> None:
        """Check some answers. Under concurrency the first form drops other clients' sentinels, and names with them."""
        for prefix in (self._names[0][:3], self._names[MEMBERS // 2][:2], self._names[-1][:1]):
            right = expected(self._names, prefix)
            answer = [name.decode() if isinstance(name, bytes) else name for name in self._complete(prefix)]
            if answer != right and (whole or not set(answer) <= set(right)):
                raise RuntimeError(f"{prefix!r} was completed to {answer}, not to {right}")


def _classic(listing: Listing, scene: Scene, number: int, *, whole: bool = True) -> MeasuredClient:
    conn: Conn = WatchCounted.from_url(scene.url)
    return GuildClient(conn, partial(listing, conn, scene.name), number, whole=whole)


def _ours(scene: Scene, number: int) -> MeasuredClient:
    client = Handfast(scene.url)
    return GuildClient(client, client.autocomplete(scene.name).complete, number)


CONTENDERS: Mapping[str, Callable[[Scene, int], MeasuredClient]] = {
    FIRST: partial(_classic, watch.autocomplete_on_prefix, whole=False),
    LUA: partial(_classic, classic.autocomplete_on_prefix),
    HANDFAST: _ours,
}
"""By name. Each value creates the client with the given number."""


class Guilds(ProcessWorkload):
    """The members of one guild, completed by each contender."""

    contenders = tuple(CONTENDERS)
    limit = None

    def client(self, scene: Scene, number: int) -> MeasuredClient:
        return CONTENDERS[scene.contender](scene, number)

    def prepare(self, scene: Scene, conn: Conn) -> None:
        """Add all members."""
        if scene.contender == HANDFAST:
            with Handfast(conn) as client:
                client.autocomplete(scene.name).add(members())
        else:
            conn.zadd(f"members:{scene.name}", dict.fromkeys(members(), 0))

    def inspect(self, scene: Scene, conn: Conn) -> list[str]:
        """Check that the members are unchanged and no sentinel remains."""
        if scene.contender == HANDFAST:
            return []
        left = [name.decode() for name in conn.zrange(f"members:{scene.name}", 0, -1)]
        return [] if left == members() else [f"the guild has {len(left)} members and not {MEMBERS}, or other ones"]

    def clear(self, scene: Scene, conn: Conn) -> None:
        """Delete the guild."""
        conn.delete(f"members:{scene.name}")
        with Handfast(conn) as client:
            client.autocomplete(scene.name).clear()
