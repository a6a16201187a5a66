"""The calls of a limiter, packed as far as they can be before there is a token."""

from __future__ import annotations

from collections.abc import Sequence
from struct import iter_unpack
from typing import NamedTuple

from handfast._engine.constants import TOKEN_SIZE, WAIT_MS
from handfast._engine.effects import Call, Joining, make_call
from handfast._engine.keys import KeySet
from handfast._engine.objects import ObjectRequest
from handfast._engine.packing import double, doubles
from handfast._engine.records import encode_label, words_of
from handfast._engine.resp import bulk
from handfast._engine.script import command, pack

__all__ = ["Limit", "LimitRequest", "announced", "read_limits"]


ANNOUNCED = "rates"
"""The part of a name with the rates that a client has announced."""

ANNOUNCED_MS = 3_600_000


def announced(place: KeySet) -> Call:
    """Read the rates that a client has announced."""
    return Call(command("GET", 1), pack((place.whole.key(ANNOUNCED),)))


class Limit(NamedTuple):
    """A rate, as scripts have it."""

    limit: int
    per_ms: int


def read_limits(packed: bytes) -> list[Limit]:
    """Read the rates of a reply."""
    return [Limit(int(limit), int(per_ms)) for limit, per_ms in iter_unpack("<dd", packed)]


class LimitRequest(ObjectRequest):
    """What a caller asks of a limiter: to be admitted for ``cost`` under all rates, in the order of their periods.

    ``rates`` are the caller's own, unless the server has said that others are set.
    """

    __slots__ = ("_enforce", "_join", "_own", "_set", "_words", "cost", "head_start_us", "most", "rates", "timeout")

    def __init__(
        self,
        place: KeySet,
        rates: Sequence[Limit],
        *,
        max_waiters: int,
        timeout: float | None,
        cost: int = 1,
        enforce: bool = True,
        set_rates: Sequence[Limit] = (),
        head_start_us: int = 0,
    ) -> None:
        self.rates: tuple[Limit, ...] = tuple(set_rates or rates)
        super().__init__(
            place,
            wait_ms=WAIT_MS,
            max_waiters=max_waiters,
            follows=int(bool(set_rates)),
            cost=cost,
            rates=b"".join(doubles(*rate) for rate in self.rates),
            periods=doubles(*(rate.per_ms for rate in self.rates)),
            windows=[f"window:{rate.per_ms}" for rate in self.rates],
        )
        self._join: Joining | None = None
        if len(self.rates) == 1 and not set_rates and not head_start_us:
            keys = pack(map(place.key, ("queue", "tombstones", "settings", *self.fixed["windows"])))
            self._join = Joining(keys, bulk(self.fixed["rates"]), is_limiter=True)
        self.cost: int = cost
        self.timeout: float | None = timeout
        """Seconds that its callers wait unless they say otherwise; None without a limit, 0 not at all."""
        self.head_start_us: int = head_start_us
        """By how many microseconds a call counts as earlier than it came."""
        self._own, self._set, self._enforce = rates, set_rates, enforce
        self._words = words_of("", head_start_us)
        self.most: int = min(rate.limit for rate in self.rates)
        """The largest cost that all rates admit."""

    def with_cost(self, cost: int) -> LimitRequest:
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

    def settle(self, token: bytes, cost: int, *, copies: bool) -> Call:
        """Let an admission count for another cost.

        ``copies``: whether a copy of its acquire may still be on its way.
        """
        return self.call("settle", token, new_cost=cost, copies=copies)

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
        """Set these rates for all clients; or have each bring its own again, if they are the caller's.

        ``by``: the label of the client. ``why``: the rates as text.
        """
        return self.call("resize", is_set=int(bool(self._set)), by=encode_label(by), why=why)

    def _like(
        self, place: KeySet, cost: int, set_rates: Sequence[Limit], head_start_us: int | None = None
    ) -> LimitRequest:
        return LimitRequest(
            place,
            self._own,
            max_waiters=self.fixed["max_waiters"],
            timeout=self.timeout,
            cost=cost,
            enforce=self._enforce,
            set_rates=set_rates,
            head_start_us=self.head_start_us if head_start_us is None else head_start_us,
        )
