"""The calls of a limiter, packed as far as they can be before there is a token."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from math import inf
from struct import iter_unpack
from typing import NamedTuple, TypeAlias

from handfast._engine.constants import TOKEN_SIZE, WAIT_MS
from handfast._engine.effects import Call, Joining, make_call
from handfast._engine.keys import KeySet
from handfast._engine.objects import ObjectRequest
from handfast._engine.packing import double, doubles
from handfast._engine.records import encode_label, words_of
from handfast._engine.resp import bulk
from handfast._engine.script import command, pack

__all__ = [
    "MAX_WINDOWS",
    "REQUESTS",
    "Cost",
    "Limit",
    "LimitRequest",
    "Window",
    "announced",
    "pack_limits",
    "read_limits",
]

Cost: TypeAlias = int | Mapping[str, int]
"""The cost of a call: a number, or of a limiter with metrics a number for each."""

MAX_WINDOWS = 8
"""Upper bound of the rates of a limiter with metrics."""

NEARLY_FULL = 10
"""A limiter is nearly full if that part of its limit is left."""

REQUESTS = "requests"
"""The metric for which a call counts 1, unless it says otherwise."""

ANNOUNCED = "rates"
"""The part of a name with the rates that a client has announced."""

ANNOUNCED_MS = 3_600_000


def announced(place: KeySet) -> Call:
    """Read the rates that a client has announced."""
    return Call(command("GET", 1), pack((place.whole.key(ANNOUNCED),)))


class Window(NamedTuple):
    """Where the admissions of a period are stored."""

    metric: str
    """Empty for a limiter without metrics."""
    per_ms: int

    def __str__(self) -> str:
        """Return the part of the key behind ``window:``."""
        return f"{self.metric}:{self.per_ms}" if self.metric else str(self.per_ms)

    @classmethod
    def read(cls, text: str) -> Window:
        """Read such a part. Raises ValueError if it is none."""
        metric, _, period = text.rpartition(":")
        if not period.isdecimal():
            raise ValueError(f"{text!r} is no window")
        return cls(metric, int(period))

    def under(self, limit: int) -> Limit:
        """Return the rate with this limit."""
        return Limit(limit, self.per_ms, self.metric)


class Limit(NamedTuple):
    """A rate, as scripts have it."""

    limit: int
    per_ms: int
    metric: str = ""
    """The metric that it limits; empty for a limiter without metrics."""

    @property
    def window(self) -> Window:
        """Where the admissions are stored."""
        return Window(self.metric, self.per_ms)

    def cost_of(self, cost: Cost) -> int:
        """Return the cost of a call under this rate.

        Where an operator has set rates of other metrics, a call counts 1 for ``requests`` and for a plain rate.
        """
        if isinstance(cost, int):
            return cost if not self.metric else int(self.metric == REQUESTS)
        return cost.get(self.metric, int(self.metric == REQUESTS)) if self.metric else max(1, cost.get(REQUESTS, 1))


def pack_limits(rates: Sequence[Limit]) -> bytes:
    """Pack rates in the order of their windows: limit and period of each, then the metrics.

    A metric with several rates is named once, so that the length fits in a byte.
    """
    packed = b"".join(doubles(rate.limit, rate.per_ms) for rate in rates)
    metrics = [rate.metric for rate in rates]
    named = [metric if metric != before else "" for before, metric in pairwise(["", *metrics])]
    return packed + f";{','.join(named)}".encode() if any(metrics) else packed


_PACKED = re.compile(rb"((?:.{16})*?)(?:;([a-z0-9_,]+))?", re.DOTALL)
"""Rates, and their metrics. No number is taken for a name: a period has zero bytes."""


def read_limits(packed: bytes) -> list[Limit]:
    """Read the rates of a reply. Raises ValueError if these are none."""
    found = _PACKED.fullmatch(packed)
    if found is None:
        raise ValueError(f"{packed!r} are no rates")
    numbers = [(int(limit), int(per_ms)) for limit, per_ms in iter_unpack("<dd", found[1])]
    names = found[2].decode().split(",") if found[2] else [""] * len(numbers)
    metrics: Iterable[str] = accumulate(names, lambda before, metric: metric or before)
    return [Limit(*pair, metric) for pair, metric in zip(numbers, metrics, strict=True)]


class LimitRequest(ObjectRequest):
    """A request to a limiter: to be admitted for ``cost`` under all rates, by metric in the order of their periods.

    ``rates`` are the caller's own, unless the server has said that others are set. Without ``cost`` it is 1; of a limiter
    with metrics 1 for ``requests``, and 0 for the others.
    """

    __slots__ = (
        "_enforce",
        "_join",
        "_set",
        "_words",
        "cost",
        "has_metrics",
        "head_start_us",
        "most",
        "nearly_full",
        "own",
        "rates",
        "timeout",
    )

    def __init__(
        self,
        place: KeySet,
        rates: Sequence[Limit],
        *,
        max_waiters: int,
        timeout: float | None,
        cost: Cost | None = None,
        enforce: bool = True,
        set_rates: Sequence[Limit] = (),
        head_start_us: int = 0,
    ) -> None:
        self.rates: tuple[Limit, ...] = tuple(set_rates or rates)
        self.has_metrics: bool = bool(self.rates[0].metric)
        # The cost follows the caller's own rates, also where an operator has set others with other metrics.
        if cost is None:
            cost = {rate.metric: rate.cost_of(1) for rate in rates} if rates[0].metric else 1
        # Without metrics the cost is a fixed value, packed once. With metrics it is 0, and `_words` has the
        # cost of each window: only these calls are longer.
        super().__init__(
            place,
            wait_ms=WAIT_MS,
            max_waiters=max_waiters,
            follows=int(bool(set_rates)),
            cost=0 if self.has_metrics else self.rates[0].cost_of(cost),
            rates=pack_limits(self.rates),
            periods=doubles(*(rate.per_ms for rate in self.rates)),
            windows=[f"window:{rate.window}" for rate in self.rates],
        )
        self._join: Joining | None = None
        # The script of a batch knows one window, no set rates and no head start, see `limit_batch.lua`.
        if len(self.rates) == 1 and not set_rates and not head_start_us and not self.has_metrics:
            keys = pack(map(place.key, ("queue", "tombstones", "settings", *self.fixed["windows"])))
            self._join = Joining(keys, bulk(self.fixed["rates"]), is_limiter=True)
        self.cost: Cost = cost
        self.timeout: float | None = timeout
        """Seconds that its callers wait unless they say otherwise; None without a limit, 0 not at all."""
        self.head_start_us: int = head_start_us
        """By how many microseconds a call counts as earlier than it came."""
        self.own: Sequence[Limit] = rates
        """The caller's rates, whatever an operator has set."""
        self._set, self._enforce = set_rates, enforce
        self._words = words_of("", head_start_us)
        if self.has_metrics:
            self._words += f" costs={','.join(str(rate.cost_of(cost)) for rate in self.rates)}".encode()
        self.most: int = min(rate.limit for rate in self.rates)
        """The largest cost that all rates admit, without metrics."""
        self.nearly_full: float = inf if self.has_metrics else self.most / NEARLY_FULL
        """With how much left of the tightest rate operators are to see the rates; with metrics always."""

    def too_much(self, cost: Cost) -> Limit | None:
        """Return the first rate that never admits this cost; None if all do."""
        return next((rate for rate in self.rates if rate.cost_of(cost) > rate.limit), None)

    def with_cost(self, cost: Cost) -> LimitRequest:
        """Return the same request for another cost."""
        return self if cost == self.cost else self._like(self.place, cost, self._set)

    def with_head_start(self, head_start_us: int) -> LimitRequest:
        """Return the same request with another head start."""
        return self._like(self.place, self.cost, self._set, head_start_us)

    def under(self, set_rates: Sequence[Limit]) -> LimitRequest:
        """Return the same request under the rates that are set for all; without any, under the caller's own."""
        return self._like(self.place, self.cost, set_rates)

    def keyed(self, parts: tuple[str, ...]) -> LimitRequest:
        """Return the same request for a name with these parts behind it."""
        return self._like(self.place.keyed(parts), self.cost, ())

    def acquire(self, token: bytes, patience_s: float, ticket: int = 0) -> Call:
        """Be admitted, or enter the queue; unless it is certain to take longer than ``patience_s``, which may be infinite."""
        patience_us = max(0.0, patience_s) * 1e6 if self._enforce else -1
        if not ticket and patience_us > 0:
            ticket = -self.head_start_us
        if len(token) != TOKEN_SIZE:
            return self.call("acquire", token, patience_us=patience_us, ticket=ticket)
        # The same as `call`, written out for speed: the most frequent call of a limiter.
        shape = self._shapes.get("acquire") or self._shaped("acquire")
        tail, joining = shape.tail % (double(patience_us), double(ticket)), None if ticket else self._join
        return make_call(
            (
                shape.prefix,
                shape.head,
                token,
                tail,
                token,
                shape.wants or b"",
                b"",
                joining,
                False,
                None,
                None,
                self._words,
            )
        )

    def settle(self, token: bytes, cost: Cost, *, copies: bool) -> Call:
        """Let an admission count for another cost; 0 takes it back.

        ``copies``: whether a copy of the acquire may still be on the way.
        """
        if not self.has_metrics:
            return self.call("settle", token, new_cost=self.rates[0].cost_of(cost), copies=copies)
        new_costs = [0 if cost == 0 else rate.cost_of(cost) for rate in self.rates]
        pairs = zip((rate.cost_of(self.cost) for rate in self.rates), new_costs, strict=True)
        changes = b"".join(doubles(*pair) for pair in pairs)
        return self.call("settle", token, new_cost=int(any(new_costs)), copies=copies, more=[changes])

    def cancel(self, token: bytes) -> Call:
        """Undo an acquire, whatever it has reached."""
        return self.settle(token, 0, copies=True)

    def pause(self, pause_ms: int, by: str, why: str, shown_us: int = 0) -> Call:
        """Admit no one for so long; 0 ends a pause, with ``shown_us`` only the one that ends at that time.

        ``by``: the label of the client.
        """
        return self.call("pause", pause_ms=pause_ms, shown_us=shown_us, by=encode_label(by), why=why)

    def announce(self) -> Call:
        """Let `names` know the rates, under the name without a key. No admission depends on it."""
        args = (self.place.whole.key(ANNOUNCED), self.fixed["rates"], "PX", ANNOUNCED_MS)
        return Call(command("SET", len(args)), pack(args))

    def resize(self, by: str, why: str) -> Call:
        """Set these rates for all clients; if they are the caller's own, have each client bring its own again.

        ``by``: the label of the client. ``why``: the rates as text.
        """
        return self.call("resize", is_set=int(bool(self._set)), by=encode_label(by), why=why)

    def _like(
        self, place: KeySet, cost: Cost, set_rates: Sequence[Limit], head_start_us: int | None = None
    ) -> LimitRequest:
        return LimitRequest(
            place,
            self.own,
            max_waiters=self.fixed["max_waiters"],
            timeout=self.timeout,
            cost=cost,
            enforce=self._enforce,
            set_rates=set_rates,
            head_start_us=self.head_start_us if head_start_us is None else head_start_us,
        )
