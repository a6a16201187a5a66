"""The market as it is usually written first: read, decide, write. It is wrong, and `race` shows how.

The writes are one transaction, which does not help: no other client comes between the writes, but the decision rests on
values that were read before and that another client may have changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import redis

from handfast import Reply

from .market import OFFERS, REMEMBERED, Offer, funds, goods, receipt

__all__ = ["Naive"]


@dataclass
class Naive:
    """The incorrect version. ``meanwhile`` is called between reading and writing, in place of other clients.

    It never starts over, so ``retries`` stays 0. That is the mistake.
    """

    conn: redis.Redis
    meanwhile: Callable[[], object] = lambda: None
    retries: int = 0

    def purchase_item(self, buyer: str, offer: Offer, order: str) -> Reply:
        """Buy an offer, with the decisions and writes of the other versions."""
        if buyer == offer.seller:
            return Reply("own", {})
        paid = self.conn.get(receipt(order))
        price = self.conn.zscore(OFFERS, offer.member)
        has = int(self.conn.get(funds(buyer)) or 0)

        self.meanwhile()

        if paid is not None:
            return Reply("sold", {"price": int(paid)})
        if price is None:
            return Reply("gone", {})
        if int(price) != offer.price:
            return Reply("repriced", {"price": int(price)})
        if has < offer.price:
            return Reply("short", {"missing": offer.price - has})

        with self.conn.pipeline() as pipe:
            pipe.set(receipt(order), offer.price, ex=REMEMBERED)
            pipe.zrem(OFFERS, offer.member)
            pipe.decrby(funds(buyer), offer.price)
            pipe.incrby(funds(offer.seller), offer.price)
            pipe.sadd(goods(buyer), offer.item)
            pipe.execute()
        return Reply("sold", {"price": offer.price})
