"""Faults that strike clients and servers while a history runs.

A fault is a context manager over an `Environment`. Within the block it strikes; afterwards the server and the proxy work
normally again. It yields a `Count` of its strikes. Faults that make the server lose data or that move its clock are
marked as `loses_leases`: a lock on a single server cannot guarantee exclusion then. `history_run` says what is checked
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

from handfast.testing import Fault as WireFault
from handfast.testing import FaultProxy, ServerController, script
from handfast_lab.chaos.background import repeating

__all__ = ["FAULTS", "Count", "Environment", "Fault"]

FIRST = 0.03
"""Seconds within which a fault strikes first; histories can be short."""


@dataclass
class Environment:
    """Where a history runs. Clients reach the server through the proxy."""

    server: ServerController
    proxy: FaultProxy
    namespace: str
    pace: float = 1.0
    """Factor on the time between two strikes, raised where several kinds of faults are combined."""
    primary: ServerController = field(init=False)
    """The current primary; after a failover, the promoted replica."""
    _ends: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def __post_init__(self) -> None:
        self.primary = self.server

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ends.close()

    def replica(self) -> ServerController:
        """Start a replica of the server. It is stopped when the environment is left."""
        return self._ends.enter_context(self.server.replica())


@dataclass
class Count:
    """How often a fault struck."""

    strikes: int = 0


class Fault(NamedTuple):
    """One kind of fault."""

    inflict: Callable[[Environment, random.Random], AbstractContextManager[Count]]
    loses_leases: bool = False
    """Whether the server loses leases that it had granted, or ends them early."""
    loses_messages: bool = True
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
def _nothing(_environment: Environment, _chance: random.Random) -> Iterator[Count]:
    """Inject no fault."""
    yield Count()


@contextmanager
def _repeatedly(
    strike: Callable[[], object], environment: Environment, chance: random.Random, every: float
) -> Iterator[Count]:
    """Strike at random moments, `every` seconds apart on average."""
    count = Count()
    pauses = itertools.chain(
        [chance.uniform(0, FIRST)], iter(lambda: chance.expovariate(1 / every / environment.pace), None)
    )

    def run() -> None:
        with contextlib.suppress(redis.RedisError):  # a strike that finds the server down is not counted
            strike()
            count.strikes += 1

    with repeating(run, partial(next, pauses)):
        yield count


@contextmanager
def _between(
    inflict: Callable[[FaultProxy, random.Random], WireFault],
    environment: Environment,
    chance: random.Random,
    every: float = 0.02,
) -> Iterator[Count]:
    """Set a fault of the proxy for a later message, again and again."""
    struck: list[WireFault] = []

    def strike() -> None:
        if not struck or struck[-1].happened:  # the previous fault has struck
            struck.append(inflict(environment.proxy, chance))

    count = Count()
    with _repeatedly(strike, environment, chance, every):
        try:
            yield count
        finally:
            for fault in struck:
                fault.clear()
    count.strikes = sum(fault.happened for fault in struck)


def _wire(inflict: Callable[[FaultProxy, random.Random], WireFault]) -> Callable[..., AbstractContextManager[Count]]:
    return partial(_between, inflict)


_lost_replies = _wire(lambda proxy, chance: proxy.lose_reply(script(), after=chance.randint(0, 5)))
_lost_requests = _wire(lambda proxy, chance: proxy.lose_request(script(), after=chance.randint(0, 5)))
_late_duplicates = _wire(lambda proxy, chance: proxy.duplicate(script(), after=chance.choice((0.001, 0.01, 0.1, 0.4))))
_delays = _wire(lambda proxy, chance: proxy.delay(script(), seconds=chance.choice((0.001, 0.02, 0.1, 0.7))))
_cuts_within = _wire(
    lambda proxy, chance: proxy.cut_after(chance.randint(1, 600), chance.choice(("to client", "to server")))
)


@contextmanager
def _dribble(environment: Environment, _chance: random.Random) -> Iterator[Count]:
    with environment.proxy.dribbling():
        yield Count(1)


def _cuts(environment: Environment, chance: random.Random) -> AbstractContextManager[Count]:
    return _repeatedly(environment.proxy.cut, environment, chance, 0.03)


def _black_holes(environment: Environment, chance: random.Random) -> AbstractContextManager[Count]:
    def strike() -> None:
        with environment.proxy.black_hole(chance.choice(("to server", "to client", "both"))):
            threading.Event().wait(chance.choice((0.02, 0.1, 0.7)))

    return _repeatedly(strike, environment, chance, 0.15)


def _pauses(environment: Environment, chance: random.Random) -> AbstractContextManager[Count]:
    def strike() -> None:
        with environment.server.paused():
            threading.Event().wait(chance.choice((0.005, 0.05, 0.3, 0.7)))

    return _repeatedly(strike, environment, chance, 0.15)


def _write_pauses(environment: Environment, chance: random.Random) -> AbstractContextManager[Count]:
    def strike() -> None:
        environment.server.admin.client_pause(chance.choice((5, 50, 300)), all=False)

    return _repeatedly(strike, environment, chance, 0.15)


def _flushed_scripts(environment: Environment, chance: random.Random) -> AbstractContextManager[Count]:
    return _repeatedly(environment.server.admin.script_flush, environment, chance, 0.01)


def _killed_connections(environment: Environment, chance: random.Random) -> AbstractContextManager[Count]:
    return _repeatedly(
        lambda: environment.server.kill_clients(chance.choice(("pubsub", "normal"))), environment, chance, 0.05
    )


@contextmanager
def _restarts(keep_data: bool, environment: Environment, chance: random.Random) -> Iterator[Count]:  # noqa: FBT001 -- bound below, by name
    def strike() -> None:
        environment.server.kill()
        threading.Event().wait(chance.choice((0.0, 0.05)))
        environment.server.restart(keep_data=keep_data)

    with _repeatedly(strike, environment, chance, 0.3) as count:
        yield count


def _flushes(environment: Environment, chance: random.Random) -> AbstractContextManager[Count]:
    return _repeatedly(environment.server.admin.flushall, environment, chance, 0.03)


def _evictions(environment: Environment, chance: random.Random) -> AbstractContextManager[Count]:
    """Delete random keys one by one, as an evicting policy does."""

    def strike() -> None:
        keys = sorted(environment.server.admin.scan_iter(f"{{{environment.namespace}:*", count=1000))
        if keys:
            environment.server.admin.delete(chance.choice(keys))

    return _repeatedly(strike, environment, chance, 0.005)


def _no_memory(environment: Environment, chance: random.Random) -> AbstractContextManager[Count]:
    def strike() -> None:
        with environment.server.out_of_memory():
            threading.Event().wait(chance.choice((0.005, 0.05)))

    return _repeatedly(strike, environment, chance, 0.05)


def _no_replicas(environment: Environment, chance: random.Random) -> AbstractContextManager[Count]:
    """Have writes refused now and then for lack of replicas."""

    def strike() -> None:
        environment.server.admin.config_set("min-replicas-to-write", 1)
        threading.Event().wait(chance.choice((0.005, 0.05)))
        environment.server.admin.config_set("min-replicas-to-write", 0)

    return _repeatedly(strike, environment, chance, 0.1)


def _demotions(environment: Environment, chance: random.Random) -> AbstractContextManager[Count]:
    """Make the server a replica of an unreachable primary now and then: it keeps its data and refuses writes."""

    def strike() -> None:
        environment.server.admin.replicaof("127.0.0.1", 1)
        threading.Event().wait(chance.choice((0.005, 0.05)))
        environment.server.admin.replicaof("NO", "ONE")

    return _repeatedly(strike, environment, chance, 0.1)


@contextmanager
def _stale_failover(environment: Environment, chance: random.Random) -> Iterator[Count]:
    """Fail over, in the middle of the history, to a replica that was frozen before the latest writes."""
    replica = environment.replica()
    count, stopping = Count(), threading.Event()

    def run() -> None:
        stopping.wait(chance.uniform(0.02, 0.1))
        replica.freeze()
        stopping.wait(chance.uniform(0.01, 0.1))
        replica.promote()
        environment.primary = replica
        environment.proxy.retarget(replica.url)
        count.strikes += 1

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield count
    finally:
        stopping.set()
        thread.join()


def _clock_steps(environment: Environment, chance: random.Random) -> AbstractContextManager[Count]:
    """Move the server's clock forward, so that leases end early. Backward steps are tested by the trial `fences`."""

    def strike() -> None:
        environment.server.shift_clock(chance.choice((0.5, 5.0, 60.0)))

    return _repeatedly(strike, environment, chance, 0.1)


