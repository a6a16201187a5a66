"""Draw the plan of a seed: the orders of the callers, and the faults.

Each seed has a few clients and a few operations, since faults in a small world meet each other sooner. It has some
kinds of faults only, or none: where everything goes wrong all the time, nothing gets far enough to go wrong in an
interesting way.

There are no reentrant locks: what makes them reentrant never reaches the server.
"""

from __future__ import annotations

from collections.abc import Callable

from handfast._kinds import MAX_PERMITS
from handfast_lab.simulator.budgets import BudgetDrawing
from handfast_lab.simulator.burst_plans import BurstDrawing
from handfast_lab.simulator.drawing import Drawing
from handfast_lab.simulator.latches import LatchDrawing
from handfast_lab.simulator.limiter_plans import LimiterDrawing
from handfast_lab.simulator.once_plans import OnceDrawing
from handfast_lab.simulator.orders import ClientPlan, Order, Plan, Target, tag
from handfast_lab.simulator.partitions import PartitionDrawing

__all__ = ["SHARE", "VERSION", "draw", "kind_of"]

VERSION = 19
"""Version of the plans. It increases when a seed no longer gives the same plan or faults."""

TTLS = (150, 400, 1_000, 3_000, 10_000, 30_000)
ACKNOWLEDGED = 0.7
"""The share of orders whose leases count only once replicas have them."""

SHARE = 5
"""One seed in so many is of a limiter, and one of a key of `once`; one in twice as many is of a debounced name, one in
four times as many of a budget, of a latch, of an election, of a group, and of a partition."""


def kind_of(seed: int) -> str:
    """Return the subject of a seed's plan, such as ``limiter``; ``permits`` for locks and all relatives of locks."""
    others = {SHARE: "debounce", 2 * SHARE: "latch", 3 * SHARE: "debounce", 3 * SHARE + 1: "election"}
    others |= {2 * SHARE + 1: "group", SHARE + 1: "partition", 2 * SHARE + 2: "budget"}
    rest = others.get(seed % (4 * SHARE), "permits")
    return {SHARE - 1: "limiter", SHARE - 2: "once"}.get(seed % SHARE, rest)


def draw(chance: Callable[[], float], setting: str = "server", seed: int = 0) -> Plan:
    """Return the plan for a seed and its stream of random numbers, in a setting."""
    drawings: dict[str, type[Drawing]] = {"limiter": LimiterDrawing, "once": OnceDrawing, "debounce": BurstDrawing}
    drawings |= {
        "budget": BudgetDrawing,
        "latch": LatchDrawing,
        "election": _ElectionDrawing,
        "group": _GroupDrawing,
        "partition": PartitionDrawing,
    }
    return drawings.get(kind_of(seed), _PermitDrawing)(chance, setting).plan()


