"""Faults that strike clients and servers while a history runs.

A fault is a context manager over an `Environment`. Within the block it strikes; afterwards the server and the proxy work
normally again. It yields a `StrikeCount` of its strikes. Faults that make the server lose data or that move its clock are
marked as `loses_leases`: a lock on a single server cannot guarantee exclusion then. `history_run` says what is checked
instead.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import NamedTuple, Self, TypeAlias

import redis

from handfast.testing import Fault as MessageFault
from handfast.testing import FaultProxy, ServerController, script
from handfast_lab.chaos.background import repeating

__all__ = ["FAULTS", "Environment", "Fault", "StrikeCount"]

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
class StrikeCount:
    """How often a fault struck."""

    strikes: int = 0


Strike: TypeAlias = Callable[[Environment, random.Random], object]
"""Strikes once."""

Inflict: TypeAlias = Callable[[Environment, random.Random], AbstractContextManager[StrikeCount]]
"""Strikes while the block runs."""


class Fault(NamedTuple):
    """One kind of fault."""

    inflict: Inflict
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
def _nothing(_env: Environment, _chance: random.Random) -> Iterator[StrikeCount]:
    """Inject no fault."""
    yield StrikeCount()


def _every(seconds: float) -> Callable[[Strike], Inflict]:
    """Make a fault of a function that strikes once: it strikes at random moments, `seconds` apart on average."""

    def fault_of(strike: Strike) -> Inflict:
        @contextmanager
        def inflict(env: Environment, chance: random.Random) -> Iterator[StrikeCount]:
            count = StrikeCount()
            pauses = itertools.chain(
                [chance.uniform(0, FIRST)], iter(lambda: chance.expovariate(1 / seconds / env.pace), None)
            )

            def run() -> None:
                with contextlib.suppress(redis.RedisError):  # a strike that finds the server down is not counted
                    strike(env, chance)
                    count.strikes += 1

            with repeating(run, partial(next, pauses)):
                yield count

        return inflict

    return fault_of


def _on_a_message(set_fault: Callable[[FaultProxy, random.Random], MessageFault]) -> Inflict:
    """Make a fault of a function that sets a fault of the proxy for a later message: it is set again and again."""

    @contextmanager
    def inflict(env: Environment, chance: random.Random) -> Iterator[StrikeCount]:
        faults: list[MessageFault] = []

        @_every(0.02)
        def setting(env: Environment, chance: random.Random) -> None:
            if not faults or faults[-1].happened:  # the previous fault has struck
                faults.append(set_fault(env.proxy, chance))

        count = StrikeCount()
        with setting(env, chance):
            try:
                yield count
            finally:
                for fault in faults:
                    fault.clear()
        count.strikes = sum(fault.happened for fault in faults)

    return inflict


_lost_replies = _on_a_message(lambda proxy, chance: proxy.lose_reply(script(), after=chance.randint(0, 5)))
_lost_requests = _on_a_message(lambda proxy, chance: proxy.lose_request(script(), after=chance.randint(0, 5)))
_late_duplicates = _on_a_message(
    lambda proxy, chance: proxy.duplicate(script(), after=chance.choice((0.001, 0.01, 0.1, 0.4)))
)
_delays = _on_a_message(lambda proxy, chance: proxy.delay(script(), seconds=chance.choice((0.001, 0.02, 0.1, 0.7))))
_cuts_within = _on_a_message(
    lambda proxy, chance: proxy.cut_after(chance.randint(1, 600), chance.choice(("to client", "to server")))
)


@contextmanager
def _dribble(env: Environment, _chance: random.Random) -> Iterator[StrikeCount]:
    with env.proxy.dribbling():
        yield StrikeCount(1)


@_every(0.03)
def _cuts(env: Environment, _chance: random.Random) -> None:
    env.proxy.cut()


@_every(0.15)
def _black_holes(env: Environment, chance: random.Random) -> None:
    with env.proxy.black_hole(chance.choice(("to server", "to client", "both"))):
        time.sleep(chance.choice((0.02, 0.1, 0.7)))


@_every(0.15)
def _pauses(env: Environment, chance: random.Random) -> None:
    with env.server.paused():
        time.sleep(chance.choice((0.005, 0.05, 0.3, 0.7)))


@_every(0.15)
def _write_pauses(env: Environment, chance: random.Random) -> None:
    env.server.admin.client_pause(chance.choice((5, 50, 300)), all=False)


@_every(0.01)
def _flushed_scripts(env: Environment, _chance: random.Random) -> None:
    env.server.admin.script_flush()


@_every(0.05)
def _killed_connections(env: Environment, chance: random.Random) -> None:
    env.server.kill_clients(chance.choice(("pubsub", "normal")))


def _restarts(*, keep_data: bool) -> Inflict:
    @_every(0.3)
    def restart(env: Environment, chance: random.Random) -> None:
        env.server.kill()
        time.sleep(chance.choice((0.0, 0.05)))
        env.server.restart(keep_data=keep_data)

    return restart


@_every(0.03)
def _flushes(env: Environment, _chance: random.Random) -> None:
    env.server.admin.flushall()


@_every(0.005)
def _evictions(env: Environment, chance: random.Random) -> None:
    """Delete a random key, as an evicting policy does."""
    keys = sorted(env.server.admin.scan_iter(f"{{{env.namespace}:*", count=1000))
    if keys:
        env.server.admin.delete(chance.choice(keys))


@_every(0.05)
def _no_memory(env: Environment, chance: random.Random) -> None:
    with env.server.out_of_memory():
        time.sleep(chance.choice((0.005, 0.05)))


@_every(0.1)
def _no_replicas(env: Environment, chance: random.Random) -> None:
    """Have writes refused for lack of replicas."""
    env.server.admin.config_set("min-replicas-to-write", 1)
    time.sleep(chance.choice((0.005, 0.05)))
    env.server.admin.config_set("min-replicas-to-write", 0)


@_every(0.1)
def _demotions(env: Environment, chance: random.Random) -> None:
    """Make the server a replica of an unreachable primary for a moment: it keeps its data and refuses writes."""
    env.server.admin.replicaof("127.0.0.1", 1)
    time.sleep(chance.choice((0.005, 0.05)))
    env.server.admin.replicaof("NO", "ONE")


@_every(0.1)
def _clock_steps(env: Environment, chance: random.Random) -> None:
    """Move the server's clock forward, so that leases end early. Backward steps are tested by the trial `fences`."""
    env.server.shift_clock(chance.choice((0.5, 5.0, 60.0)))


