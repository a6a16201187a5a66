"""One history: workers, a fault that strikes them, and the checkers' verdict on what the workers recorded.

The checks depend on the fault. A server that keeps its data must provide exclusion, queue order, growing fences and a
linearizable history. After a fault that loses data or moves the clock (a flush, a restart without data, an eviction, a
stale replica, a clock step), and where an operator takes leases away, fences must still grow and the state must
recover. A holder must soon know that its lease was taken away, and where nothing lasts as long as the ttl no lease may
be lost. After the faults have ended and every lease was released or has expired, nothing may be left on the server in
any case.
"""

from __future__ import annotations

import contextlib
import logging
import random
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from time import monotonic
from types import TracebackType
from typing import NamedTuple, Self

from handfast import Handfast, HandfastError
from handfast._engine.keys import KeySet
from handfast.testing import FaultProxy, ServerController
from handfast_lab.chaos.apis import APIS
from handfast_lab.chaos.faults import FAULTS, Environment, Fault
from handfast_lab.chaos.limiter_workers import RATES, SPECS, observing_windows
from handfast_lab.chaos.once_workers import ask, is_repeated
from handfast_lab.chaos.queue_observer import observing_queues
from handfast_lab.chaos.recording import HistoryPlan, Recording
from handfast_lab.chaos.workers import LIMITER, ONCE, acquire_all, run_workers
from handfast_lab.checker import Finding, check_admissions, check_all, check_holds, check_outcomes
from handfast_lab.checker.fences import check_fences
from handfast_lab.checker.history import Operation
from handfast_lab.checker.quiescence import check_rest, immortal_keys
from handfast_lab.children import Parent, ProcessGroup
from handfast_lab.clocks import ClockedServer

__all__ = ["Cell", "HistoryRunner", "Verdict"]

NAMES = "a", "b"
KINDS = {"semaphore": "semaphore", "rwlock": "rwlock"}
"""Kind segment of a primitive's keys, where it is not `lock`."""

WORKERS = 4
OPERATIONS = 500

PRELOADED = (__name__,)
"""Modules that are imported before processes for workers are started."""

RETRY_FOR = 30.0
"""Seconds after which the workers must have stopped."""

TOLD = 2.0
"""Seconds after which a holder must know that an operator took its lease away, also if its connection was cut
meanwhile."""

RECOVERY = 25.0
"""Seconds within which nothing may be left; background cleanup retries for 20 s."""


class Cell(NamedTuple):
    """The combination that a history tests."""

    primitive: str
    api: str
    fault: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a history."""

    cell: Cell
    seed: int
    operations: int
    strikes: int
    """How often the fault struck."""
    seconds: float
    findings: tuple[str, ...]
    history: tuple[Operation, ...] = field(default=(), repr=False)
    """Kept only if there are findings."""


class HistoryRunner:
    """Owns the servers that histories run on. Each is started on first use."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._servers: dict[frozenset[str], ServerController] = {}
        self._processes: ProcessGroup | None = None
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    def run(self, cell: Cell, seed: int) -> Verdict:
        """Run one history and check it."""
        fault, begun = FAULTS[cell.fault], monotonic()
        self._count += 1
        server = self._server(fault.needs)
        with (
            FaultProxy(server.url, record=False) as proxy,
            Environment(server, proxy, f"t{self._count}", cell.primitive) as environment,
            self._process(environment) if fault.apart else contextlib.nullcontext(),
        ):
            history, strikes, findings = _run(cell, fault, environment, seed)
            findings += _leftovers(cell, environment, history)
        findings += _lost(fault, history)
        findings += map(str, _check(cell, fault, history))
        server.admin.flushall()
        return Verdict(
            cell=cell,
            seed=seed,
            operations=len(history),
            strikes=strikes,
            seconds=monotonic() - begun,
            findings=tuple(findings),
            history=tuple(history) if findings else (),
        )

    @contextmanager
    def _process(self, environment: Environment) -> Iterator[None]:
        """Start the process that half of the workers run in."""
        if self._processes is None:
            self._processes = self._stack.enter_context(ProcessGroup(preload=PRELOADED))
        environment.apart = self._processes.start(_work_apart)
        try:
            yield
        finally:
            self._processes.discard(environment.apart)

    def _server(self, needs: frozenset[str]) -> ServerController:
        if needs not in self._servers:
            self._servers[needs] = self._stack.enter_context(
                (ClockedServer if "clock" in needs else ServerController)(persistent="persistent" in needs)
            )
        return self._servers[needs]


def _check(cell: Cell, fault: Fault, history: list[Operation]) -> list[Finding]:
    if cell.primitive == LIMITER:
        return [] if fault.loses_leases else check_admissions(history, SPECS)
    if cell.primitive == ONCE:
        found = check_outcomes(history, keeps=not fault.loses_leases, is_repeated=is_repeated)
        return [*found, *check_fences(history), *([] if fault.loses_leases else check_holds(history))]
    return check_fences(history) if fault.loses_leases else check_all(history)


