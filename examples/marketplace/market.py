"""The keys of the market and the type of an offer, for every version of the market.

    {market}:offers          sorted set   item.seller, by price
    {market}:goods:<user>    set          the items that a user has and does not offer
    {market}:funds:<user>    string       number of coins
    {market}:order:<id>      string       what was paid for an order, for a day

An item is in exactly one place: in the goods of a user, or on offer. All keys have the same hash tag, so in a cluster
they share a slot and one script may use several of them. With several markets, the hash tag would name the market.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

__all__ = ["ALL", "OFFERS", "REMEMBERED", "Offer", "funds", "goods", "receipt"]

ALL = "{market}:*"
OFFERS = "{market}:offers"

REMEMBERED = 86_400
"""How long, in seconds, a completed order is remembered."""

MAX_PRICE = 2**53
"""Sorted sets and Lua store numbers as doubles, which are exact integers up to this one."""


def goods(user: str) -> str:
    """Return the key of a user's items."""
    return f"{{market}}:goods:{user}"


def funds(user: str) -> str:
    """Return the key of a user's coins."""
    return f"{{market}}:funds:{user}"


def receipt(order: str) -> str:
    """Return the key that records a completed order."""
    return f"{{market}}:order:{order}"


@dataclass(frozen=True, slots=True)
class Offer:
    """An item, its seller, and the price that the buyer has seen.

    Raises ValueError for a seller with a dot and for a price that is not a whole number from 1 to `MAX_PRICE`.
    """

    item: str
    seller: str
    price: int

    def __post_init__(self) -> None:
        if "." in self.seller:  # an item may have dots: the last one separates it from the seller
            raise ValueError(f"the name of a seller must not contain a dot: {self.seller!r}")
        if not 1 <= self.price <= MAX_PRICE or self.price != int(self.price):
            raise ValueError(
                f"a price is a whole number of coins, at least 1 and at most {MAX_PRICE}, not {self.price!r}"
            )

    @property
    def member(self) -> str:
        """The member of the sorted set for this offer."""
        return f"{self.item}.{self.seller}"

    @classmethod
    def read(cls, member: str | bytes, price: float) -> Self:
        """Return the offer for a member of the sorted set and its score."""
        text = member.decode() if isinstance(member, bytes) else member
        item, _, seller = text.rpartition(".")
        return cls(item, seller, int(price))
