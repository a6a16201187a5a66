"""Draw the plans of limiters: callers that are admitted, refused, cancelled or out of time, and settle what it cost."""

from __future__ import annotations

from collections.abc import Callable

from handfast._engine.defaults import DEFAULT_MAX_WAITERS
from handfast._engine.limits import Limit
from handfast_lab.simulator.drawing import Drawing
from handfast_lab.simulator.orders import ClientPlan, Order, Plan, Target, tag

__all__ = ["LimiterDrawing"]

PERIODS_MS = (20, 100, 400, 1_500, 6_000)

Rates = tuple[Limit, ...]


class LimiterDrawing(Drawing):
    """Draws a plan for one limiter or two."""

    def __init__(self, chance: Callable[[], float], setting: str) -> None:
        super().__init__(chance, setting)
        self.names = ("a", "b")[: 1 + (chance() < (0.5 if setting == "cluster" else 0.15))]
        self.has_metrics = chance() < 0.25
        """Whether the limiters have metrics; callers with other rates may have none."""
        self.rates = {name: self._metrics() if self.has_metrics else self._rates() for name in self.names}
        plain = not self.has_metrics or chance() < 0.3
        self.others = {name: self._rates((1, 2)) if plain else self._metrics() for name in self.names}
        self.freezing = chance() < 0.1
        """Whether processes are often suspended, and use other rates."""
        self.disagree = chance() < (0.7 if self.freezing else 0.2)
        """Whether some callers use other rates."""
        self.max_waiters = self._one((DEFAULT_MAX_WAITERS,) * 9 + (2,))
        self.weighted = self._one((0.0, 0.0, 0.4))
        self.settling = self._one((0.0, 0.3, 0.7))
        self.cancelling = 0.0 if self.freezing else self._one((0.0, 0.0, 0.2, 0.6))
        self.pausing = self._one((0.0, 0.0, 0.05, 0.2))
        self.resizing = self._one((0.0, 0.0, 0.0, 0.05, 0.2))
        self.tempo = self._one((0.0002, 0.001, 0.001, 0.005, 0.03))
        self.urgent = self._one((0.0, 0.0, 0.0, 0.3))
        """The share of calls with a head start."""
        self.at_once = len(self.names) > 1 and self.tempo <= 0.001 and not self.freezing
        """Whether many callers of a client ask at the same moment for different limiters, and so travel in batches."""
        if self.at_once:
            self.names, self.has_metrics = ("a", "b", "c", "d"), False
            self.rates = dict.fromkeys(self.names, self._rates((1,)))
            self.others = dict.fromkeys(self.names, self._rates((1,)))

    def plan(self) -> Plan:
        """Return the plan."""
        chance = self._chance
        clients = [self._client() for _ in range(self._one((2, 2, 3, 3, 4)))]
        kinds, rate = self._faults()
        if self.freezing:
            kinds, rate = (*kinds, *("freeze",) * max(2, len(kinds))), rate or 0.2
        rates = [rate for some in (self.rates, self.others) for one in some.values() for rate in one]
        windows = sorted({rate.window for rate in rates})
        return Plan(
            *("limiter", self.names, tuple(tag("limiter", name) for name in self.names), clients, self.tempo),
            *(kinds, rate, self._one((1, 2, 3, 5, 10)), self._one((3.0, 15.0, 40.0)), chance() < 0.85),
            uniform=not self.disagree and not self.resizing,
            replicas=1 + (chance() < 0.4) if self.setting == "replicas" else 0,
            setting=self.setting,
            parts=("queue", "waiting", "tombstones", "settings", *(f"window:{window}" for window in windows)),
            rates={} if self.disagree or self.resizing or self.has_metrics else self.rates,
        )

    def _rates(self, counts: tuple[int, ...] = (1, 1, 1, 2, 2, 3), most: int = 5, metric: str = "") -> Rates:
        """Return so many rates or fewer, the shortest period first and with the smallest limit."""
        periods = sorted({self._one(PERIODS_MS) for _ in range(self._one(counts))})
        limits = sorted(1 + int(most * self._chance()) for _ in periods)
        return tuple(Limit(*pair, metric) for pair in zip(limits, periods, strict=True))

    def _metrics(self) -> Rates:
        return self._rates((1, 1, 2), 5, "requests") + self._rates((1, 1, 2), 20, "tokens")

    def _client(self) -> ClientPlan:
        chance = self._chance
        return ClientPlan(
            response_timeout=self._one((0.3, 1.0, 5.0)),
            offset=1e5 * chance(),
            lagging=self._one((0.0, 0.0, 0.1, 0.5)),
            callers=[self._caller() for _ in range(self._one((1, 2, 2, 3, 4)) + 4 * self.at_once)],
        )

    def _caller(self) -> list[Order]:
        orders = [self._order() for _ in range(self._one((1, 2, 2, 3, 5)) + 3 * self.at_once)]
        if self._chance() < 0.04:
            orders.append(Order("close", orders[-1].target, self._seconds(2)))
        return orders

    def _order(self) -> Order:
        chance = self._chance
        name = self._one(self.names)
        rates = self.others[name] if self.disagree and chance() < 0.4 else self.rates[name]
        most = min(rate.limit for rate in rates if rate.metric in ("", "tokens"))
        cost = 1 + int(chance() * most) if chance() < self.weighted else 1
        target = Target("limiter", (name,), 0, False, "raise", weight=cost, rates=rates, max_waiters=self.max_waiters)
        if rates[0].metric:
            tokens = self._one((0, 1, 1, int(chance() * most), most))
            target = target._replace(
                costs=(("requests", self._one((1, 1, 1, 0)) or int(not tokens)), ("tokens", tokens))
            )
        pause = self._seconds(4.0 if self.freezing else rates[0].per_ms / 500)
        if self.at_once and chance() < 0.7:
            pause = 0.0
        if chance() < 0.03:
            return Order("status", target, pause)
        if chance() < self.pausing:
            length = self._seconds(rates[-1].per_ms / 500)
            return Order("pause", target, pause, hold=length, block=self._one((0.0, length / 3)))
        if chance() < self.resizing:
            until_undone = self._one((0.0, 0.0, self._seconds(rates[0].per_ms / 300)))
            return Order("resize", target, pause, block=until_undone, rates=self.others[name])
        settles = tuple(self._one((0, 0, 1, 2, most + 1)) for _ in range(self._one((1, 1, 2))))
        return Order(
            "try" if chance() < 0.25 else "acquire",
            *(target, pause, None if chance() < 0.5 or self.freezing else 0.001 + self._seconds(10)),
            hold=self._seconds(rates[-1].per_ms / 700),
            block=2.1 if chance() < 0.02 else 0.0,
            in_scope=chance() < 0.4,
            cancel_after=self._seconds(self._one((self.tempo * 6, 0.2, 5.0))) if chance() < self.cancelling else None,
            cancel_at=1 + int(chance() * 4) if chance() < self.cancelling / 3 else 0,
            head_start=self._one((1, 30)) if chance() < self.urgent else 0,
            settles=settles if chance() < self.settling else (),
        )
