"""The market as two scripts: the server decides and writes in one step.

The two stubs are never run. `handfast.Script` checks them against the headers of the Lua files, passes their arguments
under the names in the headers, and parses the replies. The class below is what a program would use.

The caller can pass all keys because a buyer has seen the offer, and so knows item, seller and price. Only the price may
have changed. The script reads it and compares it with the price that the buyer has seen, so the buyer never pays
another one.
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
    """The version with scripts: one round trip per call. It never starts over, so ``retries`` stays 0."""

    conn: redis.Redis | Handfast
    retries: int = 0

    def list_item(self, offer: Offer) -> Reply:
        """Offer an item, or change the price of an offer.

        Returns the reply ``listed``, or ``missing`` if the seller does not have the item.
        """
        return _list_item(
            self.conn,
            offers=OFFERS,
            goods=goods(offer.seller),
            item=offer.item,
            offer=offer.member,
            price=offer.price,
        )

    def purchase_item(self, buyer: str, offer: Offer, order: str) -> Reply:
        """Buy an offer at its price. Returns the reply ``sold``, ``gone``, ``repriced``, ``short`` or ``own``.

        ``order`` names this purchase; the buyer uses the same name if the call must be repeated.
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
