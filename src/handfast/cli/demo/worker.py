"""One process of the demo: ``python -m handfast.cli.demo.worker NAMESPACE NAME``, with the server in ``$HANDFAST_URL``.

It carries out orders, one line each, in the order in which they come on its standard input, and says what became of
them on its standard output. When its input ends, so does it, whatever it is doing: the other end of that pipe is held by
the demo alone, so nobody outlives the demo, not even if that is killed.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Callable
from queue import SimpleQueue
from time import sleep

import redis

from handfast._api.sync.client import Handfast
from handfast._api.sync.lease import Lease
from handfast.cli.demo.shared import Shared

__all__: list[str] = []

LONGEST_WAIT = 120.0
"""Seconds that a worker waits for a lock; the demo has given up before."""


class Worker:
    """Holds at most one lease at a time."""

    def __init__(self, handfast: Handfast, shared: Shared) -> None:
        self._handfast = handfast
        self._shared = shared
        self._lease: Lease | None = None
        self.orders: dict[str, Callable[..., None]] = {
            "count": self.count,
            "enter": self.enter,
            "work": self.work,
            "sign": self.sign,
            "write": self.write,
            "leave": self.leave,
        }

    def count(self, counter: str, times: str, moment: str) -> None:
        """Increment a counter that often; the one called ``locked`` with the lock, the other without."""
        lock = self._handfast.lock("counter")
        for _ in range(int(times)):
            if counter == "locked":
                with lock:
                    self._shared.increment(counter, float(moment))
            else:
                self._shared.increment(counter, float(moment))
            say("step")

    def enter(self, name: str, ttl: str) -> None:
        """Wait for a lock and hold it."""
        self._lease = self._handfast.lock(name, ttl=float(ttl)).acquire(timeout=LONGEST_WAIT)
        say("in", self._lease.fence)

    def work(self, seconds: str) -> None:
        """Stay in."""
        sleep(float(seconds))

    def sign(self, who: str) -> None:
        """Sign the list."""
        self._shared.sign(who)

    def write(self, text: str) -> None:
        """Write to the guarded resource, with the fence of the lease and without another look at it."""
        say("wrote", self._shared.write(self._held().fence, text))

    def leave(self) -> None:
        """Give the lock up."""
        say("left", self._held().release())

    def _held(self) -> Lease:
        if self._lease is None:
            raise ValueError("the order is for a worker that holds a lock")
        return self._lease


def say(verb: str, number: int = 0) -> None:
    """Tell the demo."""
    print(verb, int(number), flush=True)


def _listen(orders: SimpleQueue[str]) -> None:
    for line in sys.stdin:
        orders.put(line)
    os._exit(0)


def main() -> None:
    """Serve until there is nobody left to serve."""
    namespace, name = sys.argv[1:]
    orders: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_listen, args=(orders,), daemon=True).start()
    client = redis.Redis.from_url(os.environ["HANDFAST_URL"], decode_responses=True)
    worker = Worker(Handfast(namespace=namespace, label=name), Shared(client, namespace))
    say("ready")
    while True:
        verb, *arguments = orders.get().split()
        worker.orders[verb](*arguments)


if __name__ == "__main__":
    try:
        main()
    except Exception:  # noqa: BLE001 -- told in one piece; then the process ends at once, whatever its threads do
        print(traceback.format_exc(), flush=True)
        os._exit(1)
