"""The books of a market: the items and coins at the start, and a check that none was lost, created or duplicated."""

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
    """Yield the URL of a server: the given one, or a private one that ends with the block.

    The keys of the market are removed afterwards. Exits if the server has such keys before, since they may be in use.
    """
    if url is None:
        with PrivateServer() as server:
            yield server.url
        return
    with redis.Redis.from_url(url) as conn:
        if next(conn.scan_iter(match=ALL), None) is not None:
            raise SystemExit(f"This server already has keys like {ALL}, which may be in use. Choose another server.")
        try:
            yield url
        finally:
            clear(conn)


def clear(conn: redis.Redis) -> None:
    """Remove all keys of the market."""
    keys = list(conn.scan_iter(match=ALL, count=1000))
    for start in range(0, len(keys), 1000):
        conn.unlink(*keys[start : start + 1000])


@dataclass(frozen=True)
class Books:
    """The items and the coins of each user at the start. Trade moves them, and neither creates nor loses any."""

    goods: Mapping[str, Sequence[str]]
    funds: Mapping[str, int]

    def open_market(self, conn: redis.Redis) -> None:
        """Remove the market and give each user the items and coins of the start."""
        clear(conn)
        with conn.pipeline() as pipe:
            for user, items in self.goods.items():
                pipe.sadd(goods(user), *items)
            for user, coins in self.funds.items():
                pipe.set(funds(user), coins)
            pipe.execute()

    def complaints(self, conn: redis.Redis) -> list[str]:
        """Return what is wrong with the market now. Works during trade: one transaction reads everything."""
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
