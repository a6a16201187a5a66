"""Faults that strike clients and servers while a history runs.

A fault is a context manager over a `Stage`. Within the block it strikes; afterwards the server and the proxy work
normally again. It yields a `Count` of its strikes. Faults that make the server lose data or that move its clock are
marked as `forgets`: a lock on a single server cannot guarantee exclusion then. `history_run` says what is checked
instead.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import NamedTuple, Self

import redis

from handfast.testing import Fault as Struck
from handfast.testing import FaultProxy, ServerController, script
from handfast_lab.chaos.background import repeating

__all__ = ["FAULTS", "Count", "Fault", "Stage"]

FIRST = 0.03
"""Seconds within which a fault strikes first; histories can be short."""


@dataclass
class Stage:
    """Where a history runs. Clients reach the server through the proxy."""

    server: ServerController
    proxy: FaultProxy
    namespace: str
    pace: float = 1.0
    """Factor on the time between two strikes, raised where several kinds of faults are combined."""
    acting: ServerController = field(init=False)
    """The current primary; after a failover, the promoted replica."""
    _ends: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def __post_init__(self) -> None:
        self.acting = self.server

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ends.close()

    def replica(self) -> ServerController:
        """Start a replica of the server. It is stopped when the stage is left."""
        return self._ends.enter_context(self.server.replica())


@dataclass
class Count:
    """How often a fault struck."""

    strikes: int = 0


class Fault(NamedTuple):
    """One kind of fault."""

    inflict: Callable[[Stage, random.Random], AbstractContextManager[Count]]
    forgets: bool = False
    """Whether the server loses leases that it had granted, or ends them early."""
    deafens: bool = True
    """Whether clients may miss grant messages and so lose their queue positions. A client closes a connection whose
    reply is overdue, and misses the messages on it."""
    apis: tuple[str, ...] = ("sync", "asyncio")
    """The APIs that the fault applies to."""
    habits: frozenset[str] = frozenset()
    """Habits of the workers, for faults that the clients themselves cause."""
    needs: frozenset[str] = frozenset()
    """Options that the server needs: ``persistent``, ``clock``."""
    ttl: float = 2.0
    """Lease duration in seconds, short where leases are to expire."""


@contextmanager
def _nothing(_stage: Stage, _chance: random.Random) -> Iterator[Count]:
    """Inject no fault."""
    yield Count()


@contextmanager
def _again_and_again(
    strike: Callable[[], object], stage: Stage, chance: random.Random, every: float
) -> Iterator[Count]:
    """Strike at random moments, `every` seconds apart on average."""
    count = Count()
    pauses = itertools.chain([chance.uniform(0, FIRST)], iter(lambda: chance.expovariate(1 / every / stage.pace), None))

    def run() -> None:
        with contextlib.suppress(redis.RedisError):  # a strike that finds the server down is not counted
            strike()
            count.strikes += 1

    with repeating(run, partial(next, pauses)):
        yield count


@contextmanager
def _on_the_wire(
    inflict: Callable[[FaultProxy, random.Random], Struck], stage: Stage, chance: random.Random, every: float = 0.02
) -> Iterator[Count]:
    """Set a fault of the proxy for a later message, again and again."""
    struck: list[Struck] = []

    def strike() -> None:
        if not struck or struck[-1].happened:  # the previous fault has struck
            struck.append(inflict(stage.proxy, chance))

    count = Count()
    with _again_and_again(strike, stage, chance, every):
        try:
            yield count
        finally:
            for fault in struck:
                fault.clear()
    count.strikes = sum(fault.happened for fault in struck)


def _wire(inflict: Callable[[FaultProxy, random.Random], Struck]) -> Callable[..., AbstractContextManager[Count]]:
    return partial(_on_the_wire, inflict)


_lost_replies = _wire(lambda proxy, chance: proxy.lose_reply(script(), after=chance.randint(0, 5)))
_lost_requests = _wire(lambda proxy, chance: proxy.lose_request(script(), after=chance.randint(0, 5)))
_late_duplicates = _wire(lambda proxy, chance: proxy.duplicate(script(), after=chance.choice((0.001, 0.01, 0.1, 0.4))))
_delays = _wire(lambda proxy, chance: proxy.delay(script(), seconds=chance.choice((0.001, 0.02, 0.1, 0.7))))
_cuts_within = _wire(
    lambda proxy, chance: proxy.cut_after(chance.randint(1, 600), chance.choice(("to client", "to server")))
)


@contextmanager
def _dribble(stage: Stage, _chance: random.Random) -> Iterator[Count]:
    with stage.proxy.dribbling():
        yield Count(1)


def _cuts(stage: Stage, chance: random.Random) -> AbstractContextManager[Count]:
    return _again_and_again(stage.proxy.cut, stage, chance, 0.03)


def _black_holes(stage: Stage, chance: random.Random) -> AbstractContextManager[Count]:
    def strike() -> None:
        with stage.proxy.black_hole(chance.choice(("to server", "to client", "both"))):
            threading.Event().wait(chance.choice((0.02, 0.1, 0.7)))

    return _again_and_again(strike, stage, chance, 0.15)


def _pauses(stage: Stage, chance: random.Random) -> AbstractContextManager[Count]:
    def strike() -> None:
        with stage.server.paused():
            threading.Event().wait(chance.choice((0.005, 0.05, 0.3, 0.7)))

    return _again_and_again(strike, stage, chance, 0.15)


def _write_pauses(stage: Stage, chance: random.Random) -> AbstractContextManager[Count]:
    def strike() -> None:
        stage.server.admin.client_pause(chance.choice((5, 50, 300)), all=False)

    return _again_and_again(strike, stage, chance, 0.15)


def _forgotten_scripts(stage: Stage, chance: random.Random) -> AbstractContextManager[Count]:
    return _again_and_again(stage.server.admin.script_flush, stage, chance, 0.01)


def _killed_connections(stage: Stage, chance: random.Random) -> AbstractContextManager[Count]:
    return _again_and_again(lambda: stage.server.kill_clients(chance.choice(("pubsub", "normal"))), stage, chance, 0.05)


@contextmanager
def _restarts(keep_data: bool, stage: Stage, chance: random.Random) -> Iterator[Count]:  # noqa: FBT001 -- bound below, by name
    def strike() -> None:
        stage.server.kill()
        threading.Event().wait(chance.choice((0.0, 0.05)))
        stage.server.restart(keep_data=keep_data)

    with _again_and_again(strike, stage, chance, 0.3) as count:
        yield count


def _flushes(stage: Stage, chance: random.Random) -> AbstractContextManager[Count]:
    return _again_and_again(stage.server.admin.flushall, stage, chance, 0.03)


def _evictions(stage: Stage, chance: random.Random) -> AbstractContextManager[Count]:
    """Delete random keys one by one, as an evicting policy does."""

    def strike() -> None:
        keys = sorted(stage.server.admin.scan_iter(f"{{{stage.namespace}:*", count=1000))
        if keys:
            stage.server.admin.delete(chance.choice(keys))

    return _again_and_again(strike, stage, chance, 0.005)


def _no_memory(stage: Stage, chance: random.Random) -> AbstractContextManager[Count]:
    def strike() -> None:
        with stage.server.out_of_memory():
            threading.Event().wait(chance.choice((0.005, 0.05)))

    return _again_and_again(strike, stage, chance, 0.05)


def _no_replicas(stage: Stage, chance: random.Random) -> AbstractContextManager[Count]:
    """Have writes refused now and then for lack of replicas."""

    def strike() -> None:
        stage.server.admin.config_set("min-replicas-to-write", 1)
        threading.Event().wait(chance.choice((0.005, 0.05)))
        stage.server.admin.config_set("min-replicas-to-write", 0)

    return _again_and_again(strike, stage, chance, 0.1)


def _demotions(stage: Stage, chance: random.Random) -> AbstractContextManager[Count]:
    """Make the server a replica of an unreachable primary now and then: it keeps its data and refuses writes."""

    def strike() -> None:
        stage.server.admin.replicaof("127.0.0.1", 1)
        threading.Event().wait(chance.choice((0.005, 0.05)))
        stage.server.admin.replicaof("NO", "ONE")

    return _again_and_again(strike, stage, chance, 0.1)


@contextmanager
def _stale_failover(stage: Stage, chance: random.Random) -> Iterator[Count]:
    """Fail over, in the middle of the history, to a replica that was frozen before the latest writes."""
    replica = stage.replica()
    count, stopping = Count(), threading.Event()

    def run() -> None:
        stopping.wait(chance.uniform(0.02, 0.1))
        replica.freeze()
        stopping.wait(chance.uniform(0.01, 0.1))
        replica.promote()
        stage.acting = replica
        stage.proxy.retarget(replica.url)
        count.strikes += 1

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield count
    finally:
        stopping.set()
        thread.join()


def _clock_steps(stage: Stage, chance: random.Random) -> AbstractContextManager[Count]:
    """Move the server's clock forward, so that leases end early. Backward steps are tested by the trial `fences`."""

    def strike() -> None:
        stage.server.shift_clock(chance.choice((0.5, 5.0, 60.0)))

    return _again_and_again(strike, stage, chance, 0.1)