class _PermitDrawing(Drawing):
    def __init__(self, chance: Callable[[], float], setting: str) -> None:
        super().__init__(chance, setting)
        kinds = ("lock", "lock", "semaphore", "semaphore", "rwlock", "lock_all")
        self.kind = self._one(
            kinds[:-1] if setting == "cluster" else kinds
        )  # which has no `lock_all` for several slots
        self.names = (
            ("a", "b", "c")[: 1 + int(chance() * 3)]
            if self.kind == "lock_all"
            else ("a", "b")[: 1 + (chance() < (0.5 if setting == "cluster" else 0.15))]
        )
        self.limit = 2 + int(chance() * 4) if self.kind == "semaphore" else MAX_PERMITS if self.kind == "rwlock" else 1
        self.at_once = self.kind == "lock" and len(self.names) > 1
        """Whether many callers of a client ask at the same moment for different locks, which then travel in batches."""
        self.disagree = self.kind == "semaphore" and chance() < 0.3
        self.resizes = self.kind == "semaphore" and chance() < 0.25
        self.revokes = chance() < 0.12
        self.replicas = 1 + (chance() < 0.4) if setting == "replicas" else 0
        ttls = TTLS[TTLS.index(1_000) :] if self.replicas else TTLS
        self.scale = self._one(ttls)
        self.ttls = (self.scale, self._one(ttls)) if chance() < 0.3 else (self.scale,)
        self.renewing = self._one((0.0, 0.5, 1.0, 1.0))
        self.cancelling = self._one((0.0, 0.0, 0.2, 0.6))
        self.tempo = self._one((0.0002, 0.001, 0.001, 0.005, 0.03))
        self.rests = self.kind == "lock" and self.tempo == 0.005
        """Whether some locks stay taken for a time since their grant."""
        self.urgent = 0.3 if self.kind != "lock_all" and chance() < 0.25 else 0.0
        """The share of requests with a head start."""
        self.overtaking = 0.5 if self.kind == "lock" and chance() < 0.4 else 0.0
        """The share of requests that preempt or replace others."""
        self.holding = 0.15 if chance() < 0.15 else 0.0
        """The share of orders by which an operator puts a name on hold, or ends that."""
        self.calm = self.overtaking > 0 and not self.holding and chance() < 0.3 and setting != "replicas"
        """Whether nothing goes wrong, so that holders hear in time that they are to end."""
        if self.calm:
            self.revokes, self.cancelling, self.tempo = False, 0.0, 0.001

    def plan(self) -> Plan:
        chance = self._chance
        count = self._one((2, 2, 2, 3, 3, 4))
        clients = [self._client() for _ in range(count)]
        kinds, rate = self._faults()
        tags = tuple(tag(self.kind, name) for name in self.names)
        uniform = not self.disagree and not self.resizes
        if self.calm:
            kinds, rate = (), 0.0
        return Plan(
            *(self.kind, self.names, tags, clients, self.tempo, kinds, rate),
            *(self._one((1, 2, 3, 5, 10)), self._one((3.0, 15.0, 40.0)), chance() < 0.85, uniform),
            rests=self.rests or self.holding > 0,
            overtakes=self.overtaking > 0 or self.holding > 0,
            calm=self.calm,
            replicas=self.replicas,
            setting=self.setting,
        )

    def _client(self) -> ClientPlan:
        chance = self._chance
        callers = [self._caller() for _ in range(self._one((1, 1, 1, 1, 2, 3)) + 3 * self.at_once)]
        return ClientPlan(
            response_timeout=self._one((1.0, 5.0) if self.replicas else (0.3, 1.0, 5.0)),
            offset=1e5 * chance(),
            lagging=self._one((0.0, 0.0, 0.1, 0.5)),
            callers=callers,
        )

    def _caller(self) -> list[Order]:
        orders = [self._order() for _ in range(self._one((1, 1, 2, 2, 3)) + 2 * self.at_once)]
        if self._chance() < 0.04 and not self.calm:
            orders.append(Order("close", orders[-1].target, self._seconds(2)))
        return orders

    def _order(self) -> Order:
        chance = self._chance
        ttl = self._one(self.ttls)
        pause = self._seconds(self.scale / 500)
        if self.at_once and chance() < 0.8:
            ttl, pause = self.scale, 0.0
        target = self._target(ttl)
        if self.replicas and chance() < ACKNOWLEDGED:
            target = target._replace(replicas=1 + int(chance() * self.replicas), replica_timeout=self._one((0.2, 0.3)))
        roll = chance()
        if self.revokes and roll < 0.1:
            alone = target._replace(kind="lock", names=target.names[:1]) if target.kind == "all" else target
            return Order("revoke", alone, pause, single=roll < 0.05)
        if self.resizes and roll > 0.9:
            return Order("resize", target, pause, limit=self._one((0, 1, 2, 3, self.limit + 2)))
        if 0.1 <= roll < 0.13:
            return Order("status", target, pause)
        if chance() < self.holding:
            grace = self._one((0.0, 0.0, 0.2, 1.0))
            return Order(
                self._one(("hold", "hold", "unhold")), target, pause, hold=0.001 + self._seconds(ttl / 500), grace=grace
            )
        if target.kind == "lock" and self.rests and 0.4 <= roll < 0.8:
            target = target._replace(at_least_ms=300 if roll < 0.6 else 2_000)
        timeout = None if chance() < 0.5 else 0.001 + self._seconds(10)
        verb = "try" if chance() < 0.3 else "acquire"
        if chance() < self.overtaking:
            verb = "preempt" if chance() < 0.7 else "replace"
        if self.overtaking:
            target = target._replace(yields=chance() < 0.8)
        return Order(
            verb,
            *(target, pause, timeout),
            head_start=self._one((1, 1, 30)) if chance() < self.urgent else 0,
            grace=self._one((1.0, 5.0) if self.calm else (0.0, 0.02, 0.2, 1.0, 5.0)) if verb == "preempt" else 0.0,
            hold=0.0 if chance() < (0.7 if self.at_once else 0.2) else self._seconds(ttl / 400),
            block=2.1 + self._seconds(ttl / 1000 - 3) if ttl >= 10_000 and chance() < 0.3 and not self.calm else 0.0,
            extend_ms=self._one(TTLS) if chance() < 0.08 else 0,
            downgrade=target.kind == "write" and chance() < 0.4,
            end=self._one(("release",) * 12 + ("release" if self.calm else "drop", "fail")),
            in_scope=chance() < 0.7,
            cancel_after=self._seconds(self._one((self.tempo * 6, 0.2, 5.0))) if chance() < self.cancelling else None,
            cancel_at=1 + int(chance() * 4) if chance() < self.cancelling / 3 else 0,
            slot=int(chance() * 5) if target.kind == "semaphore" and target.weight == 1 and chance() < 0.5 else None,
        )

    def _target(self, ttl: int) -> Target:
        chance = self._chance
        settings = (ttl, chance() < self.renewing, "raise" if chance() < 0.8 else "warn")
        names: tuple[str, ...] = (self._one(self.names),)
        if self.kind == "lock_all":
            if chance() < 0.3:
                return Target("lock", names, *settings)
            names = tuple(one for one in self.names if chance() < 0.75) or names
            return Target("all", names[::-1] if chance() < 0.5 else names, *settings)
        if self.kind == "semaphore":
            limit = 1 + int(chance() * 5) if self.disagree else self.limit
            return Target("semaphore", names, *settings, limit, 1 if chance() < 0.6 else 1 + int(chance() * limit))
        if self.kind == "rwlock":
            reads = chance() < 0.6
            return Target("read" if reads else "write", names, *settings, MAX_PERMITS, 1 if reads else MAX_PERMITS)
        return Target("lock", names, *settings)


