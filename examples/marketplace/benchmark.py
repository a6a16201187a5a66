"""Purchases per second of both correct versions, with an increasing number of buyers.

    python -m examples.marketplace.benchmark [--seconds 2] [--rounds 3] [--buyers 1 2 5 10] [--url URL]

Each buyer is a process with two accounts. In a loop it picks a random offer, buys it with one of its accounts that does
not sell it, and offers the item again, so the market never runs empty. A measurement covers all of that: one pick, one
``purchase_item``, one ``list_item``.

The versions alternate within each round, so that a slow phase of the machine affects both. After each measurement the
books must balance; otherwise the exit code is 1.
"""

from __future__ import annotations

import argparse
import random
import secrets
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from statistics import median
from threading import Barrier

import redis

from .books import Books, a_server
from .first_form import FirstForm
from .market import OFFERS, Offer
from .scripted import Scripted

FORMS: dict[str, type[FirstForm | Scripted]] = {"first form": FirstForm, "scripted": Scripted}

ITEMS, COINS, HIGHEST = 5, 1_000_000, 10
"""Items and coins of each account at the start, enough for any run, and the highest price; the lowest is 1."""


@dataclass(frozen=True)
class Measured:
    """The result of one buyer, or of all buyers of one run."""

    purchases: int
    retries: int
    rate: float
    """Purchases per second."""


def main() -> int:
    """Measure and print. Returns 1 if the books did not balance."""
    parser = argparse.ArgumentParser(description="Measure both correct versions of the market.")
    parser.add_argument("--seconds", type=float, default=2.0, help="duration of each measurement, default 2")
    parser.add_argument("--rounds", type=int, default=3, help="default 3")
    parser.add_argument("--buyers", type=int, nargs="+", default=[1, 2, 5, 10], help="default 1 2 5 10")
    parser.add_argument("--url", help="a server without a market; by default one is started")
    options = parser.parse_args()

    runs: dict[tuple[int, str], list[Measured]] = {(buyers, form): [] for buyers in options.buyers for form in FORMS}
    wrong: list[str] = []
    fresh = get_context("spawn")
    with (
        a_server(options.url) as url,
        fresh.Manager() as manager,
        ProcessPoolExecutor(max(options.buyers), fresh) as processes,
    ):
        for _ in range(options.rounds):
            for (buyers, form), measured in runs.items():
                run, complaints = measure(processes, manager.Barrier(buyers), url, form, options.seconds)
                measured.append(run)
                wrong += complaints
    print(*table(runs), sep="\n")
    print(f"\nThe books do not balance: {', '.join(wrong)}" if wrong else "\nThe books balanced after every run.")
    return 1 if wrong else 0


def measure(processes: Executor, together: Barrier, url: str, form: str, seconds: float) -> tuple[Measured, list[str]]:
    """Make one run with as many buyers as the barrier has parties; return its result and what is wrong with the books."""
    buyers = range(together.parties)
    goods = {account: [f"{account}-{item}" for item in range(ITEMS)] for buyer in buyers for account in accounts(buyer)}
    books = Books(goods, dict.fromkeys(goods, COINS))
    with redis.Redis.from_url(url) as conn:
        books.open_market(conn)
        for account, items in goods.items():
            for item in items:
                Scripted(conn).list_item(Offer(item, account, HIGHEST))
        done = [run.result() for run in [processes.submit(trade, together, url, form, one, seconds) for one in buyers]]
        total = Measured(
            sum(run.purchases for run in done), sum(run.retries for run in done), sum(run.rate for run in done)
        )
        return total, books.complaints(conn)


def accounts(buyer: int) -> tuple[str, str]:
    """Return the names of a buyer's two accounts."""
    return f"left{buyer}", f"right{buyer}"


def trade(together: Barrier, url: str, form: str, buyer: int, seconds: float) -> Measured:
    """Trade as one buyer, in a process of its own, once all buyers are ready."""
    left, right = accounts(buyer)
    offers = together.parties * 2 * ITEMS
    purchases = 0
    with redis.Redis.from_url(url) as conn:
        market = FORMS[form](conn)
        conn.ping()  # connecting is not measured
        together.wait(timeout=60)
        began = time.monotonic()
        while time.monotonic() < began + seconds:
            rank = random.randrange(offers)  # noqa: S311 -- what to buy is no secret
            for member, price in conn.zrange(
                OFFERS, rank, rank, withscores=True
            ):  # empty if other buyers hold the offers just now
                offer = Offer.read(member, price)
                account = right if offer.seller == left else left
                if market.purchase_item(account, offer, secrets.token_hex(8)).tag == "sold":
                    purchases += 1
                    market.list_item(Offer(offer.item, account, random.randint(1, HIGHEST)))  # noqa: S311 -- nor is this
        return Measured(purchases, market.retries, purchases / (time.monotonic() - began))


def table(runs: dict[tuple[int, str], list[Measured]]) -> Iterator[str]:
    """Yield a line for each number of buyers and each version."""
    yield "buyers  form        purchases/s     lowest    highest   retries per purchase"
    for (buyers, form), measured in runs.items():
        rates = [run.rate for run in measured]
        retries = sum(run.retries for run in measured) / max(1, sum(run.purchases for run in measured))
        yield f"{buyers:>6}  {form:<10} {median(rates):>12,.0f} {min(rates):>10,.0f} {max(rates):>10,.0f} {retries:>22.2f}"


if __name__ == "__main__":
    sys.exit(main())