@contextmanager
def _several_at_once(environment: Environment, chance: random.Random) -> Iterator[Count]:
    """Combine lost replies and requests, late duplicates, cut connections, flushed scripts and server pauses."""
    environment.pace = 10.0  # all tasks share one connection, so each strike hits all of them
    kinds = _lost_replies, _lost_requests, _late_duplicates, _cuts, _flushed_scripts, _pauses
    total = Count()
    with contextlib.ExitStack() as stack:
        counts = [stack.enter_context(kind(environment, chance)) for kind in kinds]
        yield total
    total.strikes = sum(count.strikes for count in counts)


FAULTS: dict[str, Fault] = {
    "none": Fault(_nothing, loses_messages=False),
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
    "flushed scripts": Fault(_flushed_scripts, loses_messages=False),
    "killed connections": Fault(_killed_connections),
    "restarts, data kept": Fault(partial(_restarts, True), needs=frozenset({"persistent"})),
    "restarts, data lost": Fault(partial(_restarts, False), loses_leases=True),
    "flushes": Fault(_flushes, loses_leases=True),
    "evictions": Fault(_evictions, loses_leases=True, ttl=0.5),
    "out of memory": Fault(_no_memory, loses_messages=False),
    "no replicas": Fault(_no_replicas, loses_messages=False),
    "demotions": Fault(_demotions),
    "stale failover": Fault(_stale_failover, loses_leases=True),
    "clock steps": Fault(_clock_steps, loses_leases=True, needs=frozenset({"clock"})),
    "abandoned leases": Fault(_nothing, habits=frozenset({"abandon"}), ttl=0.1, loses_messages=False),
    "cancellations": Fault(_nothing, habits=frozenset({"cancel"}), apis=("asyncio",), loses_messages=False),
    "several at once": Fault(_several_at_once, habits=frozenset({"abandon", "cancel"}), ttl=0.5),
}
"""The faults by name. Those that consist of the workers' habits alone inflict nothing on the environment."""