class _ElectionDrawing(_PermitDrawing):
    """Candidates as those of a lock, and observers."""

    observed = "election"
    parts: tuple[str, ...] = ("state", "tokens", "terms", "watchers")

    def __init__(self, chance: Callable[[], float], setting: str) -> None:
        super().__init__(chance, setting)
        self.kind, self.limit, self.names = self.observed, 1, self.names[:2]
        self.at_once = self.disagree = self.resizes = self.rests = False
        self.overtaking = self.holding = 0.0
        self.calm = chance() < 0.2
        """Whether nothing goes wrong, so that observers hear of all at once."""
        if self.calm:
            self.revokes, self.cancelling, self.tempo = False, 0.0, 0.001

    def plan(self) -> Plan:
        return super().plan()._replace(parts=self.parts)

    def _order(self) -> Order:
        chance = self._chance
        order = super()._order()
        if self.calm:
            order = order._replace(timeout=None)
        if order.verb in ("acquire", "try") and chance() < 0.4:
            return Order("observe", order.target, order.pause, cancel_after=0.001 + self._seconds(40.0))
        return order._replace(end="drop") if chance() < 0.15 else order  # its end is announced by no one

    def _target(self, ttl: int) -> Target:
        warns = self._chance() < 0.2
        return Target(self.observed, (self._one(self.names),), ttl, True, "warn" if warns else "raise", self.limit)


class _GroupDrawing(_ElectionDrawing):
    """Members, and those who watch them."""

    observed = "group"
    parts = "state", "tokens", "watchers"

    def __init__(self, chance: Callable[[], float], setting: str) -> None:
        super().__init__(chance, setting)
        self.limit = MAX_PERMITS

    def _order(self) -> Order:
        order = super()._order()
        return order._replace(target=order.target._replace(replicas=0))  # members wait for none
