"""Let a Sentinel make the replica the primary under load: everybody goes there, and the old primary grants nothing more.

R36  Threads or tasks use all primitives, and a Sentinel exchanges the roles of the two servers, of which both go on. When
     it names the new primary, as many workers begin that know no other. Counted: workers that got stuck or failed, and fences
     that got smaller. Measured: holds that overlap. Asynchronous replication does not prevent these: what the old primary grants
     between the promotion of the other one and the moment at which clients hear of it is lost.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from time import monotonic, sleep

from handfast_lab.chaos.apis import Api, api_of, log_silenced
from handfast_lab.chaos.figures import Figure, durations, examples_of
from handfast_lab.chaos.recording import HistoryPlan, Recording
from handfast_lab.chaos.sentinels import Sentinels
from handfast_lab.chaos.trials import Progress
from handfast_lab.chaos.workers import PRIMITIVES, run_workers
from handfast_lab.checker.exclusion import check_holds
from handfast_lab.checker.fences import check_fences
from handfast_lab.checker.history import Operation
from handfast_lab.rivals.contender import Contender

__all__ = ["COUNT", "ROWS", "applies", "longest_stall", "trial"]

ROWS = ("R36",)
COUNT = 10
"""Failovers."""

BEFORE, LATE, SECONDS = (0.2, 1.0), (0.0, 0.15), 6.0
"""Seconds of load before the failover begins, from the moment at which it names the new primary until the others begin,
and all in all. Some 60 ms after that moment it sends its message; clients that connect in between are still sent to the
old primary."""

WORKERS, TTL, PAUSE, STAY = 2, 3.0, 0.002, 0.01
"""Of each primitive, before and after; their leases; and the mean times between two operations and of a hold, in
seconds."""

ENDLESS = 1_000_000
"""Operations that no worker reaches."""

RETRY_FOR = 30.0
"""Seconds after which a worker counts as stuck."""


def applies(contender: Contender) -> bool:
    """Return True for Handfast: the workers use all of its primitives."""
    return contender.is_ours


def trial(contender: Contender, count: int, seed: int, progress: Progress) -> list[Figure]:
    """Exchange the roles `count` times."""
    test, chance = _Failovers(contender), random.Random(seed)  # noqa: S311 -- test data
    with log_silenced(), Sentinels() as servers, ThreadPoolExecutor(2 * len(PRIMITIVES)) as threads:
        for number in range(count):
            test.run(servers, threads, chance, number)
            progress(number + 1)
    return [test.figure(seed)]


@dataclass
class _Failovers:
    contender: Contender
    done: int = 0
    wrong: list[str] = field(default_factory=list)
    overlaps: int = 0
    grants: int = 0
    lost: int = 0
    failed: int = 0
    stalls: list[float] = field(default_factory=list)

    def run(self, servers: Sentinels, threads: ThreadPoolExecutor, chance: random.Random, number: int) -> None:
        """Run all primitives during one failover, and check what happened."""
        servers.until_ready()
        api, until = api_of(self.contender), monotonic() + SECONDS
        plans = [
            HistoryPlan(
                *(primitive, ("a", "b"), WORKERS, ENDLESS, TTL),
                seed=chance.getrandbits(32),
                until=until,
                pause=PAUSE,
                stay=STAY,
            )
            for primitive in PRIMITIVES
        ]
        begin = partial(_begin, threads, api, servers.url, number)
        early = list(map(begin, plans))
        sleep(chance.uniform(*BEFORE))
        servers.fail_over()
        sleep(chance.uniform(*LATE))
        late = [begin(plan._replace(first=WORKERS)) for plan in plans]
        for plan, one, other in zip(plans, early, late, strict=True):
            recording = one.result()
            recording.add(other.result())
            self._check(f"{plan.primitive}, failover {number}", recording)
        self.done += 1

    def _check(self, what: str, recording: Recording) -> None:
        history = recording.operations
        wrong = [*recording.faults, *map(str, check_fences(history))]
        self.wrong += [f"{what}: {text}" for text in wrong]
        overlaps = check_holds(history)
        self.overlaps += len(overlaps)
        granted = [one for one in history if one.outcome == "granted"]
        self.grants += len(granted)
        self.lost += sum(one.outcome == "lost" for one in history)
        self.failed += sum(one.outcome == "failed" for one in history)
        self.stalls.append(longest_stall(granted))

    def figure(self, seed: int) -> Figure:
        """Return the figure."""
        return Figure(
            id="R36",
            what="a Sentinel exchanges primary and replica, under load",
            contender=self.contender.name,
            tried=self.done,
            bad=len(self.wrong),
            unit="stuck, failed or smaller fences",
            measured={
                "grants": self.grants,
                "leases lost": self.lost,
                "calls that failed": self.failed,
                "holds that overlap": self.overlaps,
                **durations(self.stalls, "without a grant of a primitive", "s"),
            },
            seed=seed,
            examples=examples_of(self.wrong),
        )


def _begin(threads: ThreadPoolExecutor, api: Api, url: str, number: int, plan: HistoryPlan) -> Future[Recording]:
    """Start the workers of one primitive."""
    return threads.submit(run_workers, api, plan, url, f"{plan.primitive}-{number}", RETRY_FOR)


def longest_stall(granted: Iterable[Operation]) -> float:
    """Return the longest time in seconds between two grants."""
    moments = sorted(one.returned for one in granted if one.returned is not None)
    return max((later - earlier for earlier, later in pairwise(moments)), default=SECONDS)
