"""The marketplace without scripts: WATCH on every key that a decision depends on, which is the whole market."""

from __future__ import annotations

import redis
from redis.exceptions import WatchError

from handfast.classic.market import Id, require_price
from handfast.classic.watch.pipelines import watching

__all__ = ["list_item", "purchase_item"]


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
    inventory = f"inventory:{sellerid}"
    with watching(conn) as pipe:
        while True:
            try:
                pipe.watch(inventory)
                if not pipe.sismember(inventory, str(itemid)):
                    return False
                pipe.multi()
                pipe.zadd("market:", {f"{itemid}.{sellerid}": price})
                pipe.srem(inventory, str(itemid))
                pipe.execute()
            except WatchError:
                continue
            return True


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
    buyer, seller = f"users:{buyerid}", f"users:{sellerid}"
    item = f"{itemid}.{sellerid}"
    with watching(conn) as pipe:
        while True:
            try:
                pipe.watch("market:", buyer)
                price = pipe.zscore("market:", item)
                funds = int(pipe.hget(buyer, "funds") or 0)
                if price is None or funds < price:
                    return False
                pipe.multi()
                pipe.hincrby(seller, "funds", int(price))
                pipe.hincrby(buyer, "funds", -int(price))
                pipe.sadd(f"inventory:{buyerid}", str(itemid))
                pipe.zrem("market:", item)
                pipe.execute()
            except WatchError:
                continue
            return True
