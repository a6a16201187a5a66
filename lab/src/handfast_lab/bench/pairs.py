"""Clients that need two of several locks at a time, in any order: acquired at once, or nested.

With `hf.lock_all` they acquire the two in the order drawn. Nested locks need a global order, or two clients deadlock;
here it is the order of the names. Each client draws its pairs from a seed of its own, the same for every contender and
round. A client sleeps for a moment while it holds a pair: an overlap is detected only if it lasts longer than a clock
reading.

A wait of ten seconds should never happen here: it counts as a deadlock, and the client continues. Exclusion is checked
on the machine-wide monotonic clock, for each name.
"""

from __future__ import annotations

import gc
import os
import random
import time
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from statistics import median
from time import monotonic
from typing import NamedTuple

from handfast import AcquireTimeout, Handfast
from handfast_lab.bench.figures import Case, Hold, Schedule, Times, Turns, crowding, middle
from handfast_lab.bench.runner import ClientPool, in_rounds
from handfast_lab.bench.worker import Start, wait_until

__all__ = ["CONTENDERS", "Drawn", "PairsPlan", "PairsRow", "Pass", "measure", "run", "summarize"]

AT_ONCE, NESTED = "lock_all", "nested"

ACQUIRE_TIMEOUT = 10.0
"""Seconds; a longer wait counts as a deadlock."""

SEED = 2012

SLOWEST = 100
"""Pairs per second below which the run is given up."""


@contextmanager
def _at_once(client: Handfast, names: Sequence[str]) -> Iterator[None]:
    with client.lock_all(names).acquire(timeout=ACQUIRE_TIMEOUT):
        yield


@contextmanager
def _nested(client: Handfast, names: Sequence[str]) -> Iterator[None]:
    outer, inner = sorted(names)
    with client.lock(outer).acquire(timeout=ACQUIRE_TIMEOUT), client.lock(inner).acquire(timeout=ACQUIRE_TIMEOUT):
        yield


CONTENDERS: Mapping[str, Callable[[Handfast, Sequence[str]], AbstractContextManager[None]]] = {
    AT_ONCE: _at_once,
    NESTED: _nested,
}
"""By name, in the order of the table. Each returns a context manager that holds the locks of two names."""


class PairsPlan(NamedTuple):
    """The parameters of the benchmark."""

    url: str
    clients: int
    pairs: int
    """For each client."""
    names: int
    hold: float
    """Seconds to hold each pair; 0 for none."""
    rounds: int

    def __len__(self) -> int:
        return self.rounds * len(CONTENDERS)

    @property
    def timeout(self) -> float:
        """Seconds after which a measurement is given up."""
        return ACQUIRE_TIMEOUT + self.clients * self.pairs * (self.hold + 1 / SLOWEST)


class Drawn(NamedTuple):
    """The records of one client: its holds, and the two names of each."""

    turns: Turns
    first: array[int]
    second: array[int]
    timeouts: int


@dataclass(frozen=True, slots=True)
class Pass:
    """One contender in one round: every client processes its pairs."""

    round: int
    contender: str
    clients: int
    pairs: int
    """Pairs held, by all clients together."""
    seconds: float
    waits: Times
    timeouts: int
    """Number of waits so long that they must have been deadlocks."""
    overlaps: int
    """Number of holds of a name that began during another client's certain hold of it."""
    trouble: tuple[str, ...]
    """Errors; the figures of a pass with errors are not used."""

    @property
    def rate(self) -> float:
        """Pairs per second, of all clients together."""
        return self.pairs / self.seconds


@dataclass(frozen=True, slots=True)
class PairsRow:
    """All rounds of one contender: medians and the spread of the rate; the others cover all rounds together."""

    contender: str
    seconds: float
    rate: float
    slowest: float
    fastest: float
    waits: Times
    timeouts: int
    overlaps: int
    to_nested: float | None
    """The rate divided by that of nested locks in the same round."""


