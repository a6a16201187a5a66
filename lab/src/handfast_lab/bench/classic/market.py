"""Clients that sell to each other: each lists what it owns and buys what it finds."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import ClassVar

import redis

from handfast import classic
from handfast.classic import watch
from handfast_lab.bench.classic.client import FIRST, LUA, Conn, Contenders, ListingClient, MeasuredScene, Table
from handfast_lab.rivals.listings import WatchCounted

__all__ = ["FUNDS", "ITEMS", "Market"]

MARKET = "market:"
"""The listings know one market and no other."""

ITEMS, FUNDS = 2, 1_000_000
"""What each client owns when it begins: nobody ever runs out of funds."""

DEAREST = 10

List = Callable[[redis.Redis, str, str, int], bool]
Purchase = Callable[[redis.Redis, str, str, str], bool]


class MarketClient(ListingClient):
    """A client that is one user of the market."""

    def __init__(self, list_item: List, purchase: Purchase, scene: MeasuredScene, number: int) -> None:
        self._conn: Conn = WatchCounted.from_url(scene.url)
        super().__init__(self._conn)
        self._list, self._purchase = list_item, purchase
        self._user = _user(scene, number)
        self._owned = _items(scene, number)
        self._chance = random.Random(number)  # noqa: S311 -- what to buy is no secret

    def act(self) -> bool:
        """List one item, if there is one left, look at the market, and try to buy something there."""
        if self._owned and self._list(self._conn, self._owned[-1], self._user, self._chance.randint(1, DEAREST)):
            self._owned.pop()
        offers = self._conn.zrange(MARKET, 0, -1)
        if not offers:
            return False
        item, _, seller = self._chance.choice(offers).decode().partition(".")
        self._tries += 1
        if not self._purchase(self._conn, self._user, item, seller):
            return False
        self._owned.append(item)
        return True


class Market(Table):
    """``list_item`` and ``purchase_item``. A market does not become API: see the examples for a modern one."""

    name = "market"
    title = "One marketplace"
    success = "purchases"
    effort = "retries"
    about = (
        f"Each client is a user who owns {ITEMS} items at first. Again and again it lists one that it owns, looks at the "
        "whole market, picks an offer and tries to buy it (a try), which fails when somebody else was faster. The first "
        "form watches the market, so everybody's trade makes everybody else start over. After each measurement all items "
        "must be there once, and all funds."
    )
    contenders: ClassVar[Contenders] = {
        FIRST: partial(MarketClient, watch.list_item, watch.purchase_item),
        LUA: partial(MarketClient, classic.list_item, classic.purchase_item),
    }

    def refusal(self, conn: Conn) -> str:
        """A market that is there already would be disturbed, and lost in the end."""
        in_use = f"the key {MARKET!r} is in use on this server: measure the market on another one"
        return in_use if conn.exists(MARKET) else ""

    def prepare(self, scene: MeasuredScene, conn: Conn) -> None:
        """Give all users their items and funds."""
        for number in range(scene.clients):
            conn.hset(f"users:{_user(scene, number)}", mapping={"name": _user(scene, number), "funds": FUNDS})
            conn.sadd(f"inventory:{_user(scene, number)}", *_items(scene, number))

    def inspect(self, scene: MeasuredScene, conn: Conn) -> list[str]:
        """Every item once, and no coin more or less."""
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

    def clear(self, scene: MeasuredScene, conn: Conn) -> None:
        """Close the market."""
        users = [_user(scene, number) for number in range(scene.clients)]
        conn.delete(MARKET, *(f"{kind}:{user}" for kind in ("users", "inventory") for user in users))


def _user(scene: MeasuredScene, number: int) -> str:
    return f"{scene.name}-{number}"


def _items(scene: MeasuredScene, number: int) -> list[str]:
    return [f"{_user(scene, number)}-{item}" for item in range(ITEMS)]
