"""Make the server lose its data or step its clock back, and check that fences still grow.

    R16  A fence granted after a disaster is larger than all earlier ones. The disasters: FLUSHALL, an eviction, a restart
         without data, a failover to a stale replica and back, a failover to a replica whose clock is a minute behind, a
         clock that steps back by an hour. Exceptions are documented: a clock that is behind while the latest grants are
         lost.

Every disaster is tested with one name of each kind of lock. Where the server loses the leases, half of them are
released before the disaster.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from typing import Any

from handfast.testing import ServerController
from handfast_lab.chaos.apis import Api, api_of, log_silenced, settled
from handfast_lab.chaos.figures import Figure, examples_of
from handfast_lab.chaos.operations import PRIMITIVES
from handfast_lab.chaos.trials import Progress, Tick, one_by_one
from handfast_lab.clocks import ClockedServer
from handfast_lab.rivals.contender import Contender
from handfast_lab.stored import read_stored

__all__ = ["COUNT", "ROWS", "applies", "trial"]

ROWS = ("R16",)
COUNT = 1_000
"""Disasters of each kind. Restarts are slow, so a quarter as many; clock steps, a tenth as many."""

MINUTE, HOUR = 60.0, 3600.0

RETRY_FOR = 10.0
"""Seconds within which a lock must be granted and a replica be in sync."""

FAST = "--hz", "500", "--repl-diskless-sync", "yes", "--repl-diskless-load", "swapdb"
"""Server options with which a replica is in sync again within milliseconds, not a second."""

NOWHERE = "127.0.0.1", "1"
"""Address of a primary that does not exist: a replica of it receives no updates."""

KINDS: Mapping[str, Callable[[Any, str], Any]] = {
    kind: partial(make, renew=False) for kind, make in PRIMITIVES.items() if kind != "reader"
}
"""What is acquired, by kind; the two sides of a read-write lock share their fence."""


def applies(contender: Contender) -> bool:
    """Return True for Handfast, whose fences are tested."""
    return contender.is_ours


def trial(contender: Contender, count: int, seed: int, progress: Progress) -> list[Figure]:
    """Run `count` disasters of each kind, fewer of the slow ones."""
    api = api_of(contender)
    chance, tick = random.Random(seed), one_by_one(progress)  # noqa: S311 -- test data, not security
    figures: list[Figure] = []
    for disaster, share in (
        (_flushes, 1),
        (_evictions, 1),
        (_restarts, 4),
        (_failovers, 1),
        (_slower_clocks, 10),
        (_steps_back, 10),
    ):
        leases = _Leases(api, chance, tick)
        rounds = ceil(count / share)
        with log_silenced():
            fences = api.run(disaster(leases, rounds))
        figures += [one.figure(contender, rounds, seed) for one in fences]
    return figures


@dataclass
class _Fences:
    """The fences seen under one kind of disaster."""

    what: str
    measured: dict[str, float | str] = field(default_factory=dict)
    latest: dict[str, int] = field(default_factory=dict)
    """By kind of lock, the largest fence so far."""
    tried: int = 0
    backwards: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def check(self, kind: str, fence: int) -> None:
        """Check a fence that was granted after a disaster."""
        self.tried += 1
        before = self.latest.get(kind, 0)
        if fence <= before:
            self.backwards.append(f"{kind}: {fence} came after {before}")
        self.granted(kind, fence)

    def granted(self, kind: str, fence: int) -> None:
        """Record a fence."""
        self.latest[kind] = max(fence, self.latest.get(kind, 0))

    def figure(self, contender: Contender, rounds: int, seed: int) -> Figure:
        """Return the figure for the scoreboard."""
        return Figure(
            id="R16",
            what=f"fences: {self.what}",
            contender=contender.name,
            tried=self.tried + len(self.failures),
            bad=len(self.backwards) + len(self.failures),
            unit="not larger than before",
            measured={"disasters": rounds, **self.measured},
            seed=seed,
            examples=examples_of(self.backwards + self.failures),
        )


@dataclass(frozen=True)
class _Leases:
    api: Api
    chance: random.Random
    tick: Tick

    async def before(self, client: Any, fences: _Fences, *, keeping: bool = False) -> None:
        """Acquire a lease of each kind and release it, or with `keeping` about half of them."""
        for kind, make in KINDS.items():
            lease = await self._lease(client, kind, make, fences)
            if lease is not None:
                fences.granted(kind, lease.fence)
                if not (keeping and self.chance.random() < 0.5):
                    await settled(lease.release())

    async def after(self, client: Any, fences: _Fences) -> None:
        """Acquire a lease of each kind after a disaster and check its fence."""
        for kind, make in KINDS.items():
            lease = await self._lease(client, kind, make, fences)
            if lease is not None:
                fences.check(kind, lease.fence)
                await settled(lease.release())
        self.tick()

    async def _lease(self, client: Any, kind: str, make: Callable[[Any, str], Any], fences: _Fences) -> Any:
        try:
            return await settled(make(client, kind).acquire(timeout=RETRY_FOR))
        except Exception as error:  # noqa: BLE001 -- any error means that there is no fence to check
            fences.failures.append(f"{kind}: {type(error).__name__}: {error}")
            return None


async def _flushes(leases: _Leases, rounds: int) -> list[_Fences]:
    fences = _Fences("FLUSHALL")
    with ServerController() as server:
        async with leases.api.client(server.url) as client:
            for _ in range(rounds):
                await leases.before(client, fences, keeping=True)
                server.admin.flushall()
                await leases.after(client, fences)
    return [fences]


async def _evictions(leases: _Leases, rounds: int) -> list[_Fences]:
    """Have the server itself evict the keys for lack of memory."""
    fences, evicted = _Fences("keys evicted"), 0
    with ServerController() as server:
        async with leases.api.client(server.url) as client:
            for _ in range(rounds):
                await leases.before(client, fences, keeping=True)
                with server.out_of_memory(policy="volatile-lru", limit=1):
                    await leases.api.eventually(lambda: not server.admin.dbsize(), RETRY_FOR)
                evicted += not server.admin.dbsize()
                await leases.after(client, fences)
        fences.measured["of which left no key"] = evicted
    return [fences]


async def _restarts(leases: _Leases, rounds: int) -> list[_Fences]:
    fences = _Fences("restart without data")
    with ServerController() as server:
        async with leases.api.client(server.url) as client:
            for _ in range(rounds):
                await leases.before(client, fences, keeping=True)
                server.kill()
                server.restart()
                await leases.after(client, fences)
    return [fences]


async def _failovers(leases: _Leases, rounds: int) -> list[_Fences]:
    """Fail over to a replica without the latest grants, and back to a primary without the replica's grants."""
    fences, stale = _Fences("failover to a stale replica, and back"), 0
    with ServerController(*FAST) as primary:
        replica = primary.replica(*FAST)
        settings: Any = primary.admin.config_get("port")
        port = int(settings["port"])
        async with leases.api.client(primary.url) as old, leases.api.client(replica.url) as new:
            await leases.before(old, fences)
            for _ in range(rounds):
                _follow(replica, port)
                replica.admin.replicaof(*NOWHERE)
                await leases.after(old, fences)
                replica.admin.replicaof("NO", "ONE")
                stale += _fence(replica) < fences.latest.get("lock", 0)
                await leases.after(new, fences)
        fences.measured["stale replicas"] = stale
    return [fences]


