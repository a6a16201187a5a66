"""Partitions: plans, workers, and the oracle, that of groups and of the locks of the items."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import ceil
from typing import Any

from handfast._protocol.acquire import Attempt
from handfast_lab.simulator.client import ON_ATTEMPT, Client, state_of
from handfast_lab.simulator.drawing import Drawing
from handfast_lab.simulator.observers import GroupWatch
from handfast_lab.simulator.orders import ClientPlan, Order, Plan, Target, tag
from handfast_lab.simulator.watch import NOTICED_S
from handfast_lab.simulator.world import World

__all__ = ["PartitionDrawing", "PartitionWatch", "Working"]

ITEMS = tuple("uvwxyz")

SLACK_S = 3.0
"""Seconds for the calls of a move, and for pauses of workers, beyond what is promised."""


class PartitionDrawing(Drawing):
    """Draws workers that come and go, and functions that end well, badly or late."""

    def __init__(self, chance: Callable[[], float], setting: str) -> None:
        super().__init__(chance, setting)
        self.ttl = self._one((1_000, 3_000, 10_000))
        self.every_ms = self._one((300, 1_000, 5_000))
        self.ends = chance() < 0.3
        """Whether functions end by themselves."""
        self.lingers = chance() < 0.3
        """Whether functions need time for cleanup, perhaps more than they have."""

    def plan(self) -> Plan:
        chance = self._chance
        clients = [self._client() for _ in range(self._one((2, 3, 3, 4)))]
        kinds, rate = self._faults()
        names = ("a", *(f"a|{item}" for item in ITEMS))
        return Plan(
            *("partition", names, tuple(tag("partition", name) for name in names), clients),
            *(self._one((0.0002, 0.001, 0.001, 0.005, 0.03)), kinds, rate),
            *(self._one((1, 2, 3, 5, 10)), self._one((3.0, 15.0, 40.0)), chance() < 0.85),
            uniform=True,
            replicas=1 + (chance() < 0.4) if self.setting == "replicas" else 0,
            setting=self.setting,
            parts=("state", "tokens", "watchers"),
        )

    def _client(self) -> ClientPlan:
        chance = self._chance
        callers = [[self._order() for _ in range(self._one((1, 1, 2)))] for _ in range(self._one((1, 1, 2)))]
        return ClientPlan(self._one((0.3, 1.0, 5.0)), 1e5 * chance(), self._one((0.0, 0.0, 0.1, 0.5)), callers)

    def _order(self) -> Order:
        chance = self._chance
        return Order(
            "work",
            Target("partition", ("a",), self.ttl, True, "raise"),
            self._seconds(20.0),
            hold=self._seconds(5.0) if self.ends and chance() < 0.5 else 0.0,
            block=self._seconds(2 * self.ttl / 1000) if self.lingers and chance() < 0.5 else 0.0,
            extend_ms=self.every_ms,
            end="fail" if self.ends and chance() < 0.5 else "release",
            cancel_after=1.0 + self._seconds(40.0),
        )


class Working:
    """A worker: the execution of an order, until a cancellation."""

    def __init__(self, world: World, watch: PartitionWatch, client: Client, order: Order) -> None:
        self._world, self._watch, self.client, self._order = world, watch, client, order
        self._tokens: list[bytes] = []

    async def run(self) -> None:
        """Do it."""
        order, client, watch = self._order, self.client, self._watch
        ON_ATTEMPT.set(self._begin)
        partition = client.api.partition("a", ITEMS, ttl=order.target.ttl_ms / 1000, every=order.extend_ms / 1000)
        watch.comes(self)
        assert order.cancel_after is not None  # noqa: S101 -- as it is drawn
        client.loop.call_later(0.999 * order.cancel_after, watch.check_items, self)
        client.loop.call_later(order.cancel_after, watch.is_leaving)
        try:
            await partition.run(self._serve)
        finally:
            watch.goes(self)
            for token in self._tokens:
                if watch.fates[token] in ("asking", "held"):
                    watch.ended(client, token, certain=False)

    async def _serve(self, item: str, lease: Any) -> None:
        watch, state, order = self._watch, state_of(lease), self._order
        target = order.target._replace(names=(f"a|{item}",))
        watch.holds(state.token)
        watch.acquired(self.client, target, state)
        watch.serves(self, item)
        try:
            await asyncio.sleep(order.hold or 1e6)
            if order.end == "fail":
                raise LookupError(item)
        except asyncio.CancelledError:
            if order.block:
                await asyncio.sleep(order.block)
            raise
        finally:
            watch.rests(self, item, lost=lease.lost)
            watch.gives_up(state.token)
            watch.ended(self.client, state.token, certain=False)

    def _begin(self, attempt: object) -> None:
        if isinstance(attempt, Attempt):
            if attempt.request.name == "a":
                self._watch.joins()
            self._watch.asks(attempt.token)
            self.client.tokens.append(attempt.token)
            self._tokens.append(attempt.token)


class PartitionWatch(GroupWatch):
    """Checks leases of workers and items, and where the items are once all is quiet."""

    def _begin(self, plan: Plan) -> Any:
        self._serving: dict[Working, set[str]] = {}
        self._changed_at = 0.0
        self.checks = 0
        """How often the items of all workers were looked at."""
        orders = [order for client in plan.clients for caller in client.callers for order in caller]
        self._is_steady = not any(order.hold or order.block for order in orders)
        self._quiet_s = max(order.target.ttl_ms + order.extend_ms for order in orders) / 1000 + SLACK_S
        return super()._begin(plan)

    def comes(self, worker: Working) -> None:
        """Record a worker that joins."""
        self._serving[worker] = set()
        self._changed_at = self._world.now

    def joins(self) -> None:
        """Record that a worker joins, also one that does so anew since a slow network has taken its lease."""
        self._changed_at = self._world.now

    def is_leaving(self) -> None:
        """Record that a worker has to go, which may take it a while."""
        self._changed_at = self._world.now

    def goes(self, worker: Working) -> None:
        """Record a worker that goes."""
        self._serving.pop(worker, None)
        self._changed_at = self._world.now

    def serves(self, worker: Working, item: str) -> None:
        """Record an item that a worker has."""
        self._serving[worker].add(item)

    def rests(self, worker: Working, item: str, *, lost: bool) -> None:
        """Record an item that a worker has no more. A slow network may take a short lease away at any time."""
        self._serving.get(worker, set()).discard(item)
        if lost:
            self._changed_at = self._world.now

    def died(self, client: Client, tokens: list[bytes]) -> None:
        """Record that a process died, and the workers in it."""
        super().died(client, tokens)
        for worker in [one for one in self._serving if one.client is client]:
            self.goes(worker)

    def check_items(self, worker: Working) -> None:
        """Check where the items are, if all was quiet for long enough."""
        noticed_at = self.damage.last + NOTICED_S if self.damage.counts else 0.0
        awake_since = max((one.client.process.awake_since for one in self._serving), default=0.0)
        since = max(self._changed_at, noticed_at, awake_since) + self.damage.grace
        if not self._is_steady or worker not in self._serving or self._world.now < since + self._quiet_s:
            return
        loads = [len(items) for items in self._serving.values()]
        self.checks += 1
        if max(loads) > ceil(len(ITEMS) / len(loads)) or sum(loads) != len(ITEMS):
            self.find(f"invariant 47: workers have {loads} of {len(ITEMS)} items long after the last came or went")
