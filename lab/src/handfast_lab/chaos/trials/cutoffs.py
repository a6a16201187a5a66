"""Cut a primary off from its replica under load, and kill it: what waited for the replica is there.

R37  Threads or tasks acquire one name after the other and keep them, half of them with ``min_replicas=1``. At some
moment the
     primary loses its replica, goes on for up to 30 ms, and is killed; the replica takes over. Counted: leases that
     callers had got with ``min_replicas`` and that the replica does not have. Measured: the same of the others, which
     replication that waits for nothing cannot prevent, and how long an acquire took.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import count as numbers
from statistics import median
from time import monotonic
from typing import Any

from redis.exceptions import RedisError

from handfast import HandfastError
from handfast._engine.keys import KeySet
from handfast.testing import ServerController
from handfast_lab.chaos.apis import Api, api_of, log_silenced, settled
from handfast_lab.chaos.figures import Figure, examples_of
from handfast_lab.chaos.trials import Progress
from handfast_lab.rivals.contender import Contender

__all__ = ["COUNT", "ROWS", "applies", "trial"]

ROWS = ("R37",)
COUNT = 100
"""Primaries that are cut off."""

BEFORE, CUT_OFF = (0.1, 0.4), (0.0, 0.03)
"""Seconds of load until the primary loses its replica, and until it is killed."""

CALLERS, TTL = 4, 60.0
"""Of each sort; and their leases, in seconds."""

WITHIN = 30.0
"""Seconds after which a caller counts as stuck."""

NAMESPACE = "hf"

KINDS = {"acknowledged": {"min_replicas": 1, "replica_timeout": 0.2}, "plain": {}}
"""The two sorts of callers, and what they ask for."""


def applies(contender: Contender) -> bool:
    """Return True for Handfast: the others wait for no replicas."""
    return contender.is_ours


def trial(contender: Contender, count: int, seed: int, progress: Progress) -> list[Figure]:
    """Cut off `count` primaries."""
    test, chance = _CutOffs(contender), random.Random(seed)  # noqa: S311 -- test data
    api = api_of(contender)
    with log_silenced():
        for number in range(count):
            api.run(test.run(api, chance, number))
            progress(number + 1)
    return [test.figure(seed)]


@dataclass
class _Sort:
    """What the callers of one sort were told."""

    names: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    told: int = 0
    lost: int = 0
    rounds: int = 0
    """In which any of them was lost."""


@dataclass
class _CutOffs:
    contender: Contender
    sorts: dict[str, _Sort] = field(default_factory=lambda: {kind: _Sort() for kind in KINDS})
    wrong: list[str] = field(default_factory=list)
    done: int = 0

    async def run(self, api: Api, chance: random.Random, number: int) -> None:
        """Let callers acquire until their primary is gone, and look what its replica has."""
        kept: list[Any] = []  # until the client is closed: leases that are dropped are let go
        with ServerController() as primary:
            replica = primary.replica("--repl-diskless-load", "disabled")
            primary.admin.set("first", "write", px=1000)
            primary.admin.wait(1, 10_000)  # a primary sends nothing for up to a second after a replica is there
            async with api.client(primary.url, namespace=NAMESPACE, retry_for=0) as client:
                callers = [
                    api.start(lambda kind=kind, caller=caller: self._acquire(client, kind, caller, kept))  # type: ignore[misc]
                    for kind in KINDS
                    for caller in range(CALLERS)
                ]
                await api.sleep(chance.uniform(*BEFORE))
                replica.freeze()
                await api.sleep(chance.uniform(*CUT_OFF))
                primary.kill()
                self.wrong += [f"primary {number}: {text}" for text in await api.failures(callers, WITHIN)]
            replica.promote()
            for kind, sort in self.sorts.items():
                self._check(kind, sort, replica, number)
        self.done += 1

    async def _acquire(self, client: Any, kind: str, caller: int, kept: list[Any]) -> None:
        sort = self.sorts[kind]
        for turn in numbers():
            name, began = f"{kind}-{caller}-{turn}", monotonic()
            try:
                kept.append(await settled(client.lock(name, ttl=TTL, renew=False, **KINDS[kind]).acquire()))
            except (HandfastError, RedisError):
                return
            sort.names.append(name)
            sort.seconds.append(monotonic() - began)

    def _check(self, kind: str, sort: _Sort, replica: ServerController, number: int) -> None:
        names, sort.names = sort.names, []
        with replica.admin.pipeline(transaction=False) as pipeline:
            for name in names:
                pipeline.exists(KeySet(NAMESPACE, "lock", name).key("state"))
            lost = [name for name, found in zip(names, pipeline.execute(), strict=True) if not found]
        sort.told += len(names)
        sort.lost += len(lost)
        sort.rounds += bool(lost)
        if kind == "acknowledged":
            self.wrong += [f"primary {number}: its replica does not have {name}" for name in lost]

    def figure(self, seed: int) -> Figure:
        """Return the figure."""
        acknowledged, plain = self.sorts["acknowledged"], self.sorts["plain"]
        return Figure(
            id="R37",
            what="a primary is cut off from its replica and killed; the replica takes over",
            contender=self.contender.name,
            tried=self.done,
            bad=len(self.wrong),
            unit="acknowledged leases lost",
            measured={
                "acknowledged leases": acknowledged.told,
                "other leases": plain.told,
                "other leases lost": plain.lost,
                "primaries that lost some": plain.rounds,
                "median acquire, ms": round(1000 * median(plain.seconds or [0.0]), 3),
                "median acknowledged acquire, ms": round(1000 * median(acknowledged.seconds or [0.0]), 3),
            },
            seed=seed,
            examples=examples_of(self.wrong),
        )
