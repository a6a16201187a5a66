"""The calls of a limiter, packed as far as they can be before there is a token."""

from __future__ import annotations

from collections.abc import Sequence
from struct import iter_unpack
from typing import NamedTuple

from handfast._engine.constants import TOKEN_SIZE, WAIT_MS
from handfast._engine.effects import Call, make_call
from handfast._engine.keys import KeySet
from handfast._engine.packing import doubles
from handfast._engine.records import encode_label
from handfast._engine.script import load, pack

__all__ = ["Limit", "LimitRequest", "read_limits"]

ACQUIRE, SETTLE = load("limit_acquire"), load("limit_settle")
PAUSE, RESIZE, RESET = load("limit_pause"), load("limit_resize"), load("limit_reset")
INSPECT = load("limit_inspect")


class Limit(NamedTuple):
    """A rate, as scripts have it."""

    limit: int
    per_ms: int


def read_limits(packed: bytes) -> list[Limit]:
    """Read the rates of a reply."""
    return [Limit(int(limit), int(per_ms)) for limit, per_ms in iter_unpack("<dd", packed)]


class LimitRequest:
    """What a caller asks of a limiter: to be admitted for ``cost`` under all rates, in the order of their periods.

    ``rates`` are the caller's own, unless the server has said that others are set.
    """

    __slots__ = (
        "_acquire",
        "_enforce",
        "_head",
        "_keys",
        "_max_waiters",
        "_own",
        "_rates",
        "_set",
        "_wants",
        "_windows",
        "cost",
        "most",
        "name",
        "place",
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
        cost: int = 1,
        enforce: bool = True,
        set_rates: Sequence[Limit] = (),
    ) -> None:
        self.name: str = place.name
        self.place: KeySet = place
        self.rates: tuple[Limit, ...] = tuple(set_rates or rates)
        self.cost: int = cost
        self.timeout: float | None = timeout
        """Seconds that its callers wait unless they say otherwise; None without a limit, 0 not at all."""
        self._own, self._set = rates, set_rates
        self._max_waiters = max_waiters
        self._enforce = enforce
        self._windows = [place.key(f"window:{rate.per_ms}") for rate in self.rates]
        self._keys = pack((*map(place.key, ("queue", "waiting", "tombstones", "settings")), *self._windows))
        self._rates = b"".join(doubles(*rate) for rate in self.rates)
        self._wants = doubles(bool(set_rates), cost) + b"%c%b" % (len(self._rates), self._rates)
        self._head = b"%b$%d\r\n" % (self._keys, TOKEN_SIZE)
        self._acquire = ACQUIRE.prefix_for(4 + len(self.rates), 3)
        self.most: int = min(rate.limit for rate in self.rates)
        """The largest cost that all rates admit."""

    def with_cost(self, cost: int) -> LimitRequest:
        """Return the same request for another cost."""
        return self if cost == self.cost else self._like(self.place, cost, self._set)

    def under(self, set_rates: Sequence[Limit]) -> LimitRequest:
        """Return the same request under the rates that are set for all; without any, under the caller's own."""
        return self._like(self.place, self.cost, set_rates)

    def keyed(self, parts: tuple[str, ...]) -> LimitRequest:
        """Return the same request for a name with these parts behind it."""
        return self._like(self.place.keyed(parts), self.cost, ())

    def acquire(self, token: bytes, patience_s: float, ticket: int = 0) -> Call:
        """Be admitted, or enter the queue; unless it is certain to take longer than ``patience_s``, which may be infinite."""
        patience_us = max(0.0, patience_s) * 1e6 if self._enforce else -1
        request = doubles(WAIT_MS, patience_us, self._max_waiters, ticket)
        if len(token) != TOKEN_SIZE:
            return Call(self._acquire, self._keys + pack((token, request)), waiter=token, wants=self._wants)
        tail = b"\r\n$32\r\n%b\r\n" % request  # of four numbers
        return make_call((self._acquire, self._head, token, tail, token, self._wants, b"", None, False, None, None))

    def settle(self, token: bytes, cost: int, *, copies: bool) -> Call:
        """Let an admission count for another cost.

        ``copies``: whether a copy of its acquire may still be on its way.
        """
        prefix = SETTLE.prefix_for(4 + len(self.rates), 3)
        return Call(prefix, self._keys + pack((token, doubles(self.cost, cost, copies), self._rates)))

    def cancel(self, token: bytes) -> Call:
        """Undo an acquire, whatever it has reached."""
        return self.settle(token, 0, copies=True)

    def pause(self, pause_ms: int, by: str) -> Call:
        """Admit no one for so long; 0 ends a pause. ``by``: the label of the client."""
        prefix = PAUSE.prefix_for(4 + len(self.rates), 3)
        return Call(prefix, self._keys + pack((doubles(pause_ms), encode_label(by), self._rates)))

    def resize(self, by: str, why: str) -> Call:
        """Set these rates for all clients; or have each bring its own again, if they are the caller's.

        ``by``: the label of the client. ``why``: the rates as text.
        """
        prefix = RESIZE.prefix_for(4 + len(self.rates), 4)
        return Call(prefix, self._keys + pack((int(bool(self._set)), encode_label(by), why, self._rates)))

    def reset(self, until_us: int) -> Call:
        """Forget admissions until a time of the server, from a reply to `inspect`."""
        prefix = RESET.prefix_for(4 + len(self.rates), 2)
        return Call(prefix, self._keys + pack((doubles(until_us), self._rates)))

    def inspect(self) -> Call:
        """Read how full the windows are, how many wait, how long a pause lasts, and what was set last."""
        prefix = INSPECT.prefix_for(3 + len(self.rates), 2)
        keys = *map(self.place.key, ("queue", "waiting", "settings")), *self._windows
        return Call(prefix, pack((*keys, int(bool(self._set)), self._rates)))

    def _like(self, place: KeySet, cost: int, set_rates: Sequence[Limit]) -> LimitRequest:
        return LimitRequest(
            place,
            self._own,
            max_waiters=self._max_waiters,
            timeout=self.timeout,
            cost=cost,
            enforce=self._enforce,
            set_rates=set_rates,
        )
