"""Client processes of rate limiters, which can be killed and whose clocks can be set; and the admissions that the server made.

`admissions_of` watches the server execute commands, so each admission has the server's instant, whatever a client believes.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import NamedTuple

import redis

from handfast_lab.checker.windows import Admitted
from handfast_lab.children import ChildProcess, Parent, ProcessGroup
from handfast_lab.rivals.limiters import LIMITERS
from handfast_lab.rivals.limiters.contender import LimiterContender, Rate

__all__ = ["LimiterUser", "LimiterUsers", "Load", "admissions_of"]

START_TIMEOUT_S = 20.0
"""Seconds within which a process must be ready."""

END = "the load is over"
"""Echoed by the server after the last command of a load, so that the watcher knows that it has seen them all."""


class Load(NamedTuple):
    """What a process asks of a limiter, from its first call on."""

    name: str
    rates: Sequence[Rate]
    seconds: float
    most_cost: int
    longest_pause: float
    """In seconds; pauses between calls are random."""
    timeout: float
    """Of calls that wait, in seconds; 0 to call none."""
    seed: str


class LimiterUser:
    """The program of a process: each of its `orders` uses one limiter and reports."""

    def __init__(self, parent: Parent, contender: LimiterContender, url: str) -> None:
        self.contender, self.url, self.report = contender, url, parent.report
        self.orders: dict[str, Callable[..., None]] = {
            "acquire": self.acquire,
            "try": self.try_acquire,
            "load": self.load,
            "set the clock": self.set_clock,
        }

    def acquire(self, name: str, rates: Sequence[Rate], timeout: float) -> None:
        """Wait for the limiter."""
        with self.contender.open(self.url) as make:
            limiter = make(name, rates)
            self.report("acquiring")
            self.report("admitted" if limiter.acquire(1, timeout) else "timed out")

    def try_acquire(self, name: str, rates: Sequence[Rate], times: int) -> None:
        """Ask several times; report how often it was admitted."""
        with self.contender.open(self.url) as make:
            limiter = make(name, rates)
            self.report("tried", sum(limiter.try_acquire() for _ in range(times)))

    def load(self, load: Load) -> None:
        """Ask at random moments for random costs; report how many calls were admitted."""
        chance = random.Random(load.seed)  # noqa: S311 -- test data
        admitted = 0
        with self.contender.open(self.url) as make:
            limiter = make(load.name, load.rates)
            until = monotonic() + load.seconds
            while monotonic() < until:
                cost = chance.randint(1, load.most_cost)
                waits = load.timeout and chance.random() < 0.5
                admitted += limiter.acquire(cost, load.timeout) if waits else limiter.try_acquire(cost)
                time.sleep(chance.uniform(0, load.longest_pause))
        self.report("loaded", admitted)

    def set_clock(self, ahead: float) -> None:
        """Shift this process's wall clock by so many seconds."""
        wall, nanoseconds = time.time, time.time_ns
        time.time = lambda: wall() + ahead
        time.time_ns = lambda: nanoseconds() + round(ahead * 1e9)
        self.report("set")


class LimiterUsers(ProcessGroup):
    """The client processes of a trial."""

    def __init__(self, contender: LimiterContender, url: str, kind: type[LimiterUser] = LimiterUser) -> None:
        super().__init__(preload=[__name__])
        self._contender, self._url, self._kind = contender.name, url, kind

    def new(self, count: int = 1) -> list[ChildProcess]:
        """Start that many processes and wait until all are ready. Raises ProcessFailed."""
        users = [self.start(_serve, self._kind, self._contender, self._url) for _ in range(count)]
        for user in users:
            user.expect("ready", START_TIMEOUT_S)
        return users


def _serve(parent: Parent, kind: type[LimiterUser], contender: str, url: str) -> None:
    logging.disable(logging.CRITICAL)
    user = kind(parent, LIMITERS[contender], url)
    parent.report("ready")
    parent.serve(user.orders)


@contextmanager
def admissions_of(contender: LimiterContender, admin: redis.Redis) -> Iterator[list[Admitted]]:
    """Record the admissions that the server makes while the block runs. The list is complete after the block."""
    found: list[Admitted] = []
    with admin.monitor() as monitor:  # type: ignore[no-untyped-call]  # redis-py's

        def watch() -> None:
            call: list[str] = []
            for line in monitor.listen():
                words = line["command"].split(" ")
                if line["client_type"] != "lua":
                    if END in line["command"]:
                        return
                    call = words
                elif one := contender.admission(call, words, line["time"]):
                    found.append(one)

        watcher = threading.Thread(target=watch, name="torture-monitor", daemon=True)
        watcher.start()
        try:
            yield found
        finally:
            admin.echo(END)
            watcher.join(START_TIMEOUT_S)
