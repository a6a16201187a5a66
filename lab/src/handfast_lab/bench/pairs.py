"""Clients that need two of several locks at a time, in any order: all at once, or one inside the other.

With `hf.lock_all` they ask for the two as they come. Nested locks must be taken in one order that all keep to, or two
clients wait for each other for ever; here that is the order of the names. Each client draws its pairs with a chance of its
own, and the same ones for every contender and in every round. While it holds a pair it sleeps for a moment: two that hold
a name at once are only seen where both are sure of it for longer than it takes to look at the clock.

Nobody should ever wait for ten seconds here: whoever does is counted as stuck in a deadlock, and goes on. That no two held
a name at once is seen on the machine-wide monotonic clock, name by name.
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

__all__ = ["CONTENDERS", "Drawn", "PairsPlan", "Pass", "Row", "measure", "run", "summarize"]

AT_ONCE, NESTED = "lock_all", "nested"

RETRY_FOR, SEED = 10.0, 2012

SLOWEST = 100
"""Pairs a second below which it is given up."""


@contextmanager
def _at_once(client: Handfast, names: Sequence[str]) -> Iterator[None]:
    with client.lock_all(names).acquire(timeout=RETRY_FOR):
        yield


@contextmanager
def _nested(client: Handfast, names: Sequence[str]) -> Iterator[None]:
    outer, inner = sorted(names)
    with client.lock(outer).acquire(timeout=RETRY_FOR), client.lock(inner).acquire(timeout=RETRY_FOR):
        yield


CONTENDERS: Mapping[str, Callable[[Handfast, Sequence[str]], AbstractContextManager[None]]] = {
    AT_ONCE: _at_once,
    NESTED: _nested,
}
"""By name, in the order of the table: holds the locks of two names."""


class PairsPlan(NamedTuple):
    """What to measure."""

    url: str
    clients: int
    pairs: int
    """Of each client."""
    names: int
    hold: float
    """Seconds that a pair is held; 0 for none."""
    rounds: int

    def __len__(self) -> int:
        return self.rounds * len(CONTENDERS)

    @property
    def patience(self) -> float:
        """Seconds after which a measurement is given up."""
        return RETRY_FOR + self.clients * self.pairs * (self.hold + 1 / SLOWEST)


class Drawn(NamedTuple):
    """What one client saw: its holds, and which two names each of them was of."""

    turns: Turns
    first: array[int]
    second: array[int]
    timeouts: int


@dataclass(frozen=True, slots=True)
class Pass:
    """One contender in one round: every client takes its pairs."""

    round: int
    contender: str
    clients: int
    pairs: int
    """That were held, of all clients together."""
    seconds: float
    waits: Times
    timeouts: int
    """How often a client waited so long that it must have been a deadlock."""
    overlaps: int
    """How many holds of a name began while another one's was certain."""
    trouble: tuple[str, ...]
    """What went wrong; such a pass has no figures to trust."""

    @property
    def rate(self) -> float:
        """Pairs a second, of all clients together."""
        return self.pairs / self.seconds


@dataclass(frozen=True, slots=True)
class Row:
    """What all rounds say of one contender: medians and the spread of the rate; the rest is of all rounds together."""

    contender: str
    seconds: float
    rate: float
    slowest: float
    fastest: float
    waits: Times
    timeouts: int
    overlaps: int
    to_nested: float | None
    """The rate to that of nested locks in the same round."""


class PairsJob(NamedTuple):
    """Take pairs of names."""

    contender: str
    url: str
    name: str
    names: int
    pairs: int
    hold: float
    seed: int

    def do(self, start: Start) -> Drawn:
        """Take all of them, or as many as there is time for."""
        chance = random.Random(self.seed)  # noqa: S311 -- pairs to measure with are no secrets
        wanted = [chance.sample(range(self.names), 2) for _ in range(self.pairs)]
        hold = CONTENDERS[self.contender]
        drawn = Drawn(Turns(array("d"), array("d"), array("d")), array("l"), array("l"), 0)
        timeouts = 0
        with Handfast(self.url) as client:
            own = [f"{self.name}-own-{self.seed}-{number}" for number in range(2)]
            with hold(client, own):  # once, so that connections are made and scripts loaded
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
    """Let them take their pairs, one contender after the other; they take turns at being first."""
    with ClientPool() as pool:
        for case in in_rounds(CONTENDERS, plan.rounds, plan.clients):
            name = f"bench-{os.getpid()}-{case.contender}-{case.round}"
            jobs = [
                PairsJob(case.contender, plan.url, name, plan.names, plan.pairs, plan.hold, SEED + client)
                for client in range(plan.clients)
            ]
            yield measure(plan, case, *pool.do_each(jobs, plan.patience))


def measure(plan: PairsPlan, case: Case, schedule: Schedule, drawn: Sequence[Drawn], trouble: Sequence[str]) -> Pass:
    """From what each client noted."""
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
        wrong.append(f"only {len(waits)} pairs were held within {plan.patience:g} s")
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


def summarize(found: Sequence[Pass]) -> list[Row]:
    """One row for each contender that went well in a round."""
    sound = [one for one in found if not one.trouble]
    nested = {one.round: one.rate for one in sound if one.contender == NESTED}
    rows = []
    for contender in CONTENDERS:
        mine = [one for one in sound if one.contender == contender]
        if mine:
            rates = [one.rate for one in mine]
            bases = [(one.rate, nested.get(one.round)) for one in mine]
            rows.append(
                Row(
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
