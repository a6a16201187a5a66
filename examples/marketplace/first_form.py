"""The market with WATCH, MULTI and EXEC: read, decide, and write only if nothing has changed.

WATCH names the keys on which the decision depends. If another client writes one of them before EXEC, even with the same
value, EXEC does nothing and the client library raises WatchError. The whole operation then starts over.

This version is correct. It costs round trips (WATCH, one for each read, and EXEC with all writes) and repetitions:
every trade changes the key of the offers, so it makes all concurrent trades start over.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import redis
from redis.exceptions import WatchError

from handfast import Reply

from .market import OFFERS, REMEMBERED, Offer, funds, goods, receipt

__all__ = ["FirstForm"]


@dataclass
class FirstForm:
    """The version with WATCH.

    ``retries`` counts the repetitions; ``meanwhile`` is called between reading and writing.
    """

    conn: redis.Redis
    meanwhile: Callable[[], object] = lambda: None
    retries: int = 0

    def list_item(self, offer: Offer) -> Reply:
        """Offer an item, or change the price of an offer.

        Returns the reply ``listed``, or ``missing`` if the seller does not have the item.
        """
        with self.conn.pipeline() as pipe:
            while True:
                try:
                    pipe.watch(OFFERS, goods(offer.seller))  # type: ignore[no-untyped-call]  # the client library leaves it untyped
                    owned = pipe.sismember(goods(offer.seller), offer.item)
                    offered = pipe.zscore(OFFERS, offer.member)

                    self.meanwhile()

                    if not owned and offered is None:
                        return Reply("missing", {})  # the end of the block sends UNWATCH
                    pipe.multi()
                    pipe.zadd(OFFERS, {offer.member: offer.price})
                    pipe.srem(goods(offer.seller), offer.item)
                    pipe.execute()
                    return Reply("listed", {})
                except WatchError:
                    self.retries += 1

    def purchase_item(self, buyer: str, offer: Offer, order: str) -> Reply:
        """Buy an offer at its price. Returns the reply ``sold``, ``gone``, ``repriced``, ``short`` or ``own``.

        A connection that breaks during EXEC raises WatchError too, and the client does not know whether the purchase
        happened. So the name of the order is written in the same transaction, and read first.
        """
        if buyer == offer.seller:
            return Reply("own", {})
        with self.conn.pipeline() as pipe:
            while True:
                try:
                    pipe.watch(OFFERS, funds(buyer), receipt(order))  # type: ignore[no-untyped-call]  # the client library leaves it untyped
                    paid = pipe.get(receipt(order))
                    price = pipe.zscore(OFFERS, offer.member)
                    has = int(pipe.get(funds(buyer)) or 0)

                    self.meanwhile()

                    if paid is not None:
                        return Reply("sold", {"price": int(paid)})
                    if price is None:
                        return Reply("gone", {})
                    if int(price) != offer.price:
                        return Reply("repriced", {"price": int(price)})
                    if has < offer.price:
                        return Reply("short", {"missing": offer.price - has})

                    pipe.multi()
                    pipe.set(receipt(order), offer.price, ex=REMEMBERED)
                    pipe.zrem(OFFERS, offer.member)
                    pipe.decrby(funds(buyer), offer.price)
                    pipe.incrby(funds(offer.seller), offer.price)
                    pipe.sadd(goods(buyer), offer.item)
                    pipe.execute()
                    return Reply("sold", {"price": offer.price})
                except WatchError:
                    self.retries += 1
