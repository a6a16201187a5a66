"""Draw the plans of debounced names: callers that come in bursts, are cancelled, and die.

Some plans are of a shape that few draws have: calls that follow each other faster than a round trip, and calls that wait for
so long that their processes can be away meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable

from handfast_lab.simulator.drawing import Drawing
from handfast_lab.simulator.orders import ClientPlan, Order, Plan, Target, tag

__all__ = ["BurstDrawing"]


class BurstDrawing(Drawing):
    """Draws a plan for one name or two."""

    def __init__(self, chance: Callable[[], float], setting: str) -> None:
        super().__init__(chance, setting)
        self.names = ("a", "b")[: 1 + (chance() < (0.5 if setting == "cluster" else 0.15))]
        self.shape = self._one(("any", "any", "any", "stream", "long", "steps"))
        self.quiet = self._one(
            {"stream": (0.01, 0.05), "long": (25.0, 60.0), "steps": (0.3, 2.0, 25.0)}.get(
                self.shape, (0.005, 0.05, 0.3, 2.0, 25.0)
            )
        )
        self.at_most = self._one((None, self.quiet, 3 * self.quiet))
        self.disagree = chance() < 0.2
        """Whether some callers wait for another time."""
        self.cancelling = self._one((0.0, 0.0, 0.2, 0.6)) if self.shape == "any" else 0.0
        self.collects = chance() < 0.5
        """Whether its calls leave items."""
        self.tempo = 0.03 if self.shape == "stream" else self._one((0.0002, 0.001, 0.001, 0.005, 0.03))

    def plan(self) -> Plan:
        """Return the plan."""
        chance = self._chance
        clients = [self._client() for _ in range(self._one((2, 2, 3, 3, 4)))]
        kinds, rate = self._faults()
        if self.shape in ("stream", "steps") and chance() < 0.8:
            kinds, rate = {"stream": ((), 0.0), "steps": (("jump",), 0.3)}[self.shape]
        elif self.shape == "long":
            kinds += ("away",) * max(1, len(kinds))
            rate = rate or 0.2
        return Plan(
            *("debounce", self.names, tuple(tag("debounce", name) for name in self.names), clients, self.tempo),
            *(kinds, rate, self._one((1, 2, 3, 5, 10)), self._one((3.0, 15.0, 40.0)), chance() < 0.85),
            uniform=False,
            replicas=1 + (chance() < 0.4) if self.setting == "replicas" else 0,
            setting=self.setting,
            parts=("burst", "tombstones", "items", "queue"),
        )

    def _client(self) -> ClientPlan:
        chance = self._chance
        return ClientPlan(
            response_timeout=self._one((0.3, 1.0, 5.0)),
            offset=1e5 * chance(),
            lagging=self._one((0.0, 0.0, 0.1, 0.5)) if self.shape == "any" else 0.0,
            callers=[self._caller() for _ in range(5 if self.shape == "stream" else self._one((1, 2, 3, 5)))],
        )

    def _caller(self) -> list[Order]:
        orders = [self._order() for _ in range(12 if self.shape == "stream" else self._one((1, 2, 3)))]
        if self._chance() < 0.04 and self.shape == "any":
            orders.append(Order("close", orders[-1].target, self._seconds(2)))
        return orders

    def _order(self) -> Order:
        chance = self._chance
        factor = 3 if self.disagree and chance() < 0.4 else 1
        order = Order(
            "wait",
            Target("debounce", (self._one(self.names),), 0, False, "raise"),
            self._seconds(2.0 if self.shape == "stream" else 3 * self.quiet),
            timeout=self.at_most and factor * self.at_most,
            hold=factor * self.quiet,
            cancel_after=self._seconds(self._one((self.tempo * 6, self.quiet, 5.0)))
            if chance() < self.cancelling
            else None,
            cancel_at=1 + int(chance() * 4) if chance() < self.cancelling / 3 else 0,
        )
        if not self.collects:
            return order
        within, end = self._one((0.05, 1.0, 60.0)), "fail" if chance() < 0.2 else "release"
        lasts, most = self._seconds(1.5 * within), self._one((1, 2, 1000))
        return order._replace(verb="collect", grace=within, block=lasts, limit=most, end=end)
