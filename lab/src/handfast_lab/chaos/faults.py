"""Faults that strike clients and servers while a history runs.

A fault is a context manager over an `Environment`. Within the block it strikes; afterwards the server and the proxy
work normally again. It yields a `StrikeCount` of its strikes. Faults that make the server lose data or that move its
clock are marked as `loses_leases`: a lock on a single server cannot guarantee exclusion then. `history_run` says what
is checked instead.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import NamedTuple, Self, TypeAlias

import redis

from handfast import Handfast
from handfast._engine.calls import RELEASE
from handfast.testing import Fault as MessageFault
from handfast.testing import FaultProxy, ServerController, script
from handfast.testing.commands import Command
from handfast_lab.chaos.background import repeating
from handfast_lab.chaos.workers import force_release
from handfast_lab.children import ChildProcess
from handfast_lab.clocks import ClockedServer

__all__ = ["FAULTS", "Environment", "Fault", "StrikeCount"]

FIRST = 0.03
"""Seconds within which a fault strikes first; histories can be short."""

STANDSTILL = 2.2, 2.8
"""Seconds for which clients or the server stand still where that is to be longer than the claim window of 2 s."""

CATCH_UP = 10.0
"""Seconds within which a replica and its primary must have changed roles."""


@dataclass
class Environment:
    """Where a history runs. Clients reach the server through the proxy."""

    server: ServerController
    proxy: FaultProxy
    namespace: str
    primitive: str = "lock"
    """What the workers use."""
    apart: ChildProcess | None = None
    """The process that half of the workers run in, for a fault with `Fault.apart`."""
    pace: float = 1.0
    """Factor on the time between two strikes, raised where several kinds of faults are combined."""
    primary: ServerController = field(init=False)
    """The current primary; after a failover, the promoted replica."""
    revoked: list[tuple[float, str]] = field(default_factory=list)
    """When an operator had taken all leases of a name away, and the name."""
    _ends: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def __post_init__(self) -> None:
        self.primary = self.server

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ends.close()

    def replica(self, *options: str) -> ServerController:
        """Start a replica of the server. It is stopped when the environment is left."""
        self._ends.callback(self.server.admin.replicaof, "NO", "ONE")  # if they have changed roles
        return self._ends.enter_context(self.server.replica(*options))

    def revoke(self, name: str) -> None:
        """Take all leases of a name away, as an operator does."""
        with Handfast(self.server.url, namespace=self.namespace) as operator:
            force_release(operator, self.primitive, name)
        self.revoked.append((time.monotonic(), name))


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
    seconds: float = 4.0
    """Longest duration of a history."""
    pause: float = 0.0
    """Mean time between two operations of a worker in seconds, for faults that take longer than the operations do."""
    stay: float = 0.0
    """Mean time in seconds for which some leases are held; 0 for not at all."""
    keeps: frozenset[str] = frozenset()
    """Names whose leases none may lose, since nothing lasts as long as the ttl and no operator takes them away."""
    of_leases: bool = False
    """Whether it concerns leases, which a limiter has none of."""
    of_names: bool = False
    """Whether it concerns the names of the workers, which keys of `once` have not."""
    apart: bool = False
    """Whether half of the workers run in a process of their own, which the fault can freeze."""


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
    if not isinstance(env.server, ClockedServer):
        raise TypeError("this fault needs a server with a clock of its own")
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
def _planned_failovers(env: Environment, chance: random.Random) -> Iterator[StrikeCount]:
    """Let the primary and a replica change roles. No data is lost, and connections to the former primary stay open."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    roles = [env.server, env.replica("--port", str(port))]

    def have_changed() -> bool:
        primary, replica = (server.admin.info("replication") for server in roles)
        return bool(primary["role"] == "master" and replica.get("master_link_status") == "up")

    @_every(0.5)
    def change_roles(env: Environment, chance: random.Random) -> None:  # noqa: ARG001 -- as all strikes
        roles[0].admin.execute_command("FAILOVER")  # type: ignore[no-untyped-call]
        roles.reverse()
        env.primary, until = roles[0], time.monotonic() + CATCH_UP
        while not have_changed() and time.monotonic() < until:
            time.sleep(0.002)
        env.proxy.retarget(env.primary.url, cut=False)

    with change_roles(env, chance) as count:
        yield count


@_every(0.5)
def _long_pauses(env: Environment, chance: random.Random) -> None:
    with env.server.paused():
        time.sleep(chance.uniform(*STANDSTILL))


@_every(0.5)
def _frozen_clients(env: Environment, chance: random.Random) -> None:
    """Freeze the process of half of the clients."""
    assert env.apart is not None  # noqa: S101 -- `Fault.apart` is set
    env.apart.freeze()
    try:
        time.sleep(chance.uniform(*STANDSTILL))
    finally:
        env.apart.thaw()


@contextmanager
def _cuts_at_releases(env: Environment, chance: random.Random) -> Iterator[StrikeCount]:
    """Cut the connections of the waiters when a lease is released, which therefore meets none of them."""
    count = StrikeCount()

    def cut(release: Command) -> None:
        if chance.random() < 0.1:
            env.proxy.cut(but=release.connection)
            count.strikes += 1

    fault = env.proxy.before(script(RELEASE), cut)
    try:
        yield count
    finally:
        fault.clear()


@_every(0.7)
def _revocations(env: Environment, chance: random.Random) -> None:
    """Take leases away while their holders have no connection."""
    env.proxy.cut()
    env.revoke(chance.choice(("a", "b")))


@_every(0.7)
def _some_revocations(env: Environment, _chance: random.Random) -> None:
    env.revoke("a")


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
    "planned failovers": Fault(_planned_failovers, pause=0.01),
    "long pauses": Fault(_long_pauses, ttl=6.0, seconds=8.0, pause=0.03),
    "frozen clients": Fault(
        _frozen_clients,
        ttl=8.0,
        seconds=8.0,
        pause=0.03,
        stay=0.2,
        keeps=frozenset({"a", "b"}),
        apart=True,
    ),
    "clients frozen beyond the ttl": Fault(_frozen_clients, ttl=1.0, seconds=8.0, pause=0.03, stay=0.5, apart=True),
    "cuts at releases": Fault(_cuts_at_releases, of_leases=True),
    "revocations": Fault(
        _revocations, loses_leases=True, ttl=3.0, seconds=8.0, pause=0.03, stay=3.0, of_leases=True, of_names=True
    ),
    "blocking callbacks": Fault(
        *(_some_revocations, True),
        apis=("sync",),
        habits=frozenset({"block"}),
        ttl=3.0,
        seconds=10.0,
        pause=0.03,
        stay=3.0,
        keeps=frozenset({"b"}),
        of_leases=True,
        of_names=True,
    ),
    "abandoned leases": Fault(_nothing, habits=frozenset({"abandon"}), ttl=0.1, loses_messages=False, of_leases=True),
    "cancellations": Fault(_nothing, habits=frozenset({"cancel"}), apis=("asyncio",), loses_messages=False),
    "several at once": Fault(_several_at_once, habits=frozenset({"abandon", "cancel"}), ttl=0.5),
}
"""The faults by name. Those that consist of the workers' habits alone inflict nothing on the environment."""
