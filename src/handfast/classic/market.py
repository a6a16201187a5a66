"""The marketplace in two scripts: a seller lists an item at a price, a buyer pays the price and gets the item.

The keys: ``market:`` is a ZSET of ``<item>.<seller>`` by price, ``inventory:<id>`` the SET of a user's items, and
``users:<id>`` a HASH with ``funds``. Prices and funds are whole numbers, such as cents.

Handfast has no API for a market. ``examples/marketplace`` shows how to write a market today.
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
    """Buy an item for the current price.

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
