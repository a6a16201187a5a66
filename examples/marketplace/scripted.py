"""The market as two scripts: the decision goes to where the data is, and nobody comes between.

The two stubs are never run. `handfast.Script` checks them against the headers of the Lua files, passes their arguments
under the names that stand there, and reads the replies. Below them is what the rest of a program would call.

All keys can be passed because the caller knows them: whoever buys has seen the offer, and with it item, seller and
price. Only the price may be another one by now. So the script reads it, where it cannot change any more, and compares it
with what the buyer has seen, who is never charged anything else.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import redis

from handfast import Handfast, Reply, Script

from .market import OFFERS, REMEMBERED, Offer, funds, goods, receipt

__all__ = ["Scripted"]

LUA = Path(__file__).with_name("lua")


@Script.from_file(LUA / "list_item.lua").typed
def _list_item(conn: redis.Redis | Handfast, *, offers: str, goods: str, item: str, offer: str, price: int) -> Reply:
    raise NotImplementedError


@Script.from_file(LUA / "purchase_item.lua").typed
def _purchase_item(
    conn: redis.Redis | Handfast,
    *,
    offers: str,
    goods: str,
    payer: str,
    payee: str,
    receipt: str,
    item: str,
    offer: str,
    seen: int,
    remember: int,
) -> Reply:
    raise NotImplementedError


@dataclass
class Scripted:
    """Every call is one round trip. Nothing is ever started over, so there is nothing to count."""

    conn: redis.Redis | Handfast
    retries: int = 0

    def list_item(self, offer: Offer) -> Reply:
        """Offer an item, or change the price of an offer: ``listed``, or ``missing`` when the seller does not have it."""
        return _list_item(
            self.conn,
            offers=OFFERS,
            goods=goods(offer.seller),
            item=offer.item,
            offer=offer.member,
            price=offer.price,
        )

    def purchase_item(self, buyer: str, offer: Offer, order: str) -> Reply:
        """Buy what is on offer, at the price of the offer: ``sold``, ``gone``, ``repriced``, ``short`` or ``own``.

        ``order`` is a name that the buyer gives to this one purchase, and keeps when it has to be sent again.
        """
        return _purchase_item(
            self.conn,
            offers=OFFERS,
            goods=goods(buyer),
            payer=funds(buyer),
            payee=funds(offer.seller),
            receipt=receipt(order),
            item=offer.item,
            offer=offer.member,
            seen=offer.price,
            remember=REMEMBERED,
        )
