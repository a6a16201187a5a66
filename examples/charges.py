"""Charge each order once, through a bank that allows two calls at a time and five within any half second.

    python -m examples.charges [--url URL]

Three processes get the same orders, as from a queue that delivers messages more than once, and each begins with another
one. For each order, `once` lets one of them call the bank and gives its receipt to the others. A semaphore and a
limiter in one `with` statement keep the calls of all processes within what the bank allows: the semaphore first, since
an admission of the limiter would be used up while its caller waits for a permit.

Exits with 1 if an order was charged twice, or if too many calls ran at a time.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from contextlib import ExitStack
from functools import partial
from multiprocessing import get_context

import redis

from handfast import Handfast
from handfast.embedded import PrivateServer

ORDERS = [f"order-{number}" for number in range(12)]
PROCESSES = 3
AT_A_TIME, RATE = 2, "5/500ms"


class Bank:
    """Counts its calls on the server. It has no idea of who calls it."""

    def __init__(self, conn: redis.Redis, run: str) -> None:
        self._conn = conn
        self._calls, self._inside, self.most = f"{run}:calls", f"{run}:inside", 0

    def charge(self, order: str) -> str:
        """Charge an order, whether or not it was charged before."""
        self.most = max(self.most, int(self._conn.incr(self._inside)))
        number = self._conn.hincrby(self._calls, order, 1)
        time.sleep(0.02)
        self._conn.decr(self._inside)
        return f"receipt {number} of {order}"

    def calls(self) -> dict[str, int]:
        """Return how often each order was charged, and forget it."""
        counts: dict[bytes, bytes] = self._conn.hgetall(self._calls)  # type: ignore[assignment]  # not of the asyncio API
        self._conn.delete(self._calls, self._inside)
        return {order.decode(): int(count) for order, count in counts.items()}


def charge_all(url: str, run: str, orders: list[str]) -> tuple[dict[str, str], int]:
    """Be one of the processes. Return the receipts, and the most calls at a time that it has seen."""
    with Handfast(url, namespace=run) as hf, redis.Redis.from_url(url) as conn:
        bank, charges = Bank(conn, run), hf.once("charge", keep=60)

        def call(order: str) -> str:
            with hf.semaphore("bank", AT_A_TIME), hf.limiter("bank", RATE):
                return bank.charge(order)

        return {order: charges.keyed(order).run(partial(call, order)) for order in orders}, bank.most


def main() -> int:
    """Charge all orders in all processes. Returns 1 if something was wrong."""
    parser = argparse.ArgumentParser(description="Charge orders once each, within the limits of a bank.")
    parser.add_argument("--url", help="a server; by default one is started")
    given, run = parser.parse_args().url, f"example-{secrets.token_hex(4)}"
    with ExitStack() as stack:
        url = given or stack.enter_context(PrivateServer()).url
        with get_context("spawn").Pool(PROCESSES) as pool:
            starts = range(0, len(ORDERS), len(ORDERS) // PROCESSES)
            done = pool.starmap(charge_all, [(url, run, ORDERS[start:] + ORDERS[:start]) for start in starts])
        with redis.Redis.from_url(url) as conn:
            calls = Bank(conn, run).calls()
    receipts, most = [found for found, _ in done], max(seen for _, seen in done)
    is_once = calls == dict.fromkeys(ORDERS, 1) and all(found == receipts[0] for found in receipts)
    print(
        f"{len(ORDERS)} orders in {PROCESSES} processes: {sum(calls.values())} calls of the bank, at most {most} at a time,"
    )
    print(f"and the same receipts in all processes: {'yes' if is_once else 'no'}")
    return 0 if is_once and most <= AT_A_TIME else 1


if __name__ == "__main__":
    sys.exit(main())