class PairsJob(NamedTuple):
    """Acquire and release pairs of locks."""

    contender: str
    url: str
    name: str
    names: int
    pairs: int
    hold: float
    seed: int

    def do(self, start: Start) -> Drawn:
        """Process all pairs, or as many as the time allows."""
        chance = random.Random(self.seed)  # noqa: S311 -- test data, not secrets
        wanted = [chance.sample(range(self.names), 2) for _ in range(self.pairs)]
        hold = CONTENDERS[self.contender]
        drawn = Drawn(Turns(array("d"), array("d"), array("d")), array("l"), array("l"), 0)
        timeouts = 0
        with Handfast(self.url) as client:
            own = [f"{self.name}-own-{self.seed}-{number}" for number in range(2)]
            with hold(client, own):  # once, to open connections and load scripts
                pass
            gc.collect()
            schedule = start()
            wait_until(schedule.begin)
            for first, second in wanted:
                asked = monotonic()
                if asked >= schedule.until:
                    break
                try:
                    with hold(client, [f"{self.name}-{first}", f"{self.name}-{second}"]):
                        acquired = monotonic()
                        if self.hold:
                            time.sleep(self.hold)
                        released = monotonic()
                except AcquireTimeout:
                    timeouts += 1
                    continue
                drawn.turns.asked.append(asked)
                drawn.turns.acquired.append(acquired)
                drawn.turns.released.append(released)
                drawn.first.append(first)
                drawn.second.append(second)
        return drawn._replace(timeouts=timeouts)


def run(plan: PairsPlan) -> Iterator[Pass]:
    """Yield one pass after the other; the first place rotates among the contenders."""
    with ClientPool() as pool:
        for case in in_rounds(CONTENDERS, plan.rounds, plan.clients):
            name = f"bench-{os.getpid()}-{case.contender}-{case.round}"
            jobs = [
                PairsJob(case.contender, plan.url, name, plan.names, plan.pairs, plan.hold, SEED + client)
                for client in range(plan.clients)
            ]
            yield measure(plan, case, *pool.do(jobs, plan.timeout))


def measure(plan: PairsPlan, case: Case, schedule: Schedule, drawn: Sequence[Drawn], trouble: Sequence[str]) -> Pass:
    """Evaluate the records of all clients."""
    holds: dict[int, list[Hold]] = defaultdict(list)
    waits = []
    for client, mine in enumerate(drawn):
        for asked, acquired, released, *pair in zip(*mine.turns, mine.first, mine.second, strict=True):
            waits.append((acquired - asked) * 1e6)
            for name in pair:
                holds[int(name)].append(Hold(acquired, released, client))
    wrong = list(trouble)
    timeouts = sum(mine.timeouts for mine in drawn)
    if not wrong and len(waits) + timeouts < plan.clients * plan.pairs:
        wrong.append(f"only {len(waits)} pairs were held within {plan.timeout:g} s")
    end = max((hold.released for some in holds.values() for hold in some), default=schedule.until)
    return Pass(
        round=case.round,
        contender=case.contender,
        clients=plan.clients,
        pairs=len(waits),
        seconds=end - schedule.begin,
        waits=Times.of("wait", waits),
        timeouts=timeouts,
        overlaps=sum(map(crowding, holds.values())),
        trouble=tuple(wrong),
    )


def summarize(found: Sequence[Pass]) -> list[PairsRow]:
    """Return one row for each contender with an error-free round."""
    sound = [one for one in found if not one.trouble]
    nested = {one.round: one.rate for one in sound if one.contender == NESTED}
    rows = []
    for contender in CONTENDERS:
        mine = [one for one in sound if one.contender == contender]
        if mine:
            rates = [one.rate for one in mine]
            bases = [(one.rate, nested.get(one.round)) for one in mine]
            rows.append(
                PairsRow(
                    contender=contender,
                    seconds=median(one.seconds for one in mine),
                    rate=median(rates),
                    slowest=min(rates),
                    fastest=max(rates),
                    waits=Times.of_rounds([one.waits for one in mine]),
                    timeouts=sum(one.timeouts for one in mine),
                    overlaps=sum(one.overlaps for one in mine),
                    to_nested=middle(rate / base for rate, base in bases if base),
                )
            )
    return rows
