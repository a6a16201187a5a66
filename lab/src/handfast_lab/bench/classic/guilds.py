"""The second published table: clients that complete prefixes among the members of one guild."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice, takewhile
from string import ascii_lowercase
from typing import ClassVar

import redis

from handfast import Handfast, classic
from handfast.classic import watch
from handfast_lab.bench.classic.client import (
    FIRST,
    LUA,
    OURS,
    Closing,
    Conn,
    Contenders,
    ListingClient,
    MeasuredScene,
    Table,
)
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


class GuildClient(ListingClient):
    """A client that completes one prefix after the other; its number seeds the choice."""

    def __init__(self, client: Closing, complete: Complete, number: int, *, whole: bool = True) -> None:
        super().__init__(client)
        self._complete = complete
        self._chance = random.Random(SEED + number)  # noqa: S311 -- see above
        self._names = members()
        self._check(whole=whole)

    def act(self) -> bool:
        """Complete a prefix of one to three letters."""
        prefix = self._chance.choice(self._names)[: self._chance.randint(1, 3)]
        self._tries += 1
        self._complete(prefix)
        return True

    def _check(self, *, whole: bool) -> None:
        """Check some answers. Under concurrency the first form drops other clients' sentinels, and names with them."""
        for prefix in (self._names[0][:3], self._names[MEMBERS // 2][:2], self._names[-1][:1]):
            right = expected(self._names, prefix)
            answer = [name.decode() if isinstance(name, bytes) else name for name in self._complete(prefix)]
            if answer != right and (whole or not set(answer) <= set(right)):
                raise RuntimeError(f"{prefix!r} was completed to {answer}, not to {right}")


def _classic(listing: Listing, scene: MeasuredScene, number: int, *, whole: bool = True) -> ListingClient:
    conn: Conn = WatchCounted.from_url(scene.url)
    return GuildClient(conn, partial(listing, conn, scene.name), number, whole=whole)


def _ours(scene: MeasuredScene, number: int) -> ListingClient:
    client = Handfast(scene.url)
    return GuildClient(client, client.autocomplete(scene.name).complete, number)


class Guilds(Table):
    """``autocomplete_on_prefix``, and ``hf.autocomplete``."""

    name = "autocomplete"
    title = "Autocomplete in one guild"
    success = "calls"
    effort = "retries"
    about = (
        f"A guild has {MEMBERS:,} members. Each client completes one prefix after the other, of one to three letters, "
        "drawn from the names: at most ten names for each. The listings write two sentinels to find the place, and the "
        "first form starts over when anybody else wrote meanwhile; Handfast reads once and writes nothing."
    )
    contenders: ClassVar[Contenders] = {
        FIRST: partial(_classic, watch.autocomplete_on_prefix, whole=False),
        LUA: partial(_classic, classic.autocomplete_on_prefix),
        OURS: _ours,
    }

    def prepare(self, scene: MeasuredScene, conn: Conn) -> None:
        """Add all members."""
        if scene.contender == OURS:
            with Handfast(conn) as client:
                client.autocomplete(scene.name).add(members())
        else:
            conn.zadd(f"members:{scene.name}", dict.fromkeys(members(), 0))

    def inspect(self, scene: MeasuredScene, conn: Conn) -> list[str]:
        """Check that the members are unchanged and no sentinel remains."""
        if scene.contender == OURS:
            return []
        left = [name.decode() for name in conn.zrange(f"members:{scene.name}", 0, -1)]
        return [] if left == members() else [f"the guild has {len(left)} members and not {MEMBERS}, or other ones"]

    def clear(self, scene: MeasuredScene, conn: Conn) -> None:
        """Delete the guild."""
        conn.delete(f"members:{scene.name}")
        with Handfast(conn) as client:
            client.autocomplete(scene.name).clear()
