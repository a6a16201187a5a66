"""Move slots and replace primaries of a cluster under load: each name is found where it is.

R20  Threads or tasks use all primitives, lock_all over several slots among them, while the slots of their names move to
other
     primaries, key by key or at once; while replicas take the place of primaries, planned; and while primaries are
     killed. Counted: workers that got stuck, fences that got smaller, histories that no order explains (of lock_all,
     holds that overlap), and calls that failed although they had time. Of primaries that are killed, the last two are
     only measured, as holds that overlap: asynchronous replication does not prevent these, and until a replica takes
     over no server answers. Calls with little time that had no answer during a planned failover are measured as well: a
     failover takes longer. While slots move, each call has its answer.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from time import monotonic, sleep

from handfast._engine.keys import KeySet
from handfast._engine.slots import slot_of_key
from handfast_lab.chaos.apis import Api, api_of, log_silenced
from handfast_lab.chaos.clusters import Cluster
from handfast_lab.chaos.figures import Figure, durations, examples_of
from handfast_lab.chaos.recording import HistoryPlan, Recording
from handfast_lab.chaos.trials import Progress, one_by_one
from handfast_lab.chaos.trials.failovers import longest_stall
from handfast_lab.chaos.workers import run_workers
from handfast_lab.checker import check_all
from handfast_lab.checker.exclusion import check_holds
from handfast_lab.checker.fences import check_fences
from handfast_lab.checker.finding import Finding
from handfast_lab.checker.history import Operation
from handfast_lab.rivals.contender import Contender

__all__ = ["COUNT", "ROWS", "applies", "trial"]

ROWS = ("R20",)
COUNT = 100
"""Changes of each kind."""

FAILOVERS, KILLED = "planned failovers", "primaries killed"

KINDS: dict[str, Callable[[Cluster, int, random.Random], object]] = {
    "slots moved key by key": lambda cluster, slot, chance: cluster.move(slot, pause=chance.choice((0.0, 0.005, 0.02))),
    "slots moved at once": lambda cluster, slot, _: cluster.move_at_once(slot),
    FAILOVERS: lambda cluster, slot, _: cluster.fail_over(slot),
    KILLED: lambda cluster, slot, _: cluster.kill(slot),
}
"""What is done to the primary of a slot."""

BEFORE, BETWEEN, SECONDS, AFTER = 0.3, (0.0, 0.1), 10.0, 1.5
"""Seconds of load before the first change, between two changes, of one run, and after its last change."""

WORKERS, TTL, PAUSE, STAY = 3, 3.0, 0.002, 0.004
"""Of each primitive; their leases; and the mean times between two operations and of a hold, in seconds."""

PRIMITIVES = {"lock": "lock", "semaphore": "semaphore", "rwlock": "rwlock", "rlock": "lock", "lock_all": "lock"}
"""All of them, and the kind of their names."""

NAMES = ("a", "b")

PATIENT = 1.0
"""Seconds: a call that failed sooner during a failover was not to be tried again, by its timeout or because it does not
wait."""

ENDLESS = 1_000_000
"""Operations that no worker reaches."""

RETRY_FOR = 30.0
"""Seconds after which a worker counts as stuck."""


def applies(contender: Contender) -> bool:
    """Return True for Handfast: the workers use all of its primitives."""
    return contender.is_ours


def trial(contender: Contender, count: int, seed: int, progress: Progress) -> list[Figure]:
    """Make `count` changes of each kind."""
    test, chance, tick = _Clusters(contender), random.Random(seed), one_by_one(progress)  # noqa: S311 -- test data
    with log_silenced(), Cluster() as cluster, ThreadPoolExecutor(len(PRIMITIVES)) as threads:
        kinds = [kind for kind in KINDS if kind != "slots moved at once" or cluster.move_at_once(0)]
        for kind in kinds:
            while test.done[kind] < count:
                most = count - test.done[kind]
                for _ in range(test.run(cluster, threads, chance, kind, most)):
                    tick()
    return [test.figure(seed)]


@dataclass
class _Clusters:
    contender: Contender
    done: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    overlaps: int = 0
    failed: int = 0
    unanswered: int = 0
    stalls: dict[str, list[float]] = field(default_factory=dict)
    runs: int = 0

    def run(self, cluster: Cluster, threads: ThreadPoolExecutor, chance: random.Random, kind: str, most: int) -> int:
        """Run all primitives during so many changes of one kind at most, and return how many there were."""
        cluster.until_ready()
        self.runs += 1
        api, until = api_of(self.contender), monotonic() + SECONDS
        begin = partial(self._begin, threads, api, cluster.url)
        plans = [_plan(primitive, until, chance) for primitive in PRIMITIVES]
        recordings = list(map(begin, plans))
        slots = [self._slot(plan.primitive, name) for plan in plans for name in NAMES]
        sleep(BEFORE)
        changes = 0
        while changes < most and monotonic() < until - AFTER:
            KINDS[kind](cluster, chance.choice(slots), chance)
            changes += 1
            sleep(chance.uniform(*BETWEEN))
        for plan, recording in zip(plans, recordings, strict=True):
            self._check(kind, plan.primitive, recording.result())
        self.done[kind] += changes
        return changes

    def _begin(self, threads: ThreadPoolExecutor, api: Api, url: str, plan: HistoryPlan) -> Future[Recording]:
        return threads.submit(run_workers, api, plan, url, self._namespace(plan.primitive), RETRY_FOR)

    def _namespace(self, primitive: str) -> str:
        return f"{primitive}-{self.runs}"

    def _slot(self, primitive: str, name: str) -> int:
        return slot_of_key(KeySet(self._namespace(primitive), PRIMITIVES[primitive], name).tag.encode())

    def _check(self, kind: str, primitive: str, recording: Recording) -> None:
        what = f"{primitive}, {kind}, run {self.runs}"
        # Of several slots lock_all takes one after the other, so no moment is that of its grant.
        check = _check_each if primitive == "lock_all" else check_all
        history, wrong = recording.operations, recording.faults.copy()
        failed = [one for one in history if one.outcome == "failed"]
        if kind == KILLED:
            wrong += map(str, check_fences(history))
            self.overlaps += len(check_holds(history))
            self.failed += len(failed)
        else:
            bad = [one for one in failed if kind != FAILOVERS or _had_time(one)]
            self.unanswered += len(failed) - len(bad)
            wrong += [*map(str, check(history)), *(f"failed: {one}" for one in bad)]
        self.wrong += [f"{what}: {text}" for text in wrong]
        self.outcomes.update(one.outcome for one in history)
        granted = [one for one in history if one.outcome == "granted"]
        self.stalls.setdefault(kind, []).append(longest_stall(granted))

    def figure(self, seed: int) -> Figure:
        """Return the figure."""
        calm = [stall for kind, stalls in self.stalls.items() if kind != KILLED for stall in stalls]
        return Figure(
            id="R20",
            what="slots of a cluster move, primaries are replaced and killed, under load",
            contender=self.contender.name,
            tried=sum(self.done.values()),
            bad=len(self.wrong),
            unit="stuck, failed, smaller fences or histories without an order",
            measured={
                **self.done,
                "grants": self.outcomes["granted"],
                "leases lost": self.outcomes["lost"],
                "calls with little time that had no answer": self.unanswered,
                "calls that failed after a kill": self.failed,
                "holds that overlap after a kill": self.overlaps,
                **durations(calm, "without a grant of a primitive", "s"),
                **durations(self.stalls.get(KILLED, []), "without a grant after a kill", "s"),
            },
            seed=seed,
            examples=examples_of(self.wrong),
        )


def _check_each(history: list[Operation]) -> list[Finding]:
    return [*check_fences(history), *check_holds(history)]


def _had_time(call: Operation) -> bool:
    return call.returned is None or call.returned - call.invoked >= PATIENT


def _plan(primitive: str, until: float, chance: random.Random) -> HistoryPlan:
    return HistoryPlan(
        *(primitive, NAMES, WORKERS, ENDLESS, TTL), seed=chance.getrandbits(32), until=until, pause=PAUSE, stay=STAY
    )
