"""Races in slow motion: another client writes between read and write, and each version of the market reacts.

    python -m examples.marketplace.race [--url URL]

Purchases are interleaved by hand, always in the same way; then many threads race for real. Exits with 1 if a version
that claims to be correct has lost, created or duplicated anything.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from threading import Barrier
from typing import TypeAlias

import redis

from handfast import Reply

from .books import Books, a_server
from .first_form import FirstForm
from .market import Offer, funds
from .naive import Naive
from .scripted import Scripted

Form: TypeAlias = Naive | FirstForm | Scripted
NAMES = {Naive: "naive", FirstForm: "first form", Scripted: "scripted"}

LAMP, CHAIR = Offer("lamp", "ann", 10), Offer("chair", "ann", 10)
CROWD = [Offer(f"item{number}", "ann", 1) for number in range(50)]


@dataclass(frozen=True)
class Purchase:
    """One order of one buyer."""

    buyer: str
    offer: Offer
    order: str

    def by(self, form: Form) -> Reply:
        """Make the purchase in a version of the market."""
        return form.purchase_item(self.buyer, self.offer, self.order)

    def describe(self, reply: Reply) -> str:
        """Return buyer, item and outcome."""
        return f"{self.buyer} {self.offer.item} {reply.tag}"


def main() -> int:
    """Show all races. Returns 1 if a correct version failed."""
    parser = argparse.ArgumentParser(description="Show racing purchases in each version of the market.")
    parser.add_argument("--url", help="a server without a market; by default one is started")
    with a_server(parser.parse_args().url) as url, redis.Redis.from_url(url) as conn:
        wrong = [*two_buyers(conn), *two_windows(conn), *a_lost_reply(conn), *a_crowd(conn)]
    print(f"\nA correct form was wrong: {', '.join(wrong)}" if wrong else "\nThe correct forms lost and made nothing.")
    return 1 if wrong else 0


def two_buyers(conn: redis.Redis) -> list[str]:
    """Two buyers, one item."""
    print("Bob and carol want the same lamp. Bob has looked; now carol buys; now bob writes.")
    books = Books({"ann": ["lamp", "chair"]}, {"ann": 0, "bob": 10, "carol": 10})
    return interleaved(conn, books, Purchase("bob", LAMP, "bob-1"), Purchase("carol", LAMP, "carol-1"))


def two_windows(conn: redis.Redis) -> list[str]:
    """Two purchases, one purse."""
    print("\nBob has 10 coins. In one window he has looked at a lamp, for 10; in another he buys a chair, for 10.")
    books = Books({"ann": ["lamp", "chair"]}, {"ann": 0, "bob": 10})
    return interleaved(conn, books, Purchase("bob", LAMP, "bob-1"), Purchase("bob", CHAIR, "bob-2"))


def a_lost_reply(conn: redis.Redis) -> list[str]:
    """An order that is sent again after a lost reply."""
    print("\nBob buys the lamp, and the reply is lost. He sends the order again; and once more, under a new name.")
    books = Books({"ann": ["lamp"]}, {"ann": 0, "bob": 30})
    wrong = []
    for form in FirstForm(conn), Scripted(conn):
        books.open_market(conn)
        form.list_item(LAMP)
        replies = [Purchase("bob", LAMP, order).by(form).tag for order in ("bob-1", "bob-1", "bob-2")]
        left = int(conn.get(funds("bob")) or 0)
        wrong += report(conn, books, form, f"{', then '.join(replies)}; bob has {left} of 30 coins left")
        wrong += [] if left == 20 else ["bob has not paid once"]
    return wrong


def a_crowd(conn: redis.Redis) -> list[str]:
    """Many threads, in the order that the scheduler chooses."""
    print(f"\nFour buyers at once, {len(CROWD)} items, and each of them wants all.")
    buyers = [f"buyer{number}" for number in range(4)]
    books = Books({"ann": [offer.item for offer in CROWD]}, {"ann": 0} | dict.fromkeys(buyers, len(CROWD)))
    wrong = []
    for form in Naive(conn), FirstForm(conn), Scripted(conn):
        books.open_market(conn)
        for offer in CROWD:
            Scripted(conn).list_item(offer)
        tags = shopping(conn, form, buyers)
        wrong += report(conn, books, form, ", ".join(f"{count} {tag}" for tag, count in sorted(tags.items())))
        if tags["sold"] != len(CROWD) and not isinstance(form, Naive):
            wrong.append(f"{len(CROWD)} items were sold {tags['sold']} times")
    return wrong


def shopping(conn: redis.Redis, form: Form, buyers: list[str]) -> Counter[str]:
    """Run a thread for each buyer; return the number of each reply, and leave the retries in ``form``."""
    forms = {buyer: type(form)(conn) for buyer in buyers}
    together = Barrier(len(buyers))

    def shop(buyer: str) -> list[str]:
        together.wait()
        return [Purchase(buyer, offer, f"{buyer}-{offer.item}").by(forms[buyer]).tag for offer in CROWD]

    with ThreadPoolExecutor(len(buyers)) as threads:
        tags = Counter(chain.from_iterable(threads.map(shop, buyers)))
    form.retries = sum(each.retries for each in forms.values())
    return tags


def interleaved(conn: redis.Redis, books: Books, ours: Purchase, theirs: Purchase) -> list[str]:
    """Let ``theirs`` happen between our read and our write, in each version."""
    wrong = []
    for form in Naive(conn), FirstForm(conn), Scripted(conn):
        books.open_market(conn)
        for offer in LAMP, CHAIR:
            Scripted(conn).list_item(offer)
        first, second = in_between(conn, form, ours, theirs)
        wrong += report(conn, books, form, f"{theirs.describe(first)}, {ours.describe(second)}")
    return wrong


def in_between(conn: redis.Redis, form: Form, ours: Purchase, theirs: Purchase) -> tuple[Reply, Reply]:
    """Return their reply, and ours."""
    if isinstance(form, Scripted):  # a script is atomic: they come before us, or after
        return theirs.by(form), ours.by(form)
    others, replies = [type(form)(conn)], []

    def meanwhile() -> None:
        while others:  # only once, not each time we start over
            replies.append(theirs.by(others.pop()))

    form.meanwhile = meanwhile
    mine = ours.by(form)
    return replies[0], mine


def report(conn: redis.Redis, books: Books, form: Form, outcome: str) -> list[str]:
    """Print the outcome. Returns what is wrong, if the version should be correct."""
    complaints = books.complaints(conn)
    again = f"  (started over: {form.retries})" if isinstance(form, FirstForm) else ""
    more = f", and {len(complaints) - 1} more" if complaints[1:] else ""
    wrong = f"  WRONG: {complaints[0]}{more}" if complaints else ""
    print(f"  {NAMES[type(form)]:<10}  {outcome}{again}{wrong}")
    return [] if isinstance(form, Naive) else complaints


if __name__ == "__main__":
    sys.exit(main())
