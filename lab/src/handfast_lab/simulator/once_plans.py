"""Draw the plans of keys of `once`: callers that run, wait or find a result, whose runs end in several ways or are forgotten."""

from __future__ import annotations

from collections.abc import Callable

from handfast._engine.calls import PARTS
from handfast._engine.defaults import DEFAULT_MAX_WAITERS
from handfast_lab.simulator.drawing import Drawing
from handfast_lab.simulator.orders import ClientPlan, Order, Plan, Recording, Target, tag

__all__ = ["LASTING_MS", "OnceDrawing"]

TTLS_MS = (150, 400, 1_000, 3_000, 10_000)

LASTING_MS = 3_600_000
"""For how long a record is kept that outlasts its plan."""

KEEPS_MS = (400, 3_000, 20_000, LASTING_MS, LASTING_MS)

ENDS = ("finish",) * 8 + ("release", "fail", "fail", "drop", "unstorable")


class OnceDrawing(Drawing):
    """Draws a plan for one key or two."""

    def __init__(self, chance: Callable[[], float], setting: str) -> None:
        super().__init__(chance, setting)
        self.names = ("a", "b")[: 1 + (chance() < (0.5 if setting == "cluster" else 0.15))]
        self.scale = self._one(TTLS_MS)
        self.keep_ms = self._one(KEEPS_MS)
        self.refreshing = self._one((0.0, 0.0, 0.8))
        self.refresh_ms = int(self.keep_ms * self._one((0.001, 0.2, 0.7)))
        self.keep_failure_ms = self._one((0, 0, 300, 10_000))
        self.rerunning = self._one((1.0, 1.0, 0.9, 0.0))
        self.raising = self._one((0.0, 0.0, 0.3))
        self.disagree = chance() < 0.25
        """Whether callers have fingerprints that differ."""
        self.forgetting = self._one((0.0, 0.0, 0.1))
        self.revoking = self._one((0.0, 0.0, 0.1))
        self.max_waiters = self._one((DEFAULT_MAX_WAITERS,) * 9 + (2,))
        self.cancelling = self._one((0.0, 0.0, 0.2, 0.6))
        self.tempo = self._one((0.0002, 0.001, 0.001, 0.005, 0.03))

    def plan(self) -> Plan:
        """Return the plan."""
        chance = self._chance
        clients = [self._client() for _ in range(self._one((2, 2, 3, 3, 4)))]
        kinds, rate = self._faults()
        return Plan(
            *("once", self.names, tuple(tag("once", name) for name in self.names), clients, self.tempo),
            *(kinds, rate, self._one((1, 2, 3, 5, 10)), self._one((3.0, 15.0, 40.0)), chance() < 0.85),
            uniform=True,
            replicas=1 + (chance() < 0.4) if self.setting == "replicas" else 0,
            setting=self.setting,
            parts=(*PARTS, "result"),
            records_last=self.keep_ms == LASTING_MS and not self.refreshing,
        )

    def _client(self) -> ClientPlan:
        chance = self._chance
        return ClientPlan(
            response_timeout=self._one((0.3, 1.0, 5.0)),
            offset=1e5 * chance(),
            lagging=self._one((0.0, 0.0, 0.1, 0.5)),
            callers=[self._caller() for _ in range(self._one((1, 1, 2, 2, 3)))],
        )

    def _caller(self) -> list[Order]:
        orders = [self._order() for _ in range(self._one((1, 1, 2, 2, 3)))]
        if self._chance() < 0.04:
            orders.append(Order("close", orders[-1].target, self._seconds(2)))
        return orders

    def _order(self) -> Order:
        chance = self._chance
        target = self._target()
        pause = self._seconds(self.scale / 300 if chance() < 0.6 else 20 * self.tempo)
        roll = chance()
        if roll < 0.03:
            return Order("status", target, pause)
        if roll < 0.03 + self.forgetting:
            return Order("forget", target, pause)
        if roll > 1 - self.revoking:
            return Order("revoke", target, pause)
        return Order(
            "try" if chance() < 0.25 else "acquire",
            *(target, pause, None if chance() < 0.6 else 0.001 + self._seconds(10)),
            hold=0.0 if chance() < 0.2 else self._seconds(self.scale / 400),
            block=1.2 * self.scale / 1000 if chance() < 0.06 else 0.0,
            head_start=self._one((1, 30)) if chance() < 0.1 else 0,
            end=self._one(ENDS),
            in_scope=chance() < 0.8,
            cancel_after=self._seconds(self._one((self.tempo * 6, 0.2, 5.0))) if chance() < self.cancelling else None,
            cancel_at=1 + int(chance() * 4) if chance() < self.cancelling / 3 else 0,
        )

    def _target(self) -> Target:
        chance = self._chance
        refreshes, reruns = chance() < self.refreshing, chance() < self.rerunning
        recording = Recording(
            self.keep_ms,
            self.refresh_ms if refreshes and reruns else 0,
            self.keep_failure_ms,
            reruns,
            chance() >= self.raising,
            self._one(("", "one", "other")) if self.disagree else "",
        )
        names = (self._one(self.names),)
        return Target(*("once", names, self.scale, True, "raise"), max_waiters=self.max_waiters, recording=recording)
