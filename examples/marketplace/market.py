"""What is kept where. Every form of the market stands on this file.

    {market}:offers          sorted set   item.seller, by price
    {market}:goods:<user>    set          the items that a user has and does not offer
    {market}:funds:<user>    string       a number of coins
    {market}:order:<id>      string       what was paid for an order, for a day

An item is in exactly one place: among somebody's goods, or on offer. The part in braces is the same everywhere, so on a
cluster all keys share a slot, and one script may use several of them. A chain of shops would name the town there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

__all__ = ["ALL", "OFFERS", "REMEMBERED", "Offer", "funds", "goods", "receipt"]

ALL = "{market}:*"
OFFERS = "{market}:offers"

REMEMBERED = 86_400
"""For how many seconds an order that was carried out is known."""

DEAREST = 2**53
"""Sorted sets and Lua keep numbers as doubles, which are whole and exact up to here."""


def goods(user: str) -> str:
    """Where the items of that user are."""
    return f"{{market}}:goods:{user}"


def funds(user: str) -> str:
    """Where the coins of that user are."""
    return f"{{market}}:funds:{user}"


def receipt(order: str) -> str:
    """Where it stands that this order was carried out."""
    return f"{{market}}:order:{order}"


@dataclass(frozen=True, slots=True)
class Offer:
    """An item, who sells it, and the price that its buyer has seen. Raises ValueError for what no offer can be."""

    item: str
    seller: str
    price: int

    def __post_init__(self) -> None:
        if "." in self.seller:  # an item may have dots: the last one is what counts
            raise ValueError(f"a seller's name has no dot in it: {self.seller!r}")
        if not 1 <= self.price <= DEAREST or self.price != int(self.price):
            raise ValueError(
                f"a price is a whole number of coins, at least 1 and at most {DEAREST}, not {self.price!r}"
            )

    @property
    def member(self) -> str:
        """What stands for it among the offers."""
        return f"{self.item}.{self.seller}"

    @classmethod
    def read(cls, member: str | bytes, price: float) -> Self:
        """The offer that stands there, as a client gives it."""
        text = member.decode() if isinstance(member, bytes) else member
        item, _, seller = text.rpartition(".")
        return cls(item, seller, int(price))
