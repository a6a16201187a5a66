"""Clients that trade with each other: each lists its own items and buys those of others."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from time import monotonic

import redis

from handfast import classic
from handfast.classic import watch
from handfast_lab.bench.figures import FIRST, LUA
from handfast_lab.bench.workload import Conn, MeasuredClient, ProcessWorkload, Scene
from handfast_lab.rivals.listings import WatchCounted

__all__ = ["FUNDS", "ITEMS", "Market"]

MARKET = "market:"
"""Key of the market; the listings have a fixed name for it."""

ITEMS, FUNDS = 2, 1_000_000
"""Initial items and funds of each client. The funds are sufficient for any run."""

DEAREST = 10

List = Callable[[redis.Redis, str, str, int], bool]
Purchase = Callable[[redis.Redis, str, str, str], bool]


class MarketClient(MeasuredClient):
    """A client that acts as one user of the market."""

    def __init__(self, list_item: List, purchase: Purchase, scene: Scene, number: int) -> None:
        self._conn: Conn = WatchCounted.from_url(scene.url)
        super().__init__(self._conn)
        self._list, self._purchase = list_item, purchase
        self._user = _user(scene, number)
        self._owned = _items(scene, number)
        self._chance = random.Random(number)  # noqa: S311 -- a choice of items, not a secret

    def act(self) -> None:
        """List one of its items, if any, read the market, and try to buy a random offer."""
        if self._owned and self._list(self._conn, self._owned[-1], self._user, self._chance.randint(1, DEAREST)):
            self._owned.pop()
        offers = self._conn.zrange(MARKET, 0, -1)
        if not offers:
            return
        item, _, seller = self._chance.choice(offers).decode().partition(".")
        self._tries += 1
        if self._purchase(self._conn, self._user, item, seller):
            self.succeeded.append(monotonic())
            self._owned.append(item)


CONTENDERS: Mapping[str, tuple[List, Purchase]] = {
    FIRST: (watch.list_item, watch.purchase_item),
    LUA: (classic.list_item, classic.purchase_item),
}
"""By name."""


class Market(ProcessWorkload):
    """One market for all clients, each of which is one of its users."""

    contenders = tuple(CONTENDERS)
    limit = None

    def client(self, scene: Scene, number: int) -> MeasuredClient:
        return MarketClient(*CONTENDERS[scene.contender], scene, number)

    def refusal(self, conn: Conn) -> str:
        """Refuse a server with an existing market, which the benchmark would change and finally delete."""
        in_use = f"the key {MARKET!r} is in use on this server: measure the market on another one"
        return in_use if conn.exists(MARKET) else ""

    def prepare(self, scene: Scene, conn: Conn) -> None:
        """Give all users their items and funds."""
        for number in range(scene.clients):
            conn.hset(f"users:{_user(scene, number)}", mapping={"name": _user(scene, number), "funds": FUNDS})
            conn.sadd(f"inventory:{_user(scene, number)}", *_items(scene, number))

    def inspect(self, scene: Scene, conn: Conn) -> list[str]:
        """Check that every item exists exactly once and that the total of the funds is unchanged."""
        users = [_user(scene, number) for number in range(scene.clients)]
        found = Counter(offer.decode().partition(".")[0] for offer in conn.zrange(MARKET, 0, -1))
        for user in users:
            found.update(item.decode() for item in conn.smembers(f"inventory:{user}"))
        items = Counter(item for number in range(scene.clients) for item in _items(scene, number))
        funds = sum(float(conn.hget(f"users:{user}", "funds") or 0) for user in users)
        troubles = []
        if found != items:
            troubles.append(f"items were lost or doubled: {dict((items - found) + (found - items))}")
        if funds != FUNDS * scene.clients:
            troubles.append(f"there are funds of {funds:,.0f} and not of {FUNDS * scene.clients:,}")
        return troubles

    def clear(self, scene: Scene, conn: Conn) -> None:
        """Delete the market and its users."""
        users = [_user(scene, number) for number in range(scene.clients)]
        conn.delete(MARKET, *(f"{kind}:{user}" for kind in ("users", "inventory") for user in users))


def _user(scene: Scene, number: int) -> str:
    return f"{scene.name}-{number}"


def _items(scene: Scene, number: int) -> list[str]:
    return [f"{_user(scene, number)}-{item}" for item in range(ITEMS)]