@contextmanager
def _stale_failover(env: Environment, chance: random.Random) -> Iterator[StrikeCount]:
    """Fail over, in the middle of the history, to a replica that was frozen before the latest writes."""
    replica = env.replica()
    count, stopping = StrikeCount(), threading.Event()

    def run() -> None:
        stopping.wait(chance.uniform(0.02, 0.1))
        replica.freeze()
        stopping.wait(chance.uniform(0.01, 0.1))
        replica.promote()
        env.primary = replica
        env.proxy.retarget(replica.url)
        count.strikes += 1

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield count
    finally:
        stopping.set()
        thread.join()


@contextmanager
def _several_at_once(env: Environment, chance: random.Random) -> Iterator[StrikeCount]:
    """Combine lost replies and requests, late duplicates, cut connections, flushed scripts and server pauses."""
    env.pace = 10.0  # all tasks share one connection, so each strike hits all of them
    kinds = _lost_replies, _lost_requests, _late_duplicates, _cuts, _flushed_scripts, _pauses
    total = StrikeCount()
    with contextlib.ExitStack() as stack:
        counts = [stack.enter_context(kind(env, chance)) for kind in kinds]
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
    "restarts, data kept": Fault(_restarts(keep_data=True), needs=frozenset({"persistent"})),
    "restarts, data lost": Fault(_restarts(keep_data=False), loses_leases=True),
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
