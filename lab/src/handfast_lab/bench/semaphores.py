"""Who is measured at a semaphore: the classic listings, py-redis-semaphore, ours, and the floor under it.

As with locks (`handfast_lab.bench.contenders`), each is one client and made once, and rivals run with their defaults but for
a lease. The listings do not wait: who gets no place asks again a millisecond later, as the listings' own locks do. Their
first form and its fair one are known to let in too many now and then; that is counted and told.
"""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

import redis

from handfast import Handfast, classic
from handfast.classic import watch
from handfast_lab.bench.classic.actor import FIRST, LUA, OURS, Conn
from handfast_lab.bench.contenders import LEASE, Contender
from handfast_lab.bench.counting import WatchCounted
from handfast_lab.bench.figures import FLOOR, Measurement, Notes, measure
from handfast_lab.bench.floor import Floor
from handfast_lab.bench.runner import Crew, Plan
from handfast_lab.bench.worker import Start, contend

__all__ = ["FAIR", "LENIENT", "SEMAPHORES", "SemaphoreJob", "available", "forget", "run"]

FAIR = "classic-fair"
"""The first form with its counter and its lock."""

LENIENT = frozenset({FIRST, FAIR})
"""Who is known to let in too many."""

PAUSE = 0.001
"""Seconds that a client of the listings waits which got no place: as long as the listings' locks do."""

RIVAL = "py-redis-semaphore"

Acquire = Callable[[redis.Redis, str, int, float], str | None]
Release = Callable[[redis.Redis, str, str], bool]


class ClassicSemaphore:
    """A client of the listings, asking every millisecond."""

    def __init__(self, acquire: Acquire, release: Release, url: str, name: str, limit: int) -> None:
        self.tries = 0
        self._conn: Conn = WatchCounted.from_url(url)
        self._acquire = partial(acquire, self._conn, name, limit, LEASE)
        self._release = partial(release, self._conn, name)

    @property
    def retries(self) -> int:
        """How often the lock of the fair form had to start over."""
        return int(self._conn.retries)

    def acquire(self) -> None:
        """Ask until there is a place."""
        self.tries += 1
        while not (identifier := self._acquire()):
            time.sleep(PAUSE)
            self.tries += 1
        self._identifier = identifier

    def release(self) -> None:
        """Give the place up."""
        self._release(self._identifier)

    def close(self) -> None:
        """Close the connection."""
        self._conn.close()


class PyRedisSemaphore:
    """py-redis-semaphore, which sleeps in BLPOP."""

    def __init__(self, url: str, name: str, limit: int) -> None:
        self.tries = 0
        self._conn = redis.Redis.from_url(url)
        library = importlib.import_module("redis_semaphore")
        self._semaphore = library.Semaphore(self._conn, library.SemaphoreConfig(name, limit, lock_timeout=float(LEASE)))
        self.release = self._semaphore.release

    def acquire(self) -> None:
        """Wait for a place."""
        self.tries += 1
        self._semaphore.acquire()

    def close(self) -> None:
        """Close the connections."""
        self._conn.close()


class OurSemaphore:
    """``with hf.semaphore(name, limit)``, and no option more."""

    def __init__(self, url: str, name: str, limit: int) -> None:
        self.tries = 0
        self._client = Handfast(url)
        self._semaphore = self._client.semaphore(name, limit)

    def acquire(self) -> None:
        """Wait in line."""
        self.tries += 1
        self._semaphore.__enter__()

    def release(self) -> None:
        """Give the permit up."""
        self._semaphore.__exit__(None, None, None)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


SEMAPHORES: Mapping[str, Callable[[str, str, int], Contender]] = {
    FIRST: partial(ClassicSemaphore, watch.acquire_semaphore, watch.release_semaphore),
    FAIR: partial(ClassicSemaphore, watch.acquire_semaphore_with_lock, watch.release_fair_semaphore),
    LUA: partial(ClassicSemaphore, classic.acquire_semaphore, classic.release_semaphore),
    RIVAL: PyRedisSemaphore,
    OURS: OurSemaphore,
    FLOOR: Floor,
}
"""By name, in the order of the table: makes one from a URL, the name and the limit of the semaphore."""


class SemaphoreJob(NamedTuple):
    """Contend for the permits of one semaphore."""

    contender: str
    url: str
    name: str
    limit: int
    hold: float
    """Seconds that a permit is held; 0 for none."""

    def do(self, start: Start) -> Notes:
        """Acquire and release; what was seen of it."""
        return contend(SEMAPHORES[self.contender](self.url, self.name, self.limit), start, self.hold)


def available() -> list[str]:
    """The names of those that can run here: what is not installed is left out."""
    missing = set() if importlib.util.find_spec("redis_semaphore") else {RIVAL}
    return [name for name in SEMAPHORES if name not in missing]


def run(plan: Plan, limit: int) -> Iterator[Measurement]:
    """Let processes contend for so many permits, one measurement after the other."""
    with Crew() as crew, redis.Redis.from_url(plan.url) as conn:
        for case in plan.order():
            name = f"bench-semaphore-{case.contender}-{case.round}-{case.clients}"
            job = SemaphoreJob(case.contender, plan.url, name, limit, plan.hold)
            try:
                yield measure(case, *crew.do(job, case.clients, plan.seconds), limit=limit)
            except BaseException:
                crew.dismiss()  # before what they work with is forgotten
                raise
            finally:
                forget(conn, name)


def forget(conn: Conn, name: str) -> None:
    """Remove what listings and rivals leave behind, some of it for ever."""
    listings = [f"{name}{part}" for part in ("", ":owner", ":counter")]
    conn.delete(*listings, f"lock:{name}", *(f"semaphore:{name}:{part}" for part in ("owners", "fencing", "queue")))
