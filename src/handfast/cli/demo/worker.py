"""A process of the demo. Orders come as lines of JSON on standard input, reports go to standard output.

It ends when its standard input does, so no worker outlives the demo, however the demo ends.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from queue import SimpleQueue
from threading import Thread
from time import monotonic, sleep
from typing import Any

from handfast._api.sync.client import Handfast
from handfast._api.sync.items import ItemLease
from handfast._api.sync.lease import Lease
from handfast.cli.connect import redis_client
from handfast.fencing import StaleFence, set_if_newer
from handfast.records import Rate

__all__ = ["KEY_TTL", "RATE", "Worker", "main", "report"]

KEY_TTL = 120.0
"""Seconds that a key of the demo lives where the demo itself is killed before it deletes it."""

LONGEST_WAIT = 120.0
"""Seconds that a worker waits; the demo gives up earlier."""

RATE: Rate = Rate(5, 1.0)
"""How often all of them together may call the service."""


class Worker:
    """The methods are the orders. A worker holds at most one lease at a time."""

    def __init__(self, url: str, namespace: str, name: str) -> None:
        self._hf = Handfast(url, namespace=namespace, label=name)
        self._client: Any = redis_client(url)
        self._key = f"{namespace}:{{}}".format
        self._lease: Lease | None = None

    def count(self, counter: str, times: int, think_s: float) -> None:
        """Read, wait, write: three steps that only a lock can make one. Without it, for the counter ``free``."""
        lock, key = self._hf.lock("counter"), self._key(counter)
        for _ in range(times):
            lease = lock.acquire() if counter == "locked" else None
            seen = int(self._client.get(key) or 0)
            sleep(think_s)
            self._client.set(key, seen + 1, ex=int(KEY_TTL))
            if lease is not None:
                lease.release()
            report("counted")

    def acquire(self, name: str, ttl: float) -> None:
        self._lease = self._hf.lock(name, ttl=ttl).acquire(timeout=LONGEST_WAIT)
        report("acquired", self._lease.fence)

    def write(self, text: str) -> None:
        """Write with the fence of the lease, without asking whether the lease is still there."""
        assert self._lease is not None  # noqa: S101 -- the acts order it after ``acquire``
        try:
            set_if_newer(self._client, self._key("resource"), text, self._lease.fence, ttl=KEY_TTL, guard_ttl=KEY_TTL)
        except StaleFence:
            report("refused")
        else:
            report("wrote")

    def work(self, seconds: float) -> None:
        sleep(seconds)

    def release(self) -> None:
        report("released", self._lease is not None and self._lease.release())

    def call(self, times: int) -> None:
        for _ in range(times):
            with self._hf.limiter("service", RATE):
                report("called")

    def make(self, ttl: float, seconds: float) -> None:
        """Make the report, unless another process has made it."""
        with self._hf.once("report", ttl=ttl, timeout=LONGEST_WAIT) as run:
            if not run.done:
                report("runs")
                sleep(seconds)
                run.finish(f"report {run.fence % 1000}")
                report("made")
        report("got", run.result)

    def share(self, items: list[str], ttl: float, every: float) -> None:
        """Work on the items that are this process's, until the end."""

        def serve(item: str, lease: ItemLease) -> None:
            report("has", item)
            lease.wanted_event.wait()
            report("gave", item)

        partition = self._hf.partition("bots", items, ttl=ttl, every=every)
        Thread(target=partition.run, args=(serve,), daemon=True).start()


def report(word: str, value: Any = None) -> None:
    sys.stdout.write(json.dumps([word, value, monotonic()]) + "\n")  # in one piece: several threads report
    sys.stdout.flush()


def _read(orders: SimpleQueue[list[Any]]) -> None:
    for line in sys.stdin:
        orders.put(json.loads(line))
    os._exit(0)


def main() -> None:
    """Carry out orders until there are no more."""
    logging.disable()  # a lost lease is part of the show
    waiting: SimpleQueue[list[Any]] = SimpleQueue()
    Thread(target=_read, args=(waiting,), daemon=True).start()
    worker = Worker(*sys.argv[1:])
    report("ready")
    while True:
        order, *args = waiting.get()
        getattr(worker, order)(*args)


if __name__ == "__main__":
    main()
