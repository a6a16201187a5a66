"""The books of a market: what everybody owned in the morning, and whether all of it is still there in the evening."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import redis

from handfast.embedded import PrivateServer

from .market import ALL, OFFERS, Offer, funds, goods

__all__ = ["Books", "a_server"]


@contextmanager
def a_server(url: str | None) -> Iterator[str]:
    """The URL of a server to trade on: that one, or one of our own that ends with the block.

    What is there of a market afterwards is removed. Ends the program where there is one before: it may be somebody's.
    """
    if url is None:
        with PrivateServer() as server:
            yield server.url
        return
    with redis.Redis.from_url(url) as conn:
        if next(conn.scan_iter(match=ALL), None) is not None:
            raise SystemExit(f"This server has keys like {ALL} already. They may be somebody's: take another server.")
        try:
            yield url
        finally:
            clear(conn)


def clear(conn: redis.Redis) -> None:
    """Remove all of the market."""
    keys = list(conn.scan_iter(match=ALL, count=1000))
    for start in range(0, len(keys), 1000):
        conn.unlink(*keys[start : start + 1000])


@dataclass(frozen=True)
class Books:
    """The items and the coins that each user had at first. Trade moves them, and does not make or lose any."""

    goods: Mapping[str, Sequence[str]]
    funds: Mapping[str, int]

    def open_market(self, conn: redis.Redis) -> None:
        """Give everybody what is theirs, in a market that has nothing else."""
        clear(conn)
        with conn.pipeline() as pipe:
            for user, items in self.goods.items():
                pipe.sadd(goods(user), *items)
            for user, coins in self.funds.items():
                pipe.set(funds(user), coins)
            pipe.execute()

    def complaints(self, conn: redis.Redis) -> list[str]:
        """What is wrong with the market as it is now. May be asked while it is open: one transaction looks at all of it."""
        users = sorted({*self.goods, *self.funds})
        with conn.pipeline() as pipe:
            pipe.zrange(OFFERS, 0, -1)
            for user in users:
                pipe.smembers(goods(user))
                pipe.get(funds(user))
            offered, *owned = pipe.execute()

        here = Counter(Offer.read(member, 1).item for member in offered)
        here.update(_text(item) for items in owned[0::2] for item in items)
        coins = {user: int(has or 0) for user, has in zip(users, owned[1::2], strict=True)}

        known = Counter(item for items in self.goods.values() for item in items)
        wrong = [f"{item} is there {here[item]} times" for item in sorted({*here, *known}) if here[item] != known[item]]
        wrong += [f"{user} has {has} coins" for user, has in coins.items() if has < 0]
        if made := sum(coins.values()) - sum(self.funds.values()):
            wrong.append(f"{abs(made)} coins came from nowhere" if made > 0 else f"{-made} coins are lost")
        return wrong


def _text(item: str | bytes) -> str:
    return item.decode() if isinstance(item, bytes) else item
