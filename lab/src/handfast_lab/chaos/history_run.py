"""One history: workers, a fault that strikes them, and the checkers' verdict on what the workers recorded.

The checks depend on the fault. A server that keeps its data must provide exclusion, queue order, growing fences and a
linearizable history. After a fault that loses data or moves the clock (a flush, a restart without data, an eviction, a
stale replica, a clock step), fences must still grow and the state must recover. After the faults have ended and every
lease was released or has expired, nothing may be left on the server in any case.
"""

from __future__ import annotations

import contextlib
import random
import time
from dataclasses import dataclass, field, replace
from time import monotonic
from types import TracebackType
from typing import NamedTuple, Self

from handfast import Handfast, HandfastError
from handfast._engine.keys import KeySet
from handfast.testing import FaultProxy, ServerController
from handfast_lab.chaos.apis import APIS
from handfast_lab.chaos.faults import FAULTS, Fault, Stage
from handfast_lab.chaos.queue_observer import watching
from handfast_lab.chaos.workers import Script, play, take_all
from handfast_lab.checker import check_all
from handfast_lab.checker.fences import check_fences
from handfast_lab.checker.history import Operation
from handfast_lab.checker.quiescence import check_rest

__all__ = ["Cell", "Chamber", "Verdict"]

NAMES = "a", "b"
KINDS = {"semaphore": "semaphore", "rwlock": "rwlock"}
"""Kind segment of a primitive's keys, where it is not `lock`."""

PLAYERS = 4
OPERATIONS = 500

LONGEST, RETRY_FOR = 4.0, 30.0
"""Seconds after which the workers stop, and after which they must have stopped."""

HEALING = 25.0
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


class Chamber:
    """Owns the servers that histories run on. Each is started on first use."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._servers: dict[frozenset[str], ServerController] = {}
        self._played = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    def play(self, cell: Cell, seed: int) -> Verdict:
        """Run one history and check it."""
        fault, begun = FAULTS[cell.fault], monotonic()
        self._played += 1
        server = self._server(fault.needs)
        with FaultProxy(server.url, record=False) as proxy, Stage(server, proxy, f"t{self._played}") as stage:
            history, strikes, findings = _played(cell, fault, stage, seed)
            findings += _healed(cell, stage)
        findings += map(str, check_fences(history) if fault.forgets else check_all(history))
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

    def _server(self, needs: frozenset[str]) -> ServerController:
        if needs not in self._servers:
            self._servers[needs] = self._stack.enter_context(
                ServerController(persistent="persistent" in needs, clock="clock" in needs)
            )
        return self._servers[needs]


def _played(cell: Cell, fault: Fault, stage: Stage, seed: int) -> tuple[list[Operation], int, list[str]]:
    """Run the workers under the fault.

    Return the operations, the number of strikes, and what the workers must not see.
    """
    script = Script(
        primitive=cell.primitive,
        names=NAMES,
        players=PLAYERS,
        operations=OPERATIONS,
        ttl=fault.ttl,
        seed=seed,
        until=monotonic() + LONGEST,
        habits=fault.habits,
    )
    places = [KeySet(stage.namespace, KINDS.get(cell.primitive, "lock"), name) for name in NAMES]
    chance = random.Random(seed)  # noqa: S311 -- timing, not security
    with watching(stage.server.admin, places) as sightings, fault.inflict(stage, chance) as count:
        book = play(APIS[cell.api], script, stage.proxy.url, stage.namespace, RETRY_FOR)
    history = book.operations
    if not fault.deafens:
        places_seen = {lease: sightings.queued(token) for lease, token in book.tokens.items()}
        history = [replace(one, queued=places_seen.get(one.lease)) if one.kind == "acquire" else one for one in history]
    own = sum(not one.is_certain for one in history) if fault.habits else 0
    return history, count.strikes + own, book.faults


def _healed(cell: Cell, stage: Stage) -> list[str]:
    """Acquire everything under each name once the faults are over. Return what is left after the time to recover."""
    until = monotonic() + HEALING
    with Handfast(stage.acting.url, namespace=stage.namespace) as passer_by:
        for name in NAMES:
            try:
                take_all(passer_by, cell.primitive, name, HEALING).release()
            except HandfastError as error:
                return [f"liveness: {name}: nobody could take it {HEALING:g} s after all was over: {error}"]
    while (left := check_rest(stage.acting.admin, stage.namespace)) and monotonic() < until:
        time.sleep(0.02)
    return list(map(str, left))
