"""The market as it is written first: look, decide, write. It is wrong, and `race` shows how.

The writes are one transaction, which does not help: MULTI and EXEC keep others out between the writes, but what they
rest on was read before, and by then others may have written.
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
    """``meanwhile`` is called between looking and writing: where everybody else is, in real life.

    It never starts over, so ``retries`` stays 0. That is the trouble.
    """

    conn: redis.Redis
    meanwhile: Callable[[], object] = lambda: None
    retries: int = 0

    def purchase_item(self, buyer: str, offer: Offer, order: str) -> Reply:
        """Buy what is on offer. The same decisions as in the other forms, and the same writes."""
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