def _run(cell: Cell, fault: Fault, environment: Environment, seed: int) -> tuple[list[Operation], int, list[str]]:
    """Run the workers under the fault.

    Return the operations, the number of strikes, and what the workers must not see.
    """
    plan = HistoryPlan(
        primitive=cell.primitive,
        names=NAMES,
        workers=WORKERS,
        operations=OPERATIONS,
        ttl=fault.ttl,
        seed=seed,
        until=monotonic() + fault.seconds,
        habits=fault.habits,
        pause=fault.pause,
        stay=fault.stay,
    )
    if environment.apart is not None:
        plan = plan._replace(workers=WORKERS // 2, operations=OPERATIONS // 2)
    key_sets = [KeySet(environment.namespace, KINDS.get(cell.primitive, "lock"), name) for name in NAMES]
    chance = random.Random(seed)  # noqa: S311 -- timing, not security
    admin = environment.server.admin
    windows = observing_windows(admin, environment.namespace) if cell.primitive == LIMITER else nullcontext()
    with (
        windows as counted,
        observing_queues(admin, key_sets) as queues,
        fault.inflict(environment, chance) as count,
    ):
        reach = environment.proxy.url, environment.namespace, RETRY_FOR
        if environment.apart is not None:
            environment.apart.order("run", cell.api, plan._replace(first=plan.workers), *reach)
        recording = run_workers(APIS[cell.api], plan, *reach)
    if environment.apart is not None:
        recording.add(environment.apart.expect("done", RETRY_FOR).value)
    history = recording.operations
    unaware = _unaware(recording, environment)
    if counted is not None:
        instants = {lease: counted.instants(token) for lease, token in recording.tokens.items()}
        history = [
            replace(one, counted=instants.get(one.lease, ())) if one.kind != "settle" else one for one in history
        ]
    if not fault.loses_messages:
        observed = queues if counted is None else counted.queues
        queued_since = {lease: observed.queued(token) for lease, token in recording.tokens.items()}
        history = [
            replace(one, queued=queued_since.get(one.lease)) if one.kind == "acquire" else one for one in history
        ]
    own = sum(not one.is_certain for one in history) if fault.habits else 0
    return history, count.strikes + own, [*recording.faults, *unaware]


def _work_apart(parent: Parent) -> None:
    """Run the workers that the parent orders, and return what they recorded."""
    logging.getLogger("handfast").setLevel(logging.CRITICAL)  # as in the parent

    def run(api: str, plan: HistoryPlan, url: str, namespace: str, timeout: float) -> Recording:
        return run_workers(APIS[api], plan, url, namespace, timeout)

    parent.serve({"run": run}, answer=True)


def _lost(fault: Fault, history: Iterable[Operation]) -> Iterator[str]:
    """Yield the leases that were lost although nothing lasted as long as their ttl."""
    for one in history:
        if one.outcome == "lost" and fault.keeps.issuperset(one.names):
            yield f"kept: {one.client} lost {one.lease} of {', '.join(one.names)} before its ttl"


def _unaware(recording: Recording, environment: Environment) -> Iterator[str]:
    """Yield the leases that their holders still believed in long after an operator had taken them away."""
    history = recording.operations
    taken_at = {one.lease: one.returned for one in history if one.outcome == "granted" and one.returned is not None}
    for one in history:
        if one.outcome == "lost" and one.lease in recording.believed:
            for moment, name in environment.revoked:
                if name in one.names and taken_at[one.lease] < moment < one.invoked - TOLD:
                    yield f"told: {one.lease} was believed in {one.invoked - moment:.1f} s after it was taken away"
                    break


def _leftovers(cell: Cell, environment: Environment, history: Iterable[Operation]) -> list[str]:
    """Acquire everything under each name once the faults are over. Return what is left after the time to recover."""
    until = monotonic() + RECOVERY
    if cell.primitive == LIMITER:
        return _waiting(environment, until)
    with Handfast(environment.primary.url, namespace=environment.namespace) as client:
        names = {name for one in history for name in one.names} if cell.primitive == ONCE else NAMES
        for name in names:
            try:
                if cell.primitive == ONCE:
                    ask(client, name, RECOVERY)
                else:
                    acquire_all(client, cell.primitive, name, RECOVERY).release()
            except HandfastError as error:
                return [f"liveness: {name}: not available {RECOVERY:g} s after the faults ended: {error}"]
    while (left := check_rest(environment.primary.admin, environment.namespace)) and monotonic() < until:
        time.sleep(0.02)
    return list(map(str, left))


def _waiting(environment: Environment, until: float) -> list[str]:
    """Be admitted under each name once the faults are over. Return who waits then, and the keys without a TTL."""
    found = []
    with Handfast(environment.primary.url, namespace=environment.namespace) as client:
        for name, rates in RATES.items():
            limiter = client.limiter(name, rates)
            try:
                limiter.acquire(timeout=RECOVERY)
            except HandfastError as error:
                found.append(f"liveness: {name}: not available {RECOVERY:g} s after the faults ended: {error}")
            while (waiting := limiter.status().waiting) and monotonic() < until:
                time.sleep(0.02)
            found += [f"rest: {name}: {waiting} still wait"] if waiting else []
    immortal = immortal_keys(environment.primary.admin, environment.namespace)
    return [*found, *(f"rest: {key}: a key without a TTL" for key in immortal)]
