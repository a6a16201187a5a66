"""The marketplace in two scripts: a seller lists an item at a price, a buyer pays the price and gets the item.

The keys: ``market:`` is a ZSET of ``<item>.<seller>`` by price, ``inventory:<id>`` the SET of a user's items, and ``users:<id>``
a HASH with ``funds``. Prices and funds are whole numbers, such as cents.

Handfast has no API for a market. ``examples/marketplace`` shows how to write one today.
"""

from __future__ import annotations

from typing import TypeAlias

import redis

from handfast.classic.script import load_file

__all__ = ["list_item", "purchase_item", "require_price"]

Id: TypeAlias = str | int

_list, _purchase = load_file("market_list"), load_file("market_purchase")


def list_item(conn: redis.Redis, itemid: Id, sellerid: Id, price: float) -> bool:
    """Move an item from the seller's inventory to the market.

    Flaws: the script builds keys from the ids, in other slots than ``market:``, so it does not work in a cluster, and neither
    an ACL nor a proxy can see which keys a call uses. Ids with a dot collide: "a.b" of seller "c" and "a" of seller "b.c" are
    one entry.

    Use instead: the scripts of ``examples/marketplace``.

    Args:
        conn: The client.
        itemid: The item.
        sellerid: The seller.
        price: The price; a whole number, 0 or more.

    Returns:
        True if the item is on the market, False if it was not in the inventory.

    Raises:
        ValueError: The price is negative or not a whole number.

    """
    require_price(price)
    return bool(_list(conn, ["market:"], [itemid, sellerid, price]))


def purchase_item(conn: redis.Redis, buyerid: Id, itemid: Id, sellerid: Id) -> bool:
    """Buy an item for its current price.

    Flaws: the buyer pays the current price, which may be higher than the one it saw. The script builds keys from the ids, so
    it does not work in a cluster. An inventory is a set: if the buyer already has the item, the second one is paid for and
    vanishes. Nothing is rolled back: if the buyer's inventory is not a set, the money has already moved. If the reply is lost
    and redis-py sends the command again, it returns False although the item was bought.

    Use instead: the scripts of ``examples/marketplace``.

    Args:
        conn: The client.
        buyerid: The buyer.
        itemid: The item.
        sellerid: The seller.

    Returns:
        True if the item was bought, False if it is not on the market or the buyer has too little.

    """
    return bool(_purchase(conn, ["market:"], [buyerid, itemid, sellerid]))


def require_price(price: float) -> None:
    """Raise ValueError unless the price is a whole number, 0 or more."""
    if not (price >= 0 and price % 1 == 0):
        raise ValueError(f"a price must be a whole number and not negative (count cents, say), not {price!r}")
