"""The marketplace in two scripts: who sells gives an item and its price, who buys gives the price and has the item.

The keys: ``market:`` is a ZSET of ``<item>.<seller>`` by price, ``inventory:<id>`` the SET of items that somebody has, and
``users:<id>`` a HASH with ``funds``. Prices and funds are whole numbers, such as cents.

Of all of it `handfast` makes no API: a market is not coordination. How it is written today shows ``examples/marketplace``.
"""

from __future__ import annotations

from typing import TypeAlias

import redis

from handfast.classic.script import load_file

__all__ = ["list_item", "purchase_item", "require_price"]

Id: TypeAlias = str | int

_list, _purchase = load_file("market_list"), load_file("market_purchase")


def list_item(conn: redis.Redis, itemid: Id, sellerid: Id, price: float) -> bool:
    """Put an item out of the seller's inventory on the market; False when it is not in there.

    Raises ValueError for a price that is no whole number, or negative.

    Flaws: the script makes keys of the ids, and ``market:`` and they have different slots: it is not for a cluster, and
    no ACL or proxy sees by the call what it touches. Ids with a dot are mixed up: "a.b" of seller "c" and "a" of "b.c" are
    one entry. Instead: the way of ``examples/marketplace``.
    """
    require_price(price)
    return bool(_list(conn, ["market:"], [itemid, sellerid, price]))


def purchase_item(conn: redis.Redis, buyerid: Id, itemid: Id, sellerid: Id) -> bool:
    """Buy the item for its price; False when it is not on the market, or the buyer has not as much.

    Flaws: the buyer pays what it costs by then, which may be more than what it saw. The script makes keys of the ids:
    it is not for a cluster. An inventory is a set, so of an item that the buyer has already the second one is paid for
    and gone. Nothing is rolled back: where the buyer's inventory is no set, the money has moved when that is found.
    When the reply gets lost and redis-py asks again, it answers False though the item was bought.
    Instead: the way of ``examples/marketplace``.
    """
    return bool(_purchase(conn, ["market:"], [buyerid, itemid, sellerid]))


def require_price(price: float) -> None:
    """Raise ValueError for what is no price."""
    if not (price >= 0 and price % 1 == 0):
        raise ValueError(f"a price must be a whole number and not negative (count cents, say), not {price!r}")
