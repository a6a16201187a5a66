"""One worker process of the demo: it carries out the orders of the acts and reports each step."""

from __future__ import annotations

from collections.abc import Callable
from time import sleep

from handfast._api.sync.client import Handfast
from handfast._api.sync.lease import Lease
from handfast.cli.connect import redis_client
from handfast.cli.demo.shared import LIMITER, RATE, REPORT, Shared
from handfast.testing import Parent

__all__ = ["work"]

LONGEST_WAIT = 120.0
"""Seconds that a worker waits for a lock; the demo gives up earlier."""


class Worker:
    """Holds at most one lease at a time."""

    def __init__(self, handfast: Handfast, shared: Shared, parent: Parent) -> None:
        self._handfast = handfast
        self._shared = shared
        self._report = parent.report
        self._lease: Lease | None = None
        self.orders: dict[str, Callable[..., None]] = {
            "count": self.count,
            "acquire": self.acquire,
            "call": self.call,
            "make": self.make,
            "work": sleep,
            "sign": shared.sign,
            "write": self.write,
            "release": self.release,
        }

    def count(self, counter: str, times: int, think_s: float) -> None:
        """Increment the counter ``locked`` while holding the lock, or the counter ``free`` without it."""
        lock = self._handfast.lock("counter")
        for _ in range(times):
            if counter == "locked":
                with lock:
                    self._shared.increment(counter, think_s)
            else:
                self._shared.increment(counter, think_s)
            self._report("counted")

    def acquire(self, name: str, ttl: float) -> None:
        self._lease = self._handfast.lock(name, ttl=ttl).acquire(timeout=LONGEST_WAIT)
        self._report("acquired", self._lease.fence)

    def call(self, times: int) -> None:
        """Call the service whose rate is limited."""
        limiter = self._handfast.limiter(LIMITER, RATE)
        for _ in range(times):
            with limiter:
                self._report("called")

    def make(self, ttl: float, seconds: float) -> None:
        """Make the report, unless another process has made it."""
        with self._handfast.once(REPORT, ttl=ttl, timeout=LONGEST_WAIT) as run:
            if not run.done:
                self._report("runs")
                sleep(seconds)
                run.finish(f"report {run.fence % 1000}")
                self._report("made")
        self._report("got", run.result)

    def write(self, text: str) -> None:
        """Write to the guarded resource with the fence of the lease, without checking the lease first."""
        self._report("wrote", self._shared.write(self._held().fence, text))

    def release(self) -> None:
        self._report("released", self._held().release())

    def _held(self) -> Lease:
        if self._lease is None:
            raise ValueError("this order is for a worker that holds a lock")
        return self._lease


def work(parent: Parent, url: str, namespace: str, name: str) -> None:
    """Serve until the demo ends."""
    client = redis_client(url, decode_responses=True)
    worker = Worker(Handfast(url, namespace=namespace, label=name), Shared(client, namespace), parent)
    parent.report("ready")
    parent.serve(worker.orders)