async def _slower_clocks(leases: _Leases, rounds: int) -> list[_Fences]:
    """Fail over to a machine whose clock is behind: with all grants, and without the latest (the documented exception)."""
    kept, lost = _Fences("failover with all data, clock 1 min behind"), _Fences("")
    with ClockedServer(*FAST) as primary:
        primary.shift_clock(MINUTE)
        replica = primary.replica(*FAST)
        settings: Any = primary.admin.config_get("port")
        port = int(settings["port"])
        async with leases.api.client(primary.url) as old, leases.api.client(replica.url) as new:
            for _ in range(rounds):
                _follow(replica, port)
                await leases.before(old, kept)
                replica.catch_up()
                replica.admin.replicaof("NO", "ONE")
                await leases.after(new, kept)
                _follow(replica, port)
                replica.admin.replicaof(*NOWHERE)
                await leases.before(old, lost)
                replica.admin.replicaof("NO", "ONE")
                await leases.after(new, lost)
    exception = _Fences("stale replica, clock 1 min behind (documented)", tried=lost.tried, failures=lost.failures)
    exception.measured["smaller fences, as documented"] = len(lost.backwards)
    return [kept, exception]


def _follow(replica: ServerController, port: int) -> None:
    """Make the server a replica again and wait until it is in sync; its own grants are lost."""
    replica.admin.replicaof("127.0.0.1", port)
    until = time.monotonic() + RETRY_FOR
    while replica.admin.info("replication").get("master_link_status") != "up" and time.monotonic() < until:
        time.sleep(0.001)


def _fence(server: ServerController) -> int:
    return read_stored(server.admin, "{hf:lock:lock}").fence


async def _steps_back(leases: _Leases, rounds: int) -> list[_Fences]:
    """Step the clock back, with the keys kept, and with the keys lost (the documented exception)."""
    kept, lost, again = _Fences("clock back 1 h, keys kept"), _Fences(""), _Fences("clock back 1 h, and forward again")
    with ClockedServer() as server:
        async with leases.api.client(server.url) as client:
            for _ in range(rounds):
                await leases.before(client, kept)
                server.shift_clock(-HOUR)
                await leases.after(client, kept)
                lost.latest = dict(kept.latest)
                server.admin.flushall()
                await leases.after(client, lost)
                server.shift_clock(HOUR)
                again.latest = dict(kept.latest)
                await leases.after(client, again)
    exception = _Fences("clock back 1 h with all data lost (documented)", tried=lost.tried, failures=lost.failures)
    exception.measured["smaller fences, as documented"] = len(lost.backwards)
    return [kept, exception, again]
