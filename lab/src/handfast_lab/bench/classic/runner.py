"""The order of the measurements, and the work of a client process in each.

A round measures every table with every client count. For each of these, all contenders follow one another directly, in
an order that rotates: contenders are compared within a minute, and a longer slowdown of the machine affects all of
them.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from time import monotonic
from typing import NamedTuple

import redis

from handfast_lab.bench.classic.client import Conn, ListingClient, MeasuredScene
from handfast_lab.bench.classic.figures import Reading, TableCase, Tally, read
from handfast_lab.bench.classic.tables import TABLES
from handfast_lab.bench.figures import Schedule
from handfast_lab.bench.runner import WARM_UP, ClientPool, in_turn
from handfast_lab.bench.worker import Start, wait_until

__all__ = ["ActJob", "ListingsPlan", "run"]

NUMBERS_TTL = 3600
"""TTL in seconds of the key that numbers the clients, in case it is never deleted."""


PREPARATION = 0.2
"""Approximate seconds until the clients of a measurement are ready."""


@dataclass(frozen=True, slots=True)
class ListingsPlan:
    """The parameters of the benchmark."""

    url: str
    tables: tuple[str, ...]
    clients: tuple[int, ...]
    rounds: int
    seconds: float

    def __len__(self) -> int:
        return self.rounds * len(self.clients) * sum(len(TABLES[table].contenders) for table in self.tables)

    @property
    def duration(self) -> float:
        """Approximate duration in seconds."""
        return len(self) * (self.seconds + WARM_UP + PREPARATION)

    def order(self) -> Iterator[TableCase]:
        """Yield the cases round by round; the first place rotates among the contenders."""
        for number in range(self.rounds):
            for place, (table, clients) in enumerate(product(self.tables, self.clients)):
                for contender in in_turn(tuple(TABLES[table].contenders), number + place):
                    yield TableCase(table, number, clients, contender)


class ActJob(NamedTuple):
    """Repeat one job."""

    table: str
    scene: MeasuredScene

    def do(self, start: Start) -> Tally:
        """Act once, to open connections and load scripts, and then until the end of the measurement."""
        actor = TABLES[self.table].contenders[self.scene.contender](self.scene, self._number())
        try:
            actor.act()
            gc.collect()
            schedule = start()
            wait_until(schedule.begin)
            _act_until(actor, schedule.go)
            return _act_until(actor, schedule.until)
        finally:
            actor.close()

    def _number(self) -> int:
        """Return the number of this client, from a counter on the server, because all clients receive the same job."""
        key = _numbers(self.scene)
        with redis.Redis.from_url(self.scene.url) as conn:
            number = int(conn.incr(key)) - 1
            conn.expire(key, NUMBERS_TTL)
        return number


def run(plan: ListingsPlan) -> Iterator[Reading]:
    """Yield one reading after the other."""
    with ClientPool() as pool, redis.Redis.from_url(plan.url) as conn:
        for case in plan.order():
            name = f"bench-{os.getpid()}-{case.table}-{case.contender}-{case.round}-{case.clients}"
            yield _reading(pool, conn, case, MeasuredScene(plan.url, name, case.contender, case.clients), plan.seconds)


def _reading(pool: ClientPool, conn: Conn, case: TableCase, scene: MeasuredScene, seconds: float) -> Reading:
    table = TABLES[case.table]
    if trouble := table.refusal(conn):
        return read(case, Schedule(0, 0, seconds), [], [trouble])
    table.prepare(scene, conn)
    try:
        schedule, tallies, troubles = pool.do(ActJob(case.table, scene), case.clients, seconds)
        wrong = [] if troubles else table.inspect(scene, conn)
        return read(case, schedule, tallies, troubles + wrong, table.limit)
    except BaseException:
        pool.dismiss()  # before their data is deleted
        raise
    finally:
        table.clear(scene, conn)
        conn.delete(_numbers(scene))


def _numbers(scene: MeasuredScene) -> str:
    return f"{scene.name}:numbers"


def _act_until(actor: ListingClient, end: float) -> Tally:
    """Act until then; an operation that ends later does not count."""
    tries, retries, successes = actor.tries, actor.retries, 0
    while True:
        succeeded = actor.act()
        if monotonic() >= end:
            break
        successes += succeeded
    return Tally(actor.tries - tries - succeeded, successes, actor.retries - retries, actor.acquired, actor.released)
