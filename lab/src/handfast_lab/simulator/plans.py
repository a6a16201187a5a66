"""From a seed to a schedule: who does what, and what may go wrong.

Each seed has a few clients and a few operations, since faults in a small world meet each other sooner. It has some kinds of
faults only, or none: where everything goes wrong all the time, nothing gets far enough to go wrong in an interesting way.

There are no reentrant locks: what makes them reentrant never reaches the server.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeVar

from handfast._engine.calls import MAX_PERMITS, MultiRequest, PermitRequest, Request
from handfast._engine.keys import KeySet
from handfast_lab.simulator.faults import KINDS

__all__ = ["VERSION", "ClientPlan", "Order", "Plan", "draw"]

VERSION = 1
"""Of what a seed means. It grows when plans or faults are drawn in another way, and old seeds mean something else."""

T = TypeVar("T")

TTLS = (150, 400, 1_000, 3_000, 10_000, 30_000)
LOSSES = frozenset({"restart", "flush", "failover", "evict"})


class Order(NamedTuple):
    """One thing that a caller does."""

    verb: str
    """``acquire``, ``try``, ``revoke``, ``resize``, ``status`` or ``close``."""
    want: Request
    pause: float
    """Seconds before it."""
    timeout: float | None = None
    hold: float = 0.0
    extend_ms: int = 0
    """A ttl to extend the lease to while it is held; 0 for none."""
    lower: PermitRequest | None = None
    """What to keep of the lease while it is held."""
    end: str = "release"
    """``release``, ``drop`` without a word, or ``fail`` for a block that fails."""
    strike: float | None = None
    """Seconds from its begin on after which it is cancelled, if it still goes on."""
    strike_at: int = 0
    """Which of the things that it waits for comes together with a cancellation; 0 for none."""
    limit: int = 0
    """For ``resize``."""


class ClientPlan(NamedTuple):
    """One client."""

    threads: bool
    """Whether it is of the sync colour."""
    places: int
    response_timeout: float
    offset: float
    callers: list[list[Order]]


class Plan(NamedTuple):
    """Everything that a seed says."""

    kind: str
    names: tuple[str, ...]
    tags: tuple[str, ...]
    clients: list[ClientPlan]
    tempo: float
    faults: tuple[str, ...]
    rate: float
    most_faults: int
    quiet_at: float
    """When faults end at the latest."""
    scripts_known: bool
    """Whether the server knows all scripts from the beginning."""
    uniform: bool
    """Whether all agree on the limit of each name, all the time."""


def draw(chance: Callable[[], float]) -> Plan:
    """The plan for a stream of chance."""
    return _Drawing(chance).plan()


class _Drawing:
    def __init__(self, chance: Callable[[], float]) -> None:
        self._chance = chance
        self.kind = self._one(("lock", "lock", "semaphore", "semaphore", "rwlock", "bundle"))
        self.names = (
            ("a", "b", "c")[: 1 + int(chance() * 3)] if self.kind == "bundle" else ("a", "b")[: 1 + (chance() < 0.15)]
        )
        self.limit = (
            1 if self.kind in ("lock", "bundle") else MAX_PERMITS if self.kind == "rwlock" else 2 + int(chance() * 4)
        )
        self.disagree = self.kind == "semaphore" and chance() < 0.3
        self.resizes = self.kind == "semaphore" and chance() < 0.25
        self.revokes = chance() < 0.12
        self.scale = self._one(TTLS)
        self.ttls = (self.scale, self._one(TTLS)) if chance() < 0.3 else (self.scale,)
        self.renewing = self._one((0.0, 0.5, 1.0, 1.0))
        self.striking = self._one((0.0, 0.0, 0.2, 0.6))
        self.tempo = self._one((0.0002, 0.001, 0.001, 0.005, 0.03))

    def plan(self) -> Plan:
        chance = self._chance
        count = self._one((2, 2, 2, 3, 3, 4))
        clients = [self._client() for _ in range(count)]
        kinds: tuple[str, ...] = ()
        rate = 0.0
        if chance() < 0.9:
            share = self._one((0.1, 0.25, 0.5))
            kinds = tuple(kind for kind in KINDS if chance() < (share / 2 if kind in LOSSES else share))
            rate = self._one((0.03, 0.1, 0.2, 0.5)) if kinds else 0.0
        tags = tuple(tag(self._place_kind, name) for name in self.names)
        uniform = not self.disagree and not self.resizes
        return Plan(
            *(self.kind, self.names, tags, clients, self.tempo, kinds, rate),
            *(self._one((1, 2, 3, 5, 10)), self._one((3.0, 15.0, 40.0)), chance() < 0.85, uniform),
        )

    @property
    def _place_kind(self) -> str:
        return "lock" if self.kind == "bundle" else self.kind

    def _one(self, options: Sequence[T]) -> T:
        return options[int(self._chance() * len(options))]

    def _client(self) -> ClientPlan:
        chance = self._chance
        callers = [self._caller() for _ in range(self._one((1, 1, 1, 1, 2)))]
        return ClientPlan(
            threads=chance() < 0.5,
            places=1 if chance() < 0.1 else 10,
            response_timeout=self._one((0.3, 1.0, 5.0)),
            offset=1e5 * chance(),
            callers=callers,
        )

    def _caller(self) -> list[Order]:
        orders = [self._order() for _ in range(self._one((1, 1, 2, 2, 3)))]
        if self._chance() < 0.04:
            orders.append(Order("close", orders[-1].want, self._seconds(2)))
        return orders

    def _seconds(self, most: float) -> float:
        """A time within so many seconds, short ones more often than long ones."""
        return most * self._chance() ** 3

    def _order(self) -> Order:
        chance = self._chance
        ttl = self._one(self.ttls)
        pause = self._seconds(self.scale / 500)
        want, lower = self._want(ttl)
        roll = chance()
        if self.revokes and roll < 0.1 and isinstance(want, PermitRequest):
            return Order("revoke", want, pause)
        if self.resizes and roll > 0.9:
            return Order("resize", want, pause, limit=self._one((0, 1, 2, 3, self.limit + 2)))
        if 0.1 <= roll < 0.13 and isinstance(want, PermitRequest):
            return Order("status", want, pause)
        timeout = None if chance() < 0.5 else 0.001 + self._seconds(10)
        return Order(
            "try" if chance() < 0.15 else "acquire",
            *(want, pause, timeout),
            hold=0.0 if chance() < 0.2 else self._seconds(ttl / 400),
            extend_ms=self._one(TTLS) if chance() < 0.08 else 0,
            lower=lower,
            end=self._one(("release",) * 12 + ("drop", "fail")),
            strike=self._seconds(self._one((self.tempo * 6, 0.2, 5.0))) if chance() < self.striking else None,
            strike_at=1 + int(chance() * 4) if chance() < self.striking / 3 else 0,
        )

    def _want(self, ttl: int) -> tuple[Request, PermitRequest | None]:
        chance = self._chance
        renew = chance() < self.renewing
        name = self._one(self.names)
        if self.kind == "bundle" and chance() < 0.7:
            some = [one for one in self.names if chance() < 0.75] or [name]
            if chance() < 0.5:
                some.reverse()
            return bundle(tuple(some), ttl, renew), None
        limit, weight = self.limit, 1
        if self.kind == "semaphore":
            limit = 1 + int(chance() * 5) if self.disagree else limit
            weight = 1 if chance() < 0.6 else 1 + int(chance() * limit)
        elif self.kind == "rwlock":
            weight = 1 if chance() < 0.6 else MAX_PERMITS
        lower = None
        if self.kind == "rwlock" and weight == MAX_PERMITS and chance() < 0.4:
            lower = permits(self.kind, name, ttl, renew, limit, 1)
        return permits(self._place_kind, name, ttl, renew, limit, weight), lower


@lru_cache(None)
def tag(kind: str, name: str) -> str:
    """What all keys of a name have in common."""
    return KeySet("hf", kind, name).tag


@lru_cache(None)
def permits(kind: str, name: str, ttl_ms: int, renew: bool, limit: int, weight: int) -> PermitRequest:  # noqa: FBT001, PLR0917 -- keys of the cache
    """Some permits of one name."""
    return PermitRequest(KeySet("hf", kind, name), ttl_ms=ttl_ms, renew=renew, limit=limit, weight=weight)


@lru_cache(None)
def bundle(names: tuple[str, ...], ttl_ms: int, renew: bool) -> MultiRequest:  # noqa: FBT001 -- a key of the cache
    """One permit of each of several locks."""
    places = [KeySet("hf", "lock", name) for name in names]
    return MultiRequest(places, ttl_ms=ttl_ms, renew=renew, max_waiters=100_000)
