"""Both correct forms against each other: purchases in a second, with more and more buyers.

    python -m examples.marketplace.benchmark [--seconds 2] [--rounds 3] [--buyers 1 2 5 10] [--url URL]

Each buyer is a process with two accounts. Again and again it picks any offer of the market and has one of its accounts
buy it, the one that does not sell it; what it got is for sale again at once, so the market never runs dry. What is timed
is all of that: one pick, one ``purchase_item``, one ``list_item``.

The forms take turns within each round, so that a slow minute of the machine strikes both. After each measurement the
books must balance; if they do not, the exit code is 1.
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
"""What each account has at first; no run is long enough to use up the coins. Prices go from 1 to the highest."""


@dataclass(frozen=True)
class Measured:
    """What one buyer did, or all of them in one run."""

    purchases: int
    retries: int
    rate: float
    """Purchases per second."""


def main() -> int:
    """Measure and print. Gives 1 when the books did not balance."""
    parser = argparse.ArgumentParser(description="Measure both forms of the market.")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement, default 2")
    parser.add_argument("--rounds", type=int, default=3, help="default 3")
    parser.add_argument("--buyers", type=int, nargs="+", default=[1, 2, 5, 10], help="default 1 2 5 10")
    parser.add_argument("--url", help="a server that has no market; without it one is started")
    asked = parser.parse_args()

    runs: dict[tuple[int, str], list[Measured]] = {(buyers, form): [] for buyers in asked.buyers for form in FORMS}
    wrong: list[str] = []
    fresh = get_context("spawn")
    with (
        a_server(asked.url) as url,
        fresh.Manager() as manager,
        ProcessPoolExecutor(max(asked.buyers), fresh) as processes,
    ):
        for _ in range(asked.rounds):
            for (buyers, form), measured in runs.items():
                run, complaints = measure(processes, manager.Barrier(buyers), url, form, asked.seconds)
                measured.append(run)
                wrong += complaints
    print(*table(runs), sep="\n")
    print(f"\nThe books do not balance: {', '.join(wrong)}" if wrong else "\nThe books balanced after every run.")
    return 1 if wrong else 0


def measure(processes: Executor, together: Barrier, url: str, form: str, seconds: float) -> tuple[Measured, list[str]]:
    """One run, with as many buyers as meet at the barrier; and what is wrong with the books afterwards."""
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
    """The two accounts of a buyer."""
    return f"left{buyer}", f"right{buyer}"


def trade(together: Barrier, url: str, form: str, buyer: int, seconds: float) -> Measured:
    """A buyer's process: wait for the others, then trade for so long."""
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
            for member, price in conn.zrange(OFFERS, rank, rank, withscores=True):  # none where others are just buying
                offer = Offer.read(member, price)
                account = right if offer.seller == left else left
                if market.purchase_item(account, offer, secrets.token_hex(8)).tag == "sold":
                    purchases += 1
                    market.list_item(Offer(offer.item, account, random.randint(1, HIGHEST)))  # noqa: S311 -- nor is this
        return Measured(purchases, market.retries, purchases / (time.monotonic() - began))


def table(runs: dict[tuple[int, str], list[Measured]]) -> Iterator[str]:
    """A line for each form with each number of buyers."""
    yield "buyers  form        purchases/s     lowest    highest   retries per purchase"
    for (buyers, form), measured in runs.items():
        rates = [run.rate for run in measured]
        retries = sum(run.retries for run in measured) / max(1, sum(run.purchases for run in measured))
        yield f"{buyers:>6}  {form:<10} {median(rates):>12,.0f} {min(rates):>10,.0f} {max(rates):>10,.0f} {retries:>22.2f}"


if __name__ == "__main__":
    sys.exit(main())
