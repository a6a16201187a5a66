"""The marketplace before scripts: what is decided upon is watched, which is the market as a whole."""

from __future__ import annotations

import redis
from redis.exceptions import WatchError

from handfast.classic.market import Id, require_price

__all__ = ["list_item", "purchase_item"]


def list_item(conn: redis.Redis, itemid: Id, sellerid: Id, price: float) -> bool:
    """Put an item out of the seller's inventory on the market; False when it is not in there.

    Raises ValueError for a price that is no whole number, or negative.

    Flaws: three round trips, all over again when anything happened to the inventory. The keys have different slots: it is
    not for a cluster. Ids with a dot are mixed up, as in the Lua form. Instead: the way of ``examples/marketplace``.
    """
    require_price(price)
    inventory = f"inventory:{sellerid}"
    with conn.pipeline() as pipe:
        while True:
            try:
                pipe.watch(inventory)  # type: ignore[no-untyped-call]  # the client library leaves it untyped
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
    """Buy the item for its price; False when it is not on the market, or the buyer has not as much.

    Flaws: four round trips, all over again whenever anybody has listed or bought anything meanwhile: the market is one
    key, so a busy one lets few through. MULTI does not roll back either: where one command fails, the others have
    happened. And all of the Lua form's flaws. Instead: the way of ``examples/marketplace``.
    """
    buyer, seller = f"users:{buyerid}", f"users:{sellerid}"
    item = f"{itemid}.{sellerid}"
    with conn.pipeline() as pipe:
        while True:
            try:
                pipe.watch("market:", buyer)  # type: ignore[no-untyped-call]  # the client library leaves it untyped
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