@contextmanager
def _much_at_once(stage: Stage, chance: random.Random) -> Iterator[Count]:
    """Combine lost replies and requests, late duplicates, cut connections, flushed scripts and server pauses."""
    stage.pace = 10.0  # all tasks share one connection, so each strike hits all of them
    kinds = _lost_replies, _lost_requests, _late_duplicates, _cuts, _forgotten_scripts, _pauses
    total = Count()
    with contextlib.ExitStack() as stack:
        counts = [stack.enter_context(kind(stage, chance)) for kind in kinds]
        yield total
    total.strikes = sum(count.strikes for count in counts)


FAULTS: dict[str, Fault] = {
    "none": Fault(_nothing, deafens=False),
    "lost replies": Fault(_lost_replies),
    "lost requests": Fault(_lost_requests),
    "late duplicates": Fault(_late_duplicates),
    "delays": Fault(_delays),
    "cut bytes": Fault(_cuts_within),
    "byte by byte": Fault(_dribble),
    "cut connections": Fault(_cuts),
    "black holes": Fault(_black_holes),
    "paused server": Fault(_pauses, ttl=0.5),
    "paused writes": Fault(_write_pauses, ttl=0.5),
    "forgotten scripts": Fault(_forgotten_scripts, deafens=False),
    "killed connections": Fault(_killed_connections),
    "restarts, data kept": Fault(partial(_restarts, True), needs=frozenset({"persistent"})),
    "restarts, data lost": Fault(partial(_restarts, False), forgets=True),
    "flushes": Fault(_flushes, forgets=True),
    "evictions": Fault(_evictions, forgets=True, ttl=0.5),
    "out of memory": Fault(_no_memory, deafens=False),
    "no replicas": Fault(_no_replicas, deafens=False),
    "demotions": Fault(_demotions),
    "stale failover": Fault(_stale_failover, forgets=True),
    "clock steps": Fault(_clock_steps, forgets=True, needs=frozenset({"clock"})),
    "forgotten leases": Fault(_nothing, habits=frozenset({"forget"}), ttl=0.1, deafens=False),
    "cancellations": Fault(_nothing, habits=frozenset({"cancel"}), apis=("asyncio",), deafens=False),
    "much at once": Fault(_much_at_once, habits=frozenset({"forget", "cancel"}), ttl=0.5),
}
"""The faults by name. Those that consist of the workers' habits alone inflict nothing on the stage."""
